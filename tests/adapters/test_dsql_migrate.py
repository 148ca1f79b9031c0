"""The migration: once or twice, alone or not, and what it lets the functions do."""

import asyncio

import psycopg
import pytest

from infinity_agents.adapters.dsql import DsqlConversationStore, DsqlDatabase, Migrated, PostgreSql, migrate
from infinity_agents.errors import Misconfigured, StoreUnavailable
from infinity_agents.ports.conversations import LoadRequest
from infinity_agents.testing.contracts.samples import following, heard, root
from infinity_agents.testing.doubles import FrozenClock
from infinity_agents.testing.dsql import SYSTEM_SCHEMA, LikeDsql

ROLE = "infinity_of_the_migration"
ARN = "arn:aws:iam::1:role/leader"
VALIDITY = "UPDATE pg_index SET indisvalid = {} WHERE indexrelid = 'infinity.calls_overdue'::regclass"
FIRST = Migrated(1, ("0001_conversations",))


@pytest.fixture
def url(bare_postgres_url):
    with psycopg.connect(bare_postgres_url) as connection:
        connection.execute(SYSTEM_SCHEMA)
    return bare_postgres_url


@pytest.fixture
def execute(url):
    def execute_now(statement, *parameters):
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    return execute_now


@pytest.fixture
async def opened(url):
    databases = []

    def open_another(server=LikeDsql, clock=None):
        databases.append(DsqlDatabase(server(url), clock or FrozenClock()))
        return databases[-1]

    yield open_another
    for database in databases:
        await database.close()


def quietly(database, **options):
    return migrate(database, progress=lambda _: None, **options)


@pytest.mark.parametrize("server", [LikeDsql, PostgreSql])
async def test_a_migrated_database_can_be_used(opened, execute, server):
    database = opened(server)
    assert await quietly(database) == FIRST
    commit = following(root(), [heard("hello")])
    store = DsqlConversationStore(database)
    await store.commit(commit)
    assert (await store.load(LoadRequest("root"))).thread == commit.thread
    assert execute("SELECT version, name FROM infinity.versions") == [(1, "0001_conversations")]
    assert ("inbox_by_age",) in execute("SELECT indexname FROM pg_indexes WHERE schemaname = 'infinity'")


async def test_progress_is_told(opened):
    told = []
    await migrate(opened(), role=ROLE, progress=told.append)
    assert told[0].startswith("0001_conversations: CREATE TABLE")
    assert told[-1] == f"role {ROLE}"


@pytest.mark.parametrize("server", [LikeDsql, PostgreSql])
async def test_twice_is_once(opened, execute, server):
    database = opened(server)
    await quietly(database, role=ROLE, iam_role_arn=ARN)
    store = DsqlConversationStore(database)
    await store.commit(following(root(), [heard("hello")]))
    assert await quietly(database, role=ROLE, iam_role_arn=ARN) == Migrated(1, ())
    assert len((await store.load(LoadRequest("root"))).entries) == 1
    mapped = [(ROLE, ARN)] if server is LikeDsql else []
    assert execute("SELECT * FROM sys.iam_pg_role_mappings") == mapped


@pytest.mark.parametrize("server", [LikeDsql, PostgreSql])
async def test_from_many_places_at_once(opened, execute, server):
    execute(f"DROP ROLE IF EXISTS {ROLE}_at_once")
    outcomes = await asyncio.gather(*(quietly(opened(server), role=f"{ROLE}_at_once") for _ in range(4)))
    assert FIRST in outcomes
    assert {outcome.version for outcome in outcomes} == {1}
    assert execute("SELECT version FROM infinity.versions") == [(1,)]


async def test_one_that_broke_off_in_the_middle_is_finished(opened, execute):
    await quietly(opened())
    execute("DROP TABLE infinity.choices")
    execute("DELETE FROM infinity.versions")
    assert await quietly(opened()) == FIRST
    assert execute("SELECT count(*) FROM infinity.choices") == [(0,)]


async def test_a_newer_schema_is_refused(opened, execute):
    await quietly(opened())
    execute("INSERT INTO infinity.versions VALUES (99, '0099_later', 0)")
    with pytest.raises(Misconfigured, match=r"newer release of this package \(schema 99.*upgrade the package"):
        await quietly(opened())


async def test_an_index_that_could_not_be_built_is_built_by_the_next(opened, execute):
    await quietly(opened())
    execute(VALIDITY.format("false"))
    execute("DELETE FROM infinity.versions")
    with pytest.raises(StoreUnavailable, match="could not build the index calls_overdue; migrate again"):
        await quietly(opened())
    assert await quietly(opened()) == FIRST
    assert execute("SELECT indisvalid FROM pg_index WHERE indexrelid = 'infinity.calls_overdue'::regclass") == [(True,)]


async def test_an_index_that_somebody_else_still_builds_is_waited_for(opened, execute):
    class Clock(FrozenClock):
        async def sleep(self, seconds):
            if len(self.slept) == 2:
                execute("UPDATE sys.jobs SET status = 'completed'")
                execute(VALIDITY.format("true"))
            await super().sleep(seconds)

    clock = Clock()
    await quietly(opened())
    execute("DELETE FROM infinity.versions")
    execute(VALIDITY.format("false"))
    execute("INSERT INTO sys.jobs VALUES ('theirs', 'processing')")
    assert await quietly(opened(clock=clock)) == FIRST
    assert len(clock.slept) == 3


async def test_the_role_reads_and_writes_and_does_nothing_else(opened, url, execute):
    await quietly(opened(), role=ROLE)
    database = opened(lambda url: PostgreSql(url.replace("user=postgres", f"user={ROLE}")))
    store = DsqlConversationStore(database)
    await store.commit(following(root(), [heard("hello")], heard=("m1",)))
    assert len((await store.load(LoadRequest("root"))).entries) == 1
    for refused in (
        b"CREATE TABLE infinity.more (a text)",
        b"DROP TABLE infinity.entries",
        b"ALTER TABLE infinity.entries ADD COLUMN more text",
        b"INSERT INTO infinity.versions VALUES (2, 'mine', 0)",
        b"CREATE ROLE another",
    ):
        with pytest.raises((Misconfigured, psycopg.Error), match=r"denied|owner"):
            await database.rows(refused)


async def test_whoever_may_not_migrate_is_told(opened, execute):
    await quietly(opened(), role=ROLE)
    execute("DELETE FROM infinity.versions")
    execute("DROP TABLE infinity.choices")
    with pytest.raises(Misconfigured, match="does not let this user do that"):
        await quietly(opened(lambda url: PostgreSql(url.replace("user=postgres", f"user={ROLE}"))))
