"""Runs the command of a sandbox: what it writes is kept within bounds, and when it is over nothing of it is left."""

import asyncio
import contextlib
import os
import secrets
import signal
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

from .confinement import Command, Confinement

_MARK = "INFINITY_COMMAND"
"""A variable in the environment of every process of a command, by which those that left its group are found."""
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

    def __init__(self, process: asyncio.subprocess.Process, mark: str) -> None:
        self._process = process
        self._mark = mark
        self._reading = asyncio.create_task(self._read(), name="the output of a command")
        self.output = Output()

    async def over(self, seconds: float) -> int | None:
        """Wait for at most ``seconds``; return the exit code, minus the signal that ended it, ``None`` if it runs."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                code = await self._process.wait()
                # What it started in the background may hold the pipe open: it is over when the command itself is.
                await self.kill()
                return code
        return None

    async def kill(self) -> None:
        """End every process of the command, and wait until none is left."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        while strays := await asyncio.to_thread(_marked, self._mark):
            for pid in strays:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.01)
        await self._process.wait()
        # A process that shed the mark may hold the pipe open. Nobody waits for what it writes.
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
    mark = secrets.token_hex(16)
    environment = {**confinement.environment(command), _MARK: mark}
    process = await asyncio.create_subprocess_exec(
        *confinement.argv(command),
        cwd=command.tree,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    started = Running(process, mark)
    try:
        yield started
    finally:
        # A cancelled call waits for this too: a process that outlives it would work on files that nobody watches.
        await asyncio.shield(started.kill())


def _marked(mark: str) -> list[int]:
    """Return the processes that carry ``mark``; those that another user owns cannot be ours."""
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0") and not _is_dead(entry):
                    found.append(int(entry.name))
    return found


def _is_dead(entry: Path) -> bool:
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
