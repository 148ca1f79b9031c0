"""A Lambda sandbox: one event loop, and what was built on it, for as long as the process lives."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from .garbage import end_cold_start

T = TypeVar("T")
R = TypeVar("R")


class Sandbox(Generic[T]):
    """Runs every invocation on one loop, with what ``build`` made at the first.

    A sandbox is frozen between invocations. A client belongs to the loop that it was made on, so the loop is never
    closed; that sockets have died meanwhile is for each adapter to notice. Where ``build`` fails, the invocation fails
    with its error, and the next one tries again.
    """

    def __init__(self, build: Callable[[], Awaitable[T]]) -> None:
        self._build = build
        self._loop: asyncio.AbstractEventLoop | None = None
        self._built: T | None = None

    def run(self, work: Callable[[T], Awaitable[R]]) -> R:
        """Return what ``work`` makes of what was built."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(self._run(work))

    async def _run(self, work: Callable[[T], Awaitable[R]]) -> R:
        if self._built is not None:
            return await work(self._built)
        try:
            self._built = await self._build()
            return await work(self._built)
        finally:
            end_cold_start()
