"""Processes of the demo's own: each is started, killed and ended by its own id."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ..errors import InfinityError

_PATIENCE = 20.0


class NotStarted(InfinityError):
    """A process did not come up."""


@dataclass(frozen=True, slots=True)
class Process:
    """A child process that runs a module of this package."""

    running: asyncio.subprocess.Process

    @classmethod
    async def start(cls, module: str, *arguments: str, stdout: int | None = None) -> "Process":
        """Start ``python -m module`` with these arguments."""
        return cls(await asyncio.create_subprocess_exec(sys.executable, "-m", module, *arguments, stdout=stdout))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.running.pid

    @property
    def code(self) -> int | None:
        """Its exit code, ``None`` while it runs."""
        return self.running.returncode

    def kill(self) -> None:
        """End it with SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self.running.kill()

    def terminate(self) -> None:
        """Ask it to end, with SIGTERM."""
        with contextlib.suppress(ProcessLookupError):
            self.running.terminate()

    async def ended(self) -> int:
        """Return its exit code once it has ended; it is killed if that takes too long."""
        try:
            return await asyncio.wait_for(self.running.wait(), _PATIENCE)
        except TimeoutError:
            self.kill()
            return await self.running.wait()


@contextlib.asynccontextmanager
async def tool_server(module: str, *arguments: str) -> AsyncIterator[str]:
    """Run a tool server in a process of its own, on a free port of loopback, and give its URL.

    Raises:
        NotStarted: it printed no URL.
    """
    process = await Process.start(module, "--port", "0", *arguments, stdout=asyncio.subprocess.PIPE)
    try:
        if process.running.stdout is None:
            raise NotStarted(f"{module} has no standard output")
        try:
            line = await asyncio.wait_for(process.running.stdout.readline(), _PATIENCE)
        except TimeoutError as error:
            raise NotStarted(f"{module} printed no URL within {_PATIENCE:g} seconds") from error
        if not line.strip():
            raise NotStarted(f"{module} ended before it printed its URL")
        yield line.decode().split()[-1]
    finally:
        process.terminate()
        await process.ended()
