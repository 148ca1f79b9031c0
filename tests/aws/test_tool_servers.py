"""A tool server on Lambda: the acknowledgement comes before the work, and every call ends in one result."""

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from infinity_agents import ToolServer
from infinity_agents.adapters.httpx_client import HttpxClient
from infinity_agents.aws import ec2_events, tool_failures, tool_handler
from infinity_agents.aws.http_events import NoRequest
from infinity_agents.aws.sandbox import Sandbox
from infinity_agents.aws.tool_servers import signed
from infinity_agents.errors import Misconfigured
from infinity_agents.rap.conformance import check
from infinity_agents.rap.server import ToolContext
from infinity_agents.testing.aws.lambda_runtime import FunctionUrl, LambdaService, Reply, request_event
from tests.aws.test_http_events import NOT_REQUESTS


class Context:
    def __init__(self, seconds):
        self._until = time.monotonic() + seconds

    def get_remaining_time_in_millis(self):
        return int((self._until - time.monotonic()) * 1000)


class InProcess:
    """A function whose every invocation is a thread with a sandbox of its own. It dies where ``dies`` says so."""

    def __init__(self, name, make, seconds=60.0):
        self.name = name
        self.arn = f"arn:aws:lambda:eu-central-1:123456789012:function:{name}"
        self.seconds = seconds
        self.events = []
        self.dies = lambda event: False
        self._make = make

    def invoke(self, event):
        self.events.append(event)
        if self.dies(event):
            return Reply(b'{"errorType": "Runtime.ExitError", "errorMessage": "signal: killed"}', "Unhandled")
        try:
            return Reply(json.dumps(self._make()(event, Context(self.seconds))).encode())
        except Exception as error:  # noqa: BLE001 - the platform reports whatever it is
            return Reply(json.dumps({"errorType": type(error).__name__, "errorMessage": str(error)}).encode(), "x")


