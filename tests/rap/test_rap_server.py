"""The server kit, over real HTTP: what tool authors write, and what a runtime sees of it."""

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import urllib.request
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from infinity_agents.conversation.content import Text
from infinity_agents.errors import Misconfigured
from infinity_agents.rap.callbacks import BadCallback, read_token, receive, token_in
from infinity_agents.rap.server import KNOWN_CALLS, ToolContext, ToolServer
from infinity_agents.rap.toolsets import RapToolServers, ToolSetConfig
from infinity_agents.wire import rap
from tests.rap.conftest import HANG, HANG_UP, MANIFEST_PATH, Answer, finished


class Unit(StrEnum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


class City(BaseModel):
    name: str
    population: int = 0


@dataclass
class Forecast:
    day: date
    degrees: float


class TestSchema:
    def schema(self, kit):
        [tool] = kit._tools.values()
        return tool.offered.to_json()

    def test_a_function_is_described_by_its_signature(self, kit):
        @kit.tool(read_only=True, long_running=True, display_script="args.city")
        def get_weather(
            city: Annotated[str, Field(description="A city", min_length=1)],
            unit: Unit = Unit.CELSIUS,
            days: int | None = None,
        ) -> str:
            """Tell the weather.

            More about it.
            """
            return ""

        described = self.schema(kit)
        assert described["name"] == "get_weather"
        assert described["description"] == "Tell the weather.\n\nMore about it."
        assert described["displayScript"] == "args.city"
        assert described["annotations"] == {
            "readOnly": True,
            "longRunning": True,
            "destructive": False,
            "idempotent": False,
        }
        assert described["inputSchema"] == {
            "type": "object",
            "additionalProperties": False,
            "required": ["city"],
            "$defs": {"Unit": {"title": "Unit", "type": "string", "enum": ["celsius", "kelvin"]}},
            "properties": {
                "city": {"type": "string", "description": "A city", "minLength": 1},
                "unit": {"$ref": "#/$defs/Unit", "default": "celsius"},
                "days": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            },
        }

    def test_the_context_is_none_of_the_models_business(self, kit):
        @kit.tool
        async def tool(ctx: ToolContext, x: int) -> None:
            """Do it."""

        assert list(self.schema(kit)["inputSchema"]["properties"]) == ["x"]

    def test_parameters_may_have_any_name(self, kit):
        @kit.tool
        def tool(schema: str, model_config: int, _x: bool, json: str = "", self: str = "") -> str:
            """Do it."""
            return ""

        schema = self.schema(kit)["inputSchema"]
        assert list(schema["properties"]) == ["schema", "model_config", "_x", "json", "self"]
        assert schema["required"] == ["schema", "model_config", "_x"]

    def test_the_function_stays_what_it_was(self, kit):
        def double(x: int) -> int:
            """Double it."""
            return 2 * x

        assert kit.tool(double) is double
        assert double(2) == 4

    def test_what_cannot_be_a_tool_says_why(self, kit):
        def undocumented() -> None: ...

        def untyped(x) -> None:
            """Do it."""

        def starred(*names: str) -> None:
            """Do it."""

        def positional(x: int, /) -> None:
            """Do it."""

        def receive_event__injected() -> None:
            """Do it."""

        def once() -> None:
            """Do it."""

        kit.tool(once)
        for function, reason in [
            (undocumented, "no docstring"),
            (untyped, "parameter x of the tool untyped has no type"),
            (starred, "passed by name"),
            (positional, "passed by name"),
            (receive_event__injected, "reserved"),
            (once, "twice"),
        ]:
            with pytest.raises(Misconfigured, match=reason):
                kit.tool(function)

    def test_its_name_is_checked(self):
        with pytest.raises(Misconfigured, match="1 to 128"):
            ToolServer(name="")


class TestDiscovery:
    async def test_a_runtime_understands_it(self, kit, serve, client):
        @kit.tool
        def get_city(city: City, forecasts: list[Forecast]) -> str:
            """Do it."""
            return ""

        url = await serve(kit)
        manifest = rap.parse_manifest((await client.get(url + MANIFEST_PATH)).content, url)
        assert (manifest.name, manifest.description) == ("test-tools", "Tools of a test")
        assert manifest.endpoint == url + "/invoke"

    async def test_the_endpoint_is_where_the_request_went(self, kit, serve, client):
        kit.tool(_noop)
        url = await serve(kit)
        answer = await client.get(url + MANIFEST_PATH, headers={"Host": "tools.example.com"})
        assert answer.json()["endpoint"] == "http://tools.example.com/invoke"

    async def test_or_where_it_is_told_to_be(self, serve, client):
        kit = ToolServer(name="t", url="https://tools.example.com/base/")
        kit.tool(_noop)
        url = await serve(kit)
        assert (await client.get(url + MANIFEST_PATH)).json()["endpoint"] == "https://tools.example.com/base/invoke"

    async def test_it_can_be_mounted(self, kit, serve, client):
        kit.tool(_noop)

        async def mounted(scope, receive, send):
            await kit({**scope, "root_path": "/tools"}, receive, send)

        url = await serve(mounted) + "/tools"
        assert (await client.get(url + MANIFEST_PATH)).json()["endpoint"] == url + "/invoke"

    async def test_a_server_without_tools_says_so(self, kit, serve, client):
        answer = await client.get(await serve(kit) + MANIFEST_PATH)
        assert answer.status_code == 500
        assert "tools" in answer.json()["error"]


def _noop() -> None:
    """Do nothing."""


class TestResults:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("Sunny", "Sunny"),
            ("", ""),
            (None, "Done."),
            ({"a": [1, None, "é"]}, '{"a": [1, null, "é"]}'),
            ([], "[]"),
            ([1, "a"], '[1, "a"]'),
            (1.5, "1.5"),
            (True, "true"),
            (City(name="Rome"), '{"name": "Rome", "population": 0}'),
            ([City(name="Rome")], '[{"name": "Rome", "population": 0}]'),
            (Forecast(date(2026, 1, 2), 3), '{"day": "2026-01-02", "degrees": 3}'),
            ("a\x00b", "a\x00b"),
            ("a\ud800b", "a\N{REPLACEMENT CHARACTER}b"),
            ({"a": "\ud800"}, '{"a": "\N{REPLACEMENT CHARACTER}"}'),
        ],
    )
    async def test_what_is_returned_becomes_text(self, kit, serve, result_of, value, text):
        @kit.tool
        async def tool() -> Any:
            """Do it."""
            return value

        assert await result_of(await serve(kit), "tool") == {
            "type": "tool_result",
            "group_id": "thread-1",
            "id": "call-1",
            "call_id": "model-1",
            "text": text,
            "subscription": False,
            "is_error": False,
        }

    async def test_arguments_arrive_as_their_types(self, kit, serve, result_of):
        seen = []

        @kit.tool
        def tool(city: City, unit: Unit, day: date, schema: str = "s") -> None:
            """Do it."""
            seen.append((city, unit, day, schema))

        await result_of(await serve(kit), "tool", {"city": {"name": "Rome"}, "unit": "kelvin", "day": "2026-01-02"})
        assert seen == [(City(name="Rome"), Unit.KELVIN, date(2026, 1, 2), "s")]

    @pytest.mark.parametrize(
        ("operation", "arguments", "text"),
        [
            ("other", {}, "There is no tool 'other' here; there are: tool."),
            ("tool", {}, "Invalid arguments for tool: x: Field required"),
            ("tool", {"x": "many"}, "Invalid arguments for tool: x: Input should be a valid integer"),
            ("tool", {"x": 1, "z": 2}, "Invalid arguments for tool: z: Extra inputs"),
        ],
    )
    async def test_a_call_that_makes_no_sense_is_answered_to_the_model(
        self, kit, serve, result_of, operation, arguments, text
    ):
        @kit.tool
        def tool(x: int) -> None:
            """Do it."""

        result = await result_of(await serve(kit), operation, arguments)
        assert result["is_error"] is True
        assert result["text"].startswith(text)

    @pytest.mark.parametrize(
        ("error", "text"),
        [
            (ValueError("no such city"), "ValueError: no such city"),
            (KeyError("x"), "KeyError: 'x'"),
            (RuntimeError(), "RuntimeError"),
            (SystemExit(3), "SystemExit: 3"),
        ],
    )
    @pytest.mark.parametrize("is_async", [True, False])
    async def test_what_is_raised_is_told_without_a_stack_trace(self, kit, serve, result_of, error, text, is_async):
        def tool() -> None:
            """Do it."""
            raise error

        async def async_tool() -> None:
            """Do it."""
            raise error

        kit.tool(async_tool if is_async else tool)
        result = await result_of(await serve(kit), "async_tool" if is_async else "tool")
        assert (result["is_error"], result["text"]) == (True, text)

    async def test_an_error_that_no_encoding_can_carry(self, kit, serve, result_of, caplog):
        # Its log line, were it captured, could not be carried from one test process to another either.
        caplog.set_level("CRITICAL", "infinity_agents.rap.server")

        @kit.tool
        def tool() -> None:
            """Do it."""
            raise ValueError("\ud800")

        assert (await result_of(await serve(kit), "tool"))["text"] == "ValueError: \N{REPLACEMENT CHARACTER}"

    async def test_stop_iteration_is_an_error_like_any_other(self, kit, serve, result_of):
        @kit.tool
        def tool() -> Any:
            """Do it."""
            return next(iter([]))

        assert (await result_of(await serve(kit), "tool"))["is_error"] is True

    async def test_what_has_no_json_form_is_an_error(self, kit, serve, result_of):
        @kit.tool
        def tool() -> Any:
            """Do it."""
            return object()

        result = await result_of(await serve(kit), "tool")
        assert result["is_error"] is True
        assert "object" in result["text"]

    async def test_a_blocking_function_does_not_stop_the_others(self, kit, serve, result_of, invoke, receiver):
        released, entered = threading.Event(), threading.Event()

        @kit.tool
        def blocks() -> str:
            """Block."""
            entered.set()
            return "released" if released.wait(5) else "forgotten"

        kit.tool(_noop)
        url = await serve(kit)
        await invoke(url, "blocks", id="call-b")
        try:
            assert (await result_of(url, "_noop"))["id"] == "call-1"
            assert entered.is_set()
        finally:
            released.set()
        assert (await receiver.heard(2))[-1].json["text"] == "released"

    async def test_five_megabytes_there_and_back(self, kit, serve, result_of):
        @kit.tool
        def echo(text: str) -> str:
            """Say it again."""
            return text

        text = "x" * 5_000_000
        assert (await result_of(await serve(kit), "echo", {"text": text}))["text"] == text

    async def test_the_context_knows_the_call(self, kit, serve, result_of):
        @kit.tool
        def tool(ctx: ToolContext) -> Any:
            """Do it."""
            return [ctx.call_id, ctx.thread_id, ctx.user_id, list(ctx.thread_ancestors)]

        url = await serve(kit)
        assert (await result_of(url, "tool"))["text"] == '["call-1", "thread-1", null, []]'
        deep = await result_of(url, "tool", id="c2", user_id="U1", thread_ancestors=["a", "b"])
        assert deep["text"] == '["c2", "thread-1", "U1", ["a", "b"]]'


