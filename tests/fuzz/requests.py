"""What answers HTTP: functions behind their URLs, the pages of links, the callback server, tool servers.

Whatever is posted, the answer says what is wrong with it: a status of 5xx would be our own fault.
"""

import asyncio
import hashlib
import hmac
import json
import os
from contextlib import asynccontextmanager
from random import Random
from urllib.parse import urlencode

from infinity_agents import ToolServer
from infinity_agents.adapters.httpx_client import HttpxClient
from infinity_agents.adapters.memory import MemoryBlobStore, MemoryInputQueue, MemoryStateStore
from infinity_agents.adapters.memory_records import MemoryRecords
from infinity_agents.adapters.slack_web import SlackWebClient
from infinity_agents.aws import github_webhook, receiver
from infinity_agents.aws.http_events import NoRequest, request_of
from infinity_agents.aws.tool_servers import ToolFunction
from infinity_agents.aws_clients import AwsClients
from infinity_agents.local.callbacks import PATH, CallbackApplication
from infinity_agents.mcp.links import Links
from infinity_agents.mcp.pages import LinkPages, fields_of
from infinity_agents.mcp.servers import HttpServer
from infinity_agents.mcp.vault import Vault
from infinity_agents.rap.callbacks import callback_url
from infinity_agents.rap.posting import CallbackSender
from infinity_agents.receiving import CallbackReceiver
from infinity_agents.settings.slack import SlackAccess
from infinity_agents.slack.files import SlackFiles
from infinity_agents.slack.receiver import SlackReceiver, SlackRequests
from infinity_agents.slack.signing import signature
from infinity_agents.testing.aws.lambda_runtime import LambdaService, Reply, request_event
from infinity_agents.testing.doubles import FrozenClock
from infinity_agents.testing.slack import SlackStandIn
from infinity_agents.toolsets.github_events import Filters, Webhook
from infinity_agents.wire.inputs import decode
from tests.fuzz.decoders import BASE, CALLBACKS, INVOCATION, KEYRING, NOTICES
from tests.fuzz.mutation import broken_bytes, mutated, odd_text
from tests.fuzz.running import Target

HOST = "https://abc123.lambda-url.eu-central-1.on.aws"
CALLBACK = callback_url(HOST, KEYRING, "c", "call-1", "tools")
REFUSALS = {400, 401, 403, 404, 405, 413, 415}


