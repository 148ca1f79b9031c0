"""Durable timers in SQLite."""

from datetime import datetime

from ...ports.queues import refuse_unsendable
from .database import SqliteDatabase, micros, moment
from .queue import SqliteInputQueue


class SqliteTimers:
    """``LocalTimers`` in the file of ``queue``, on which they put their messages."""

    def __init__(self, database: SqliteDatabase, queue: SqliteInputQueue) -> None:
        self._database = database
        self._queue = queue

    async def set(self, timer_id: str, due_at: datetime, body: str, *, group_id: str, dedup_id: str) -> None:
        """Have ``body`` put on the queue at ``due_at``, unless a timer of that id exists."""
        refuse_unsendable(body, group_id=group_id, dedup_id=dedup_id)
        # Not durable: what a power cut takes away of it, it takes away of ``performed_through`` too, and the timer is
        # set again.
        with self._database.write(durable=False) as connection:
            connection.execute(
                "INSERT OR IGNORE INTO timers (id, due_at, group_id, dedup_id, body) VALUES (?, ?, ?, ?, ?)",
                (timer_id, micros(due_at), group_id, dedup_id, body),
            )

    async def cancel(self, timer_id: str) -> None:
        """Forget the timer, where there is one."""
        with self._database.write(durable=False) as connection:
            connection.execute("DELETE FROM timers WHERE id = ?", (timer_id,))

    async def next_due_at(self) -> datetime | None:
        """Return when the earliest timer is due."""
        with self._database.read() as connection:
            (earliest,) = connection.execute("SELECT min(due_at) FROM timers").fetchone()
        return None if earliest is None else moment(earliest)

    async def fire_due(self, now: datetime) -> int:
        """Move the bodies of all timers due by ``now`` to the queue in one transaction, earliest first."""
        with self._database.write(durable=False) as connection:
            due = connection.execute(
                "SELECT id, body, group_id, dedup_id FROM timers WHERE due_at <= ? ORDER BY due_at, id", (micros(now),)
            ).fetchall()
            for timer_id, *message in due:
                connection.execute("DELETE FROM timers WHERE id = ?", (timer_id,))
                self._queue.enqueue(connection, *message)
        if due:
            self._queue.on_arrival()
        return len(due)
