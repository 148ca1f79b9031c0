"""Runs the command of a sandbox: what it writes is kept within bounds, and when it is over nothing of it is left."""

import asyncio
import contextlib
import os
import sys
from collections import deque
from collections.abc import AsyncIterator

from . import supervisor
from .confinement import Command, Confinement

_HEAD = 6_000
_TAIL = 18_000
_CHUNK = 65_536
_LAST_WORDS = 1.0
"""Seconds for which output is read on after the command is over."""


class Output:
    """What a command wrote: the first and the last of it, in bounded memory."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._dropped = 0

    def __bool__(self) -> bool:
        return bool(self._head)

    def add(self, data: bytes) -> None:
        """Add what came."""
        room = _HEAD - len(self._head)
        self._head += data[:room]
        rest = data[room:] if room > 0 else data
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
        while self._tail and self._tail_size - len(self._tail[0]) >= _TAIL:
            gone = self._tail.popleft()
            self._tail_size -= len(gone)
            self._dropped += len(gone)

    def take(self) -> str:
        """Return it as text, and forget it."""
        tail = b"".join(self._tail)
        dropped = self._dropped + max(0, len(tail) - _TAIL)
        left_out = f"\n[… {dropped} bytes left out …]\n" if dropped else ""
        text = self._head.decode(errors="replace") + left_out + tail[-_TAIL:].decode(errors="replace")
        self.__init__()  # type: ignore[misc] # the same as a new one
        return text


class Running:
    """A command at work. ``output`` is what it wrote since that was taken last."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._reading = asyncio.create_task(self._read(), name="the output of a command")
        self.output = Output()

    async def over(self, seconds: float) -> int | None:
        """Wait for at most ``seconds``; return the exit code, minus the signal that ended it, ``None`` if it runs."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                code = await self._process.wait()
                await self.kill()
                return code
        return None

    async def kill(self) -> None:
        """End every process of the command, and wait until none is left."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        await self._process.wait()
        # A process that is another user's may hold the pipe open. Nobody waits for what it writes.
        await asyncio.wait([self._reading], timeout=_LAST_WORDS)
        self._reading.cancel()

    async def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None  # noqa: S101 - it was started with a pipe
        while data := await stream.read(_CHUNK):
            self.output.add(data)


@contextlib.asynccontextmanager
async def running(command: Command, confinement: Confinement) -> AsyncIterator[Running]:
    """Start ``command``; at the end of the context, none of its processes is left.

    Raises:
        OSError: it cannot be started.
    """
    # Python itself may need it to start, as on Lambda; the supervisor takes it away again.
    libraries = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-IS",
        supervisor.__file__,
        str(os.getpid()),
        *confinement.argv(command),
        cwd=command.tree,
        env={**confinement.environment(command), **libraries},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    started = Running(process)
    try:
        yield started
    finally:
        # A cancelled call waits for this too: a process that outlives it would work on files that nobody watches.
        await asyncio.shield(started.kill())
