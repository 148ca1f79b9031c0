"""The conversation store in SQLite: one transaction to load, one to commit."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from ...conversation.history import Entry
from ...conversation.ledger import Call, CallState
from ...ports.conversations import Commit, LoadRequest, Snapshot, ThreadOverview
from ...wire import history as stored
from .committing import write_commit
from .database import SqliteDatabase, micros, moment
from .loading import read_snapshot


class SqliteConversationStore:
    """A ``ConversationStore`` in ``database``."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def load(self, request: LoadRequest) -> Snapshot | None:
        """Return the thread as it is, as of one moment; ``None`` where there is no such thread."""
        with self._database.read() as connection:
            return read_snapshot(connection, request)

    async def commit(self, commit: Commit) -> None:
        """Write all of it, or raise ``FenceLost`` and write nothing."""
        with self._database.write() as connection:
            write_commit(connection, commit)

    async def overdue_calls(self, now: datetime, limit: int) -> Sequence[tuple[str, Call]]:
        """Return open and detached calls whose deadline has passed, longest overdue first."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT threads.id, calls.body FROM calls JOIN threads USING (n)"
                " WHERE deadline <= ? ORDER BY deadline, threads.id LIMIT ?",
                (micros(now), limit),
            ).fetchall()
        return [(thread_id, stored.calls.decode(body)) for thread_id, body in rows]

    async def unperformed(self, before: datetime, limit: int) -> Mapping[str, int]:
        """Return the highest version with effect rows of each thread, among commits made before ``before``."""
        with self._database.read() as connection:
            return dict(
                connection.execute(
                    "SELECT threads.id, max(effects.version) FROM effects JOIN threads USING (n)"
                    " JOIN commits ON commits.n = effects.n AND commits.version = effects.version"
                    " WHERE commits.at < ? GROUP BY effects.n LIMIT ?",
                    (micros(before), limit),
                ).fetchall()
            )

    async def forget_effects(self, thread_id: str, up_to: int) -> None:
        """Delete the effect rows of versions up to ``up_to``."""
        with self._database.write(durable=False) as connection:
            connection.execute(
                "DELETE FROM effects WHERE n = (SELECT n FROM threads WHERE id = ?) AND version <= ?",
                (thread_id, up_to),
            )

    async def threads(self, *, root_id: str | None = None, limit: int = 1000) -> Sequence[ThreadOverview]:
        """Return threads with their state, roots before children, newest commit first."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT record, at,"
                " (SELECT body FROM calls WHERE calls.n = threads.n AND state = ? ORDER BY seq LIMIT 1),"
                " (SELECT count(*) FROM deferred WHERE deferred.n = threads.n)"
                " FROM threads WHERE ?2 IS NULL OR ifnull(root, n) = (SELECT n FROM threads WHERE id = ?2)"
                " ORDER BY parent IS NOT NULL, at DESC, id LIMIT ?3",
                (CallState.OPEN, root_id, limit),
            ).fetchall()
        return [_overview(*row) for row in rows]

    async def history(self, thread_id: str) -> Sequence[tuple[int, Entry]]:
        """Return the thread's own entries with their positions."""
        with self._database.read() as connection:
            row = connection.execute("SELECT n FROM threads WHERE id = ?", (thread_id,)).fetchone()
            if row is None:
                raise KeyError(thread_id)
            rows = connection.execute(
                "SELECT position, body FROM entries WHERE n = ? ORDER BY position", row
            ).fetchall()
        return [(position, stored.entries.decode(body)) for position, body in rows]

    async def calls(self, thread_id: str) -> Sequence[Call]:
        """Return the thread's whole ledger, in the order in which the calls were made."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT body FROM calls WHERE n = (SELECT n FROM threads WHERE id = ?) ORDER BY seq", (thread_id,)
            ).fetchall()
        return [stored.calls.decode(body) for (body,) in rows]

    async def prune_inbox(self, before: datetime) -> int:
        """Forget messages heard before ``before``; return how many."""
        with self._database.write(durable=False) as connection:
            return connection.execute(
                "DELETE FROM inbox WHERE EXISTS (SELECT 1 FROM commits"
                " WHERE commits.n = inbox.n AND commits.version = inbox.version AND at < ?)",
                (micros(before),),
            ).rowcount


def _overview(record: str, at: int, pending: str | None, deferred: int) -> ThreadOverview:
    thread = stored.threads.decode(record)
    return ThreadOverview(
        thread=thread,
        pending=None if pending is None else stored.calls.decode(pending),
        deferred=deferred,
        last_commit_at=moment(at) if thread.version else None,
    )
