"""Runs the programs that keep versions, each with an environment of its own, and lets one at a time do so."""

import asyncio
import contextlib
import fcntl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import IO

_LONGEST = 600.0
"""Seconds."""
_LOCK_SECONDS = 0.02


class VersionControlFailed(Exception):
    """Git or jj could not do it; the text is what it says of it."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


async def printed_by(
    program: str,
    *arguments: str,
    environment: Mapping[str, str],
    directory: Path,
    given: str = "",
    fine: tuple[int, ...] = (0,),
) -> str:
    """Return what the program prints, ``given`` on its standard input.

    Raises:
        VersionControlFailed: it ended with another code than those that are ``fine``, took ten minutes, or is missing.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            cwd=directory,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise VersionControlFailed(f"{program} cannot be started: {error.strerror}", -1) from error
    try:
        async with asyncio.timeout(_LONGEST):
            output, errors = await process.communicate(given.encode("utf-8", "surrogateescape"))
    except TimeoutError:
        raise VersionControlFailed(f"{program} {arguments[0]} took longer than {_LONGEST:.0f} seconds", -1) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text, code = output.decode("utf-8", "surrogateescape"), process.returncode or 0
    if code not in fine:
        told = errors.decode(errors="replace").strip() or text.strip()
        raise VersionControlFailed(told[-2_000:] or f"{program} {arguments[0]} ended with {code}", code)
    return text


@contextlib.asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Be the only one, of all processes, that holds the lock at ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        # Not in a thread: those who wait would take the threads that whoever has the lock needs.
        while not _is_ours(file):  # noqa: ASYNC110 - another process tells nobody when it is done
            await asyncio.sleep(_LOCK_SECONDS)
        yield


def _is_ours(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