class TestRequests:
    @pytest.fixture
    async def url(self, kit, serve):
        kit.tool(_noop)
        return await serve(kit)

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "/", 404),
            ("POST", "/nothing", 404),
            ("GET", "/invoke", 405),
            ("PUT", "/close_thread", 405),
            ("POST", MANIFEST_PATH, 405),
            ("POST", "/choice/unknown", 400),
        ],
    )
    async def test_paths_and_methods(self, url, client, method, path, status):
        answer = await client.request(method, url + path)
        assert answer.status_code == status
        assert answer.json()["error"]
        allowed = "GET" if path == MANIFEST_PATH else "POST"
        assert answer.headers.get("allow") == (allowed if status == 405 else None)

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"operation": "x"}', b"null"])
    async def test_what_is_no_invocation(self, url, client, receiver, body):
        answer = await client.post(url + "/invoke", content=body)
        assert answer.status_code == 400
        assert answer.json()["error"]

    @pytest.mark.parametrize(
        "change",
        [
            {"id": ""},
            {"group_id": None},
            {"arguments": None},
            {"arguments": []},
            {"callback_url": "file:///etc/passwd"},
            {"callback_url": None},
            {"thread_ancestors": "root"},
        ],
    )
    async def test_what_is_no_field(self, url, invoke, receiver, change):
        fields = {"arguments": {}, **change}
        answer = await invoke(url, "_noop", fields.pop("arguments") or "none", **fields)
        assert answer.status_code == 400
        assert receiver.requests == []

    async def test_unknown_fields_are_ignored(self, url, result_of):
        assert (await result_of(url, "_noop", protocol=2, user_id=None))["text"] == "Done."

    async def test_a_body_over_the_limit(self, url, client, monkeypatch):
        monkeypatch.setattr("infinity_agents.rap.server.MAX_REQUEST", 1000)
        assert (await client.post(url + "/invoke", content=b"x" * 5_000_000)).status_code == 413

    async def test_web_pages_are_not_served(self, url, invoke, receiver):
        answer = await invoke(url, "_noop", headers={"Origin": "https://evil.example.com"})
        assert (answer.status_code, receiver.requests) == (403, [])

    async def test_a_bearer_token_is_wanted_everywhere(self, serve, client):
        kit = ToolServer(name="t", bearer_token="s3cret")
        kit.tool(_noop)
        url = await serve(kit)
        for authorization in ({}, {"Authorization": "Bearer other"}, {"Authorization": "s3cret"}):
            assert (await client.get(url + MANIFEST_PATH, headers=authorization)).status_code == 401
            assert (await client.post(url + "/invoke", headers=authorization)).status_code == 401
        right = {"Authorization": "Bearer s3cret"}
        assert (await client.get(url + MANIFEST_PATH, headers=right)).status_code == 200

    @pytest.mark.parametrize(
        ("path", "fields"),
        [
            ("/close_thread", {"thread_id": "unknown"}),
            ("/cancel_tool_call", {"thread_id": "unknown", "tool_call_id": "unknown"}),
            ("/migrate", {"session_id": "s", "destination_url": "https://new.example.com"}),
        ],
    )
    async def test_notices_about_the_unknown_are_taken(self, url, client, path, fields):
        assert (await client.post(url + path, json=fields)).json() == {"ok": True}
        assert (await client.post(url + path, json={})).status_code == 400


