"""The fault injector: a process that dies, or stands still, at any one of its I/O calls."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")


class Crash(BaseException):
    """The process is dead. No code of the runtime may catch it: it is no ``Exception``."""


class FaultInjector:
    """Counts the I/O boundaries that the wrapped ports pass, before and after each call takes effect.

    At the boundary ``crash_at`` the process dies: ``Crash`` is raised there and at every boundary after it. It is a
    number (from 1), or a name such as ``after conversations.commit``, which stands for the first of that name.
    At the boundary ``pause_at`` the caller stands still until ``resume`` is called.
    """

    def __init__(self, *, crash_at: int | str | None = None, pause_at: int | None = None) -> None:
        self._crash_at = crash_at
        self._pause_at = pause_at
        self._resumed = asyncio.Event()
        self.paused = asyncio.Event()
        self.is_dead = False
        self.passed = 0
        self.names: list[str] = []
        """What each boundary was, in order."""

    def resume(self) -> None:
        """Let whoever stands still go on."""
        self._resumed.set()

    def wrap(self, port: T, role: str, *, only: Callable[[str], bool] = lambda _: True) -> T:
        """Return ``port`` with a boundary before and after each of its asynchronous methods that ``only`` admits."""
        return cast("T", _Wrapped(port, role, self, only))

    async def boundary(self, name: str) -> None:
        """Pass one boundary, or die at it."""
        if self.is_dead:
            raise Crash(name)
        self.passed += 1
        self.names.append(name)
        if self._crash_at in {self.passed, name}:
            self.is_dead = True
            raise Crash(name)
        if self.passed == self._pause_at:
            self.paused.set()
            await self._resumed.wait()


class _Wrapped:
    def __init__(self, port: Any, role: str, faults: FaultInjector, only: Callable[[str], bool]) -> None:
        self._port = port
        self._role = role
        self._faults = faults
        self._only = only

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if name.startswith("_") or not callable(found) or not self._only(name):
            return found
        if name == "stream":
            return lambda *args, **kwargs: self._stream(found(*args, **kwargs), f"{self._role}.{name}")
        if asyncio.iscoroutinefunction(found):
            return lambda *args, **kwargs: self._call(found, f"{self._role}.{name}", args, kwargs)
        return found

    async def _call(self, method: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
        await self._faults.boundary(f"before {name}")
        result = await method(*args, **kwargs)
        await self._faults.boundary(f"after {name}")
        return result

    async def _stream(self, stream: AsyncIterator[Any], name: str) -> AsyncIterator[Any]:
        await self._faults.boundary(f"before {name}")
        first = True
        async for event in stream:
            yield event
            if first:
                await self._faults.boundary(f"within {name}")
                first = False
        await self._faults.boundary(f"after {name}")
