"""Records of tool servers in a SQLite file of their own, which the processes of one machine share."""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from ..errors import StoreUnavailable
from ..ports.clock import Clock
from ..ports.records import Record

_BUSY_SECONDS = 5.0
_TABLE = """CREATE TABLE IF NOT EXISTS records (
    "group" TEXT NOT NULL, key TEXT NOT NULL, until REAL NOT NULL, record TEXT NOT NULL, PRIMARY KEY ("group", key)
) WITHOUT ROWID"""


class SqliteRecords:
    """A ``RecordTable`` in the file ``path``, which is made for this user's eyes alone."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    async def put(self, group: str, key: str, record: Record, *, kept: timedelta) -> None:
        """Keep ``record``, in place of what was there."""
        with self._writing() as connection:
            self._insert(connection, group, key, record, kept)

    async def put_new(self, group: str, key: str, record: Record, *, kept: timedelta) -> Record | None:
        """Keep ``record`` unless there is one; return the one that there is."""
        with self._writing() as connection:
            there = self._found(connection, group).get(key)
            if there is None:
                self._insert(connection, group, key, record, kept)
            return there

    async def get(self, group: str, key: str) -> Record | None:
        """Return the record, or ``None``."""
        return (await self.all(group)).get(key)

    async def all(self, group: str) -> Mapping[str, Record]:
        """Return the records of a group, by key."""
        with self._writing() as connection:
            return self._found(connection, group)

    async def delete(self, group: str, key: str) -> None:
        """Forget the record, if there is one."""
        with self._writing() as connection:
            connection.execute('DELETE FROM records WHERE "group" = ? AND key = ?', (group, key))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        # Opened for each time: this is for what happens once in minutes.
        try:
            self._path.touch(0o600)
            connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(_TABLE)
                connection.execute("DELETE FROM records WHERE until <= ?", (self._now(),))
                yield connection
                connection.execute("COMMIT")
            finally:
                connection.close()
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailable(f"the records in {self._path} cannot be read or written: {error}") from error

    def _insert(self, connection: sqlite3.Connection, group: str, key: str, record: Record, kept: timedelta) -> None:
        row = (group, key, self._now() + kept.total_seconds(), json.dumps(record))
        connection.execute('INSERT OR REPLACE INTO records ("group", key, until, record) VALUES (?, ?, ?, ?)', row)

    def _found(self, connection: sqlite3.Connection, group: str) -> dict[str, Record]:
        rows = connection.execute('SELECT key, record FROM records WHERE "group" = ? ORDER BY key', (group,))
        return {key: json.loads(text) for key, text in rows}

    def _now(self) -> float:
        return self._clock.now().timestamp()