class TestRepeats:
    @pytest.fixture
    def calls(self):
        return []

    @pytest.fixture
    async def url(self, kit, serve, calls):
        @kit.tool
        def count() -> int:
            """Count."""
            calls.append(1)
            return len(calls)

        return await serve(kit)

    async def test_a_call_is_done_once(self, url, invoke, receiver, result_of, calls):
        key = {"Idempotency-Key": "thread-1:call-1"}
        for _ in range(3):
            assert (await invoke(url, "count", headers=key)).status_code == 200
        await receiver.heard(1)
        assert (await invoke(url, "count", headers=key)).status_code == 200
        await result_of(url, "count", id="call-2")
        assert len(calls) == 2

    async def test_calls_of_other_threads_and_runtimes_are_other_calls(self, url, result_of, raw_server, invoke, calls):
        await result_of(url, "count")
        await result_of(url, "count", group_id="thread-2")
        other = await raw_server(lambda _: Answer())
        await invoke(url, "count", callback_url=other.url + "/callback/token")
        await other.heard(1)
        assert len(calls) == 3

    async def test_a_call_whose_result_was_lost_is_done_again(self, url, invoke, raw_server, calls, monkeypatch):
        monkeypatch.setattr("infinity_agents.rap.server.RESULT_PATIENCE", 3)
        answers = [*[Answer(500)] * 4, Answer()]
        receiver = await raw_server(lambda _: answers.pop(0))
        await invoke(url, "count", callback_url=receiver.url)
        await receiver.heard(4)
        while len(receiver.requests) < 5:
            await invoke(url, "count", callback_url=receiver.url)
            await asyncio.sleep(0.005)
        assert len(calls) == 2

    async def test_memory_is_bounded(self, kit, url, result_of, monkeypatch):
        monkeypatch.setattr("infinity_agents.rap.server.KNOWN_CALLS", 2)
        for number in range(5):
            await result_of(url, "count", id=f"call-{number}")
        assert len(kit._known) == 2
        assert KNOWN_CALLS > 1000


