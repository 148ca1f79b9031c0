"""The databases of the tests that run on PostgreSQL."""

import asyncio

import psycopg
from psycopg import sql

from infinity_agents.adapters.dsql import DsqlDatabase, migrate
from infinity_agents.testing.doubles import FrozenClock
from infinity_agents.testing.dsql import SYSTEM_SCHEMA, LikeDsql
from infinity_agents.testing.postgres import PostgresServer, enforce_dsql_limits

TEMPLATE = "infinity_template"
ROLE = "infinity_functions"


def make_template(server: PostgresServer) -> None:
    """Make the database that each test's own is a copy of."""
    making = f"{TEMPLATE}_in_the_making"
    url = server.create(making)
    with psycopg.connect(url) as connection:
        connection.execute(SYSTEM_SCHEMA)
    asyncio.run(migrated(url))
    enforce_dsql_limits(url)
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {making} RENAME TO {TEMPLATE}")


async def migrated(url: str) -> None:
    """Migrate the database at ``url``."""
    database = DsqlDatabase(LikeDsql(url), FrozenClock())
    await migrate(database, role=ROLE, iam_role_arn="arn:aws:iam::1:role/functions", progress=lambda _: None)
    await database.close()


def emptied(url: str) -> None:
    """Delete every row of the store's tables, and end the connections that a test has left behind."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        # Without triggers, which count rows. TRUNCATE would take fifty times as long: it makes new files.
        connection.execute("SET session_replication_role = replica")
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'infinity'").fetchall()
        for (name,) in tables:
            if name != "versions":
                connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier("infinity", name)))
