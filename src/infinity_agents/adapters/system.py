"""The real clock, and ids that nobody else makes."""

import asyncio
import secrets
from datetime import UTC, datetime


class SystemClock:
    """This machine's clock."""

    def now(self) -> datetime:
        """Return the present moment, in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        await asyncio.sleep(seconds)


class FreshIds:
    """Random ids of 128 bits."""

    def fresh(self) -> str:
        """Return an id that was never returned before, by anybody."""
        return secrets.token_hex(16)
