"""Calls of a tool server's tools: what is sent, what is tried again, what the model reads."""

from datetime import timedelta

import pytest

from infinity_agents.adapters.httpx_client import HttpxClient
from infinity_agents.errors import ToolRefused, ToolUnreachable
from infinity_agents.ports.http import HttpResponse, HttpUnreachable
from infinity_agents.ports.tool import Tool, ToolSpec
from infinity_agents.rap.tool import TIME_BUDGET, RapTool
from infinity_agents.wire.traces import following
from tests.rap.conftest import HANG_UP, Answer


@pytest.fixture
def tool(http, clock):
    def made(endpoint, **fields) -> Tool:
        spec = ToolSpec("get_weather", "Tells the weather", {"type": "object"})
        return RapTool(spec, **{"tool_set": "weather", "endpoint": endpoint, "http": http, "clock": clock, **fields})

    return made


async def test_the_invocation_of_a_child_thread(raw_server, tool, call, context):
    server = await raw_server(lambda _: Answer())
    told = context(id="t.1", ancestors=("t", "t.0"))
    await tool(server.url + "/invoke").execute(call(arguments={"location": "Tokyo"}, user_id="U1"), told)
    [request] = server.requests
    assert (request.method, request.path) == ("POST", "/invoke")
    assert request.headers["idempotency-key"] == "t.1:call-1"
    assert request.headers["content-type"] == "application/json"
    assert request.json == {
        "operation": "get_weather",
        "arguments": {"location": "Tokyo"},
        "id": "call-1",
        "call_id": "model-1",
        "callback_url": told.callback_url(call()),
        "group_id": "t.1",
        "thread_ancestors": ["t", "t.0"],
        "user_id": "U1",
    }


async def test_the_trace_of_what_is_done_goes_along_in_headers(raw_server, tool, call, context):
    server = await raw_server(lambda _: Answer())
    trace = {"traceparent": f"00-{'1' * 32}-{'a' * 16}-01", "tracestate": "a=1"}
    with following(trace):
        await tool(server.url).execute(call(), context())
    await tool(server.url).execute(call(id="call-2"), context())
    traced, untraced = server.requests
    assert traced.headers.items() >= trace.items()
    assert untraced.headers.keys().isdisjoint(trace)


async def test_what_a_root_thread_without_a_user_leaves_out(raw_server, tool, call, context):
    server = await raw_server(lambda _: Answer())
    await tool(server.url).execute(call(call_id=None), context())
    assert server.requests[0].json.keys() == {
        "operation", "arguments", "id", "call_id", "callback_url", "group_id"
    }  # fmt: skip
    assert server.requests[0].json["call_id"] is None


async def test_arguments_travel_whatever_they_contain(raw_server, tool, call, context):
    server = await raw_server(lambda _: Answer())
    await tool(server.url).execute(call(arguments={"a": "x\x00\ud800é", "b": "y" * 5_000_000}), context())
    assert server.requests[0].body.isascii()
    assert server.requests[0].json["arguments"] == {"a": "x\x00\N{REPLACEMENT CHARACTER}é", "b": "y" * 5_000_000}


@pytest.mark.parametrize("status", [200, 202, 204])
async def test_any_success_hands_it_over(raw_server, tool, call, context, status):
    server = await raw_server(lambda _: Answer(status, b""))
    await tool(server.url).execute(call(), context())
    assert len(server.requests) == 1


@pytest.mark.parametrize("trouble", [Answer(500), Answer(503, b"overloaded"), HANG_UP])
async def test_what_may_pass_is_tried_again_as_the_same_call(raw_server, tool, call, context, clock, trouble):
    answers = [trouble, trouble, trouble, Answer()]
    server = await raw_server(lambda _: answers.pop(0))
    await tool(server.url).execute(call(), context())
    assert len(server.requests) == 4
    assert len({(request.body, request.headers["idempotency-key"]) for request in server.requests}) == 1
    assert clock.slept == sorted(clock.slept)
    assert len(clock.slept) == 3


async def test_what_does_not_pass_names_operation_and_status(raw_server, tool, call, context):
    server = await raw_server(lambda _: Answer.of({"error": "out of \x1b[31mred ink\n"}, 503))
    with pytest.raises(ToolUnreachable, match=r"^get_weather .*'weather'.* HTTP 503: out of red ink$"):
        await tool(server.url).execute(call(), context())
    assert len(server.requests) == 4


async def test_a_server_that_is_down(tool, call, context, unused_url):
    with pytest.raises(ToolUnreachable, match=r"^get_weather .*no answer"):
        await tool(unused_url).execute(call(), context())