def encoded(random: Random, text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return broken_bytes(random, data) if random.randrange(12) == 0 else data


def read_json(text: str):
    """Return the JSON value, and whether it is one: what is none does not come as an event."""
    try:
        return json.loads(text), True
    except (ValueError, RecursionError):
        return None, False


# ------------------------------------------------------------------------------------------ callbacks


class Receiving:
    """A receiver over memory, and what it has put on its queue."""

    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.queue, self.state = MemoryInputQueue(self.clock), MemoryStateStore()
        self.receiver = CallbackReceiver(
            keyring=KEYRING,
            inputs=self.queue,
            state=self.state,
            blobs=MemoryBlobStore(),
            clock=self.clock,
            inline_bytes=10_000,
            max_bytes=400_000,
        )

    async def check(self, status: int, body: bytes | None) -> None:
        """Look at what was taken: it is proven and can be read, and what was refused is not there."""
        assert status == 200 or status in REFUSALS, f"the answer is {status}"
        groups = await self.queue.receive(groups=10, batch=10, visibility=30)
        taken = [item for group in groups for item in group]
        await self.queue.delete(taken)
        deliveries = [
            decode(item.body, keyring=KEYRING, queue_id=item.queue_id, group_id=item.group_id) for item in taken
        ]
        assert all(delivery.proven for delivery in deliveries)
        if status != 200:
            assert deliveries == [], "what was refused is on the queue"
        elif body is not None and json.loads(body)["type"] != "view_update":
            self.clock.advance(600)
            assert len(deliveries) == 1, "what was taken is not on the queue"


def a_callback(random: Random) -> tuple[str, bytes]:
    """Return a path, and what is posted there."""
    url = CALLBACK if random.randrange(5) else odd_text(random, CALLBACK)
    return url.removeprefix(HOST), encoded(random, mutated(random, random.choice(CALLBACKS)))


def a_function_event(random: Random) -> str:
    path, body = a_callback(random)
    event = request_event("POST", path, {"content-type": "application/json"}, body)
    event["requestContext"]["requestId"], event["requestContext"]["timeEpoch"] = "id", 0
    event["requestContext"]["time"] = "now"
    return mutated(random, event, None if random.randrange(2) else 0)


@asynccontextmanager
async def receiving_function():
    receiving = Receiving()

    async def check(text: str) -> None:
        event, is_one = read_json(text)
        if not is_one:
            return
        receiving.queue.data.__init__()
        try:
            answer = await receiver._answered(receiving.receiver, event)
        except NoRequest:
            return
        json.dumps(answer).encode()
        try:
            body = request_of(event).body
        except ValueError:
            body = None
        await receiving.check(answer["statusCode"], body)

    yield check


async def asked(
    application, method: str, path: str, body: bytes, *, query: bytes = b"", headers=()
) -> tuple[int, bytes]:
    """Return the status and the body with which an ASGI application answers."""
    status, answered = 0, b""

    async def receive():
        return {"type": "http.request", "body": body}

    async def send(message):
        nonlocal status, answered
        if message["type"] == "http.response.start":
            status = message["status"]
            assert all(isinstance(each, bytes) for pair in message["headers"] for each in pair)
        else:
            answered += message["body"]

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "scheme": "http",
        "root_path": "",
        "headers": list(headers),
        "server": ("127.0.0.1", 8001),
    }
    await application(scope, receive, send)
    return status, answered


@asynccontextmanager
async def callback_server():
    receiving = Receiving()
    application = CallbackApplication(receiving.receiver)

    async def check(made: tuple[str, bytes]) -> None:
        path, body = made
        receiving.queue.data.__init__()
        status, _ = await asked(application, "POST", PATH + path, body, headers=[(b"traceparent", body[:60])])
        await receiving.check(status, body)

    yield check


# ---------------------------------------------------------------------------------------- tool servers


def the_tools() -> ToolServer:
    server = ToolServer(name="tools", url=BASE)

    @server.tool(read_only=True)
    async def get_weather(city: str, days: int = 1, more: list[str | None] | None = None) -> str:
        """Tell the weather."""
        return city * days

    return server


def a_request(random: Random) -> tuple[str, str, bytes]:
    paths = {
        "/invoke": INVOCATION,
        **{
            f"/{name}": fields
            for name, fields in zip(
                ("close_thread", "cancel_tool_call", "migrate", "choices/abc"), NOTICES.values(), strict=True
            )
        },
        "/.well-known/rap-toolset": {},
    }
    path = random.choice([*paths, "/invoke", "/invoke"])
    fields = {**paths[path]}
    if "callback_url" in fields:
        # Nobody listens there: what comes of a call is another's concern.
        fields["callback_url"] = "http://127.0.0.1:9/callback"
    body = encoded(random, mutated(random, fields))
    method = "GET" if path.startswith("/.") else "POST"
    return (
        odd_text(random, method) if random.randrange(20) == 0 else method,
        odd_text(random, path) if random.randrange(20) == 0 else path,
        body,
    )


@asynccontextmanager
async def tool_server():
    """The server takes a call, or says what is wrong with it. It carries out none here: it hands them on."""
    server, taken = the_tools(), []

    async def take(invocation, base_url):
        taken.append(invocation)

    server.host(take=take, sign=lambda *_: {})

    async def check(made: tuple[str, str, bytes]) -> None:
        method, path, body = made
        taken.clear()
        headers = [(b"host", b"127.0.0.1:8001"), (b"content-type", b"application/json")]
        status, answered = await asked(server, method, path, body, headers=headers)
        assert status == 200 or status in REFUSALS, f"the answer is {status}"
        json.loads(answered)
        if path == "/invoke" and method == "POST":
            assert bool(taken) == (status == 200)

    yield check


