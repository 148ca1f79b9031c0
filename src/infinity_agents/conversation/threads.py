"""A thread's own record, what it inherits, and the choices that wait for a person."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from .content import JsonObject


class ThreadKind(StrEnum):
    """What a thread was made for."""

    ROOT = "root"
    CHILD = "child"
    EVENT = "event"
    COMPACTION = "compaction"


@dataclass(frozen=True, slots=True)
class Thread:
    """The record of one thread.

    ``version`` counts its commits. ``base`` is the position of its first own entry: positions run on from what it
    inherits, so that a position names one entry along the whole lineage. ``ancestors`` runs from root to parent.
    ``born_of`` is the parent's call that made it. ``compacts_to`` is, for a compaction child, the position before
    which its summary stands for everything. ``paused_at`` is when it reached a limit: only a person starts it again.
    ``compacting_since`` is when the thread last asked to be compacted and
    has not been answered. ``metadata`` is kept by roots alone.
    """

    id: str
    kind: ThreadKind
    model: str
    created_at: datetime
    version: int = 0
    base: int = 0
    length: int = 0
    ancestors: tuple[str, ...] = ()
    born_of: str | None = None
    closed: bool = False
    paused_at: datetime | None = None
    compacts_to: int | None = None
    compacting_since: datetime | None = None
    metadata: JsonObject | None = None

    @property
    def root_id(self) -> str:
        return self.ancestors[0] if self.ancestors else self.id

    @property
    def parent_id(self) -> str | None:
        return self.ancestors[-1] if self.ancestors else None

    @property
    def stack(self) -> tuple[str, ...]:
        """The thread and all above it, from the root down."""
        return (*self.ancestors, self.id)

    @property
    def end(self) -> int:
        """The position that the next entry will have."""
        return self.base + self.length


@dataclass(frozen=True, slots=True)
class Choice:
    """A question that a tool asks a person; its id is the id of the call that asks."""

    id: str
    prompt: str
    choices: tuple[str, ...]
    default: int
    response_url: str
    asked_at: datetime
    user_id: str | None = None
