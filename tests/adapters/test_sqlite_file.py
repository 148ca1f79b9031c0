"""The SQLite file: what can be wrong with it, two processes on it, and processes that die."""

import os
import signal
import sqlite3
import subprocess
import sys
from functools import partial

import pytest

from infinity_agents.adapters.sqlite import (
    HostLock,
    SqliteConversationStore,
    SqliteDatabase,
    SqliteInputQueue,
    SqliteOutputs,
    SqliteStateStore,
    SqliteTimers,
)
from infinity_agents.conversation.outputs import Output
from infinity_agents.errors import FenceLost, Misconfigured, StoreUnavailable
from infinity_agents.ports.conversations import LoadRequest
from infinity_agents.testing.contracts.samples import after, call, following, heard, numbered, root, said
from infinity_agents.testing.doubles import FrozenClock


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agents.db"


@pytest.fixture
def open_file(path):
    opened = []

    def open_again(**options):
        opened.append(SqliteDatabase(path, FrozenClock(), **options))
        return opened[-1]

    yield open_again
    for database in opened:
        database.close()


# ------------------------------------------------------------------------------------------- what cannot be opened


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(Misconfigured, match=r"there is no directory .*nowhere; make it"):
        SqliteDatabase(tmp_path / "nowhere" / "agents.db", FrozenClock())


def test_a_directory_is_not_a_file(tmp_path):
    with pytest.raises(Misconfigured, match="is a directory; name a file in it"):
        SqliteDatabase(tmp_path, FrozenClock())


def test_a_text_file_is_not_a_database(path):
    path.write_text("shopping list\n" * 100)
    with pytest.raises(Misconfigured, match=r"agents\.db is not a SQLite database; name another file"):
        SqliteDatabase(path, FrozenClock())
    assert path.read_text() == "shopping list\n" * 100


def test_another_programs_database_is_left_alone(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    with pytest.raises(Misconfigured, match="holds tables of another program"):
        SqliteDatabase(path, FrozenClock())
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]


def test_a_newer_schema_is_refused(path, open_file):
    open_file()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(Misconfigured, match=r"newer release of this package \(schema 99.*upgrade the package"):
        open_file()


def test_a_file_that_cannot_be_written_shows_at_start(path, open_file, monkeypatch):
    open_file()
    connect = sqlite3.connect

    # Opened read-only rather than made so: the tests may run as a user whom no permission holds back.
    def connect_read_only(name, **options):
        return connect(f"file:{name}?mode=ro", uri=True, **options)

    monkeypatch.setattr(sqlite3, "connect", connect_read_only)
    with pytest.raises(Misconfigured, match=r"agents\.db cannot be written .*let this user write the file"):
        open_file()


# ------------------------------------------------------------------------------------------------ what fails later


async def test_a_full_disk_writes_nothing_and_the_commit_may_be_repeated(path, open_file):
    database = open_file()
    store = SqliteConversationStore(database)
    first = following(root(), [heard("hello")])
    await store.commit(first)
    large = following(first.thread, [said("x" * 1_000_000)])
    with database.read() as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreUnavailable, match=r"agents\.db cannot grow .*free some space"):
        await store.commit(large)
    assert (await store.load(LoadRequest("root"))).thread == first.thread
    with database.read() as connection:
        connection.execute("PRAGMA max_page_count = 1000000")
    await store.commit(large)
    assert (await store.load(LoadRequest("root"))).entries == (*first.entries, *large.entries)


async def test_a_file_that_another_process_writes_to_is_unavailable_for_a_while(path, open_file):
    store = SqliteConversationStore(open_file(busy_timeout=0))
    commit = following(root(), [heard("hello")])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match=r"agents\.db is held by another process"):
        await store.commit(commit)
    assert await store.load(LoadRequest("root")) is None
    other.execute("ROLLBACK")
    await store.commit(commit)
    assert (await store.load(LoadRequest("root"))).thread == commit.thread
    other.close()


async def test_a_commit_that_breaks_off_writes_nothing(open_file):
    store = SqliteConversationStore(open_file())
    with pytest.raises(sqlite3.Error):
        await store.commit(following(root(), [heard("hello")], choices_closed=(object(),)))
    assert await store.load(LoadRequest("root")) is None
    await store.commit(following(root(), [heard("hello")]))


