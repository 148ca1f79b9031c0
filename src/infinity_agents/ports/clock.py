"""Time and randomness."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the present moment, with time zone UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        ...


class IdSource(Protocol):
    def fresh(self) -> str:
        """Return an id that was never returned before, by anybody (a writer token)."""
        ...
