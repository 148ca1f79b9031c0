"""The ledger: the calls of a thread and what has become of each."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from .content import JsonObject


class CallState(StrEnum):
    """What has become of a call."""

    OPEN = "open"
    """Made, and the thread waits for its result."""
    DETACHED = "detached"
    """Answered as still running; its result will come as an event."""
    ANSWERED = "answered"
    FAILED = "failed"
    """Given up by us (a deadline, an ambiguous dispatch); a late result still comes as an event."""
    CANCELLED = "cancelled"
    SUBSCRIBED = "subscribed"
    ENDED = "ended"
    """A subscription whose final event has come."""


ACTIVE_STATES = frozenset({CallState.OPEN, CallState.DETACHED, CallState.SUBSCRIBED})
"""The states of calls from which something is still expected."""


@dataclass(frozen=True, slots=True)
class Call:
    """One row of the ledger.

    ``call_id`` is the model's own id. ``tool_set`` is the id of the tool set that must answer, ``None`` for tools of
    ours. ``user_id`` is whom the call acts for. ``deadline_at`` is when it becomes an error, ``None`` while the clock
    stands still; what is left then is ``time_left``. ``wakes_at`` is when its timer fires.
    """

    id: str
    tool: str
    arguments: JsonObject
    state: CallState
    made_at: datetime
    call_id: str | None = None
    tool_set: str | None = None
    is_passive: bool = False
    user_id: str | None = None
    deadline_at: datetime | None = None
    time_left: timedelta | None = None
    wakes_at: datetime | None = None

    def now(self, state: CallState) -> "Call":
        """Return the call in ``state``; one from which nothing is expected any more has no deadline."""
        if state in {CallState.OPEN, CallState.DETACHED}:
            return replace(self, state=state)
        return replace(self, state=state, deadline_at=None, time_left=None)

    def with_clock_stopped(self, now: datetime) -> "Call":
        """Return the call with its deadline put off until a person has acted."""
        if self.deadline_at is None:
            return self
        return replace(self, deadline_at=None, time_left=max(self.deadline_at - now, timedelta()))

    def with_clock_running(self, now: datetime) -> "Call":
        """Return the call with the time that it had left counting from ``now``."""
        if self.time_left is None:
            return self
        return replace(self, deadline_at=now + self.time_left, time_left=None)