@asynccontextmanager
async def carrying_out():
    """Whatever a call's arguments are, it ends in one result, and its sender is told."""
    posted = []

    class Sender(CallbackSender):
        async def post(self, url, callback, *, patience=0.0):
            posted.append(json.dumps(callback.to_json()).encode())

    async def check(made: tuple[str, str, bytes]) -> None:
        _, _, body = made
        posted.clear()
        # Another server each time: one does a call once, however often it comes.
        server = the_tools()
        server._sender = Sender()
        status, _ = await asked(server, "POST", "/invoke", body, headers=[(b"host", b"127.0.0.1:8001")])
        await asyncio.gather(*server._running)
        assert status == 200 or status in REFUSALS, f"the answer is {status}"
        assert len(posted) == (status == 200), f"{len(posted)} results of a call that was answered {status}"

    yield check


class Function:
    """A function that takes what it is handed, and does nothing with it."""

    name = "tools"
    arn = "arn:aws:lambda:eu-central-1:123456789012:function:tools"

    def __init__(self) -> None:
        self.events = []

    def invoke(self, event):
        self.events.append(event)
        return Reply(b"null")


AWS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu-central-1"}


@asynccontextmanager
async def tool_function():
    service, function = LambdaService(), Function()
    service.add(function)
    before = dict(os.environ)
    os.environ.update({**AWS, "AWS_ENDPOINT_URL_LAMBDA": service.url})
    handled = ToolFunction(the_tools(), name="tools", clients=AwsClients(), claims=None, payloads=MemoryBlobStore())

    async def check(text: str) -> None:
        event, is_one = read_json(text)
        if not is_one or (isinstance(event, dict) and event.get("type") == "tool_invocation"):
            return
        function.events.clear()
        try:
            answer = await handled.handle(event, seconds=60.0)
        except NoRequest:
            return
        status = answer["statusCode"]
        json.dumps(answer).encode()
        assert status == 200 or status in REFUSALS, f"the answer is {status}"

    yield check
    service.settle()
    service.close()
    os.environ.clear()
    os.environ.update(before)


def a_tool_event(random: Random) -> str:
    method, path, body = a_request(random)
    event = request_event(method, path, {"content-type": "application/json", "host": "127.0.0.1"}, body)
    event["requestContext"] |= {"requestId": "id", "timeEpoch": 0, "time": "now"}
    return mutated(random, event, None if random.randrange(2) else 0)


# ----------------------------------------------------------------------------------------------- Slack

EVENT = {
    "token": "verification",
    "team_id": "T1",
    "api_app_id": "A1",
    "event": {
        "type": "app_mention",
        "channel": "C1",
        "user": "U1",
        "ts": "1700000000.000100",
        "thread_ts": "1700000000.000100",
        "text": "<@UBOT> hello <https://example.com|there> <#C1|general>",
        "files": [
            {"id": "F1", "name": "a.png", "mimetype": "image/png", "size": 10, "url_private": "http://127.0.0.1:9/a"}
        ],
        "attachments": [{"is_share": True, "text": "shared"}],
    },
    "type": "event_callback",
    "event_id": "Ev1",
    "event_time": 1_700_000_000,
    "authorizations": [{"team_id": "T1", "user_id": "UBOT", "is_bot": True}],
}
MESSAGE = {**EVENT, "event": {**EVENT["event"], "type": "message", "channel": "D1", "channel_type": "im"}}
OPENED = {
    **EVENT,
    "event": {
        "type": "assistant_thread_started",
        "assistant_thread": {"user_id": "U1", "channel_id": "D1", "thread_ts": "1700000000.000100"},
    },
}
CLICK = {
    "type": "block_actions",
    "user": {"id": "U1", "team_id": "T1"},
    "team": {"id": "T1"},
    "container": {"type": "message", "message_ts": "1700000000.000200", "channel_id": "C1"},
    "message": {"thread_ts": "1700000000.000100"},
    "actions": [
        {
            "action_id": "infinity_choice_0",
            "value": json.dumps({"thread": "slack.T1.C1.1700000000.000100", "choice": "call-1", "selected": 0}),
        }
    ],
}


