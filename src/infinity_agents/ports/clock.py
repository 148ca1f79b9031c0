"""Time and randomness."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time and lets it pass."""

    def now(self) -> datetime:
        """Return the present moment, with time zone UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        ...


class IdSource(Protocol):
    """Makes ids that nobody else makes."""

    def fresh(self) -> str:
        """Return an id that was never returned before, by anybody (a writer token)."""
        ...