class Callbacks:
    """Takes callbacks, or refuses them with the statuses in ``refusals``, and remembers what came when."""

    def __init__(self, order):
        self.bodies, self.headers, self.refusals = [], [], []
        callbacks = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = callbacks.refusals.pop(0) if callbacks.refusals else 200
                if status == 200:
                    callbacks.bodies.append(body)
                    callbacks.headers.append(dict(self.headers))
                    order.append(body["type"])
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"
        threading.Thread(target=lambda: self._server.serve_forever(poll_interval=0.02), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def order():
    return []


@pytest.fixture
def callbacks(order):
    callbacks = Callbacks(order)
    yield callbacks
    callbacks.close()


@pytest.fixture
def service(monkeypatch):
    service = LambdaService()
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", service.url)
    yield service
    service.close()


@pytest.fixture
def environment(deployed, monkeypatch):
    variables = {
        "CLAIMS_TABLE_NAME": deployed.table,
        "PAYLOAD_BUCKET": deployed.bucket,
        "AWS_LAMBDA_FUNCTION_NAME": "tools",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def answering(service, environment, monkeypatch):
    monkeypatch.setattr(tool_failures, "sandbox", Sandbox(tool_failures.sandbox._build))
    return InProcess("failures", lambda: tool_failures.handler)


@pytest.fixture
def deploy(service, environment, answering):
    """Deploys what ``make`` makes of a server, and returns the function."""

    def deployed(make, seconds=60.0):
        function = InProcess("tools", lambda: tool_handler(make()), seconds)
        service.add(function, on_failure=answering)
        return function

    return deployed


@pytest.fixture
def tools(order, deploy):
    gates = {"started": threading.Event(), "go": threading.Event()}

    def make():
        server = ToolServer(name="tools")

        @server.tool
        async def work(text: str = "done") -> str:
            """Work."""
            order.append("work")
            return text

        @server.tool
        def fail() -> str:
            """Fail."""
            raise ValueError("no such city")

        @server.tool
        def long() -> str:
            """Say a lot."""
            return "x" * 7_000_000

        @server.tool
        def wait() -> str:
            """Wait."""
            order.append("wait")
            gates["started"].set()
            gates["go"].wait(30)
            return "too late"

        @server.tool
        async def ask(ctx: ToolContext) -> str:
            """Ask."""
            return await ctx.ask("Which?", ["a", "b"])

        @server.tool(idempotent=True)
        def again() -> str:
            """Do the same again."""
            order.append("again")
            return "done again"

        @server.on_close
        def closed(thread_id: str) -> None:
            order.append(f"closed {thread_id}")

        return server

    function = deploy(make)
    function.gates = gates
    yield function
    gates["go"].set()


@pytest.fixture
def invoke(service, callbacks, order):
    """Posts a call to a function, and returns the status; ``settled`` waits for what comes of it."""

    def invoked(function, operation, call_id="call-1", *, thread="thread-1", settled=True, headers=None, **arguments):
        fields = {
            "operation": operation,
            "arguments": arguments,
            "id": call_id,
            "call_id": "model-1",
            "callback_url": callbacks.url,
            "group_id": thread,
        }
        answer = post(function, "/invoke", fields, headers)
        order.append(answer["statusCode"])
        if settled:
            service.settle()
        return answer

    return invoked


def post(function, path, fields, headers=None):
    told = {"Host": "tools.example.com", **(headers or {})}
    event = request_event("POST", path, told, json.dumps(fields).encode())
    return function.invoke(event).value


class TestCalls:
    def test_the_acknowledgement_comes_first(self, tools, invoke, callbacks, order, service):
        held = threading.Event()
        original = service._invoked
        service._invoked = lambda *arguments: (held.wait(10), original(*arguments))
        invoke(tools, "work", settled=False)
        held.set()
        service.settle()
        assert order == [200, "work", "tool_result"]
        assert callbacks.bodies == [
            {"type": "tool_result", "group_id": "thread-1", "id": "call-1", "call_id": "model-1", "text": "done"}
            | {"subscription": False, "is_error": False}
        ]

    @pytest.mark.parametrize("length", [1, 1_100_000])
    @pytest.mark.parametrize("dies", [False, True])
    def test_the_result_has_the_trace_of_the_call(self, tools, invoke, callbacks, length, dies):
        tools.dies = lambda event: dies and "token" in event
        trace = {"traceparent": f"00-{'1' * 32}-{'a' * 16}-01", "tracestate": "a=1"}
        invoke(tools, "work", headers=trace, text="x" * length)
        (headers,) = callbacks.headers
        assert {name.lower(): value for name, value in headers.items()}.items() >= trace.items()
        assert callbacks.bodies[0]["is_error"] == dies

    @pytest.mark.parametrize(
        ("operation", "text"),
        [
            ("fail", "ValueError: no such city"),
            ("long", "the tool_result has 7000"),
            ("ask", "RuntimeError: a tool cannot ask here"),
            ("nothing", "There is no tool 'nothing' here"),
        ],
    )
    def test_what_goes_wrong_is_an_error_result(self, tools, invoke, callbacks, operation, text):
        assert invoke(tools, operation)["statusCode"] == 200
        (result,) = callbacks.bodies
        assert result["is_error"]
        assert text in result["text"]

    def test_a_tool_is_cut_off_in_time_to_say_so(self, tools, invoke, callbacks):
        tools.seconds = 0.3
        invoke(tools, "wait")
        (result,) = callbacks.bodies
        assert (result["is_error"], result["text"][:21]) == (True, "wait was cut off afte")

    def test_arguments_over_a_megabyte_go_by_the_bucket(self, tools, invoke, callbacks):
        text = "ä" * 900_000
        assert invoke(tools, "work", text=text)["statusCode"] == 200
        assert callbacks.bodies[0]["text"] == text
        assert "invocation" not in tools.events[1]

    def test_without_a_bucket_they_are_refused(self, tools, invoke, callbacks, monkeypatch):
        monkeypatch.delenv("PAYLOAD_BUCKET")
        answer = invoke(tools, "work", text="x" * 1_048_576)
        assert answer["statusCode"] == 413
        assert "PAYLOAD_BUCKET is unset" in answer["body"]
        assert len(tools.events) == 1

    def test_a_call_that_cannot_be_handed_over_is_not_acknowledged(self, tools, invoke, monkeypatch):
        monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "nobody")
        assert invoke(tools, "work")["statusCode"] == 500

    def test_a_body_in_base64(self, tools, callbacks, service):
        body = json.dumps({"thread_id": "thread-9"}).encode()
        event = request_event("POST", "/close_thread", {"Host": "tools.example.com"}, body)
        event |= {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}
        assert tools.invoke(event).value["statusCode"] == 200


class TestOnce:
    def test_a_repeat_is_answered_once(self, tools, invoke, callbacks, order):
        for _ in range(3):
            assert invoke(tools, "work")["statusCode"] == 200
        assert order.count("work") == len(callbacks.bodies) == 1

    def test_two_at_once_are_done_once(self, tools, invoke, callbacks, order):
        invoke(tools, "wait", settled=False)
        tools.gates["started"].wait(10)
        invoke(tools, "wait", settled=False)
        tools.gates["go"].set()
        invoke(tools, "work", "call-2")
        assert order.count("wait") == 1
        assert len(callbacks.bodies) == 2

    def test_another_thread_is_another_call(self, tools, invoke, callbacks):
        invoke(tools, "work")
        invoke(tools, "work", thread="thread-2")
        assert len(callbacks.bodies) == 2

    def test_a_table_is_needed_for_what_must_not_run_twice(self, tools, monkeypatch):
        monkeypatch.delenv("CLAIMS_TABLE_NAME")
        reply = tools.invoke(request_event("GET", "/.well-known/rap-toolset", {"Host": "t.example.com"}, b""))
        assert reply.value["errorType"] == Misconfigured.__name__
        assert "the tool work must not run twice" in reply.value["errorMessage"]


def is_second(event):
    return event.get("type") == "tool_invocation"


class TestDeaths:
    def test_a_call_whose_function_always_dies_ends_in_a_result(self, tools, invoke, callbacks, answering):
        tools.dies = is_second
        assert invoke(tools, "work")["statusCode"] == 200
        (result,) = callbacks.bodies
        assert result["is_error"]
        assert "work failed in its function: signal: killed" in result["text"]
        assert len(tools.events) == 1 + 3
        assert answering.events[0]["requestContext"]["condition"] == "RetriesExhausted"

    def test_also_one_that_went_by_the_bucket(self, tools, invoke, callbacks):
        tools.dies = is_second
        invoke(tools, "work", text="x" * 2_000_000)
        assert callbacks.bodies[0]["is_error"]

    def test_the_failures_function_tries_again_where_nobody_took_its_answer(
        self, tools, invoke, callbacks, answering, monkeypatch
    ):
        monkeypatch.setattr("infinity_agents.rap.posting.PATIENCE", 0.0)
        monkeypatch.setattr("infinity_agents.rap.posting.FIRST_PAUSE", 0.0)
        tools.dies = is_second
        callbacks.refusals[:] = [503]
        invoke(tools, "work")
        assert len(callbacks.bodies) == 1

    @pytest.mark.parametrize(("operation", "is_error"), [("wait", True), ("again", False)])
    def test_what_broke_off_is_done_again_only_if_it_is_idempotent(
        self, tools, invoke, callbacks, order, operation, is_error
    ):
        # The first try does the work and dies before it can say that it is done.
        callbacks.refusals[:] = [503] * 20
        tools.gates["go"].set()
        tools.seconds = 0.9

        def dies(event):
            if is_second(event) and len([event for event in tools.events if is_second(event)]) == 2:
                callbacks.refusals.clear()
            return False

        tools.dies = dies
        invoke(tools, operation)
        assert order.count(operation) == (1 if is_error else 2)
        assert [result["is_error"] for result in callbacks.bodies] == [is_error]


class TestLifecycle:
    def test_a_cancelled_call_does_not_begin(self, tools, invoke, callbacks, order):
        answer = post(tools, "/cancel_tool_call", {"thread_id": "thread-1", "tool_call_id": "call-1"})
        assert answer["statusCode"] == 200
        invoke(tools, "work")
        assert "work" not in order
        assert callbacks.bodies == []

    def test_a_running_one_is_cancelled_from_another_sandbox(self, tools, invoke, callbacks, service, monkeypatch):
        monkeypatch.setattr("infinity_agents.aws.tool_servers._CANCEL_POLL", 0.01)
        invoke(tools, "wait", settled=False)
        tools.gates["started"].wait(10)
        post(tools, "/cancel_tool_call", {"thread_id": "thread-1", "tool_call_id": "call-1"})
        service.settle()
        assert callbacks.bodies == []

    def test_hooks_are_done_when_the_answer_is_given(self, tools, order):
        assert post(tools, "/close_thread", {"thread_id": "thread-1"})["statusCode"] == 200
        assert order == ["closed thread-1"]

    def test_migrate_and_what_is_not_there(self, tools):
        notice = {"session_id": "s", "destination_url": "https://x.example.com"}
        assert post(tools, "/migrate", notice)["statusCode"] == 200
        assert post(tools, "/nothing", {})["statusCode"] == 404


class TestSignatures:
    def test_aws_urls_alone_are_signed(self, aws, clients):
        sign = signed(clients)
        for url in (
            "https://abc.lambda-url.eu-central-1.on.aws/t",
            "https://abc.execute-api.us-east-1.amazonaws.com/t",
        ):
            assert sign("POST", url, {}, b"{}")["Authorization"].startswith("AWS4-HMAC-SHA256 ")
        for url in (
            "https://lambda-url.eu-central-1.on.aws.evil.example/t",
            "http://abc.lambda-url.eu-central-1.on.aws/t",
            "https://example.com/x.lambda-url.eu-central-1.on.aws",
            "http://127.0.0.1:8000/t",
        ):
            assert sign("POST", url, {}, b"{}") == {}


@pytest.mark.parametrize(("body", "is_base64"), [("no base64!", True), ("\ud800", False)])
def test_a_body_that_cannot_be_read_is_refused(tools, body, is_base64):
    event = request_event("POST", "/invoke", {"Host": "t.example.com"}, b"x") | {
        "body": body,
        "isBase64Encoded": is_base64,
    }
    answer = tools.invoke(event).value
    assert answer["statusCode"] == 400
    assert "cannot be read" in answer["body"]


HANDED = {"type": "tool_invocation"}


@pytest.mark.parametrize("event", [*NOT_REQUESTS, HANDED, {**HANDED, "base_url": "x", "token": "t"}], ids=str)
def test_an_event_that_is_none_of_ours_is_named(tools, event):
    reply = tools.invoke(event)
    assert reply.value["errorType"] == NoRequest.__name__
    assert "this event " in reply.value["errorMessage"]


def test_a_request_of_a_rest_api_is_served(tools):
    told = {"httpMethod": "GET", "path": "/.well-known/rap-toolset", "headers": {"Host": "t.example.com"}}
    event = {**told, "requestContext": {"stage": "prod"}, "body": None, "isBase64Encoded": False}
    assert json.loads(tools.invoke(event).value["body"])["name"] == "tools"


@pytest.mark.parametrize("event", [*NOT_REQUESTS, {"requestPayload": {}}, {"requestPayload": None}], ids=str)
@pytest.mark.parametrize("function", [tool_failures, ec2_events], ids=lambda function: function.__name__)
def test_the_functions_beside_name_what_they_are_not_for(answering, function, event, deployed, monkeypatch):
    monkeypatch.setenv("INSTANCES_TABLE_NAME", deployed.table)
    monkeypatch.setattr(function, "sandbox", Sandbox(function.sandbox._build))
    with pytest.raises(NoRequest, match="this event "):
        function.handler(event, None)


class TestContract:
    async def test_a_server_keeps_the_protocol_behind_a_function_url(self, tools):
        await conforms(tools, examples={"work": {"text": "hello"}})


async def conforms(function, examples):
    url, http = FunctionUrl(function, iam=False), HttpxClient()
    try:
        findings = await check(url.url, http=http, examples=examples, settle=0.1)
    finally:
        await http.aclose()
        url.close()
    assert [finding for finding in findings if finding.verdict == "broken"] == []
    assert {"ok"} == {finding.verdict for finding in findings if finding.rule in {"done-once", "callbacks", "oversize"}}
