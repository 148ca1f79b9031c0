"""The two kinds of server, and how each is connected to."""

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import psycopg
from psycopg.conninfo import conninfo_to_dict

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
    """An Aurora DSQL cluster, as the database user ``user`` (``DSQL_CLUSTER_ENDPOINT``, ``DSQL_DB_USER``)."""

    endpoint: str
    user: str

    @property
    def name(self) -> str:
        return f"Aurora DSQL at {self.endpoint}, as {self.user}"

    @property
    def begin(self) -> bytes:
        return b"BEGIN"

    @property
    def is_dsql(self) -> bool:
        return True

    async def connect(self) -> Connection:
        # Imported here: with boto3 it takes half a second, which only the first connection to DSQL has to pay.
        import certifi
        from aurora_dsql_psycopg import DSQLAsyncConnection
        from botocore.exceptions import BotoCoreError

        try:
            # A token of its own for each connection: the cluster looks at it then, and never again.
            connection: Connection = await DSQLAsyncConnection.connect(
                host=self.endpoint,
                user=self.user,
                sslmode="verify-full",
                # Not ``system``: where the driver's own OpenSSL looks for that differs from machine to machine.
                sslrootcert=certifi.where(),
                sslnegotiation="direct",
                **_OPTIONS,
            )
        except ValueError as error:
            raise Misconfigured(
                f"DSQL_CLUSTER_ENDPOINT {self.endpoint!r} is no endpoint ({error}); it reads "
                "CLUSTER.dsql.REGION.on.aws, and the console shows it"
            ) from error
        except BotoCoreError as error:
            raise Misconfigured(
                f"{self.name}: no token can be made ({error}); give this process AWS credentials that may "
                "dsql:DbConnect (dsql:DbConnectAdmin as admin)"
            ) from error
        return connection
