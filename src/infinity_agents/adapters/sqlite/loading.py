"""A thread as a step needs it, read in one transaction."""

import sqlite3
from collections.abc import Collection, Iterator
from dataclasses import replace

from ...conversation.content import JsonObject
from ...conversation.effects import PlannedEffect
from ...conversation.history import Entry, Summary
from ...conversation.ledger import Call
from ...conversation.lineage import Lineage, clipped
from ...conversation.messages import Delivery
from ...conversation.threads import Thread
from ...ports.conversations import LoadRequest, Snapshot
from ...wire import history as stored
from .database import micros, moment, places

# What is one value for each thread comes with its row, and so does whether there is anything to read in the tables
# that are empty for most threads: looking there costs less inside this statement than as statements of their own.
_HEAD = """
SELECT threads.n, threads.record,
    (SELECT body FROM lineages WHERE lineages.n = threads.n),
    (SELECT max(up_to) FROM summaries WHERE summaries.n = threads.n),
    CASE WHEN threads.root IS NOT NULL THEN roots.record END,
    roots.person_heard_at,
    (SELECT count(*) FROM commits
        WHERE commits.root = roots.n AND spoke AND commits.at > max(?, ifnull(roots.person_heard_at, 0))),
    EXISTS (SELECT 1 FROM calls WHERE calls.n = threads.n AND state IS NOT NULL),
    EXISTS (SELECT 1 FROM effects WHERE effects.n = threads.n),
    EXISTS (SELECT 1 FROM deferred WHERE deferred.n = threads.n),
    EXISTS (SELECT 1 FROM choices WHERE choices.n = threads.n),
    EXISTS (SELECT 1 FROM threads AS children WHERE children.parent = threads.n AND NOT children.closed),
    EXISTS (SELECT 1 FROM threads AS others WHERE ifnull(others.root, others.n) = +roots.n
        AND json_extract(others.record, '$.paused_at') IS NOT NULL AND NOT others.closed)
FROM threads JOIN threads AS roots ON roots.n = ifnull(threads.root, threads.n)
WHERE threads.id = ?
"""


def read_snapshot(connection: sqlite3.Connection, request: LoadRequest) -> Snapshot | None:
    """Return what the request asks for; ``None`` where there is no such thread."""
    counted_after = micros(request.count_since) if request.count_since else 0
    head = connection.execute(_HEAD, (counted_after, request.thread_id)).fetchone()
    if head is None:
        return None
    n, record, inherited, up_to, root_record, person_heard_at, recent_slices, *there = head
    has_calls, has_effects, has_deferred, has_choices, has_children, has_paused = there
    thread = stored.threads.decode(record)
    lineage = stored.lineages.decode(inherited) if inherited else Lineage()
    summary = _summary(connection, (thread.id, up_to) if up_to is not None else lineage.summary)
    start = max(summary.up_to if summary else 0, request.known_to or 0)
    waiting = _deferred(connection, n, request.deferred_limit) if has_deferred else []
    deferred = tuple(waiting[: request.deferred_limit])
    named = request.call_ids.union(*(delivery.calls_named for delivery in deferred))
    return Snapshot(
        thread=thread,
        lineage=lineage,
        summary=summary,
        entries=tuple(_entries(connection, n, thread, lineage, start)),
        entries_from=start,
        calls=tuple(_calls(connection, n, has_calls, named)),
        heard=_heard(connection, n, request.message_ids),
        effects=tuple(_effects(connection, n)) if has_effects else (),
        deferred=deferred,
        deferred_more=len(waiting) > request.deferred_limit,
        choices=tuple(map(stored.choices.decode, _column(connection, _CHOICES, n))) if has_choices else (),
        children=tuple(_column(connection, _CHILDREN, n)) if has_children else (),
        root_metadata=_metadata(thread, root_record),
        recent_slices=recent_slices,
        person_heard_at=None if person_heard_at is None else moment(person_heard_at),
        paused=tuple(_column(connection, _PAUSED, n, n)) if has_paused else (),
    )


_CHOICES = "SELECT body FROM choices WHERE n = ? ORDER BY seq"
_PAUSED = """
SELECT id FROM threads WHERE ifnull(root, n) = (SELECT ifnull(root, n) FROM threads WHERE n = ?)
    AND json_extract(record, '$.paused_at') IS NOT NULL AND NOT closed AND n != ? ORDER BY n
"""
_CHILDREN = "SELECT id FROM threads WHERE parent = ? AND NOT closed ORDER BY n"


def _column(connection: sqlite3.Connection, sql: str, *values: object) -> list[str]:
    return [value for (value,) in connection.execute(sql, values)]


def _metadata(thread: Thread, root_record: str | None) -> JsonObject | None:
    return thread.metadata if root_record is None else stored.threads.decode(root_record).metadata


def _summary(connection: sqlite3.Connection, key: tuple[str, int] | None) -> Summary | None:
    if key is None:
        return None
    (text,) = _column(
        connection, "SELECT text FROM summaries WHERE n = (SELECT n FROM threads WHERE id = ?) AND up_to = ?", *key
    )
    return Summary(*key, text)


def _entries(connection: sqlite3.Connection, n: int, thread: Thread, lineage: Lineage, start: int) -> Iterator[Entry]:
    inherited = "n = (SELECT n FROM threads WHERE id = ?)"
    parts = [(inherited, (part.thread_id, part.start, part.stop)) for part in clipped(lineage, start)]
    for whose, values in [*parts, ("n = ?", (n, start, thread.end))]:
        sql = f"SELECT body FROM entries WHERE {whose} AND position >= ? AND position < ? ORDER BY position"  # noqa: S608
        yield from stored.decode_entries(_column(connection, sql, *values))


def _calls(connection: sqlite3.Connection, n: int, has_active: bool, named: Collection[str]) -> Iterator[Call]:
    active = (
        _column(connection, "SELECT body FROM calls WHERE n = ? AND state IS NOT NULL ORDER BY seq", n)
        if has_active
        else []
    )
    yield from map(stored.calls.decode, active)
    if named:
        sql = f"SELECT body FROM calls WHERE n = ? AND state IS NULL AND id IN ({places(named)}) ORDER BY seq"  # noqa: S608
        yield from map(stored.calls.decode, _column(connection, sql, n, *named))


def _heard(connection: sqlite3.Connection, n: int, message_ids: Collection[str]) -> frozenset[str]:
    if not message_ids:
        return frozenset()
    sql = f"SELECT id FROM inbox WHERE n = ? AND id IN ({places(message_ids)})"  # noqa: S608
    return frozenset(_column(connection, sql, n, *message_ids))


def _effects(connection: sqlite3.Connection, n: int) -> Iterator[PlannedEffect]:
    rows = connection.execute("SELECT version, ordinal, body FROM effects WHERE n = ? ORDER BY version, ordinal", (n,))
    for version, ordinal, body in rows:
        yield PlannedEffect(version, ordinal, stored.effects.decode(body))


def _deferred(connection: sqlite3.Connection, n: int, limit: int) -> list[Delivery]:
    rows = connection.execute(
        "SELECT version, ordinal, body FROM deferred WHERE n = ? ORDER BY version, ordinal LIMIT ?", (n, limit + 1)
    )
    return [replace(stored.deliveries.decode(body), deferred_as=(version, ordinal)) for version, ordinal, body in rows]
