"""The conversation store when the database refuses, loses its connection, or does not say what became of a commit."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import boto3
import psycopg
import pytest
from psycopg import errors

from infinity_agents.adapters.dsql import AuroraDsql, DsqlConversationStore, DsqlDatabase, PostgreSql
from infinity_agents.aws_clients import AwsClients
from infinity_agents.conversation.content import Text
from infinity_agents.conversation.effects import NotifyClosed, PlannedEffect
from infinity_agents.conversation.ledger import CallState
from infinity_agents.conversation.messages import Delivery, InputMessage, ToolResult
from infinity_agents.errors import Misconfigured, StoreUnavailable
from infinity_agents.ports.conversations import LoadRequest
from infinity_agents.testing.contracts.samples import (
    after,
    call,
    delivery,
    following,
    heard,
    numbered,
    root,
    said,
    spawned,
)
from infinity_agents.testing.doubles import FrozenClock
from infinity_agents.testing.dsql import LikeDsql
from infinity_agents.testing.round_trips import CountingProxy


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
async def database(postgres_url, clock):
    database = DsqlDatabase(LikeDsql(postgres_url), clock)
    yield database
    await database.close()


@pytest.fixture
def store(database):
    return DsqlConversationStore(database)


@pytest.fixture
async def proxy(postgres):
    proxy = CountingProxy(postgres.directory / ".s.PGSQL.5432")
    await proxy.open()
    yield proxy
    await proxy.close()


@pytest.fixture
async def far_store(postgres_url, proxy, clock):
    name = postgres_url.rpartition("=")[2]
    server = PostgreSql(f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}?sslmode=disable")
    database = DsqlDatabase(server, clock)
    yield DsqlConversationStore(database)
    await database.close()


@pytest.fixture
def execute(postgres_url):
    def execute_now(statement):
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    return execute_now


@pytest.fixture
def fails_at_commit(execute):
    """Have the next commits fail at COMMIT: so many of them, with that SQLSTATE."""

    def fail(times, sqlstate):
        execute("DROP SEQUENCE IF EXISTS failures")
        execute("CREATE SEQUENCE failures")
        execute(
            "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF nextval('failures') <= {times} THEN RAISE EXCEPTION 'change conflicts with another transaction'"
            f" USING ERRCODE = '{sqlstate}'; END IF; RETURN NULL; END $$"
        )
        execute(
            "CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON infinity.commits"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()"
        )

    yield fail
    execute("DROP TRIGGER IF EXISTS fail ON infinity.commits")


def a_commit(**fields):
    return following(root(), [heard("hello"), said("hi")], heard=("m1",), deferred=(delivery("d"),), **fields)


async def there_is_one_copy(store, commit):
    snapshot = await store.load(LoadRequest("root", message_ids=frozenset({"m1"})))
    assert snapshot.thread == commit.thread
    assert snapshot.entries == commit.entries
    assert snapshot.heard == {"m1"}
    assert len(snapshot.deferred) == 1


# ------------------------------------------------------------------------------------------------- conflicts


@pytest.mark.parametrize("sqlstate", ["40001", "OC000", "OC001", "40P01"])
async def test_a_conflict_at_commit_is_tried_again_as_a_whole(store, clock, fails_at_commit, sqlstate):
    fails_at_commit(2, sqlstate)
    commit = a_commit()
    await store.commit(commit)
    await there_is_one_copy(store, commit)
    assert len(clock.slept) == 2
    assert 0 < clock.slept[0] < clock.slept[1] * 2


async def test_endless_conflicts_are_told(store, fails_at_commit):
    fails_at_commit(99, "40001")
    with pytest.raises(StoreUnavailable, match="conflicts"):
        await store.commit(a_commit())
    assert await store.load(LoadRequest("root")) is None


async def test_a_conflict_that_is_wrapped_is_tried_again(database, clock):
    tries = []

    async def work(_connection):
        tries.append(1)
        if len(tries) < 3:
            try:
                raise errors.SerializationFailure("change conflicts with another transaction (OC000)")
            except psycopg.Error as error:
                raise psycopg.DatabaseError("the transaction failed") from error
        return "done"

    assert await database.run(work) == "done"
    assert len(clock.slept) == 2


async def test_many_commits_of_one_family_at_once_all_go_through(postgres_url, clock):
    databases = [DsqlDatabase(LikeDsql(postgres_url), clock) for _ in range(4)]
    stores = [DsqlConversationStore(database) for database in databases]
    born = root()
    children = tuple(spawned(born, f"root.{number}") for number in range(4))
    await stores[0].commit(following(born, spawned=children))

    async def grow(store, thread):
        for number in range(5):
            commit = following(thread, [heard(f"{number}")], spoke=True, personal=True, at=after(number))
            await store.commit(commit)
            thread = commit.thread

    await asyncio.gather(*(grow(store, child.thread) for store, child in zip(stores, children, strict=True)))
    for child in children:
        assert (await stores[0].load(LoadRequest(child.thread.id))).thread.version == 5
    for database in databases:
        await database.close()


# ----------------------------------------------------------------------------------------- an unknown outcome


async def test_a_commit_that_took_effect_and_said_xx000_is_there_once(store, clock, monkeypatch):
    pipeline = psycopg.AsyncConnection.pipeline
    failures = []

    @asynccontextmanager
    async def fails_once(connection):
        async with pipeline(connection) as made:
            yield made
        if not failures:
            failures.append(1)
            raise errors.InternalError_("unexpected error")

    monkeypatch.setattr(psycopg.AsyncConnection, "pipeline", fails_once)
    commit = a_commit()
    await store.commit(commit)
    assert failures
    await there_is_one_copy(store, commit)


async def test_a_commit_whose_answer_is_lost_is_there_once(far_store, proxy, clock):
    await far_store.load(LoadRequest("root"))
    proxy.loses_next_answer = True
    commit = a_commit()
    await far_store.commit(commit)
    assert not proxy.loses_next_answer
    await there_is_one_copy(far_store, commit)


async def test_a_commit_that_never_arrived_is_made(far_store, proxy):
    await far_store.load(LoadRequest("root"))
    proxy.drops_next_request = True
    commit = a_commit()
    await far_store.commit(commit)
    assert not proxy.drops_next_request
    await there_is_one_copy(far_store, commit)


async def test_a_database_that_stays_away_is_unavailable(far_store, proxy, clock):
    await far_store.load(LoadRequest("root"))
    await proxy.close()
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1.*cannot be connected to.*check that it is up"):
        await far_store.commit(a_commit())
    assert len(clock.slept) == 5


# ------------------------------------------------------------------------------------------------- connections


VICTIM = b"SELECT set_config('application_name', 'victim', false)"
TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim'"


async def test_a_connection_that_was_ended_in_between_is_replaced(store, database, execute):
    commit = a_commit()
    await database.rows(VICTIM)
    execute(TERMINATE)
    await asyncio.sleep(0.05)
    await store.commit(commit)
    await there_is_one_copy(store, commit)


async def test_a_connection_that_is_ended_in_the_middle_is_replaced(store, database, execute):
    commit = a_commit()
    await store.commit(commit)
    await database.rows(VICTIM)
    with psycopg.connect(database.server.url) as blocker:
        blocker.execute("SELECT FROM infinity.threads WHERE id = 'root' FOR UPDATE")
        going = asyncio.ensure_future(store.commit(following(commit.thread, [said("next")])))
        waiting = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'victim' AND wait_event_type = 'Lock'"
        async with asyncio.timeout(10):
            while not execute(waiting):  # noqa: ASYNC110 - another process is watched
                await asyncio.sleep(0.01)
        execute(TERMINATE)
        await asyncio.sleep(0.05)
    await going
    assert (await store.load(LoadRequest("root"))).entries == (*commit.entries, said("next"))


async def test_a_step_that_is_cancelled_in_the_middle_leaves_a_usable_store(store, database):
    commit = a_commit()
    await store.commit(commit)
    with psycopg.connect(database.server.url) as blocker:
        blocker.execute("SELECT FROM infinity.threads WHERE id = 'root' FOR UPDATE")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await store.commit(following(commit.thread, [said("never")], writer="cancelled"))
    await store.commit(following(commit.thread, [said("next")], writer="next"))
    assert (await store.load(LoadRequest("root"))).entries == (*commit.entries, said("next"))


async def test_a_connection_is_replaced_before_the_cluster_ends_it(store, database, clock):
    async def backend():
        ((pid,),) = await database.rows(b"SELECT pg_backend_pid()")
        return pid

    first = await backend()
    clock.advance(timedelta(minutes=49).total_seconds())
    assert await backend() == first
    clock.advance(timedelta(minutes=2).total_seconds())
    assert await backend() != first


async def test_a_closed_store_opens_again(store, database):
    await store.commit(a_commit())
    await database.close()
    await there_is_one_copy(store, a_commit())


# ------------------------------------------------------------------------------------------ what cannot be used


def test_a_url_that_is_none_is_named_without_its_password():
    with pytest.raises(Misconfigured, match="DATABASE_URL is not a connection string") as caught:
        PostgreSql("postgresql://user:geheim@host:port/database?x=y")
    assert "geheim" not in str(caught.value)
    assert "geheim" not in repr(PostgreSql("postgresql://user:geheim@host/database"))


@pytest.mark.parametrize("change", ["dbname=nowhere", "user=nobody_here"])
async def test_a_database_or_user_that_does_not_exist_is_named(postgres_url, clock, change):
    store = DsqlConversationStore(DsqlDatabase(PostgreSql(f"{postgres_url} {change}"), clock))
    with pytest.raises(Misconfigured, match=r"refuses the connection.*does not exist.*DATABASE_URL"):
        await store.load(LoadRequest("root"))
    assert clock.slept == []


async def test_a_missing_schema_names_the_remedy(bare_postgres_url, clock):
    database = DsqlDatabase(PostgreSql(bare_postgres_url), clock)
    store = DsqlConversationStore(database)
    with pytest.raises(Misconfigured, match="run `infinity migrate`"):
        await store.load(LoadRequest("root"))
    with pytest.raises(Misconfigured, match="run `infinity migrate`"):
        await store.commit(a_commit())
    await database.close()


@pytest.mark.parametrize("endpoint", ["", "cluster.dsql.example", "abc.dsql.us-east-1.on.aws:5432", "abc.dsql..on.aws"])
def test_an_endpoint_that_is_none_is_named(endpoint):
    with pytest.raises(Misconfigured, match=f"DSQL_CLUSTER_ENDPOINT '{endpoint}' is no endpoint"):
        AuroraDsql(endpoint, "infinity", AwsClients())


@pytest.mark.parametrize("session_token", [None, "a/session+token=="])
@pytest.mark.parametrize("user", ["admin", "infinity"])
def test_a_token_for_dsql_is_the_one_that_the_aws_client_makes(monkeypatch, user, session_token):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    if session_token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", session_token)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: datetime(2026, 11, 29, 12, 0, 1, tzinfo=UTC))
    client = boto3.session.Session().client("dsql", region_name="eu-west-1")
    make = client.generate_db_connect_admin_auth_token if user == "admin" else client.generate_db_connect_auth_token
    host = "abc.dsql.us-east-1.on.aws"
    assert AuroraDsql(host, user, AwsClients()).token() == make(host, "us-east-1", 900)


async def test_no_credentials_for_dsql_is_a_wrong_setting_that_is_not_tried_again(clock, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    database = DsqlDatabase(AuroraDsql("abc.dsql.us-east-1.on.aws", "infinity", AwsClients()), clock)
    with pytest.raises(Misconfigured, match="no AWS credentials were found"):
        await database.rows(b"SELECT 1")
    assert not clock.slept


async def test_a_connection_to_dsql_has_a_token_of_its_own_and_checks_the_certificate(clock, monkeypatch):
    asked = []

    async def connect(conninfo="", **options):
        asked.append(options)
        raise psycopg.OperationalError("no route")

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr(psycopg.AsyncConnection, "connect", connect)
    database = DsqlDatabase(AuroraDsql("abc.dsql.us-east-1.on.aws", "infinity", AwsClients()), clock)
    with pytest.raises(StoreUnavailable, match=r"Aurora DSQL at abc.*, as infinity cannot be connected to"):
        await database.rows(b"SELECT 1")
    assert len(asked) == 6
    for options in asked:
        assert options["sslmode"] == "verify-full"
        assert options["user"] == "infinity"
        assert options["password"].startswith("abc.dsql.us-east-1.on.aws/?Action=DbConnect&")
    assert clock.slept == sorted(clock.slept)
    assert clock.slept[0] >= 0.2


async def test_a_limit_of_the_database_is_not_tried_again(store, clock):
    with pytest.raises(StoreUnavailable, match="maximum column size exceeded"):
        await store.commit(following(root(), [heard("x" * 1_100_000)]))
    assert clock.slept == []
    with pytest.raises(StoreUnavailable, match="row limit"):
        await store.commit(following(root(), numbered(3001)))
    with pytest.raises(StoreUnavailable, match="size limit"):
        await store.commit(following(root(), [heard("x" * 1_000_000)] * 11))
    assert await store.load(LoadRequest("root")) is None


# ------------------------------------------------------------------------------------------------- round trips


async def test_one_round_trip_to_load_and_one_to_commit(far_store, proxy):
    await far_store.load(LoadRequest("nobody"))
    thread = root()
    for number in range(8):
        proxy.trips = 0
        commit = following(
            thread,
            [heard("hello"), said("hi")],
            heard=(f"m{number}",),
            calls=(call(f"c{number}"), call(f"d{number}", CallState.ANSWERED)),
            deferred=(delivery("a"), delivery("b")),
            all_undeferred=True,
            effects=(PlannedEffect(thread.version + 1, 0, NotifyClosed()),),
            forget_effects_to=thread.version,
            spawned=(spawned(thread, f"root.{number}"),),
        )
        await far_store.commit(commit)
        assert proxy.trips == 1
        proxy.trips = 0
        asked = LoadRequest("root", message_ids=frozenset({"m1", "m99"}), call_ids=frozenset({"d0"}))
        snapshot = await far_store.load(asked)
        assert proxy.trips == 1
        assert snapshot.thread == commit.thread
        thread = commit.thread


# ------------------------------------------------------------------------------------------------------- large


async def test_a_thread_that_has_heard_15000_messages(store):
    thread = root()
    for start in range(0, 15_000, 2_500):
        messages = tuple(f"m{number}" for number in range(start, start + 2_500))
        commit = following(thread, heard=messages, at=after(start))
        await store.commit(commit)
        thread = commit.thread
    asked = frozenset({"m0", "m14999", "m15000"})
    assert (await store.load(LoadRequest("root", message_ids=asked))).heard == {"m0", "m14999"}
    assert await store.prune_inbox(after(12_500)) == 12_500
    assert (await store.load(LoadRequest("root", message_ids=asked))).heard == {"m14999"}


async def test_more_deferred_messages_than_a_transaction_deletes_go_with_the_thread(store, execute):
    thread = root()
    for _ in range(4):
        late = InputMessage(ToolResult("c1", (Text("late"),)), "root")
        commit = following(thread, deferred=(Delivery(late, "q"),) * 1000, calls=(call("c1", CallState.FAILED),))
        await store.commit(commit)
        thread = commit.thread
    commit = following(thread, all_undeferred=True, deferred=(delivery("last"),))
    await store.commit(commit)
    snapshot = await store.load(LoadRequest("root"))
    assert len(snapshot.deferred) == 1
    assert snapshot.calls == ()
    ((overview),) = await store.threads()
    assert overview.deferred == 1
    await store.prune_inbox(after(0))
    assert execute("SELECT count(*) FROM infinity.deferred") == [(1,)]


async def test_more_effects_than_a_transaction_deletes_are_forgotten(store):
    thread = root()
    for version in (1, 2, 3, 4):
        effects = tuple(PlannedEffect(version, ordinal, NotifyClosed()) for ordinal in range(1_000))
        commit = following(thread, effects=effects)
        await store.commit(commit)
        thread = commit.thread
    await store.forget_effects("root", 4)
    assert (await store.load(LoadRequest("root"))).effects == ()


@pytest.mark.parametrize("odd", ["nul \x00", "half \ud83d", "long " * 300], ids=["NUL", "surrogate", "long"])
async def test_ids_that_no_key_can_hold_are_kept_all_the_same(store, odd):
    await store.commit(following(root(), heard=(odd, "plain")))
    asked = frozenset({odd, "plain", odd + "!"})
    assert (await store.load(LoadRequest("root", message_ids=asked, call_ids=asked))).heard == {odd, "plain"}