async def test_timers_that_break_off_move_none(open_file, monkeypatch):
    database = open_file()
    queue = SqliteInputQueue(database)
    timers = SqliteTimers(database, queue)
    await timers.set("t1", after(1), "one", group_id="g", dedup_id="d1")
    await timers.set("t2", after(2), "two", group_id="g", dedup_id="d2")
    enqueue = queue.enqueue

    def breaks_at_two(connection, body, *ids):
        if body == "two":
            raise RuntimeError
        enqueue(connection, body, *ids)

    monkeypatch.setattr(queue, "enqueue", breaks_at_two)
    with pytest.raises(RuntimeError):
        await timers.fire_due(after(9))
    assert await timers.next_due_at() == after(1)
    assert await queue.receive(groups=9, batch=9, visibility=9) == []


# ---------------------------------------------------------------------------------------------- two connections


async def test_the_fence_holds_between_connections(open_file):
    ours, theirs = (SqliteConversationStore(open_file()) for _ in range(2))
    await ours.commit(following(root(), [heard("ours")], writer="ours"))
    with pytest.raises(FenceLost):
        await theirs.commit(following(root(), [heard("theirs")], writer="theirs"))
    assert (await theirs.load(LoadRequest("root"))).entries == (heard("ours"),)


async def test_messages_from_another_process_are_noticed(open_file):
    queue, elsewhere = (SqliteInputQueue(open_file()) for _ in range(2))
    await queue.changed_elsewhere()
    assert not await queue.changed_elsewhere()
    await elsewhere.send("hello", group_id="g", dedup_id="d")
    assert await queue.changed_elsewhere()
    assert not await queue.changed_elsewhere()
    ((received,),) = await queue.receive(groups=1, batch=1, visibility=30)
    assert received.body == "hello"


async def test_outputs_from_another_process_can_be_followed(open_file):
    sender, reader = (SqliteOutputs(open_file()) for _ in range(2))
    await sender.send(_output(1))
    ((place, output),) = await reader.outputs()
    assert output == _output(1)
    await sender.send(_output(2))
    assert [output for _, output in await reader.outputs(after=place)] == [_output(2)]


def test_many_processes_may_make_the_file_at_once(path):
    code = "import sys; from infinity_agents.adapters.sqlite import *; SqliteDatabase(sys.argv[1], None).close()"
    processes = [_python(code, path) for _ in range(4)]
    assert [process.wait() for process in processes] == [0, 0, 0, 0]


# ------------------------------------------------------------------------------------------- what reaches the disk


async def test_only_what_somebody_relies_on_waits_for_the_disk(open_file):
    database = open_file()
    full, normal = 2, 1
    queue = SqliteInputQueue(database)
    receive = partial(queue.receive, groups=1, batch=1, visibility=1)
    for write, expected in (
        (partial(queue.send, "hello", group_id="g", dedup_id="d"), full),
        (receive, normal),
        (partial(SqliteConversationStore(database).commit, following(root())), full),
        (partial(SqliteStateStore(database).set_performed_through, "root", 1), normal),
    ):
        await write()
        with database.read() as connection:
            assert connection.execute("PRAGMA synchronous").fetchone() == (expected,)


async def test_closing_leaves_one_file(path):
    database = SqliteDatabase(path, FrozenClock())
    await SqliteConversationStore(database).commit(following(root(), [heard("hello")]))
    database.close()
    assert [entry.name for entry in path.parent.iterdir()] == ["agents.db"]


async def test_no_step_reads_through_a_table(path, open_file):
    """The cost of a load and a commit does not grow with what the file holds."""
    database = open_file()
    store = SqliteConversationStore(database)
    statements = []
    with database.read() as connection:
        connection.set_trace_callback(statements.append)
    thread = root()
    for version in (1, 2):
        commit = following(
            thread,
            numbered(2, thread.end),
            calls=(call("c1"),),
            heard=("m1",),
            undeferred=((9, 9),),
            choices_closed=("c9",),
            forget_effects_to=version - 1,
            spoke=True,
            personal=True,
        )
        await store.commit(commit)
        thread = commit.thread
        await store.load(LoadRequest("root", frozenset({"m1"}), frozenset({"c1", "c2"}), 1, after(-3600)))
        await SqliteStateStore(database).performed_through("root")
    explained = sqlite3.connect(path)
    looked_at = [sql for sql in statements if sql.lstrip().startswith(("SELECT", "INSERT", "UPDATE", "DELETE"))]
    assert len(looked_at) > 20
    for sql in looked_at:
        plan = [row[3] for row in explained.execute(f"EXPLAIN QUERY PLAN {sql}")]
        assert not [step for step in plan if step.startswith("SCAN") and "CONSTANT" not in step], (sql, plan)
    explained.close()


