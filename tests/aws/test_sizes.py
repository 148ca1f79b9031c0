"""Sizes that a busy agent comes to, through the deployed functions: long threads, large results, bursts of events."""

import asyncio
import base64
import json
import re
import threading
from dataclasses import replace

import psycopg
import pytest

from infinity_agents.adapters.dsql import DsqlConversationStore, DsqlDatabase, PostgreSql
from infinity_agents.adapters.system import SystemClock
from infinity_agents.aws import leader, receiver, wiring
from infinity_agents.aws.sandbox import Sandbox
from infinity_agents.conversation.content import Blob, Image, Text, plain_text
from infinity_agents.conversation.history import EventEntry, ToolResultEntry
from infinity_agents.rap.callbacks import callback_url
from infinity_agents.runtime import AgentSystem
from infinity_agents.settings import AgentSettings
from infinity_agents.testing.contracts.samples import following, heard, root, said
from infinity_agents.testing.model_servers import KEY, BedrockProtocol, ModelServer, serving
from infinity_agents.testing.round_trips import CountingProxy
from infinity_agents.testing.scenarios import by_last_words, closes
from infinity_agents.testing.scripted_model import ScriptedModel, calls, text_of
from infinity_agents.testing.world import TOOL_SET, RecordingToolServer, RemoteTool, RemoteTools
from tests.aws.deployment import KEYRING
from tests.aws.test_receiver import BASE, request_of

pytestmark = pytest.mark.slow

HEARD = 15_000
ENTRIES = 5_000
EVENTS = 1_000
MOST_ROWS = 3_000
"""Rows that a transaction of DSQL may write."""
MOST_OF_A_REQUEST = 6 * 1024 * 1024
"""Bytes that Lambda passes to a function."""
PNG = b"\x89PNG\r\n\x1a\n"


