"""Everything that one slice writes, as the statements of one transaction."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Final

from ...conversation.ledger import ACTIVE_STATES, Call, CallState
from ...conversation.threads import Thread
from ...ports.conversations import Commit, SpawnedThread
from ...wire import codecs
from ...wire import history as stored
from .database import Parameters, Statement, micros
from .statements import key, named_statements

_SQL: Final = named_statements("commit.sql")
STANDS_AT: Final = _SQL["stands_at"]


def statements_of(commit: Commit) -> list[Statement]:
    """Return the statements that write ``commit``; the first one holds only where the fence does."""
    return [(_SQL[name], executions) for name, executions in _written(commit) if executions]


def _written(commit: Commit) -> Iterator[tuple[str, list[Parameters]]]:
    thread, at, version = commit.thread, micros(commit.at), commit.thread.version
    here: Parameters = {"thread_id": thread.id}
    now: Parameters = {**here, "version": version}
    yield (
        "first_fence" if commit.is_new else "fence",
        [
            {
                **now,
                "root_id": thread.root_id,
                "writer": commit.writer,
                "at": at,
                "spoken_at": at if commit.spoke else None,
                "personal_at": at if commit.personal else None,
            }
        ],
    )
    yield (
        "insert_thread" if commit.is_new else "update_thread",
        [{**_record(thread, commit.at), "deferred_since": version if commit.all_undeferred else 0}],
    )
    yield (
        "entry",
        [
            {**here, "position": position, "body": stored.entries.encode(entry)}
            for position, entry in enumerate(commit.entries, commit.first_position)
        ],
    )
    yield "heard", [{**here, "id": key(message_id), "at": at} for message_id in commit.heard]
    yield "forget_effects", [{**here, "up_to": commit.forget_effects_to}] if commit.forget_effects_to else []
    yield (
        "effect",
        [
            {
                **here,
                "version": item.version,
                "ordinal": item.ordinal,
                "at": at,
                "body": stored.effects.encode(item.effect),
            }
            for item in commit.effects
        ],
    )
    yield (
        "call",
        [
            {**now, "id": key(call.id), "ordinal": ordinal, **_expected(call), "body": stored.calls.encode(call)}
            for ordinal, call in enumerate(commit.calls)
        ],
    )
    yield "close_choice", [{**here, "id": key(choice_id)} for choice_id in commit.choices_closed]
    yield (
        "open_choice",
        [
            {**now, "id": key(choice.id), "ordinal": ordinal, "body": stored.choices.encode(choice)}
            for ordinal, choice in enumerate(commit.choices_opened)
        ],
    )
    # Where all are undeferred the thread's record says so: there may be more of them than one transaction deletes.
    yield "undefer", [{**here, "version": since, "ordinal": ordinal} for since, ordinal in commit.undeferred]
    yield (
        "defer",
        [
            {
                **now,
                "ordinal": ordinal,
                "call_id": next((key(call_id) for call_id in delivery.calls_named), None),
                "body": stored.deliveries.encode(replace(delivery, deferred_as=None)),
            }
            for ordinal, delivery in enumerate(commit.deferred)
        ],
    )
    yield "spawn", [_spawned(child) for child in commit.spawned]
    yield (
        "summary",
        [
            {"thread_id": summary.thread_id, "up_to": summary.up_to, "body": codecs.values.encode(summary.text)}
            for summary in commit.summaries
        ],
    )


def _spawned(child: SpawnedThread) -> Parameters:
    return {**_record(child.thread, child.thread.created_at), "lineage": stored.lineages.encode(child.lineage)}


def _record(thread: Thread, at: datetime) -> Parameters:
    return {
        "thread_id": thread.id,
        "root_id": thread.root_id,
        "parent_id": thread.parent_id,
        "version": thread.version,
        "at": micros(at),
        "record": stored.threads.encode(thread),
        "open_under": None if thread.closed else thread.parent_id,
        "paused_under": None if thread.closed or thread.paused_at is None else thread.root_id,
    }


def _expected(call: Call) -> Parameters:
    timed = call.state in {CallState.OPEN, CallState.DETACHED} and call.deadline_at is not None
    return {
        "state": call.state.value if call.state in ACTIVE_STATES else None,
        "deadline": micros(call.deadline_at) if timed and call.deadline_at else None,
    }
