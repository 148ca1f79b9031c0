"""One connection: when it is opened and replaced, its transactions, what is tried again, and what its errors mean."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final, TypeVar

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from ...errors import InfinityError, Misconfigured, StoreUnavailable
from ...ports.clock import Clock
from .servers import Connection, Server

T = TypeVar("T")
Parameters = dict[str, Any]
Statement = tuple[bytes, Sequence[Parameters | tuple[Any, ...]]]
"""A statement, and the parameters of each of its executions."""

BATCH: Final = 1000
"""The most rows that are deleted in one transaction; DSQL takes 3,000 changes."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LIFETIME: Final = timedelta(minutes=50)
"""DSQL ends a connection after 60 minutes, in the middle of whatever it does."""
_PATIENCE: Final = 30.0
"""Seconds after which a connection that does not answer counts as dead."""
_TRIES: Final = 6
_FIRST_WAIT: Final = 0.02
_FIRST_WAIT_TO_CONNECT: Final = 0.2


class DsqlDatabase:
    """One connection to ``server``; what is written through it is a whole transaction or nothing.

    It is opened at first use, replaced before it is 55 minutes old and after it died, and used by one task at a time.
    A conflict, a lost connection and an unknown outcome are tried again as whole transactions, so that whoever writes
    must recognise what it has written already.
    """

    def __init__(self, server: Server, clock: Clock) -> None:
        self.server = server
        self.clock = clock
        self._connection: Connection | None = None
        self._opened_at = _EPOCH
        self._used = asyncio.Lock()

    async def rows(self, statement: bytes, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of one statement, in one round trip.

        Raises:
            StoreUnavailable: the database cannot be reached, or kept failing.
            Misconfigured: the database cannot be used as it is.
        """

        async def read(connection: Connection) -> list[tuple[Any, ...]]:
            # The rows are fetched after the pipeline has ended: within it, that would be a round trip of its own.
            async with connection.pipeline():
                cursor = await connection.execute(statement, parameters)
            return await cursor.fetchall()

        return await self.run(read)

    async def write(self, statements: Sequence[Statement]) -> None:
        """Execute ``statements`` as one transaction, in one round trip.

        Raises:
            StoreUnavailable: the outcome is unknown, or nothing was written.
            Misconfigured: the database cannot be used as it is.
            psycopg.IntegrityError: a constraint does not hold; nothing was written.
        """

        async def write(connection: Connection) -> None:
            async with connection.pipeline(), connection.cursor() as cursor:
                await cursor.execute(self.server.begin)
                for statement, executions in statements:
                    if len(executions) == 1:
                        await cursor.execute(statement, executions[0])
                    else:
                        await cursor.executemany(statement, executions)
                await cursor.execute(b"COMMIT")

        await self.run(write)

    async def sweep(self, find: bytes, delete: bytes, parameters: Parameters) -> int:
        """Delete what ``find`` returns the keys of, ``BATCH`` in a transaction, until it finds none; return how many.

        By its key, each is found at once; a deletion of what a subquery finds may compare every row with every key.
        """
        deleted = 0
        while True:
            keys = await self.rows(find, {**parameters, "batch": BATCH})
            if keys:
                await self.write([(delete, keys)])
            deleted += len(keys)
            if len(keys) < BATCH:
                return deleted

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Return what ``work`` makes of the connection; it is called again where that may help.

        Raises:
            StoreUnavailable, Misconfigured: as the database's error means.
            psycopg.Error: any other error of the database: a mistake in a program.
        """
        for tried in count(1):
            is_open = False
            try:
                async with self._used:
                    try:
                        async with asyncio.timeout(_PATIENCE):
                            connection = await self._open()
                            is_open = True
                            return await work(connection)
                    except BaseException:
                        await self._mend()
                        raise
            except (psycopg.Error, TimeoutError) as error:
                meant = self._meaning(error, is_open=is_open)
                if meant is None:
                    raise
                if not isinstance(meant, StoreUnavailable) or _is_final(error) or tried == _TRIES:
                    raise meant from error
                first = _FIRST_WAIT if is_open else _FIRST_WAIT_TO_CONNECT
                await self.clock.sleep(first * 2**tried * random.uniform(0.5, 1.0))
        raise AssertionError  # the loop above has no end

    async def close(self) -> None:
        """Close the connection. It is opened again when it is used again."""
        async with self._used:
            await self._drop()

    async def _open(self) -> Connection:
        if self._connection is not None and self.clock.now() - self._opened_at >= _LIFETIME:
            await self._drop()
        if self._connection is None:
            self._connection = await self.server.connect()
            self._opened_at = self.clock.now()
        return self._connection

    async def _mend(self) -> None:
        connection = self._connection
        if connection is None:
            return
        match connection.info.transaction_status:
            case TransactionStatus.IDLE:
                return
            case TransactionStatus.INERROR:
                with suppress(psycopg.Error, TimeoutError):
                    async with asyncio.timeout(_PATIENCE):
                        await connection.execute(b"ROLLBACK")
                    return
        # Dead, or somebody broke off in the middle, and what it would answer next is not known.
        await self._drop()

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _meaning(self, error: psycopg.Error | TimeoutError, *, is_open: bool) -> InfinityError | None:
        name = self.server.name
        if not is_open:
            said = " ".join(str(error).split())
            if any(words in said for words in _REFUSALS):
                return Misconfigured(
                    f"{name} refuses the connection ({said}); check the user, its password or IAM grant, "
                    "and the database's name in DATABASE_URL or DSQL_DB_USER"
                )
            return StoreUnavailable(f"{name} cannot be connected to ({said or 'no answer'}); check that it is up")
        if isinstance(error, TimeoutError):
            return StoreUnavailable(f"{name} has not answered for {_PATIENCE:.0f} seconds; it is tried again")
        match error:
            case errors.UndefinedTable() | errors.UndefinedColumn() | errors.InvalidSchemaName():
                return Misconfigured(
                    f"{name} lacks what this release needs ({_first_line(error)}); run `infinity migrate`"
                )
            case errors.InsufficientPrivilege():
                return Misconfigured(
                    f"{name} does not let this user do that ({_first_line(error)}); run `infinity migrate` as its "
                    "admin, with this user's name as the role"
                )
            case psycopg.IntegrityError():
                return None
        if _is_conflict(error):
            return StoreUnavailable(f"{name} kept refusing a transaction for its conflicts ({_first_line(error)})")
        if _is_final(error):
            return StoreUnavailable(
                f"{name} does not take that much at once ({_first_line(error)}); lower the setting inline_bytes, so "
                "that large values go to the blob store"
            )
        if _is_transient(error):
            return StoreUnavailable(f"{name} failed ({_first_line(error)}); it is tried again")
        return None


_REFUSALS: Final = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "access denied",
    "is not permitted to log in",
)
_CONFLICTS: Final = ("40001", "40P01", "OC000", "OC001")
_FINAL: Final = "54"
"""A limit of the database's: the same statement fails again."""


def _is_conflict(error: BaseException) -> bool:
    return any(
        getattr(link, "sqlstate", None) in _CONFLICTS or "OC000" in str(link) or "OC001" in str(link)
        for link in _chain(error)
    )


def _is_transient(error: psycopg.Error) -> bool:
    # A lost connection has no code. XX000 may mean that the outcome is not known.
    return isinstance(error, psycopg.OperationalError | psycopg.InternalError)


def _is_final(error: BaseException) -> bool:
    return (getattr(error, "sqlstate", None) or "").startswith(_FINAL)


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def micros(at: datetime) -> int:
    """Return ``at`` as microseconds since 1970."""
    return (at - _EPOCH) // _MICROSECOND


def moment(since_1970: int) -> datetime:
    """Return the moment that many microseconds after 1970 began, in UTC."""
    return _EPOCH + timedelta(microseconds=since_1970)
