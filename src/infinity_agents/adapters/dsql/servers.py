"""The two kinds of server, and how each is connected to."""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ...aws_clients import AwsClients
from ...errors import Misconfigured

Connection = psycopg.AsyncConnection[Any]

_OPTIONS: Final[dict[str, Any]] = {
    "autocommit": True,
    # Every statement is prepared at its first use: in a pipeline that costs no round trip.
    "prepare_threshold": 0,
    "connect_timeout": 10,
    # A socket that died while the sandbox was frozen gives no sign of it: what it is sent must be acknowledged in time.
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 30,
}

_ENDPOINT: Final = re.compile(r"[a-z0-9-]+\.dsql(?:-[a-z0-9-]+)?\.[a-z0-9-]+\.on\.aws")
_TOKEN_SECONDS: Final = 900

# Every statement of a step finds its rows by a key. Planned once, it costs half of being planned each time; planned
# while the tables were small, it would go on reading them through when they are large.
_PLANNING: Final = b"SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off"


class Server(Protocol):
    """A database to connect to. ``begin`` begins a transaction that sees one moment throughout."""

    @property
    def name(self) -> str:
        """What errors call it; never holds a secret."""
        ...

    @property
    def begin(self) -> bytes: ...

    @property
    def is_dsql(self) -> bool: ...

    async def connect(self) -> Connection:
        """Open a connection.

        Raises:
            psycopg.Error: there is none to be had now.
            Misconfigured: there will be none before a setting is mended.
        """
        ...


@dataclass(frozen=True, slots=True)
class PostgreSql:
    """Any PostgreSQL, by a URL or a connection string as libpq spells it (``DATABASE_URL``).

    Raises:
        Misconfigured: ``url`` is not one.
    """

    url: str = field(repr=False)

    def __post_init__(self) -> None:
        try:
            conninfo_to_dict(self.url)
        except psycopg.ProgrammingError:
            # The driver's own text may repeat the URL, password and all.
            raise Misconfigured(
                "DATABASE_URL is not a connection string; write postgresql://USER:PASSWORD@HOST:5432/DATABASE, "
                "with the characters :/?#[]@% of a password percent-encoded"
            ) from None

    @property
    def name(self) -> str:
        named = conninfo_to_dict(self.url)
        return f"PostgreSQL at {named.get('host', 'localhost')}, database {named.get('dbname', 'of that user')}"

    @property
    def begin(self) -> bytes:
        return b"BEGIN ISOLATION LEVEL REPEATABLE READ"

    @property
    def is_dsql(self) -> bool:
        return False

    async def connect(self) -> Connection:
        connection: Connection = await psycopg.AsyncConnection.connect(self.url, **_OPTIONS)
        try:
            await connection.execute(_PLANNING, prepare=False)
        except BaseException:
            await connection.close()
            raise
        return connection


@dataclass(frozen=True, slots=True)
class AuroraDsql:
    """An Aurora DSQL cluster, as the database user ``user`` (``DSQL_CLUSTER_ENDPOINT``, ``DSQL_DB_USER``).

    The credentials of ``clients`` must be allowed to ``dsql:DbConnect``, as ``admin`` to ``dsql:DbConnectAdmin``.

    Raises:
        Misconfigured: ``endpoint`` is not one of a cluster.
    """

    endpoint: str
    user: str
    clients: AwsClients

    def __post_init__(self) -> None:
        if not _ENDPOINT.fullmatch(self.endpoint):
            raise Misconfigured(
                f"DSQL_CLUSTER_ENDPOINT {self.endpoint!r} is no endpoint; it reads CLUSTER.dsql.REGION.on.aws, and the "
                "console shows it"
            )

    @property
    def name(self) -> str:
        return f"Aurora DSQL at {self.endpoint}, as {self.user}"

    @property
    def begin(self) -> bytes:
        return b"BEGIN"

    @property
    def is_dsql(self) -> bool:
        return True

    def token(self) -> str:
        """Return what to connect with, in place of a password, within the next 15 minutes.

        Raises:
            Misconfigured: there are no AWS credentials.
            StoreUnavailable: they cannot be fetched at the moment.
        """
        action = "DbConnectAdmin" if self.user == "admin" else "DbConnect"
        url = f"https://{self.endpoint}/?Action={action}"
        region = self.endpoint.split(".")[2]
        signed = self.clients.presigned(url, service="dsql", region=region, seconds=_TOKEN_SECONDS)
        return signed.removeprefix("https://")

    async def connect(self) -> Connection:
        # Imported here: a PostgreSQL of one's own need not be proved by these roots.
        import certifi

        connection: Connection = await psycopg.AsyncConnection.connect(
            host=self.endpoint,
            user=self.user,
            dbname="postgres",
            # A token of its own for each connection: the cluster looks at it then, and never again. Credentials may
            # have to be fetched first.
            password=await asyncio.to_thread(self.token),
            sslmode="verify-full",
            # Not ``system``: where the driver's own OpenSSL looks for that differs from machine to machine.
            sslrootcert=certifi.where(),
            sslnegotiation="direct",
            **_OPTIONS,
        )
        return connection
