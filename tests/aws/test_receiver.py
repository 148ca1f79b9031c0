"""The receiver behind a function URL: what it answers, and what comes of it (P8)."""

import base64
import json
import subprocess
import sys

import pytest

from infinity_agents.adapters.memory import MemoryBlobStore, MemoryInputQueue, MemoryStateStore
from infinity_agents.aws import receiver
from infinity_agents.aws.sandbox import Sandbox
from infinity_agents.conversation.content import Blob
from infinity_agents.errors import StoreUnavailable
from infinity_agents.rap.callbacks import callback_url
from infinity_agents.receiving import NOT_QUEUED, CallbackReceiver
from infinity_agents.testing.doubles import FrozenClock
from infinity_agents.wire.inputs import decode
from infinity_agents.wire.keys import Keyring

KEYRING = Keyring({"k": b"a secret of more than 16 characters"})
BASE = "https://abc123.lambda-url.eu-central-1.on.aws"
URL = callback_url(BASE, KEYRING, "c", "call-1", "tools")
RESULT = {"type": "tool_result", "group_id": "c", "id": "call-1", "text": "done"}
TRACEPARENT = f"00-{'1' * 32}-{'a' * 16}-01"


def request_of(url, body, *, method="POST", as_base64=False, headers=None):
    """Return the event of a function URL, payload format 2.0."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    path = url.removeprefix(BASE)
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"content-type": "application/json", "x-forwarded-proto": "https", **(headers or {})},
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "abc123",
            "domainName": "abc123.lambda-url.eu-central-1.on.aws",
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1"},
            "requestId": "id",
            "stage": "$default",
        },
        "body": base64.b64encode(content).decode() if as_base64 else content.decode(),
        "isBase64Encoded": as_base64,
    }


class Posting:
    """The handler over memory."""

    def __init__(self, monkeypatch, queue=None):
        clock = FrozenClock()
        self.queue, self.state, self.blobs = queue or MemoryInputQueue(clock), MemoryStateStore(), MemoryBlobStore()
        self.built = 0

        async def build():
            self.built += 1
            return CallbackReceiver(
                keyring=KEYRING,
                inputs=self.queue,
                state=self.state,
                blobs=self.blobs,
                clock=clock,
                inline_bytes=1000,
                max_bytes=200_000,
            )

        self.sandbox = Sandbox(build)
        monkeypatch.setattr(receiver, "sandbox", self.sandbox)

    def post(self, url, body, **more):
        answer = receiver.handler(request_of(url, body, **more), None)
        assert answer["headers"] == {"content-type": "application/json"}
        return answer["statusCode"], json.loads(answer["body"])

    def run(self, work):
        return self.sandbox.run(lambda _: work)

    def queued(self):
        groups = self.run(self.queue.receive(groups=100, batch=100, visibility=0))
        return [
            decode(item.body, keyring=KEYRING, queue_id=item.queue_id, group_id=item.group_id, dedup_id=item.dedup_id)
            for group in groups
            for item in group
        ]


@pytest.fixture
def posting(monkeypatch):
    return Posting(monkeypatch)


@pytest.mark.parametrize("as_base64", [False, True])
def test_a_result_is_put_on_the_queue_with_our_proof(posting, as_base64):
    assert posting.post(URL, RESULT, as_base64=as_base64) == (200, {"ok": True})
    (delivery,) = posting.queued()
    assert delivery.proven
    content = delivery.message.content
    assert (content.id, content.tool_set, content.content[0].text) == ("call-1", "tools", "done")


def test_a_result_posted_three_times_is_one_message_and_one_sandbox(posting):
    for text in ("done", "done again", "done once more"):
        assert posting.post(URL, {**RESULT, "text": text}) == (200, {"ok": True})
    assert len(posting.queued()) == 1
    assert posting.built == 1


@pytest.mark.parametrize(
    ("headers", "trace"),
    [
        ({"traceparent": TRACEPARENT}, {"traceparent": TRACEPARENT}),
        ({"traceparent": TRACEPARENT, "tracestate": "a=1"}, {"traceparent": TRACEPARENT, "tracestate": "a=1"}),
        ({"traceparent": TRACEPARENT.upper()}, None),
        ({"tracestate": "a=1"}, None),
        ({}, None),
    ],
)
def test_the_trace_of_a_callback_is_that_of_the_message(posting, headers, trace):
    assert posting.post(URL, RESULT, headers=headers) == (200, {"ok": True})
    (delivery,) = posting.queued()
    assert (delivery.message.trace, delivery.proven) == (trace, True)


def test_a_view_goes_to_the_state_store_alone(posting):
    view = {"type": "view_update", "group_id": "c", "view_type": "board", "content": {"n": 1}}
    assert posting.post(URL, view) == (200, {"ok": True})
    assert posting.run(posting.state.views("c")) == {"board": {"n": 1}}
    assert posting.queued() == []


def test_large_parts_go_to_the_blob_store_first(posting):
    assert posting.post(URL, {**RESULT, "text": "x" * 100_000})[0] == 200
    (delivery,) = posting.queued()
    (part,) = delivery.message.content.content
    assert isinstance(part, Blob)
    assert json.loads(posting.run(posting.blobs.get(part.sha256)))["text"] == "x" * 100_000


@pytest.mark.parametrize("path", ["", "/", "/no.token", f"/{URL.rpartition('/')[2][:-1]}", f"/{'x' * 5000}"])
def test_p8_a_callback_without_a_right_token_is_401_whatever_its_body_is(posting, path):
    status, fields = posting.post(BASE + path, b"no JSON, and too large" * 100_000)
    assert (status, set(fields)) == (401, {"error"})
    assert posting.queued() == []


def test_p8_a_token_speaks_for_its_own_call_alone(posting):
    for about in ({"id": "call-2"}, {"group_id": "another"}):
        assert posting.post(URL, {**RESULT, **about})[0] == 403
    assert posting.queued() == []


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"no JSON", 400), (b"\xff", 400), ({"type": "x"}, 400), ({**RESULT, "text": "x" * 200_000}, 413)],
)
def test_what_cannot_be_taken_is_refused_with_a_reason(posting, body, status):
    answered, fields = posting.post(URL, body, as_base64=True)
    assert (answered, set(fields)) == (status, {"error"})
    assert posting.queued() == []


def test_a_body_that_is_no_base64_is_refused_once_the_token_is_right(posting):
    event = {**request_of(URL, RESULT), "isBase64Encoded": True}
    assert receiver.handler(event, None)["statusCode"] == 400
    assert receiver.handler({**event, "rawPath": "/wrong"}, None)["statusCode"] == 401
    assert posting.queued() == []


def test_another_method_is_405(posting):
    assert posting.post(URL, RESULT, method="GET")[0] == 405


@pytest.mark.parametrize("error", [StoreUnavailable("away"), RuntimeError("a bug")])
def test_what_could_not_be_put_on_the_queue_is_500(monkeypatch, error):
    class Failing(MemoryInputQueue):
        async def send(self, body, *, group_id, dedup_id):
            raise error

    assert Posting(monkeypatch, Failing(FrozenClock())).post(URL, RESULT) == (500, {"error": NOT_QUEUED})


def test_a_receiver_loads_no_database_driver_and_no_model():
    program = (
        "import sys, infinity_agents.aws.receiver\n"
        "print(*({'psycopg', 'httpx', 'jsonschema', 'infinity_agents.adapters.bedrock'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