@pytest.fixture
async def unused_url(raw_server):
    server = await raw_server(lambda _: Answer())
    url = server.url
    await server.stop()
    return url


class SlowHttp:
    """Every request takes all the time that it is given."""

    def __init__(self, clock) -> None:
        self.clock = clock
        self.timeouts = []

    async def request(self, method, url, **options) -> HttpResponse:
        timeout = options["timeout"]
        self.timeouts.append(timeout)
        self.clock.advance(timeout)
        raise HttpUnreachable(f"no answer within {timeout} seconds")


async def test_a_slow_server_does_not_use_up_the_slice(tool, call, context, clock):
    slow = SlowHttp(clock)
    started = clock.now()
    with pytest.raises(ToolUnreachable):
        await tool("https://slow.example.com", http=slow).execute(call(), context())
    assert len(slow.timeouts) > 1
    assert (clock.now() - started).total_seconds() <= TIME_BUDGET + 1


@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 403, 404, 413, 422, 429])
async def test_a_refusal_is_final(raw_server, tool, call, context, clock, status):
    elsewhere = await raw_server(lambda _: Answer())
    server = await raw_server(lambda _: Answer(status, b'{"error": "not for you"}', {"Location": elsewhere.url}))
    with pytest.raises(ToolRefused, match=f"^get_weather .*HTTP {status}: not for you$"):
        await tool(server.url).execute(call(), context())
    assert (len(server.requests), clock.slept, elsewhere.requests) == (1, [], [])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", ""),
        (b"plain\n\n  text", ": plain text"),
        (b'{"detail": [{"loc": ["a"]}]}', ': [{"loc": ["a"]}]'),
        (b'{"message": "m"}', ": m"),
        (b'{"other": 1}', ': {"other": 1}'),
        (b"[1]", ": [1]"),
        (b"\xff\xfe", ": \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
        (b"x" * 50_000, ": " + "x" * 199 + "…"),
        (b"[" * 4_000, ": " + "[" * 199 + "…"),
    ],
)
async def test_what_the_server_says_is_shortened_and_cleaned(raw_server, tool, call, context, body, said):
    server = await raw_server(lambda _: Answer(400, body))
    with pytest.raises(ToolRefused) as caught:
        await tool(server.url).execute(call(), context())
    assert str(caught.value).partition("HTTP 400")[2] == said


async def test_a_token_that_the_server_repeats_is_not_told(raw_server, tool, call, context, caplog):
    server = await raw_server(lambda request: Answer(400, request.json["callback_url"].encode()))
    told = context()
    caplog.set_level("INFO")
    with pytest.raises(ToolRefused) as caught:
        await tool(server.url).execute(call(), told)
    token = told.callback_url(call()).rpartition("/")[2]
    assert token not in str(caught.value) + caplog.text
    assert "[secret]" in str(caught.value)


async def test_an_endless_answer_is_not_read(raw_server, tool, call, context):
    server = await raw_server(lambda _: Answer(200, b"x" * 5_000_000))
    with pytest.raises(ToolUnreachable, match="more than 65536 bytes"):
        await tool(server.url).execute(call(), context())


async def test_it_proves_itself(raw_server, tool, call, context):
    async def secret_of(name):
        return f"secret of {name}"

    server = await raw_server(lambda _: Answer())
    client = HttpxClient(bearer=secret_of)
    await tool(server.url, http=client, auth="bearer:arn:aws:x").execute(call(), context())
    await client.aclose()
    assert server.requests[0].headers["authorization"] == "Bearer secret of arn:aws:x"


class TestDisplay:
    def test_the_script_speaks(self, tool):
        shown = tool("x", display_script='"Weather for " + args.location').display({"location": "To\nkyo\x1b[1m"})
        assert shown == "Weather for To kyo"

    @pytest.mark.parametrize("script", [None, "", "args.location.len()", "()", '" "'])
    def test_a_script_that_says_nothing_leaves_name_and_arguments(self, tool, script):
        shown = tool("x", display_script=script).display({"location": "Tōkyō", "days": [1, None]})
        assert shown == 'get_weather(location="Tōkyō", days=[1, null])'

    def test_it_is_short(self, tool):
        assert len(tool("x").display({"text": "x" * 5_000_000})) == 200
        assert len(tool("x", display_script="args.text").display({"text": "x" * 5_000_000})) == 200


async def test_it_only_dispatches(tool, call, context):
    made = tool("x", call_timeout=timedelta(hours=1))
    assert (made.is_passive, made.wakes_at(call()), made.call_timeout) == (False, None, timedelta(hours=1))
    assert await made.execute_synchronous(call(), context()) is None
