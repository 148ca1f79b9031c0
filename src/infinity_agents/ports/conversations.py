"""The conversation store: what was heard and done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ..conversation.content import JsonObject
from ..conversation.effects import PlannedEffect
from ..conversation.history import Entry, Summary
from ..conversation.ledger import Call
from ..conversation.lineage import Lineage
from ..conversation.messages import Delivery
from ..conversation.threads import Choice, Thread

NO_ENTRIES = 2**31 - 1
"""Beyond the end of any history: ``known_to`` for whoever wants a thread without its entries."""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What a step needs to know of a thread.

    ``known_to`` is the position up to which the caller holds the entries already; only newer ones are read. The root
    thread's commits since ``count_since`` in which the model spoke, and since the last that heard a person, are
    counted. At most ``deferred_limit`` deferred messages are read, oldest first.
    """

    thread_id: str
    message_ids: frozenset[str] = frozenset()
    call_ids: frozenset[str] = frozenset()
    known_to: int | None = None
    count_since: datetime | None = None
    deferred_limit: int = 50


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A thread at one version.

    ``person_heard_at`` is when a commit of the root, or of a thread below it, last heard a person.
    ``entries`` are what the model sees from ``entries_from`` on: inherited ones first, nothing that ``summary``
    stands for. ``calls`` are those still active, and those that the request or one of ``deferred`` names. ``effects``
    are all that the store still has. ``deferred`` carry their place in ``deferred_as``. ``children`` are direct
    children that are not closed. ``paused`` are the other threads of the root's family that have reached a limit and
    are not closed.
    """

    thread: Thread
    lineage: Lineage
    summary: Summary | None
    entries: tuple[Entry, ...]
    entries_from: int
    calls: tuple[Call, ...]
    heard: frozenset[str]
    effects: tuple[PlannedEffect, ...]
    deferred: tuple[Delivery, ...]
    deferred_more: bool
    choices: tuple[Choice, ...]
    children: tuple[str, ...]
    root_metadata: JsonObject | None
    recent_slices: int
    person_heard_at: datetime | None = None
    paused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpawnedThread:
    """A thread to be created, and what it inherits."""

    thread: Thread
    lineage: Lineage


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything that one slice writes, in one transaction, or nothing of it.

    ``thread`` is the record as it is after the commit; its ``version`` is the fence. ``writer`` names this attempt.
    ``first_position`` is the position of the first of ``entries``. ``spoke``: the model spoke; ``personal``: a person
    was heard. Effect rows of versions up to ``forget_effects_to`` are deleted.
    """

    thread: Thread
    writer: str
    at: datetime
    is_new: bool
    first_position: int
    entries: tuple[Entry, ...] = ()
    calls: tuple[Call, ...] = ()
    heard: tuple[str, ...] = ()
    spawned: tuple[SpawnedThread, ...] = ()
    summaries: tuple[Summary, ...] = ()
    deferred: tuple[Delivery, ...] = ()
    undeferred: tuple[tuple[int, int], ...] = ()
    all_undeferred: bool = False
    effects: tuple[PlannedEffect, ...] = ()
    choices_opened: tuple[Choice, ...] = ()
    choices_closed: tuple[str, ...] = ()
    forget_effects_to: int = 0
    spoke: bool = False
    personal: bool = False


@dataclass(frozen=True, slots=True)
class ThreadOverview:
    """A thread as a list of threads shows it."""

    thread: Thread
    pending: Call | None
    deferred: int
    last_commit_at: datetime | None


class ConversationStore(Protocol):
    """Keeps what was heard and done; decides who may write."""

    async def load(self, request: LoadRequest) -> Snapshot | None:
        """Return the thread as it is, in one round trip; ``None`` where there is no such thread.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        ...

    async def commit(self, commit: Commit) -> None:
        """Write all of it. A repeat by the same writer is harmless.

        Raises:
            FenceLost: another writer committed this version first; nothing was written.
            StoreUnavailable: the outcome is unknown or nothing was written; the same commit may be tried again.
        """
        ...

    async def overdue_calls(self, now: datetime, limit: int) -> Sequence[tuple[str, Call]]:
        """Return (thread id, call) for open and detached calls whose deadline has passed, longest overdue first."""
        ...

    async def unperformed(self, before: datetime, limit: int) -> Mapping[str, int]:
        """Return, by thread id, the highest version with effect rows among commits made before ``before``."""
        ...

    async def forget_effects(self, thread_id: str, up_to: int) -> None:
        """Delete the effect rows of versions up to ``up_to``, which are known to be performed."""
        ...

    async def threads(self, *, root_id: str | None = None, limit: int = 1000) -> Sequence[ThreadOverview]:
        """Return threads with their state, roots before children, newest commit first among roots."""
        ...

    async def history(self, thread_id: str) -> Sequence[tuple[int, Entry]]:
        """Return the thread's own entries with their positions, without what it inherits.

        Raises:
            KeyError: there is no such thread.
        """
        ...

    async def calls(self, thread_id: str) -> Sequence[Call]:
        """Return the thread's whole ledger, in the order in which the calls were made."""
        ...

    async def prune_inbox(self, before: datetime) -> int:
        """Forget messages heard before ``before``; return how many."""
        ...
