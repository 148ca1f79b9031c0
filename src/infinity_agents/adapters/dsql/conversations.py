"""The conversation store on Aurora DSQL or PostgreSQL: one round trip to load, one to commit."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from psycopg import IntegrityError

from ...conversation.history import Entry
from ...conversation.ledger import Call
from ...errors import FenceLost
from ...ports.conversations import Commit, LoadRequest, Snapshot, ThreadOverview
from ...wire import history as stored
from .committing import STANDS_AT, statements_of
from .database import DsqlDatabase, micros, moment
from .loading import LOAD, parameters, snapshot_of
from .statements import named_statements

_READING: Final = named_statements("reading.sql")
_PRUNING: Final = named_statements("pruning.sql")


class DsqlConversationStore:
    """A ``ConversationStore`` in ``database``, whose schema ``migrate`` has made."""

    def __init__(self, database: DsqlDatabase) -> None:
        self._database = database

    async def load(self, request: LoadRequest) -> Snapshot | None:
        """Return the thread as it is, as of one moment; ``None`` where there is no such thread."""
        return snapshot_of(await self._database.rows(LOAD, parameters(request)), request)

    async def commit(self, commit: Commit) -> None:
        """Write all of it, or raise ``FenceLost`` and write nothing."""
        try:
            await self._database.write(statements_of(commit))
        except IntegrityError:
            # Somebody was first: another writer, or this one, in a try whose outcome was not known.
            if not await self._is_there(commit):
                raise

    async def _is_there(self, commit: Commit) -> bool:
        thread_id, version = commit.thread.id, commit.thread.version
        ((stands_at, writer),) = await self._database.rows(STANDS_AT, {"thread_id": thread_id, "version": version})
        if writer == commit.writer:
            return True
        if stands_at != (None if commit.is_new else version - 1):
            raise FenceLost(
                f"thread {thread_id!r} stands at version {stands_at}, so version {version} cannot be committed: "
                "another step was first; deliver the messages again"
            ) from None
        return False

    async def overdue_calls(self, now: datetime, limit: int) -> Sequence[tuple[str, Call]]:
        """Return open and detached calls whose deadline has passed, longest overdue first."""
        rows = await self._database.rows(_READING["overdue_calls"], {"now": micros(now), "limit": limit})
        return [(thread_id, stored.calls.decode(body)) for thread_id, body in rows]

    async def unperformed(self, before: datetime, limit: int) -> Mapping[str, int]:
        """Return the highest version with effect rows of each thread, among commits made before ``before``."""
        rows = await self._database.rows(_READING["unperformed"], {"before": micros(before), "limit": limit})
        return dict(rows)

    async def forget_effects(self, thread_id: str, up_to: int) -> None:
        """Delete the effect rows of versions up to ``up_to``."""
        await self._sweep("effects", thread_id=thread_id, up_to=up_to)

    async def threads(self, *, root_id: str | None = None, limit: int = 1000) -> Sequence[ThreadOverview]:
        """Return threads with their state, roots before children, newest commit first."""
        rows = await self._database.rows(_READING["threads"], {"root_id": root_id, "limit": limit})
        return [_overview(*row) for row in rows]

    async def history(self, thread_id: str) -> Sequence[tuple[int, Entry]]:
        """Return the thread's own entries with their positions."""
        rows = await self._database.rows(_READING["history"], {"thread_id": thread_id})
        if not rows:
            raise KeyError(thread_id)
        return [(position, stored.entries.decode(body)) for position, body in rows if position is not None]

    async def calls(self, thread_id: str) -> Sequence[Call]:
        """Return the thread's whole ledger, in the order in which the calls were made."""
        rows = await self._database.rows(_READING["calls"], {"thread_id": thread_id})
        return [stored.calls.decode(body) for (body,) in rows]

    async def prune_inbox(self, before: datetime) -> int:
        """Forget messages heard before ``before``; return how many. Deferred messages that are gone are deleted."""
        await self._sweep("deferred")
        return await self._sweep("inbox", before=micros(before))

    async def _sweep(self, table: str, **parameters: Any) -> int:
        return await self._database.sweep(_PRUNING[f"old_{table}"], _PRUNING[f"delete_{table}"], parameters)


def _overview(record: str, at: int, pending: str | None, deferred: int) -> ThreadOverview:
    thread = stored.threads.decode(record)
    return ThreadOverview(
        thread=thread,
        pending=None if pending is None else stored.calls.decode(pending),
        deferred=deferred,
        last_commit_at=moment(at) if thread.version else None,
    )
