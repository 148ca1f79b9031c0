"""Outputs in SQLite, for readers in this and other processes to follow."""

from collections.abc import Sequence

from ...conversation.outputs import Output
from ...wire import outputs as wire
from .database import SqliteDatabase, micros


class SqliteOutputs:
    """An ``OutputLog`` in ``database``, which must be that of the state store."""

    # Not durable: what a power cut takes away of an output, it takes away of ``performed_through`` too, and the output
    # is sent again. That holds within one file.

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def send(self, output: Output) -> None:
        """Keep ``output``, unless it is a repeat."""
        with self._database.write(durable=False) as connection:
            connection.execute(
                "INSERT OR IGNORE INTO outputs (output_id, group_id, at, body) VALUES (?, ?, ?, ?)",
                (output.output_id, output.group_id, micros(self._database.clock.now()), wire.encode(output)),
            )

    async def outputs(
        self, *, after: int = 0, group_id: str | None = None, limit: int = 1000
    ) -> Sequence[tuple[int, Output]]:
        """Return outputs from behind the place ``after``, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT seq, body FROM outputs WHERE seq > ?1 AND (?2 IS NULL OR group_id = ?2) ORDER BY seq LIMIT ?3",
                (after, group_id, limit),
            ).fetchall()
        return [(seq, wire.decode(body)) for seq, body in rows]

    async def last_place(self) -> int:
        """Return the place of the newest output; 0 where there is none."""
        with self._database.read() as connection:
            (place,) = connection.execute("SELECT ifnull(max(seq), 0) FROM outputs").fetchone()
        return int(place)