class TestDelivery:
    @pytest.fixture
    async def url(self, kit, serve):
        @kit.tool
        def tool() -> str:
            """Do it."""
            return "x" * 100

        return await serve(kit)

    @pytest.mark.parametrize("trouble", [Answer(500), Answer(503), Answer(429), HANG_UP])
    async def test_what_may_pass_is_tried_again(self, url, invoke, raw_server, clock, trouble):
        answers = [trouble, trouble, Answer()]
        receiver = await raw_server(lambda _: answers.pop(0))
        await invoke(url, "tool", callback_url=receiver.url)
        requests = await receiver.heard(3)
        assert len({request.body for request in requests}) == 1
        assert clock.slept == [0.5, 1.0]

    @pytest.mark.parametrize("status", [401, 403, 404, 302])
    async def test_a_refusal_is_final(self, kit, url, invoke, raw_server, clock, caplog, status):
        receiver = await raw_server(lambda _: Answer(status, b"no", {"Location": "/elsewhere"}))
        await invoke(url, "tool", callback_url=receiver.url + "/callback/secret-token")
        await receiver.heard(1)
        await finished(kit)
        assert (len(receiver.requests), clock.slept) == (1, [])
        assert f"HTTP {status} no" in caplog.text
        assert "secret-token" not in caplog.text

    @pytest.mark.parametrize("status", [400, 413])
    async def test_a_result_that_cannot_be_taken_becomes_one_that_can(self, url, invoke, raw_server, status):
        answers = [Answer(status, b"too big"), Answer()]
        receiver = await raw_server(lambda _: answers.pop(0))
        await invoke(url, "tool", callback_url=receiver.url)
        told = (await receiver.heard(2))[1].json
        assert told["is_error"] is True
        assert f"HTTP {status} too big" in told["text"]

    async def test_tokens_are_not_logged(self, kit, url, invoke, caplog):
        caplog.set_level("INFO")
        await invoke(url, "tool", callback_url="http://127.0.0.1:1/callback/secret-token")
        await finished(kit)
        assert "is lost" in caplog.text
        assert "secret-token" not in caplog.text