# ---------------------------------------------------------------------------------------------- processes that die


def test_a_second_host_is_refused_while_the_first_lives(path):
    with (
        HostLock(path),
        pytest.raises(Misconfigured, match=rf"process {os.getpid()} is already the host of .*agents\.db"),
    ):
        HostLock(path)
    with HostLock(path):
        pass


_HOST = """
import sys, time
from infinity_agents.adapters.sqlite import HostLock

lock = HostLock(sys.argv[1])
print("host", flush=True)
time.sleep(60)
"""


def test_a_killed_host_leaves_its_place(path):
    host = _python(_HOST, path)
    assert host.stdout.readline() == "host\n"
    with pytest.raises(Misconfigured, match=f"process {host.pid} is already the host"):
        HostLock(path)
    host.kill()
    host.wait()
    HostLock(path).release()


_COMMITS = """
import asyncio, sys
from infinity_agents.adapters.sqlite import *
from infinity_agents.testing.contracts.samples import *
from infinity_agents.testing.doubles import FrozenClock

async def main():
    store = SqliteConversationStore(SqliteDatabase(sys.argv[1], FrozenClock()))
    thread = root()
    while True:
        commit = following(thread, numbered(3, thread.end), heard=(f"m{thread.version + 1}",))
        await store.commit(commit)
        thread = commit.thread
        print(thread.version, flush=True)

asyncio.run(main())
"""


async def test_a_killed_process_loses_no_commit(path, open_file):
    told = _killed_after(50, _COMMITS, path)
    store = SqliteConversationStore(open_file())
    asked = frozenset(f"m{version}" for version in range(1, told[-1] + 2))
    snapshot = await store.load(LoadRequest("root", message_ids=asked))
    version = snapshot.thread.version
    # The last commit may have gone through without the process having lived to tell of it.
    assert version - told[-1] in {0, 1}
    assert snapshot.entries == tuple(numbered(3 * version))
    assert snapshot.heard == {f"m{number}" for number in range(1, version + 1)}
    await store.commit(following(snapshot.thread, [said("goes on")]))


_TIMERS = """
import asyncio, sys
from infinity_agents.adapters.sqlite import *
from infinity_agents.testing.contracts.samples import after
from infinity_agents.testing.doubles import FrozenClock

async def main():
    database = SqliteDatabase(sys.argv[1], FrozenClock())
    timers = SqliteTimers(database, SqliteInputQueue(database))
    with database.write() as connection:
        rows = [(f"t{number}", number * 1_000_000, "g", f"d{number}", str(number)) for number in range(5000)]
        connection.executemany("INSERT INTO timers VALUES (?, ?, ?, ?, ?)", rows)
    for number in range(5000):
        await timers.fire_due(after(0).fromtimestamp(number, after(0).tzinfo))
        print(number, flush=True)

asyncio.run(main())
"""


async def test_a_killed_process_neither_loses_nor_doubles_a_timer(path, open_file):
    told = _killed_after(50, _TIMERS, path)
    database = open_file()
    (sent,) = await SqliteInputQueue(database).receive(groups=1, batch=9999, visibility=30)
    with database.read() as connection:
        waiting = [
            number for (number,) in connection.execute("SELECT CAST(body AS INTEGER) FROM timers ORDER BY due_at")
        ]
    assert [int(received.body) for received in sent] + waiting == list(range(5000))
    assert len(sent) > told[-1]


def _killed_after(lines, code, path):
    """Run ``code`` until it has told of so many numbers, kill it, and return all numbers that it told of."""
    process = _python(code, path)
    told = [int(process.stdout.readline()) for _ in range(lines)]
    os.kill(process.pid, signal.SIGKILL)
    rest, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL
    # The kill may have come in the middle of a line.
    return told + [int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")]


def _python(code, path):
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def _output(version):
    return Output("message", f"number {version}", "g", "g", f"g:{version}:0", (version, 0))
