"""The file: one connection, its schema, its transactions, and what its errors mean."""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from ...errors import InfinityError, Misconfigured, StoreUnavailable
from ...ports.clock import Clock
from .schema import SCHEMA, VERSION

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

Synchronous = Literal["FULL", "NORMAL", "OFF"]


class SqliteDatabase:
    """One SQLite file, opened by one connection; every adapter over it writes whole transactions or nothing.

    ``synchronous`` is SQLite's word for what reaches the disk before a durable write returns: with ``FULL`` it outlives
    a power cut, with the others only the death of the process. ``busy_timeout`` is in seconds.

    Raises:
        Misconfigured: the file cannot be used as it is; the text names it and the remedy.
        StoreUnavailable: another process holds the file.
    """

    # The adapters call SQLite on the event loop's own thread. A call takes tens of microseconds, less than handing it
    # to another thread and back, and a transaction that nothing can interleave with needs no lock.

    def __init__(
        self, path: str | Path, clock: Clock, synchronous: Synchronous = "FULL", *, busy_timeout: float = 5.0
    ) -> None:
        self.path = Path(path)
        self.clock = clock
        self._durable = synchronous
        self._lazy: Synchronous = "OFF" if synchronous == "OFF" else "NORMAL"
        self._set: Synchronous | None = None
        if not self.path.parent.is_dir():
            raise Misconfigured(f"{self.path}: there is no directory {self.path.parent}; make it, or name another file")
        if self.path.is_dir():
            raise Misconfigured(f"{self.path} is a directory; name a file in it")
        # Everything that was ever said is in it. SQLite gives its log the same mode.
        with suppress(OSError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        with self._translated():
            self._connection = sqlite3.connect(
                self.path, timeout=busy_timeout, isolation_level=None, cached_statements=256
            )
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise Misconfigured(
                f"{self.path} was written by a newer release of this package (schema {version}, and this one knows "
                f"{VERSION}); upgrade the package, or name another file"
            )
        self._connection.execute("PRAGMA journal_mode = WAL")
        with self.write() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version != VERSION:
                if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                    raise Misconfigured(f"{self.path} holds tables of another program; name another file")
                for statement in SCHEMA.split(";\n"):
                    connection.execute(statement)
            # Also where it is set already: a file that cannot be written must show at start, not at work.
            connection.execute(f"PRAGMA user_version = {VERSION}")

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Give the connection, for statements that all see the same moment."""
        with self._translated():
            self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                self._roll_back()

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Give the connection, for statements that take effect together or not at all.

        What is not ``durable`` outlives the process, but a power cut may take it away, together with all that was
        written after it: the log keeps its order.
        """
        wanted = self._durable if durable else self._lazy
        with self._translated():
            if self._set != wanted:
                self._connection.execute(f"PRAGMA synchronous = {wanted}")
                self._set = wanted
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def data_version(self) -> int:
        """Return a number that changes when another connection has written."""
        with self._translated():
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(version)

    def close(self) -> None:
        """Close the file. The last to close it leaves one file behind, without its log."""
        with self._translated():
            self._connection.close()

    def _roll_back(self) -> None:
        # The error that led here says what is wrong; where SQLite has rolled back by itself there is nothing to do.
        with suppress(sqlite3.Error):
            self._connection.rollback()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            meant = self._meaning(error)
            if meant is None:
                raise
            raise meant from error

    def _meaning(self, error: sqlite3.DatabaseError) -> InfinityError | None:
        # The low byte is the kind of error, the rest says more precisely what happened. An error of Python's own
        # module (a value that cannot be bound) has no code: it is a mistake in a program.
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:
            case sqlite3.SQLITE_NOTADB:
                return Misconfigured(f"{self.path} is not a SQLite database; name another file")
            case sqlite3.SQLITE_CORRUPT:
                return Misconfigured(f"{self.path} is damaged ({error}); restore a copy, or name another file")
            case sqlite3.SQLITE_READONLY:
                return Misconfigured(
                    f"{self.path} cannot be written ({error}); let this user write the file and its directory"
                )
            case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
                return Misconfigured(
                    f"{self.path} cannot be opened ({error}); let this user read and write the file and its directory"
                )
            case sqlite3.SQLITE_FULL:
                return StoreUnavailable(f"{self.path} cannot grow ({error}); free some space on its disk")
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
                return StoreUnavailable(f"{self.path} is held by another process ({error}); try again when it is done")
            case sqlite3.SQLITE_IOERR:
                return StoreUnavailable(f"{self.path} cannot be read or written ({error}); look at its disk")
        return None


def micros(at: datetime) -> int:
    """Return ``at`` as microseconds since 1970."""
    return (at - _EPOCH) // _MICROSECOND


def moment(since_1970: int) -> datetime:
    """Return the moment that many microseconds after 1970 began, in UTC."""
    return _EPOCH + timedelta(microseconds=since_1970)


def places(values: Iterable[object]) -> str:
    """Return a place for each of ``values`` in a list of SQL."""
    return ",".join("?" for _ in values)