class TestCancelling:
    @pytest.fixture
    def ended(self):
        return []

    @pytest.fixture
    async def url(self, kit, serve, ended):
        @kit.tool
        async def wait(ctx: ToolContext) -> None:
            """Wait."""
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(ctx.call_id)

        kit.tool(_noop)
        return await serve(kit)

    async def test_a_cancelled_call_ends_and_says_nothing(self, kit, url, client, invoke, receiver, result_of, ended):
        for call in ("a", "b"):
            await invoke(url, "wait", id=call)
        await client.post(url + "/cancel_tool_call", json={"thread_id": "other", "tool_call_id": "a"})
        await client.post(url + "/cancel_tool_call", json={"thread_id": "thread-1", "tool_call_id": "a"})
        await result_of(url, "_noop")
        assert ended == ["a"]
        assert [request.json["id"] for request in receiver.requests] == ["call-1"]

    async def test_a_closed_thread_ends_its_calls(self, url, client, invoke, receiver, result_of, ended):
        for call, thread in (("a", "t1"), ("b", "t1"), ("c", "t2")):
            await invoke(url, "wait", id=call, group_id=thread)
        await client.post(url + "/close_thread", json={"thread_id": "t1"})
        await result_of(url, "_noop")
        assert sorted(ended) == ["a", "b"]

    async def test_what_is_left_at_the_end_is_cancelled_and_says_so(self, kit, url, invoke, receiver, ended):
        await invoke(url, "wait")
        await kit.aclose()
        assert ended == ["call-1"]
        [told] = [request.json for request in receiver.requests]
        assert (told["is_error"], told["text"]) == (True, "The tool server stopped before the call was done.")

    async def test_a_runtime_that_is_down_does_not_keep_the_server_from_stopping(self, kit, url, invoke, clock, ended):
        await invoke(url, "wait", callback_url="http://127.0.0.1:1/callback/token")
        await kit.aclose()
        assert (ended, clock.slept) == (["call-1"], [])

    async def test_nor_does_one_that_hangs(self, kit, url, invoke, raw_server, ended, monkeypatch):
        monkeypatch.setattr("infinity_agents.rap.server.LAST_WORDS", 0.05)
        receiver = await raw_server(lambda _: HANG)
        await invoke(url, "wait", callback_url=receiver.url)
        await kit.aclose()
        assert ended == ["call-1"]
        assert kit._running == {}

    async def test_a_running_call_may_finish(self, kit, serve, invoke, receiver, monkeypatch):
        monkeypatch.setattr("infinity_agents.rap.server.SHUTDOWN_GRACE", 5)
        released = asyncio.Event()

        @kit.tool
        async def slow() -> str:
            """Take a while."""
            await released.wait()
            return "finished"

        await invoke(await serve(kit), "slow")
        closing = asyncio.create_task(kit.aclose())
        await asyncio.sleep(0)
        released.set()
        await closing
        assert receiver.requests[0].json["text"] == "finished"