def a_slack_request(random: Random) -> tuple[bool, bytes]:
    """Return whether it is a form, and the body."""
    is_form = random.randrange(3) == 0
    if not is_form:
        return False, encoded(random, mutated(random, random.choice((EVENT, MESSAGE, OPENED))))
    click = {**CLICK, "actions": [dict(CLICK["actions"][0])]}
    if random.randrange(2):
        click["actions"][0]["value"] = mutated(random, json.loads(CLICK["actions"][0]["value"]))
    text = mutated(random, click)
    form = text if random.randrange(20) == 0 else urlencode({"payload": text.encode("utf-8", "surrogatepass")})
    return True, encoded(random, form)


@asynccontextmanager
async def slack_receiver():
    clock = FrozenClock()
    with SlackStandIn.running() as slack:
        slack.now = lambda: clock.now().timestamp()
        web, http = SlackWebClient(slack.token, url=slack.api_url, timeout=5), HttpxClient()
        requests = SlackRequests(
            SlackReceiver(
                inputs=MemoryInputQueue(clock),
                state=MemoryStateStore(),
                blobs=MemoryBlobStore(),
                web=web,
                files=SlackFiles(web, http, slack.token, slack.api_url, clock),
                access=SlackAccess.parse("T1"),
                clock=clock,
                inline_bytes=10_000,
            ),
            slack.signing_secret,
        )

        async def check(made: tuple[bool, bytes]) -> None:
            is_form, body = made
            timestamp = str(int(slack.now()))
            headers = {
                "Content-Type": "application/x-www-form-urlencoded" if is_form else "application/json",
                "X-Slack-Request-Timestamp": timestamp,
                "X-Slack-Signature": signature(slack.signing_secret, timestamp, body),
            }
            answered = await requests.answer(headers, body)
            assert answered.status in {200, 400}, f"the answer is {answered.status}"
            json.dumps(answered.body).encode()

        yield check
        await http.aclose()


# ---------------------------------------------------------------------------------------------- GitHub

REPOSITORY = {"full_name": "octocat/Hello-World"}
COMMIT = {"id": "a" * 40, "message": "one\ntwo", "author": {"name": "Ada"}}
DELIVERIES = (
    ("push", {"repository": REPOSITORY, "ref": "refs/heads/main", "after": "a" * 40, "commits": [COMMIT] * 12}),
    (
        "pull_request",
        {
            "repository": REPOSITORY,
            "action": "opened",
            "sender": {"login": "ada"},
            "pull_request": {
                "number": 7,
                "title": "A title",
                "body": "A body",
                "head": {"sha": "a" * 40, "ref": "x"},
                "base": {"ref": "main"},
            },
        },
    ),
    (
        "issue_comment",
        {
            "repository": REPOSITORY,
            "action": "created",
            "issue": {"number": 3, "title": "T"},
            "comment": {"body": "hello", "commit_id": "a" * 40},
        },
    ),
    (
        "check_run",
        {
            "repository": REPOSITORY,
            "action": "completed",
            "check_run": {
                "id": 1,
                "name": "build",
                "status": "completed",
                "conclusion": "success",
                "head_sha": "a" * 40,
                "html_url": "https://github.com/x",
                "check_suite": {"id": 5, "head_branch": "main"},
                "pull_requests": [{"number": 7}],
            },
        },
    ),
    (
        "workflow_run",
        {
            "repository": REPOSITORY,
            "action": "requested",
            "workflow_run": {
                "id": 2,
                "run_attempt": 1,
                "name": "CI",
                "status": "queued",
                "conclusion": None,
                "head_sha": "a" * 40,
                "head_branch": "main",
            },
        },
    ),
)
SECRET = b"It's a Secret to Everybody"
FILTERS = (Filters(), Filters(("push",), ("opened",), "main", "Ada", "aaaaaaa", 7, 3), Filters(include_own=True))


