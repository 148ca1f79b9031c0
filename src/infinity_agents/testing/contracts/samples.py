"""Threads, entries and commits to try a conversation store with."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from ...conversation.content import Text
from ...conversation.history import (
    AssistantEntry,
    CallBody,
    Entry,
    ResultBody,
    SaidText,
    Summary,
    ToolCallEntry,
    ToolResultEntry,
    UserEntry,
)
from ...conversation.ledger import Call, CallState
from ...conversation.lineage import Lineage, inherit
from ...conversation.messages import Delivery, InputMessage
from ...conversation.threads import Thread, ThreadKind
from ...ports.conversations import Commit, SpawnedThread
from ..doubles import START


def after(seconds: float) -> datetime:
    """Return the moment ``seconds`` after the one at which frozen clocks begin."""
    return START + timedelta(seconds=seconds)


def heard(text: str) -> UserEntry:
    """Return what a person said."""
    return UserEntry((Text(text),))


def said(text: str) -> AssistantEntry:
    """Return what the model said."""
    return AssistantEntry((SaidText(text),))


def exchange(call_id: str, answer: str = "fine") -> tuple[Entry, Entry]:
    """Return a call and its result."""
    call = ToolCallEntry(CallBody(call_id, "look", {"at": "it", "depth": None}, "model-1"))
    return call, ToolResultEntry(ResultBody(call_id, (Text(answer),), "model-1"))


def numbered(count: int, start: int = 0) -> list[Entry]:
    """Return ``count`` entries that tell their positions from ``start`` on."""
    return [heard(f"entry {position}") for position in range(start, start + count)]


def root(thread_id: str = "root", **fields: Any) -> Thread:
    """Return the record of a root thread that was never committed."""
    return Thread(thread_id, ThreadKind.ROOT, "model", START, **fields)


def child(parent: Thread, thread_id: str, *, stop: int | None = None, **fields: Any) -> Thread:
    """Return the record of a child of ``parent`` that sees its history up to ``stop``."""
    base = parent.end if stop is None else stop
    return Thread(thread_id, ThreadKind.CHILD, "model", START, base=base, ancestors=parent.stack, **fields)


def spawned(
    parent: Thread,
    thread_id: str,
    *,
    lineage: Lineage | None = None,
    summary: Summary | None = None,
    stop: int | None = None,
) -> SpawnedThread:
    """Return a child of ``parent``, whose own lineage is ``lineage``, as it is committed."""
    born = child(parent, thread_id, stop=stop)
    return SpawnedThread(born, inherit(lineage or Lineage(), parent.id, parent.base, born.base, summary))


def following(thread: Thread, entries: Sequence[Entry] = (), **fields: Any) -> Commit:
    """Return the next commit of ``thread``, which adds ``entries``; a root's first one makes the thread."""
    following_record = replace(thread, version=thread.version + 1, length=thread.length + len(entries))
    written = {
        "thread": following_record,
        "writer": f"writer-{thread.id}-{following_record.version}",
        "at": START,
        "is_new": following_record.version == 1 and thread.parent_id is None,
        "first_position": thread.end,
        "entries": tuple(entries),
    }
    return Commit(**{**written, **fields})


def call(our_id: str, state: CallState = CallState.OPEN, **fields: Any) -> Call:
    """Return a row of the ledger."""
    return Call(our_id, "look", {"at": "it", "depth": None}, state, START, **fields)


def delivery(text: str, thread_id: str = "root", **fields: Any) -> Delivery:
    """Return a message as a queue handed it over."""
    return Delivery(InputMessage(Text(text), thread_id), f"queue-{text}", **fields)
