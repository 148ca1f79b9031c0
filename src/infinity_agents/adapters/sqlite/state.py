"""The state store in SQLite."""

from collections.abc import Mapping
from typing import Any

from ...ports.state import StateItem
from ...wire import codecs
from .database import SqliteDatabase


class SqliteStateStore:
    """A ``StateStore`` in ``database``."""

    # Nothing here is durable by itself: whatever a power cut takes away is performed or written again.

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def performed_through(self, thread_id: str) -> int:
        """Return the highest version whose effects are all performed; 0 where nothing is known."""
        with self._database.read() as connection:
            row = connection.execute("SELECT version FROM performed WHERE thread_id = ?", (thread_id,)).fetchone()
        return int(row[0]) if row else 0

    async def set_performed_through(self, thread_id: str, version: int) -> None:
        """Move it forward, never back."""
        self._write(
            "INSERT INTO performed (thread_id, version) VALUES (?, ?) ON CONFLICT (thread_id)"
            " DO UPDATE SET version = excluded.version WHERE excluded.version > version",
            thread_id,
            version,
        )

    async def copy(
        self, thread_id: str, item: StateItem, key: str, value: Mapping[str, Any] | None, version: int
    ) -> None:
        """Keep a copy or take it away, unless a newer version of the thread has written it."""
        # What was taken away leaves its version behind, so that an older write cannot bring it back.
        self._write(
            "INSERT INTO copies (thread_id, item, key, version, value) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (thread_id, item, key) DO UPDATE SET version = excluded.version, value = excluded.value"
            " WHERE excluded.version >= version",
            thread_id,
            item,
            key,
            version,
            None if value is None else codecs.values.encode(value),
        )

    async def copies(self, thread_id: str, item: StateItem) -> Mapping[str, Mapping[str, Any]]:
        """Return the copies of one thread, by key."""
        return self._values(
            "SELECT key, value FROM copies WHERE thread_id = ? AND item = ? AND value IS NOT NULL", thread_id, item
        )

    async def put_view(self, thread_id: str, view_type: str, content: Any, at: float) -> None:
        """Keep the newest view of its type."""
        self._write(
            "INSERT INTO views (thread_id, type, at, content) VALUES (?, ?, ?, ?) ON CONFLICT (thread_id, type)"
            " DO UPDATE SET at = excluded.at, content = excluded.content WHERE excluded.at >= at",
            thread_id,
            view_type,
            at,
            codecs.values.encode(content),
        )

    async def views(self, thread_id: str) -> Mapping[str, Any]:
        """Return the newest views, by type."""
        return self._values("SELECT type, content FROM views WHERE thread_id = ?", thread_id)

    async def put_manifests(self, session_id: str, manifests: Mapping[str, Any]) -> None:
        """Cache what discovery found for a session."""
        self._write("INSERT OR REPLACE INTO manifests VALUES (?, ?)", session_id, codecs.values.encode(manifests))

    async def manifests(self, session_id: str) -> Mapping[str, Any] | None:
        """Return the cached discovery of the session, or ``None``."""
        return self._values("SELECT '', manifests FROM manifests WHERE session_id = ?", session_id).get("")

    async def put_latest_manifest(self, tool_set: str, manifest: Mapping[str, Any]) -> None:
        """Keep the newest manifest of a tool set."""
        self._write("INSERT OR REPLACE INTO latest_manifests VALUES (?, ?)", tool_set, codecs.values.encode(manifest))

    async def latest_manifest(self, tool_set: str) -> Mapping[str, Any] | None:
        """Return the newest manifest that was ever fetched from the tool set, or ``None``."""
        return self._values("SELECT '', manifest FROM latest_manifests WHERE tool_set = ?", tool_set).get("")

    def _write(self, sql: str, *values: object) -> None:
        with self._database.write(durable=False) as connection:
            connection.execute(sql, values)

    def _values(self, sql: str, *values: object) -> dict[str, Any]:
        with self._database.read() as connection:
            rows = connection.execute(sql, values).fetchall()
        return {key: codecs.values.decode(text) for key, text in rows}
