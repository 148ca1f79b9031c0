"""One host for each file."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from ...errors import AlreadyHosted, Misconfigured


class HostLock:
    """Makes this process the only host of the file ``path``, until it is released or the process dies.

    Processes that only send or read messages open the file without it.

    Raises:
        AlreadyHosted: another process is the host; the text names the lock's file and that process.
        Misconfigured: the lock's file cannot be opened.
    """

    # The kernel's lock, not the file's existence, is what counts: it ends with the process, however that dies.

    def __init__(self, path: str | Path) -> None:
        self.path = _lock_of(path)
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise Misconfigured(
                f"{self.path} cannot be opened ({error.strerror}); let this user write there, or name another file"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(self._file, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise AlreadyHosted(
                f"process {holder} is already the host of {path} (it holds {self.path}); stop it, or name another file"
            ) from error
        os.ftruncate(self._file, 0)
        os.write(self._file, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Let another process be the host. The lock's file stays."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def host_of(path: str | Path) -> str | None:
    """Return the process id of the host of the file ``path``, ``None`` where it has none."""
    try:
        file = os.open(_lock_of(path), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        # Shared, so that two who ask at the same moment do not take each other for the host.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(file, 32).decode(errors="replace").strip() or "unknown"
    finally:
        os.close(file)
    return None


def _lock_of(path: str | Path) -> Path:
    # By the file itself: two names of one file are one file.
    return Path(f"{Path(path).resolve()}.lock")
