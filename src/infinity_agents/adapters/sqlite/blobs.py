"""Large values in SQLite."""

from .database import SqliteDatabase


class SqliteBlobStore:
    """A ``BlobStore`` in ``database``."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def put(self, sha256: str, value: bytes) -> None:
        """Keep ``value``."""
        with self._database.write() as connection:
            connection.execute("INSERT OR IGNORE INTO blobs (sha256, value) VALUES (?, ?)", (sha256, value))

    async def get(self, sha256: str) -> bytes:
        """Return the value, or raise ``KeyError``."""
        with self._database.read() as connection:
            row = connection.execute("SELECT value FROM blobs WHERE sha256 = ?", (sha256,)).fetchone()
        if row is None:
            raise KeyError(sha256)
        return bytes(row[0])
