"""The input queue and its dead letters in SQLite."""

import secrets
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

from ...conversation import ids
from ...conversation.content import without_surrogates
from ...ports.queues import DEDUP_WINDOW, DeadLetter, Received, refuse_unsendable
from ...wire.inputs import redriven
from .database import SqliteDatabase, micros, moment, places

_SWEEP_EVERY = timedelta(minutes=1)


class SqliteInputQueue:
    """A ``LocalInputQueue`` in ``database``."""

    # Only what somebody outside relies on is durable: a message sent, redriven or discarded. What a power cut takes
    # away of the rest (a receipt, an acknowledgement) is a message delivered once more.

    def __init__(self, database: SqliteDatabase, *, on_arrival: Callable[[], None] = lambda: None) -> None:
        self._database = database
        self._clock = database.clock
        self._swept_at: datetime | None = None
        self._known_version = database.data_version()
        self.on_arrival = on_arrival

    async def send(self, body: str, *, group_id: str, dedup_id: str) -> None:
        """Put a message behind all others of its group, unless its deduplication id was used within 5 minutes.

        Raises:
            Reject: the queue can never take it; the text names the value and the limit.
        """
        refuse_unsendable(body, group_id=group_id, dedup_id=dedup_id)
        with self._database.write() as connection:
            self.enqueue(connection, body, group_id, dedup_id)
        self.on_arrival()

    def enqueue(self, connection: sqlite3.Connection, body: str, group_id: str, dedup_id: str) -> None:
        """Do what ``send`` does, for a message that was checked, inside a transaction; tell nobody of it."""
        now = self._clock.now()
        window_began = micros(now - DEDUP_WINDOW)
        if self._swept_at is None or now - self._swept_at >= _SWEEP_EVERY:
            connection.execute("DELETE FROM sent WHERE at <= ?", (window_began,))
            self._swept_at = now
        is_first = connection.execute(
            "INSERT INTO sent (key, at) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET at = excluded.at WHERE at <= ?",
            (bytes.fromhex(ids.digest(group_id, dedup_id, length=32)), micros(now), window_began),
        ).rowcount
        if is_first:
            self._append(connection, body, group_id, dedup_id)

    def _append(self, connection: sqlite3.Connection, body: str, group_id: str, dedup_id: str) -> None:
        # Queue ids are random, not counted: the inbox remembers them, and it may outlive this file.
        connection.execute(
            "INSERT INTO messages (queue_id, group_id, dedup_id, sent_at, receive_count, body)"
            " VALUES (?, ?, ?, ?, 0, ?)",
            (secrets.token_hex(8), group_id, dedup_id, micros(self._clock.now()), body),
        )

    async def receive(self, *, groups: int, batch: int, visibility: float) -> Sequence[Sequence[Received]]:
        """Take up to ``batch`` messages from each of up to ``groups`` groups that nobody else holds."""
        now = self._clock.now()
        until = micros(now + timedelta(seconds=visibility))
        with self._database.write(durable=False) as connection:
            chosen = _free_groups(connection, micros(now), groups)
            return [_take(connection, group_id, batch, until) for group_id in chosen]

    async def delete(self, received: Sequence[Received]) -> None:
        """Acknowledge; receipts that are no longer valid are ignored."""
        if received:
            with self._database.write(durable=False) as connection:
                connection.executemany(f"DELETE FROM messages WHERE {_HELD}", map(_held, received))  # noqa: S608

    async def release(self, received: Sequence[Received], *, delay: float, is_counted: bool = True) -> None:
        """Give back unprocessed: visible again, in the same order, after ``delay`` seconds."""
        visible_at = micros(self._clock.now() + timedelta(seconds=delay)) if delay > 0 else None
        if received:
            with self._database.write(durable=False) as connection:
                connection.executemany(
                    f"UPDATE messages SET visible_at = ?, receive_count = receive_count - ? WHERE {_HELD}",  # noqa: S608
                    [(visible_at, not is_counted, *_held(message)) for message in received],
                )

    async def park(self, received: Received, reason: str) -> None:
        """Move to the dead letters, with the reason."""
        with self._database.write(durable=False) as connection:
            connection.execute(
                f"INSERT INTO dead_letters ({_LETTER})"  # noqa: S608
                " SELECT queue_id, group_id, dedup_id, body, ?, ?, receive_count, 0"
                f" FROM messages WHERE {_HELD}",
                (without_surrogates(reason), micros(self._clock.now()), *_held(received)),
            )
            connection.execute(f"DELETE FROM messages WHERE {_HELD}", _held(received))  # noqa: S608

    async def next_visible_at(self) -> datetime | None:
        """Return when the earliest message that waits for its time becomes visible."""
        with self._database.read() as connection:
            (earliest,) = connection.execute(
                "SELECT min(visible_at) FROM messages WHERE visible_at > ?", (micros(self._clock.now()),)
            ).fetchone()
        return None if earliest is None else moment(earliest)

    async def reclaim(self) -> None:
        """Make visible at once what is invisible, whoever holds it."""
        with self._database.write(durable=False) as connection:
            connection.execute("UPDATE messages SET visible_at = NULL WHERE visible_at IS NOT NULL")

    async def waiting(self, group_ids: Collection[str]) -> Sequence[Received]:
        """Return the visible messages of these groups in order, without taking them."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT {_RECEIVED} FROM messages WHERE group_id IN ({places(group_ids)})"  # noqa: S608
                " AND (visible_at IS NULL OR visible_at <= ?) ORDER BY seq",
                (*group_ids, micros(self._clock.now())),
            ).fetchall()
        return [_received(row) for row in rows]

    async def outstanding(self) -> Mapping[str, int]:
        """Return how many messages each group has, whoever holds them."""
        with self._database.read() as connection:
            return dict(connection.execute("SELECT group_id, count(*) FROM messages GROUP BY group_id").fetchall())

    async def changed_elsewhere(self) -> bool:
        """Tell whether another connection has written to the file since the last time that this was asked."""
        version, known = self._database.data_version(), self._known_version
        self._known_version = version
        return version != known

    async def dead_letters(self, *, limit: int = 100, unnoticed: bool = False) -> Sequence[DeadLetter]:
        """Return parked messages, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT {_LETTER} FROM dead_letters WHERE noticed <= ? ORDER BY seq LIMIT ?",  # noqa: S608
                (not unnoticed, limit),
            ).fetchall()
        return [
            DeadLetter(queue_id, group_id, dedup_id, body, reason, moment(parked_at), receive_count, bool(noticed))
            for queue_id, group_id, dedup_id, body, reason, parked_at, receive_count, noticed in rows
        ]

    async def mark_noticed(self, queue_id: str) -> None:
        """Remember that the keeper has seen to it."""
        with self._database.write(durable=False) as connection:
            connection.execute("UPDATE dead_letters SET noticed = 1 WHERE queue_id = ?", (queue_id,))

    async def redrive(self, queue_id: str) -> None:
        """Put it back on the queue under a new queue id."""
        with self._database.write() as connection:
            letter = connection.execute(
                "SELECT body, group_id FROM dead_letters WHERE queue_id = ?", (queue_id,)
            ).fetchone()
            _discard(connection, queue_id)
            body, group_id = letter
            self._append(connection, redriven(body, queue_id), group_id, dedup_id=queue_id)
        self.on_arrival()

    async def discard(self, queue_id: str) -> None:
        """Forget it."""
        with self._database.write() as connection:
            _discard(connection, queue_id)


