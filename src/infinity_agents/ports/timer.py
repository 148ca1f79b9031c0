"""Durable timers: they outlive every process."""

from datetime import datetime
from typing import Protocol


class Timers(Protocol):
    """Put messages on the input queue at their time."""

    async def set(self, timer_id: str, due_at: datetime, body: str, *, group_id: str, dedup_id: str) -> None:
        """Have ``body`` put on the input queue at ``due_at``. A timer of that id that exists already is left alone.

        Raises:
            StoreUnavailable: it may or may not be set; setting it again is harmless.
        """
        ...

    async def cancel(self, timer_id: str) -> None:
        """Forget the timer; one that has fired, or never was, is no error."""
        ...


class LocalTimers(Timers, Protocol):
    """Timers that the process itself has to fire."""

    async def next_due_at(self) -> datetime | None:
        """Return when the earliest timer is due, be it past; ``None`` where there is none."""
        ...

    async def fire_due(self, now: datetime) -> int:
        """Put the bodies of all timers due by ``now`` on the input queue, earliest first; return how many there were.

        A timer is gone once its message is there: a crash in between neither loses nor doubles one.
        """
        ...
