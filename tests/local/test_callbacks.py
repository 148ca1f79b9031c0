"""The callback server: who may speak, how large, what comes of it (P8), and what is answered when the queue fails."""

import asyncio
import contextlib
import json
import socket

import httpx
import pytest
import uvicorn

from infinity_agents.adapters.memory import MemoryBlobStore, MemoryInputQueue, MemoryStateStore
from infinity_agents.conversation.content import Blob
from infinity_agents.errors import StoreUnavailable
from infinity_agents.local.callbacks import HOST, PATH, CallbackApplication
from infinity_agents.ports.queues import MAX_BODY
from infinity_agents.rap.callbacks import callback_url
from infinity_agents.receiving import CallbackReceiver
from infinity_agents.testing.doubles import FrozenClock
from infinity_agents.testing.scripted_model import ScriptedModel, calls, heard, says
from infinity_agents.wire.inputs import decode
from infinity_agents.wire.keys import Keyring

from .conftest import until

KEYRING = Keyring({"k": b"a secret of more than 16 characters"})
BASE = f"http://{HOST}:1{PATH}"
URL = callback_url(BASE, KEYRING, "c", "call-1", "tools")
RESULT = {"type": "tool_result", "group_id": "c", "id": "call-1", "text": "done"}


class Posting:
    """A receiver over memory, and a client of it."""

    def __init__(self, queue=None):
        self.clock = FrozenClock()
        self.queue = queue or MemoryInputQueue(self.clock)
        self.state = MemoryStateStore()
        self.blobs = MemoryBlobStore()
        self.receiver = CallbackReceiver(
            keyring=KEYRING,
            inputs=self.queue,
            state=self.state,
            blobs=self.blobs,
            clock=self.clock,
            inline_bytes=1000,
            max_bytes=200_000,
        )

    async def post(self, url, body, *, method="POST", headers=None):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(CallbackApplication(self.receiver))) as client:
            answer = await client.request(method, url, content=content, headers=headers)
        return answer.status_code, answer.json()

    async def queued(self):
        groups = await self.queue.receive(groups=100, batch=100, visibility=0)
        return [
            decode(item.body, keyring=KEYRING, queue_id=item.queue_id, group_id=item.group_id, dedup_id=item.dedup_id)
            for group in groups
            for item in group
        ]


async def test_a_result_is_put_on_the_queue_with_our_proof():
    posting = Posting()
    assert await posting.post(URL, RESULT) == (200, {"ok": True})
    (delivery,) = await posting.queued()
    assert delivery.proven
    content = delivery.message.content
    assert (content.id, content.tool_set, content.content[0].text) == ("call-1", "tools", "done")


async def test_the_trace_of_a_callback_is_that_of_the_message():
    posting, trace = Posting(), {"traceparent": f"00-{'1' * 32}-{'a' * 16}-01", "tracestate": "a=1"}
    await posting.post(URL, RESULT, headers=trace)
    await posting.post(callback_url(BASE, KEYRING, "d", "call-1", "tools"), {**RESULT, "group_id": "d"})
    found = {delivery.thread_id: delivery.message.trace for delivery in await posting.queued()}
    assert found == {"c": trace, "d": None}


async def test_a_result_posted_twice_is_one_message():
    posting = Posting()
    assert await posting.post(URL, RESULT) == (200, {"ok": True})
    assert await posting.post(URL, {**RESULT, "text": "done again"}) == (200, {"ok": True})
    (delivery,) = await posting.queued()
    assert delivery.message.content.content[0].text == "done"


@pytest.mark.parametrize("path", ["", "/", "/no.token", f"/{URL.rpartition('/')[2][:-1]}", f"/{'x' * 5000}"])
async def test_p8_a_callback_without_a_right_token_is_401(path):
    posting = Posting()
    status, fields = await posting.post(BASE + path, RESULT)
    assert status in (401, 404)
    assert set(fields) == {"error"}
    assert await posting.queued() == []


async def test_p8_the_token_is_checked_before_the_body_is_read():
    async def never():
        raise AssertionError("the body was read")

    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": f"{PATH}/wrong", "headers": []}
    await CallbackApplication(Posting().receiver)(scope, never, send)
    assert sent[0]["status"] == 401


@pytest.mark.parametrize(
    "about",
    [{"id": "call-2"}, {"group_id": "another"}, {"type": "subscription_event", "tool_call_id": "call-2"}],
)
async def test_p8_a_token_speaks_for_its_own_call_alone(about):
    posting = Posting()
    status, fields = await posting.post(URL, {**RESULT, **about})
    assert status == 403
    assert "this callback_url was made for" in fields["error"]
    assert await posting.queued() == []


async def test_p8_another_host_s_token_is_worth_nothing():
    other = Keyring({"k": b"another secret of enough characters"})
    posting = Posting()
    assert (await posting.post(callback_url(BASE, other, "c", "call-1", "tools"), RESULT))[0] == 401


@pytest.mark.parametrize("body", [b"not JSON", b"\xff", b"[]", {"type": "nonsense"}, {**RESULT, "text": None}])
async def test_what_is_no_callback_is_400(body):
    posting = Posting()
    status, fields = await posting.post(URL, body)
    assert (status, set(fields)) == (400, {"error"})
    assert await posting.queued() == []


async def test_too_large_a_callback_is_413():
    posting = Posting()
    status, fields = await posting.post(URL, {**RESULT, "text": "x" * 200_000})
    assert status == 413
    assert "200000 are allowed" in fields["error"]