class TestAsking:
    @pytest.fixture
    async def url(self, kit, serve):
        @kit.tool
        async def order(ctx: ToolContext) -> str:
            """Order something."""
            return await ctx.ask("Which?", ["tea", "coffee"], default=1)

        return await serve(kit)

    async def asked(self, url, invoke, receiver):
        await invoke(url, "order")
        return (await receiver.heard(1))[0].json

    @pytest.mark.parametrize(("selected", "ordered"), [(0, "tea"), (1, "coffee"), (None, "coffee")])
    async def test_the_tool_goes_on_with_the_answer(self, url, client, invoke, receiver, selected, ordered):
        question = await self.asked(url, invoke, receiver)
        assert question["choices"] == ["tea", "coffee"]
        assert (question["prompt"], question["default"], question["id"]) == ("Which?", 1, "call-1")
        answer = await client.post(question["response_url"], json={"id": "call-1", "selected": selected})
        assert answer.json() == {"ok": True}
        assert (await receiver.heard(2))[1].json["text"] == ordered
        again = await client.post(question["response_url"], json={"id": "call-1", "selected": 0})
        assert again.status_code == 404

    async def test_a_bad_answer_is_none(self, url, client, invoke, receiver):
        question = await self.asked(url, invoke, receiver)
        for fields, status in [
            ({"id": "call-2", "selected": 0}, 403),
            ({"id": "call-1", "selected": 2}, 400),
            ({"id": "call-1", "selected": -1}, 400),
            ({"selected": 0}, 400),
        ]:
            assert (await client.post(question["response_url"], json=fields)).status_code == status
        assert (await client.post(url + "/choice/guess", json={"id": "call-1", "selected": 0})).status_code == 404
        assert len(receiver.requests) == 1

    async def test_a_question_that_makes_no_sense_is_the_tools_error(self, kit, serve, result_of):
        @kit.tool
        async def order(ctx: ToolContext) -> str:
            """Order something."""
            return await ctx.ask("Which?", [])

        assert (await result_of(await serve(kit), "order"))["is_error"] is True
        assert kit._questions._questions == {}

    async def test_an_authorization(self, kit, serve, invoke, receiver):
        @kit.tool
        async def log_in(ctx: ToolContext) -> str:
            """Log in."""
            await ctx.authorize("https://login.example.com/?state=1")
            return "in"

        await invoke(await serve(kit), "log_in")
        asked = (await receiver.heard(2))[0].json
        assert asked == {
            "type": "oauth",
            "group_id": "thread-1",
            "id": "call-1",
            "call_id": "model-1",
            "auth_url": "https://login.example.com/?state=1",
        }