class Background:
    """An event loop in a thread of its own: what is served on it answers while a handler blocks this one."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=60)

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def background():
    background = Background()
    yield background
    background.close()


@pytest.fixture
def trips(postgres, deployment, background, monkeypatch):
    """Count what the functions say to the database."""
    proxy = CountingProxy(postgres.directory / ".s.PGSQL.5432")
    background.run(proxy.open())
    name = deployment.database_url.rpartition("=")[2]
    monkeypatch.setenv("DATABASE_URL", f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}?sslmode=disable")
    yield proxy
    background.run(proxy.close())


@pytest.fixture
def model_server(background, monkeypatch):
    """Serve Bedrock, and have the leader speak with it."""
    server = ModelServer(BedrockProtocol(), by_last_words({"look": calls("look")}))
    context = serving(server)
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", background.run(context.__aenter__()))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("MODEL_ID", "global.anthropic.claude-sonnet-4-6")
    yield server
    background.run(context.__aexit__(None, None, None))


def equip(monkeypatch, *tools, model=None, settings=None):
    """Give the deployed leader tools of a server that records, and another model or other settings."""
    server = RecordingToolServer()
    servers = RemoteTools({name: RemoteTool(name, server) for name in tools}, server)

    async def build():
        built = await wiring.leader()
        services = replace(built.system.services, tool_servers=servers)
        services = replace(services, model=model or services.model, settings=settings or services.settings)
        return replace(built, system=AgentSystem(services))

    monkeypatch.setattr(leader, "sandbox", Sandbox(build))
    return server


def post(call_id, thread_id="c", **fields):
    """Post a callback about a call; the function must take it."""
    url = callback_url(BASE, KEYRING, thread_id, call_id, TOOL_SET)
    event = request_of(url, {"group_id": thread_id, **fields})
    assert len(json.dumps(event)) <= MOST_OF_A_REQUEST
    answer = receiver.handler(event, None)
    assert answer["statusCode"] == 200, answer


def with_store(deployment, work):
    """Return what ``work`` makes of the conversation store."""

    async def done():
        database = DsqlDatabase(PostgreSql(deployment.database_url), SystemClock())
        try:
            return await work(DsqlConversationStore(database))
        finally:
            await database.close()

    return asyncio.run(done())


def history(deployment, thread_id="c"):
    return [entry for _, entry in with_store(deployment, lambda store: store.history(thread_id))]


def rows_read(deployment, table):
    """Return how many rows of a table the database has read for anyone, and end all connections, which tell it then."""
    deployment.cut_connections()
    read = "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = %s"
    others = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
    )
    with psycopg.connect(deployment.database_url, autocommit=True) as connection:
        while connection.execute(others).fetchone() != (1,):
            pass
        (rows,) = connection.execute(read, [table]).fetchone()
    return rows


def queued(deployment):
    return deployment.aws.queue(deployment.resources.input_url)._messages


def objects(deployment, clients):
    """Return the bytes of everything in the bucket."""
    s3, bucket = clients.client("s3"), deployment.resources.bucket
    keys = [item["Key"] for item in s3.list_objects_v2(Bucket=bucket).get("Contents", ())]
    return [s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys]


# ------------------------------------------------------------------------------------------------------ long threads


def test_a_thread_with_15_000_heard_messages_costs_what_a_new_one_does(deployment, trips):
    def one(text, dedup_id=None):
        body = json.dumps({"content": {"type": "text", "text": text}, "group_id": "c"})
        before = trips.trips
        deployment.send_body("c", body, dedup_id)
        deployment.settle()
        return trips.trips - before

    one("hello")
    young = one("hello once more")
    with psycopg.connect(deployment.database_url) as connection:
        for start in range(0, HEARD, MOST_ROWS):
            connection.execute(
                "INSERT INTO infinity.inbox SELECT 'c', 'heard-' || number, 0"
                " FROM generate_series(%s::bigint, %s::bigint) AS number",
                [start, start + MOST_ROWS - 1],
            )
            connection.commit()
    deployment.told()
    before = rows_read(deployment, "inbox")
    # The socket is new: what it costs to connect is spent here.
    one("hello a third time")
    old = one("hello a fourth time")
    deployment.told()
    absorbed = one("hello, said long ago", "heard-7500")
    assert (young, old, absorbed) == (2, 2, 1)
    assert rows_read(deployment, "inbox") - before < 10
    assert deployment.told() == []
    assert len(history(deployment)) == 8
    assert deployment.count(deployment.resources.input_url) == 0


def grown(deployment, model):
    """Give the thread its entries, of which no transaction holds more than DSQL takes."""

    async def commit(store):
        thread = replace(root("c"), model=model)
        for start in range(0, ENTRIES, MOST_ROWS // 2):
            places = range(start, min(start + MOST_ROWS // 2, ENTRIES))
            written = following(thread, [(said if place % 2 else heard)(f"the text of {place}") for place in places])
            await store.commit(written)
            thread = written.thread

    with_store(deployment, commit)


def said_to(deployment, text):
    """Have a person say something; return how many rows of entries were read until all was quiet."""
    before = rows_read(deployment, "entries")
    deployment.send("c", text)
    deployment.settle()
    assert [kind for kind, _ in deployment.told()] == ["message"]
    return rows_read(deployment, "entries") - before


def test_a_thread_with_5_000_entries_is_read_once_by_a_sandbox(deployment, monkeypatch):
    model = ScriptedModel(by_last_words({}), window=1_000_000)
    equip(monkeypatch, model=model)
    grown(deployment, model.name)
    cold, warm = said_to(deployment, "hello"), said_to(deployment, "hello again")
    assert [len(request.entries) for request in model.requests] == [ENTRIES + 1, ENTRIES + 3]
    assert (cold, warm) == (ENTRIES, 0)
    assert len(history(deployment)) == ENTRIES + 4


def test_a_thread_with_5_000_entries_is_summarised_and_read_from_there_by_the_next_sandbox(deployment, monkeypatch):
    grown(deployment, "demo")
    # The oldest part that fits the window is read once more, by the thread that summarises it.
    assert ENTRIES < said_to(deployment, "hello") < 2 * ENTRIES
    monkeypatch.setattr(leader, "sandbox", Sandbox(wiring.leader))
    assert 0 < said_to(deployment, "hello again") < ENTRIES / 2
    assert len(history(deployment)) == ENTRIES + 4


# ----------------------------------------------------------------------------------------------------- large results


@pytest.mark.parametrize("size", [3_932_160, 4 * 1024 * 1024])
def test_a_picture_reaches_a_model_that_takes_it_and_a_larger_one_is_a_note(
    deployment, clients, model_server, monkeypatch, size
):
    server = equip(monkeypatch, "look")
    deployment.send("c", "look at it")
    deployment.settle()
    image = Image(base64.b64encode(PNG.ljust(size, b"\0")).decode(), "image/png")
    sent = {"type": "image", "data": image.data, "media_type": image.media_type}
    post(server.last("look"), type="tool_result", id=server.last("look"), content=[sent])
    (message,) = queued(deployment)
    assert len(message.body) < 1000
    deployment.settle()
    assert [kind for kind, _ in deployment.told()] == ["tool_call", "message"]
    assert deployment.count(deployment.resources.input_url) == 0
    assert deployment.count(deployment.resources.dead_letter_url) == 0
    assert model_server.refused == []
    (part,) = history(deployment)[-2].result.content
    assert isinstance(part, Blob)
    (kept,) = objects(deployment, clients)
    assert json.loads(kept)["data"] == image.data
    (read,) = model_server.requests[-1].entries[-1].result.content
    note = f"[image, image/png: its {size} bytes are more than the 3932160 that the model takes]"
    assert read == (image if size <= 3_932_160 else Text(note))


def test_a_result_of_1_048_577_bytes_ends_in_the_history(deployment, clients, monkeypatch):
    model = ScriptedModel(by_last_words({"read it": calls("read")}))
    server = equip(monkeypatch, "read", model=model)
    deployment.send("c", "read it")
    deployment.settle()
    text = "".join(f"{number:07} " for number in range(131_072)) + "."
    assert len(text) == 1_048_577
    post(server.last("read"), type="tool_result", id=server.last("read"), text=text)
    (message,) = queued(deployment)
    assert len(message.body) < 1000
    deployment.settle()
    entry = history(deployment)[-2]
    assert isinstance(entry, ToolResultEntry)
    (part,) = entry.result.content
    assert isinstance(part, Blob)
    (kept,) = objects(deployment, clients)
    assert json.loads(kept)["text"] == text
    read = plain_text(model.requests[-1].entries[-1].result.content)
    assert read.startswith("0000000 0000001 ")
    assert read.endswith("0131071 .")
    assert "characters are left out here" in read
    assert [kind for kind, _ in deployment.told()] == ["tool_call", "message"]


# ------------------------------------------------------------------------------------------------------------ bursts


def subscribed(deployment, monkeypatch, script, settings):
    """Have the thread subscribe; return the call, and the model."""
    model = ScriptedModel(by_last_words({"watch": calls("subscribe"), **script}, otherwise="Noted."))
    server = equip(monkeypatch, "subscribe", model=model, settings=settings)
    deployment.send("c", "watch")
    deployment.settle()
    call_id = server.last("subscribe")
    post(call_id, type="tool_result", id=call_id, text="subscribed", subscription=True)
    deployment.settle()
    deployment.told()
    return call_id, model


def burst(call_id, **fields):
    for number in range(EVENTS):
        event = {"type": "subscription_event", "tool_call_id": call_id, "event_id": str(number)}
        post(call_id, **event, text=f"<{number}>", **fields)


def numbers_in(text):
    return [int(number) for number in re.findall(r"<(\d+)>", text)]


def pauses_told(deployment):
    return sum(kind == "limit_reached" for kind, _ in deployment.told())


def test_1_000_events_in_a_burst_are_each_handled_once_where_the_limit_is_raised(deployment, monkeypatch):
    raised = AgentSettings(slices_per_hour=EVENTS)
    call_id, model = subscribed(deployment, monkeypatch, {"thread of your own": closes()}, raised)
    burst(call_id)
    deployment.settle(batch=4)
    threads = [request for request in model.requests if len(request.thread_stack) == 2]
    handled = [number for request in threads for number in numbers_in(text_of(request.entries[-1]))]
    assert sorted(handled) == list(range(EVENTS))
    assert len(threads) > AgentSettings().slices_per_hour
    assert pauses_told(deployment) == 0
    assert deployment.count(deployment.resources.dead_letter_url) == 0
    assert len(with_store(deployment, lambda store: store.threads())) == 1 + len(threads)


def test_1_000_events_in_a_burst_pause_the_thread_at_the_limit_and_none_is_lost(deployment, monkeypatch):
    call_id, model = subscribed(deployment, monkeypatch, {}, AgentSettings())
    burst(call_id, associative=True)
    # Small batches, as of a queue that is emptied as fast as it fills: the limit is reached before all is heard.
    deployment.settle(batch=4)
    assert pauses_told(deployment) == 1
    assert deployment.count(deployment.resources.input_url) == 0
    assert len(model.requests) == 1 + AgentSettings().slices_per_hour
    heard_then = events_heard(deployment)
    assert heard_then == list(range(len(heard_then)))
    (overview,) = with_store(deployment, lambda store: store.threads())
    assert 0 < overview.deferred == EVENTS - len(heard_then)
    deployment.send("c", "go on")
    deployment.settle()
    assert events_heard(deployment) == list(range(EVENTS))
    (overview,) = with_store(deployment, lambda store: store.threads())
    assert (overview.deferred, overview.thread.paused_at) == (0, None)
    assert pauses_told(deployment) == 0
    assert deployment.count(deployment.resources.dead_letter_url) == 0


def events_heard(deployment):
    told = (text_of(entry) for entry in history(deployment) if isinstance(entry, EventEntry))
    return [number for text in told for number in numbers_in(text)]