async def test_another_method_is_405():
    assert (await Posting().post(URL, RESULT, method="PUT"))[0] == 405


async def test_large_parts_go_to_the_blob_store_first():
    posting = Posting()
    assert (await posting.post(URL, {**RESULT, "text": "x" * 100_000}))[0] == 200
    (delivery,) = await posting.queued()
    (part,) = delivery.message.content.content
    assert isinstance(part, Blob)
    assert json.loads(await posting.blobs.get(part.sha256))["text"] == "x" * 100_000


async def test_a_result_whose_display_fits_no_queue_comes_without_it():
    posting = Posting()
    posting.receiver = CallbackReceiver(
        keyring=KEYRING,
        inputs=posting.queue,
        state=posting.state,
        blobs=posting.blobs,
        clock=posting.clock,
        inline_bytes=256 * 1024,
    )
    big = {"type": "text", "content": "x" * 2 * MAX_BODY}
    body = {**RESULT, "text": "\N{SNOWMAN}" * 250_000, "display_as": [big]}
    assert (await posting.post(URL, body))[0] == 200
    (delivery,) = await posting.queued()
    assert delivery.message.display_as is None
    assert isinstance(delivery.message.content.content[0], Blob)


async def test_a_view_goes_to_the_state_store_alone():
    posting = Posting()
    view = {"type": "view_update", "group_id": "c", "view_type": "board", "content": {"n": 1}}
    assert await posting.post(URL, view) == (200, {"ok": True})
    assert await posting.state.views("c") == {"board": {"n": 1}}
    assert await posting.queued() == []


@pytest.mark.parametrize("error", [StoreUnavailable("full"), RuntimeError("a bug")])
async def test_what_could_not_be_put_on_the_queue_is_500(error):
    class Failing(MemoryInputQueue):
        async def send(self, body, *, group_id, dedup_id):
            raise error

    status, fields = await Posting(Failing(FrozenClock())).post(URL, RESULT)
    assert (status, fields) == (500, {"error": "the callback could not be put on the queue; post it again"})


# ----------------------------------------------------------------------------------------------- over real HTTP


class Unruly:
    """A tool server that answers as it pleases: ``answers`` are posted to the callback URL, one after the other."""

    def __init__(self, answers):
        self.answers = answers
        self.statuses = []
        self.invoked = []
        self.posting = set()

    async def __call__(self, scope, receive, send):
        body = b""
        while scope["method"] == "POST":
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if scope["path"] == "/invoke":
            self.invoked.append(json.loads(body))
            task = asyncio.create_task(self.post(self.invoked[-1]))
            self.posting.add(task)
        tool = {"name": "busy", "description": "Be busy.", "inputSchema": {"type": "object"}}
        manifest = {"name": "unruly", "endpoint": f"{self.url}/invoke", "tools": [tool]}
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(manifest).encode()})

    async def post(self, call):
        async with httpx.AsyncClient() as client:
            for spoil, answer in self.answers:
                url = call["callback_url"] + spoil
                result = {"type": "tool_result", "group_id": call["group_id"], "id": call["id"], "text": "the answer"}
                self.statuses.append((await client.post(url, json={**result, **answer})).status_code)

    async def __aenter__(self):
        self.server = uvicorn.Server(uvicorn.Config(self, log_config=None, lifespan="off"))
        self.server.capture_signals = contextlib.nullcontext
        self.listening = socket.create_server((HOST, 0))
        self.url = f"http://{HOST}:{self.listening.getsockname()[1]}"
        self.serving = asyncio.create_task(self.server.serve(sockets=[self.listening]))
        return self

    async def __aexit__(self, *_):
        await asyncio.gather(*self.posting)
        self.server.should_exit = True
        await self.serving


async def test_p8_a_tool_that_answers_for_others_and_more_than_once_is_heard_once(open_agent):
    answers = [
        ("", {"id": "call-of-another"}),
        ("", {"group_id": "thread-of-another"}),
        ("0", {}),
        ("", {"type": "nonsense"}),
        ("", {}),
        ("", {"text": "something else"}),
    ]
    async with Unruly(answers) as server:
        model = ScriptedModel(lambda request: calls("busy") if heard(request) == "go" else says(heard(request)))
        agent = open_agent(model=model, tool_servers=[server.url])
        async with agent.hosted():
            await agent.send("c", "go")
            await agent.hears("the answer", "c")
            await asyncio.gather(*server.posting)
            await agent.idle()
    assert server.statuses == [403, 403, 401, 400, 200, 200]
    assert await agent.told("c") == ["the answer"]
    assert [entry.kind for entry in await agent.history("c")] == ["user", "tool_call", "tool_result", "assistant"]


async def test_a_slow_tool_holds_up_nobody(open_agent):
    async with Unruly([]) as server:
        model = ScriptedModel(lambda request: calls("busy") if heard(request) == "go" else says(heard(request)))
        agent = open_agent(model=model, tool_servers=[server.url])
        async with agent.hosted() as host:
            await agent.send("c", "go")
            await agent.hears("busy", "c", "tool_call")
            await agent.idle()

            async def nothing_runs():
                return not host._slices

            # The slice ends although the tool does not answer.
            await until(nothing_runs)
            await agent.send("c", "are you there?")
            await agent.hears("are you there?", "c")
    assert len(server.invoked) == 1
