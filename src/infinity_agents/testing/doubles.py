"""A clock that stands still and ids that count: tests see the same times and ids on every run."""

import asyncio
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
"""When frozen clocks begin: a Monday noon."""


class FrozenClock:
    """Stands still until somebody moves it. Whoever sleeps moves it, unless ``sleepers_wait``.

    With ``sleepers_wait``, a sleeper returns once ``advance`` or ``move_to`` has passed the moment it waits for.
    """

    def __init__(self, start: datetime = START, *, sleepers_wait: bool = False) -> None:
        self._now = start
        self._sleepers_wait = sleepers_wait
        self._moved = asyncio.Event()
        self.slept: list[float] = []
        """The seconds of every sleep, in the order in which they began."""

    def now(self) -> datetime:
        """Return the moment at which the clock stands."""
        return self._now

    def advance(self, seconds: float) -> datetime:
        """Move on by ``seconds`` and return the new moment."""
        return self.move_to(self._now + timedelta(seconds=seconds))

    def move_to(self, moment: datetime) -> datetime:
        """Move to ``moment``, which may be in the past, and return it."""
        self._now = moment
        self._moved.set()
        self._moved = asyncio.Event()
        return moment

    async def sleep(self, seconds: float) -> None:
        """Return when the clock has moved on by ``seconds``; other tasks run in between."""
        self.slept.append(seconds)
        due = self._now + timedelta(seconds=max(seconds, 0.0))
        if not self._sleepers_wait:
            self.move_to(due)
        while self._now < due:
            await self._moved.wait()
        await asyncio.sleep(0)


class CountingIds:
    """Returns ``prefix-1``, ``prefix-2`` and so on. Two sources that must never agree need two prefixes."""

    def __init__(self, prefix: str = "id") -> None:
        self._prefix = prefix
        self._count = 0

    def fresh(self) -> str:
        """Return the next id."""
        self._count += 1
        return f"{self._prefix}-{self._count}"