_LETTER = "queue_id, group_id, dedup_id, body, reason, parked_at, receive_count, noticed"

# A number may be given again once the message that had it is deleted; with the queue id it names one message.
_HELD = "seq = ? AND receive_count = ? AND queue_id = ?"


def _held(received: Received) -> tuple[int, int, str]:
    seq, _, count = received.receipt.partition(":")
    return int(seq), int(count), received.queue_id


def _free_groups(connection: sqlite3.Connection, now: int, limit: int) -> list[str]:
    """Return the groups of the longest waiting messages, without those that somebody holds."""
    waiting = connection.execute(
        "SELECT group_id FROM messages"
        " WHERE group_id NOT IN (SELECT group_id FROM messages WHERE visible_at > ?) ORDER BY seq",
        (now,),
    )
    chosen: dict[str, None] = {}
    for (group_id,) in waiting:
        chosen[group_id] = None
        if len(chosen) == limit:
            break
    return list(chosen)


def _take(connection: sqlite3.Connection, group_id: str, batch: int, until: int) -> list[Received]:
    rows = connection.execute(
        f"SELECT {_RECEIVED} FROM messages WHERE group_id = ? ORDER BY seq LIMIT ?",  # noqa: S608
        (group_id, batch),
    ).fetchall()
    connection.executemany(
        "UPDATE messages SET receive_count = receive_count + 1, visible_at = ? WHERE seq = ?",
        [(until, seq) for seq, *_ in rows],
    )
    return [_received((seq, count + 1, *more)) for seq, count, *more in rows]


_RECEIVED = "seq, receive_count, body, group_id, queue_id, dedup_id, sent_at"


def _received(row: tuple[int, int, str, str, str, str, int]) -> Received:
    seq, count, body, group_id, queue_id, dedup_id, sent_at = row
    return Received(
        body=body,
        group_id=group_id,
        queue_id=queue_id,
        dedup_id=dedup_id,
        receipt=f"{seq}:{count}",
        receive_count=count,
        sent_at=moment(sent_at),
    )


def _discard(connection: sqlite3.Connection, queue_id: str) -> None:
    if not connection.execute("DELETE FROM dead_letters WHERE queue_id = ?", (queue_id,)).rowcount:
        raise KeyError(queue_id)