def a_delivery(random: Random) -> tuple[str, bytes]:
    kind, payload = random.choice(DELIVERIES)
    return odd_text(random, kind) if random.randrange(15) == 0 else kind, encoded(random, mutated(random, payload))


@asynccontextmanager
async def github_deliveries():
    clock = FrozenClock()

    async def check(made: tuple[str, bytes]) -> None:
        kind, body = made
        records, blobs = MemoryRecords(clock), MemoryBlobStore()
        webhook = Webhook(SECRET, records, blobs, CallbackSender(), "agent")
        headers = {
            "content-type": "application/json",
            "x-github-event": kind,
            "x-github-delivery": "d-1",
            "x-hub-signature-256": "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest(),
        }
        event = {"httpMethod": "POST", "path": "/github", "headers": headers}
        event |= {"body": body.decode("latin-1"), "isBase64Encoded": False}
        try:
            event["body"] = body.decode()
        except UnicodeDecodeError:
            return
        answer = await github_webhook._answered(webhook, event)
        assert answer["statusCode"] in {200, 400}, f"the answer is {answer['statusCode']}"
        json.dumps(answer).encode()
        _told(headers, body, kind)

    yield check


def _told(headers, body: bytes, kind: str) -> None:
    from infinity_agents.toolsets import github_events

    try:
        delivered = github_events._read(headers, body, kind)
    except github_events.BadDelivery:
        return
    if delivered is not None:
        told = delivered.told()
        told.encode()
        assert len(told) < 60_000, f"a model is told {len(told)} characters of one event"
        for filters in FILTERS:
            filters.let_through(delivered, "agent")


# -------------------------------------------------------------------------------------- the page of links


@asynccontextmanager
async def link_pages():
    clock = FrozenClock()
    vault = Vault(MemoryRecords(clock), b"a secret for the tests alone")
    links = Links(HttpServer("https://mcp.example.com/mcp"), vault=vault, callback_url=f"{BASE}/oauth", clock=clock)

    async def resume(user, waiting):
        raise AssertionError("nothing waits")

    pages = LinkPages(links, vault, resume)

    async def check(made: tuple[str, bytes]) -> None:
        method, fields = made
        query = fields if method == "GET" else b""
        status, page = await asked(pages, method, "/oauth/callback", fields, query=query)
        assert status in REFUSALS, f"the answer is {status}"
        assert page.startswith(b"<!doctype html>"), page[:100]
        assert b"<script" not in page
        fields_of(fields.decode("latin-1"))

    yield check


def a_page_request(random: Random) -> tuple[str, bytes]:
    fields = {"state": "s", "code": "c", "iss": "https://a", "token": "t", "error": "denied", "error_description": "no"}
    for name in list(fields):
        if random.randrange(3) == 0:
            del fields[name]
        elif random.randrange(2):
            fields[name] = odd_text(random, fields[name])
    data = urlencode({name: value.encode("utf-8", "surrogatepass") for name, value in fields.items()}).encode()
    method = random.choice(("GET", "POST", "POST", odd_text(random, "GET")))
    return method, broken_bytes(random, data) if random.randrange(3) == 0 else data


TARGETS = (
    Target("receiving_function", a_function_event, receiving_function),
    Target("callback_server", a_callback, callback_server),
    Target("tool_server", a_request, tool_server),
    Target("carrying_out", a_request, carrying_out),
    Target("tool_function", a_tool_event, tool_function),
    Target("slack_receiver", a_slack_request, slack_receiver),
    Target("github_deliveries", a_delivery, github_deliveries),
    Target("link_pages", a_page_request, link_pages),
)
