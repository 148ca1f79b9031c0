"""One host for each file."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from ...errors import Misconfigured


class HostLock:
    """Makes this process the only host of the file ``path``, until it is released or the process dies.

    Processes that only send or read messages open the file without it.

    Raises:
        Misconfigured: another process is the host; the text names the lock's file and that process.
    """

    # The kernel's lock, not the file's existence, is what counts: it ends with the process, however that dies.

    def __init__(self, path: str | Path) -> None:
        self.path = Path(f"{path}.lock")
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
            raise Misconfigured(
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