class TestBothSides:
    """The runtime's side and the kit's, with a receiver that checks tokens as the real one does."""

    @pytest.fixture
    async def receiver(self, raw_server, keyring):
        """Overrides the receiver that takes everything."""

        def answer(request):
            claims = read_token(keyring, token_in(request.path))
            if claims is None:
                return Answer.of({"error": "the token is missing or wrong"}, 401)
            try:
                self.messages.append(receive(request.body, claims, 6 * 1024 * 1024))
            except BadCallback as refusal:
                return Answer.of({"error": refusal.text}, refusal.status)
            return Answer()

        self.messages: list[Any] = []
        return await raw_server(answer)

    async def loaded(self, kit, serve, http, state, clock):
        self.servers = RapToolServers([ToolSetConfig("kit", await serve(kit))], http=http, state=state, clock=clock)
        found = await self.servers.load("thread-1")
        assert found.problems == ()
        return found.tools

    async def test_a_call_and_its_result(self, kit, serve, http, state, clock, receiver, call, context):
        @kit.tool(display_script='"Weather for " + args.city')
        def get_weather(city: str) -> str:
            """Tell the weather."""
            return f"Sunny in {city}"

        tools = await self.loaded(kit, serve, http, state, clock)
        tool = tools["get_weather"]
        assert tool.display({"city": "Rome"}) == "Weather for Rome"
        made = call("get_weather", {"city": "Rome"}, tool_set="kit")
        for _ in range(2):
            await tool.execute(made, context(receiver.url + "/callback"))
        await receiver.heard(1)
        [message] = self.messages
        assert (message.group_id, message.content.tool_set) == ("thread-1", "kit")
        assert message.content.content == (Text("Sunny in Rome"),)

    async def test_a_question_and_its_answer(self, kit, serve, http, state, clock, receiver, call, context):
        @kit.tool
        async def order(ctx: ToolContext) -> str:
            """Order something."""
            return f"ordered {await ctx.ask('Which?', ['tea', 'coffee'])}"

        tools = await self.loaded(kit, serve, http, state, clock)
        await tools["order"].execute(call("order", tool_set="kit"), context(receiver.url + "/callback"))
        await receiver.heard(1)
        question = self.messages[0].content
        await self.servers.answer_choice(question.tool_set, question.response_url, question.id, 1)
        await receiver.heard(2)
        assert self.messages[1].content.content == (Text("ordered coffee"),)

    async def test_a_result_of_seven_megabytes_is_an_error_for_the_model(
        self, kit, serve, http, state, clock, receiver, call, context
    ):
        @kit.tool
        def big() -> str:
            """Say much."""
            return "x" * 7_000_000

        tools = await self.loaded(kit, serve, http, state, clock)
        await tools["big"].execute(call("big", tool_set="kit"), context(receiver.url + "/callback"))
        await receiver.heard(1)
        [message] = self.messages
        assert message.content.is_error is True
        assert "5500000 are allowed; send less" in message.content.content[0].text

    async def test_another_calls_token_answers_nothing(self, client, receiver, call, context):
        told = context(receiver.url + "/callback")
        body = {"type": "tool_result", "group_id": "thread-1", "id": "call-2", "text": "forged"}
        assert (await client.post(told.callback_url(call()), json=body)).status_code == 403
        assert (await client.post(receiver.url + "/callback/forged", json=body)).status_code == 401
        assert self.messages == []

    async def test_cancelling_reaches_the_call(self, kit, serve, http, state, clock, receiver, call, context):
        ended = asyncio.Event()

        @kit.tool
        async def wait() -> None:
            """Wait."""
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            ended.set()

        tools = await self.loaded(kit, serve, http, state, clock)
        await tools["wait"].execute(call("wait", tool_set="kit"), context(receiver.url + "/callback"))
        await self.servers.call_cancelled("thread-1", "thread-1", "call-1", "kit")
        await asyncio.wait_for(ended.wait(), 2)


class TestRunning:
    def test_it_prints_where_it_listens(self):
        command = [sys.executable, "-m", "infinity_agents.toolsets.get_time", "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                line = process.stdout.readline().strip()
                assert line.startswith("get-time listens on http://127.0.0.1:")
                url = line.rpartition(" ")[2]
                with urllib.request.urlopen(url + MANIFEST_PATH, timeout=5) as answer:  # noqa: S310
                    assert json.loads(answer.read())["endpoint"] == url + "/invoke"
            finally:
                process.terminate()
            out, err = process.communicate(timeout=5)
        assert (out, err) == ("", "")

    def test_a_taken_port_is_named(self, kit, monkeypatch):
        kit.tool(_noop)
        import socket

        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(Misconfigured, match=f"port {port}"):
                kit.run(port=port)

    def test_without_tools_it_does_not_start(self, kit):
        with pytest.raises(Misconfigured, match="no tools"):
            kit.run(port=0)

    def test_without_uvicorn_it_says_what_to_install(self, kit, monkeypatch):
        monkeypatch.setitem(sys.modules, "uvicorn", None)
        with pytest.raises(Misconfigured, match=r"pip install 'infinity-agents\[local\]'"):
            kit.run(port=0)


# ---------------------------------------------------------------------------------------------------------- traces


async def test_each_callback_has_the_trace_of_its_own_invocation(kit, serve, invoke, receiver):
    together = asyncio.Barrier(3)

    @kit.tool
    async def look() -> str:
        """Look."""
        await together.wait()
        return "done"

    url = await serve(kit)
    one, two = f"00-{'1' * 32}-{'a' * 16}-01", f"00-{'2' * 32}-{'b' * 16}-00"
    await invoke(url, "look", id="call-1", headers={"traceparent": one, "tracestate": "a=1"})
    await invoke(url, "look", id="call-2", headers={"traceparent": two})
    await invoke(url, "look", id="call-3", headers={"traceparent": "00-1", "tracestate": "a=1"})
    found = {request.json["id"]: request.headers for request in await receiver.heard(3)}
    assert {call_id: (headers.get("traceparent"), headers.get("tracestate")) for call_id, headers in found.items()} == {
        "call-1": (one, "a=1"),
        "call-2": (two, None),
        "call-3": (None, None),
    }
