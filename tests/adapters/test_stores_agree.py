"""Whatever is committed in whatever order, the stores in memory, in SQLite and on PostgreSQL tell the same of it."""

import random
from dataclasses import replace
from operator import attrgetter

import pytest

from infinity_agents.adapters.dsql import DsqlConversationStore, DsqlDatabase
from infinity_agents.adapters.memory import MemoryConversationStore
from infinity_agents.adapters.sqlite import SqliteConversationStore, SqliteDatabase
from infinity_agents.conversation.effects import NotifyClosed, PlannedEffect
from infinity_agents.conversation.history import Summary
from infinity_agents.conversation.ledger import CallState
from infinity_agents.conversation.lineage import inherit
from infinity_agents.conversation.threads import Choice
from infinity_agents.errors import FenceLost
from infinity_agents.ports.conversations import LoadRequest, SpawnedThread
from infinity_agents.testing.contracts.samples import after, call, child, delivery, following, numbered, root
from infinity_agents.testing.doubles import START, FrozenClock
from infinity_agents.testing.dsql import LikeDsql


@pytest.mark.parametrize("seed", range(25))
async def test_they_agree(seed, tmp_path):
    database = SqliteDatabase(tmp_path / "agents.db", FrozenClock(), "OFF")
    await _agree(seed, MemoryConversationStore(), SqliteConversationStore(database))
    database.close()


@pytest.mark.parametrize("seed", range(5))
async def test_they_agree_with_postgres(seed, postgres_url):
    database = DsqlDatabase(LikeDsql(postgres_url), FrozenClock())
    await _agree(seed, MemoryConversationStore(), DsqlConversationStore(database))
    await database.close()


async def _agree(seed, *stores):
    chance = random.Random(seed)
    ids = [f"root{number}" for number in range(2)]
    for turn in range(40):
        thread_id = chance.choice(ids)
        request = _any_request(chance, thread_id, turn)
        snapshot = await _both(stores, "load", request)
        commit = _any_commit(chance, snapshot, thread_id, turn)
        ids.extend(born.thread.id for born in commit.spawned)
        await _both(stores, "commit", commit)
        if chance.random() < 0.2:
            await _both(stores, "commit", commit)
        if chance.random() < 0.2:
            assert await _both(stores, "commit", replace(commit, writer="stray")) is FenceLost
        now = after(chance.randrange(50))
        await _both(stores, "overdue_calls", now, chance.randrange(1, 9))
        await _both(stores, "unperformed", now, 99)
        await _both(stores, "threads")
        await _both(stores, "calls", thread_id)
        await _both(stores, "history", thread_id)
        if chance.random() < 0.1:
            await _both(stores, "prune_inbox", now)
        if chance.random() < 0.2:
            await _both(stores, "forget_effects", thread_id, chance.randrange(9))


async def _both(stores, method, *arguments):
    told = []
    for store in stores:
        try:
            answer = await getattr(store, method)(*arguments)
            told.append(_in_order(answer) if method == "load" and answer else answer)
        except (FenceLost, KeyError) as error:
            told.append(type(error))
    in_memory, elsewhere = told
    assert in_memory == elsewhere
    return in_memory


def _in_order(snapshot):
    """Sort what a snapshot may tell in any order."""
    return replace(
        snapshot,
        calls=sorted(snapshot.calls, key=attrgetter("id")),
        children=sorted(snapshot.children),
        paused=sorted(snapshot.paused),
    )


def _any_request(chance, thread_id, turn):
    return LoadRequest(
        thread_id,
        message_ids=frozenset(f"m{number}" for number in range(turn)),
        call_ids=frozenset({f"c{chance.randrange(9)}"}),
        known_to=chance.choice([None, None, 0, 1, 5, 12]),
        count_since=chance.choice([None, after(chance.randrange(turn + 1))]),
        deferred_limit=chance.choice([0, 1, 3, 50]),
    )


def _any_commit(chance, snapshot, thread_id, turn):
    def sometimes(make, likelihood=0.3):
        return (make(),) if chance.random() < likelihood else ()

    thread = snapshot.thread if snapshot else root(thread_id)
    version = thread.version + 1
    start = snapshot.summary.up_to if snapshot and snapshot.summary else 0

    def born():
        stop = chance.randint(start, thread.end)
        young = child(thread, f"{thread.root_id}.child{turn}", stop=stop)
        return SpawnedThread(young, inherit(snapshot.lineage, thread.id, thread.base, stop, snapshot.summary))

    return following(
        replace(thread, closed=chance.random() < 0.1, metadata={"turn": turn} if not thread.ancestors else None),
        numbered(chance.randrange(4), thread.end),
        at=after(turn),
        is_new=snapshot is None,
        calls=sometimes(
            lambda: call(f"c{chance.randrange(9)}", chance.choice(list(CallState)), deadline_at=after(turn))
        ),
        heard=sometimes(lambda: f"m{turn}", 0.7),
        spawned=sometimes(born, 0.2) if snapshot else (),
        summaries=sometimes(lambda: Summary(thread.id, chance.randint(start, thread.end), f"up to turn {turn}"), 0.2),
        deferred=tuple(delivery(f"d{turn}.{number}") for number in range(chance.randrange(3))),
        undeferred=tuple(item.deferred_as for item in snapshot.deferred[:2]) if snapshot else (),
        all_undeferred=chance.random() < 0.1,
        effects=sometimes(lambda: PlannedEffect(version, 0, NotifyClosed()), 0.6),
        choices_opened=sometimes(lambda: Choice(f"q{chance.randrange(3)}", f"{turn}?", ("a",), 0, "https://x", START)),
        choices_closed=sometimes(lambda: f"q{chance.randrange(3)}"),
        forget_effects_to=chance.choice([0, max(thread.version - 1, 0)]),
        spoke=chance.random() < 0.6,
        personal=chance.random() < 0.2,
    )
