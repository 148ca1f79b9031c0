"""The tool servers of an agent: configuration, discovery, caches, notices."""

import asyncio
import json
from datetime import timedelta

import pytest

from infinity_agents.errors import Misconfigured, Reject, StoreUnavailable, ToolRefused, ToolUnreachable
from infinity_agents.ports.http import HttpUnreachable
from infinity_agents.ports.tool import ToolServers
from infinity_agents.rap.toolsets import RapToolServers, ToolSetConfig, parse_tools_config
from tests.rap.conftest import HANG, HANG_UP, MANIFEST_PATH, Answer

WITH_PASSWORDS = [
    "https://me:hunter2@x.example.com",
    "http://me:hunter2@x.example.com/?q=1",
    "https://me:hunter@2@x.example.com",
    "https://me:hunter/2@x.example.com",
    "https://me:hunter 2@x.example.com",
    "me:hunter2@x.example.com",
]


class TestConfiguration:
    def test_what_it_says(self):
        text = json.dumps(
            {
                "tool_sets": [
                    {"type": "toolset_server", "server_url": "https://a.example.com/base/", "id": "a"},
                    {
                        "type": "toolset_server",
                        "server_url": "https://b.example.com",
                        "id": "b",
                        "auth": "sigv4",
                        "call_timeout": 90,
                        "comment": "unknown fields are ignored",
                    },
                    {
                        "type": "toolset_server",
                        "server_url": "http://localhost:8001",
                        "id": "c",
                        "auth": {"bearer_secret_arn": "arn:aws:x"},
                    },
                ]
            }
        )
        assert parse_tools_config(text, "TOOLS_CONFIG") == (
            ToolSetConfig("a", "https://a.example.com/base"),
            ToolSetConfig("b", "https://b.example.com", "sigv4", timedelta(seconds=90)),
            ToolSetConfig("c", "http://localhost:8001", "bearer:arn:aws:x"),
        )

    def test_none_is_a_configuration_too(self):
        assert parse_tools_config('{"tool_sets": []}', "here") == ()

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "not JSON"),
            ("{", "not JSON"),
            ("[" * 100_000, "not JSON"),
            ("[]", "valid dictionary"),
            ("{}", "tool_sets"),
            ('{"tool_sets": {}}', "tool_sets"),
            ('{"tool_sets": [{"type": "mcp"}]}', r"tool_sets\.0\.type"),
        ],
    )
    def test_the_error_names_the_place(self, text, reason):
        with pytest.raises(Misconfigured, match=f"tools configuration in /etc/tools.json.*{reason}"):
            parse_tools_config(text, "/etc/tools.json")

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"server_url": "http://a.example.com"}, "server_url.*https"),
            ({"server_url": "ftp://a"}, "server_url"),
            ({"server_url": "https://u:p@a.example.com"}, "server_url"),
            ({"server_url": "https://a.example.com?x=1"}, "server_url.*no query"),
            ({"server_url": None}, "server_url"),
            ({"id": ""}, "id"),
            ({"id": None}, "id"),
            ({"auth": "basic"}, "auth"),
            ({"auth": {"bearer_secret_arn": ""}}, "auth"),
            ({"call_timeout": 0}, "call_timeout"),
            ({"call_timeout": -1}, "call_timeout"),
            ({"call_timeout": "soon"}, "call_timeout"),
        ],
    )
    def test_the_error_names_the_field(self, change, reason):
        fields = {"type": "toolset_server", "server_url": "https://a.example.com", "id": "a", **change}
        with pytest.raises(Misconfigured, match=f"in here: tool_sets.0.{reason}"):
            parse_tools_config(json.dumps({"tool_sets": [fields]}), "here")

    @pytest.mark.parametrize("url", WITH_PASSWORDS)
    def test_no_error_tells_a_password(self, url):
        fields = {"type": "toolset_server", "server_url": url, "id": "a"}
        with pytest.raises(Misconfigured) as refused:
            parse_tools_config(json.dumps({"tool_sets": [fields]}), "here")
        assert "hunter" not in str(refused.value)
        assert "…@x.example.com" in str(refused.value)

    def test_one_id_twice(self):
        fields = {"type": "toolset_server", "server_url": "https://a.example.com", "id": "a"}
        with pytest.raises(Misconfigured, match="'a' stands there twice"):
            parse_tools_config(json.dumps({"tool_sets": [fields, fields]}), "here")


@pytest.fixture
def toolset_server(raw_server, manifest):
    """Starts a tool server that answers discovery, and everything else with 200."""

    async def start(*names, answer=None, **fields):
        def answered(request):
            if request.path == MANIFEST_PATH:
                return answer or Answer.of(manifest(server.url, *names, **fields))
            return Answer()

        server = await raw_server(answered)
        return server

    return start


@pytest.fixture
def servers(http, state, clock):
    def made(*configured, **options) -> ToolServers:
        tool_sets = [
            ToolSetConfig(chr(ord("a") + number), item if isinstance(item, str) else item.url)
            for number, item in enumerate(configured)
        ]
        return RapToolServers(tool_sets, **{"http": http, "state": state, "clock": clock, **options})

    return made


class TestDiscovery:
    async def test_the_tools_of_all_servers(self, toolset_server, servers):
        one, two = await toolset_server("get_weather", "get_rain"), await toolset_server("get_time")
        found = await servers(one, two).load("s")
        assert (list(found.tools), found.problems) == (["get_weather", "get_rain", "get_time"], ())
        tool = found.tools["get_time"]
        assert (tool.tool_set, tool.spec.name, tool.spec.description) == ("b", "get_time", "The tool get_time")
        assert tool.spec.input_schema["properties"] == {"location": {"type": "string"}}

    async def test_all_servers_are_asked_at_once(self, raw_server, manifest, http, state, clock):
        asked = asyncio.Event()
        waiting = []

        class TogetherOnly:
            async def request(self, method, url, **_):
                waiting.append(url)
                if len(waiting) == 3:
                    asked.set()
                await asyncio.wait_for(asked.wait(), 1)
                raise HttpUnreachable("down")

        tool_sets = [ToolSetConfig(str(number), "https://a.example.com") for number in range(3)]
        found = await RapToolServers(tool_sets, http=TogetherOnly(), state=state, clock=clock).load("s")
        assert len(found.problems) == 3

    async def test_the_deadlines_of_calls(self, raw_server, manifest, http, state, clock):
        def answered(request):
            fields = manifest(server.url, "short", "long")
            fields["tools"][1]["annotations"] = {"longRunning": True}
            return Answer.of(fields)

        server = await raw_server(answered)
        usual = await RapToolServers([ToolSetConfig("a", server.url)], http=http, state=state, clock=clock).load("s")
        assert usual.tools["short"].call_timeout == timedelta(hours=6)
        assert usual.tools["long"].call_timeout == timedelta(days=14)
        configured = ToolSetConfig("a", server.url, call_timeout=timedelta(seconds=5))
        own = await RapToolServers([configured], http=http, state=state, clock=clock).load("s")
        assert [tool.call_timeout for tool in own.tools.values()] == [timedelta(seconds=5)] * 2

    async def test_no_servers_no_round_trips(self, servers, state):
        assert (await servers().load("s")).tools == {}
        assert state.calls == []

    async def test_a_server_that_is_down_takes_no_other_away(self, toolset_server, servers, unused_url):
        one = await toolset_server("get_weather")
        found = await servers(one, unused_url).load("s")
        assert list(found.tools) == ["get_weather"]
        [problem] = found.problems
        assert "'b' is missing" in problem
        assert unused_url in problem

    async def test_a_server_that_hangs_is_one_that_is_down(self, toolset_server, servers, monkeypatch):
        monkeypatch.setattr("infinity_agents.rap.toolsets.DISCOVERY_TIMEOUT", 0.5)
        one, two = await toolset_server("get_weather"), await toolset_server(answer=HANG)
        found = await servers(one, two).load("s")
        assert list(found.tools) == ["get_weather"]
        assert "no answer within 0.5 seconds" in found.problems[0]

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            (Answer(500, b"oh \x1b[31mno"), "HTTP 500: oh no"),
            (Answer(403), "HTTP 403"),
            (Answer(204, b""), "HTTP 204"),
            (Answer(200, b"<html>"), "is refused"),
            (Answer(200, b"x" * 2_000_000), "more than 1048576 bytes"),
            (HANG_UP, "disconnected"),
        ],
    )
    async def test_bad_answers_are_problems_with_a_reason(self, toolset_server, servers, answer, reason):
        one, two = await toolset_server("get_weather"), await toolset_server(answer=answer)
        found = await servers(one, two).load("s")
        assert list(found.tools) == ["get_weather"]
        assert reason in found.problems[0]

    async def test_redirects_are_not_followed(self, toolset_server, servers):
        target = await toolset_server("get_weather")
        server = await toolset_server(answer=Answer(302, b"", {"Location": target.url + MANIFEST_PATH}))
        found = await servers(server).load("s")
        assert (found.tools, target.requests) == ({}, [])
        assert "redirects are not followed" in found.problems[0]

    async def test_an_endpoint_elsewhere(self, toolset_server, servers):
        server = await toolset_server("get_weather", endpoint="https://evil.example.com/invoke")
        found = await servers(server).load("s")
        assert found.tools == {}
        assert "endpoint 'https://evil.example.com/invoke'" in found.problems[0]

    async def test_two_servers_with_a_tool_of_one_name(self, toolset_server, servers):
        one, two = await toolset_server("get_time", "get_weather"), await toolset_server("get_time", "get_rain")
        found = await servers(one, two).load("s")
        assert list(found.tools) == ["get_weather", "get_rain"]
        [problem] = found.problems
        assert problem == "The tool 'get_time' is offered by 'a' and 'b', so none of them gets it; rename one."

    async def test_an_auth_that_cannot_be_served_is_that_servers_problem(self, toolset_server, http, state, clock):
        one, two = await toolset_server("get_weather"), await toolset_server("get_time")
        tool_sets = [ToolSetConfig("a", one.url), ToolSetConfig("b", two.url, "sigv4")]
        found = await RapToolServers(tool_sets, http=http, state=state, clock=clock).load("s")
        assert list(found.tools) == ["get_weather"]
        assert "sigv4" in found.problems[0]


@pytest.fixture
async def unused_url(raw_server):
    server = await raw_server(lambda _: Answer())
    url = server.url
    await server.stop()
    return url


class TestCaches:
    async def test_a_warm_session_costs_nothing(self, toolset_server, servers, state):
        server = await toolset_server("get_weather")
        loaded = servers(server)
        first = await loaded.load("s")
        state.calls.clear()
        assert await loaded.load("s") is first
        assert (state.calls, len(server.requests)) == ([], 1)

    async def test_a_cold_process_costs_one_read(self, toolset_server, servers, state):
        server = await toolset_server("get_weather")
        await servers(server).load("s")
        state.calls.clear()
        found = await servers(server).load("s")
        assert list(found.tools) == ["get_weather"]
        assert (state.calls, len(server.requests)) == (["manifests"], 1)

    async def test_a_new_session_fetches_anew(self, toolset_server, servers):
        server = await toolset_server("get_weather")
        loaded = servers(server)
        await loaded.load("s")
        await loaded.load("s2")
        assert len(server.requests) == 2

    async def test_threads_of_one_session_discover_once(self, toolset_server, servers):
        server = await toolset_server("get_weather")
        loaded = servers(server)
        found = await asyncio.gather(*(loaded.load("s") for _ in range(5)))
        assert len(server.requests) == 1
        assert all(toolset is found[0] for toolset in found)

    async def test_a_cancelled_step_does_not_cancel_the_discovery_of_others(self, toolset_server, servers):
        server = await toolset_server("get_weather")
        loaded = servers(server)
        one, two = asyncio.create_task(loaded.load("s")), asyncio.create_task(loaded.load("s"))
        await asyncio.sleep(0)
        one.cancel()
        assert list((await two).tools) == ["get_weather"]
        with pytest.raises(asyncio.CancelledError):
            await one

    async def test_memory_is_bounded(self, toolset_server, servers, state):
        server = await toolset_server("get_weather")
        loaded = servers(server, sessions_kept=2)
        for session in ("s1", "s2", "s1", "s3"):
            await loaded.load(session)
        state.calls.clear()
        await loaded.load("s1")
        assert state.calls == []
        await loaded.load("s2")
        assert state.calls == ["manifests"]

    async def test_a_failed_fetch_is_served_by_an_older_copy(self, raw_server, manifest, servers, state, caplog):
        answers = [Answer(503), Answer.of({})]
        server = await raw_server(lambda _: answers.pop(0))
        state.latest["a"] = manifest(server.url, "get_weather")
        found = await servers(server).load("s")
        assert (list(found.tools), found.problems) == (["get_weather"], ())
        assert "serves from an older manifest" in caplog.text
        assert "HTTP 503" in caplog.text
        assert state.sessions["s"].keys() == {"a"}

    async def test_an_invalid_manifest_is_not_a_failed_fetch(self, raw_server, manifest, servers, state):
        server = await raw_server(lambda _: Answer.of({}))
        state.latest["a"] = manifest(server.url, "get_weather")
        found = await servers(server).load("s")
        assert found.tools == {}
        assert "is refused" in found.problems[0]

    async def test_a_copy_for_another_address_does_not_serve(self, toolset_server, servers, state, manifest):
        server = await toolset_server(answer=Answer(503))
        state.latest["a"] = state.sessions["s"] = {"a": manifest("https://old.example.com", "get_weather")}
        assert (await servers(server).load("s")).tools == {}

    async def test_a_server_that_was_down_is_asked_again_after_a_minute(self, raw_server, manifest, servers, clock):
        answers = [Answer(503)]
        server = await raw_server(lambda _: answers.pop() if answers else Answer.of(manifest(server.url, "get_time")))
        loaded = servers(server)
        assert (await loaded.load("s")).tools == {}
        clock.advance(59)
        assert (await loaded.load("s")).tools == {}
        assert len(server.requests) == 1
        clock.advance(1)
        found = await loaded.load("s")
        assert (list(found.tools), found.problems) == (["get_time"], ())
        clock.advance(3600)
        assert await loaded.load("s") is found

    async def test_only_the_missing_server_is_asked_again(self, toolset_server, servers, clock):
        up, down = await toolset_server("get_time"), await toolset_server(answer=Answer(500))
        loaded = servers(up, down)
        await loaded.load("s")
        clock.advance(60)
        assert list((await loaded.load("s")).tools) == ["get_time"]
        assert (len(up.requests), len(down.requests)) == (1, 2)

    async def test_a_cache_that_takes_nothing_does_no_harm(self, toolset_server, servers, state):
        state.down = {"put_manifests", "put_latest_manifest"}
        server = await toolset_server("get_time")
        assert list((await servers(server).load("s")).tools) == ["get_time"]

    async def test_a_manifest_that_no_cache_takes_does_no_harm(self, toolset_server, servers, state, monkeypatch):
        async def refuse(*_):
            raise Reject("the manifest has 500000 bytes")

        monkeypatch.setattr(state, "put_manifests", refuse)
        monkeypatch.setattr(state, "put_latest_manifest", refuse)
        server = await toolset_server("get_time")
        assert list((await servers(server).load("s")).tools) == ["get_time"]

    async def test_a_cache_that_cannot_be_read_is_not_guessed(self, toolset_server, servers, state):
        state.down = {"manifests"}
        server = await toolset_server("get_time")
        loaded = servers(server)
        with pytest.raises(StoreUnavailable):
            await loaded.load("s")
        state.down = set()
        assert list((await loaded.load("s")).tools) == ["get_time"]

    async def test_nonsense_in_the_cache_is_fetched_anew(self, toolset_server, servers, state):
        state.sessions["s"] = {"a": {"name": 5}, "gone": {}}
        server = await toolset_server("get_time")
        assert list((await servers(server).load("s")).tools) == ["get_time"]
        assert state.sessions["s"].keys() == {"a"}


class TestNotices:
    async def test_a_closed_thread_is_told_to_all(self, toolset_server, servers):
        one, two = await toolset_server(), await toolset_server()
        await servers(one, two).thread_closed("s", "s.t1")
        for server in (one, two):
            [request] = server.requests
            assert (request.method, request.path, request.json) == ("POST", "/close_thread", {"thread_id": "s.t1"})

    async def test_a_cancelled_call_is_told_to_its_server(self, toolset_server, servers):
        one, two = await toolset_server(), await toolset_server()
        loaded = servers(one, two)
        await loaded.call_cancelled("s", "s.t1", "c", "b")
        assert one.requests == []
        assert two.posts("/cancel_tool_call")[0].json == {"thread_id": "s.t1", "tool_call_id": "c"}
        await loaded.call_cancelled("s", "s.t1", "c", None)
        assert (len(one.requests), len(two.requests)) == (1, 2)
        await loaded.call_cancelled("s", "s.t1", "c", "unknown")
        assert (len(one.requests), len(two.requests)) == (1, 2)

    async def test_a_move_is_told_to_servers_that_want_to_know(self, toolset_server, servers):
        one, two = await toolset_server("get_time"), await toolset_server("get_rain", needsMigration=True)
        loaded = servers(one, two)
        await loaded.load("s")
        await loaded.migrate("s", "https://new.example.com")
        assert one.posts("/migrate") == []
        assert two.posts("/migrate")[0].json == {
            "session_id": "s",
            "destination_url": "https://new.example.com",
        }

    @pytest.mark.parametrize("answer", [Answer(500), Answer(302), HANG_UP, HANG])
    async def test_no_answer_matters_and_nothing_is_tried_twice(self, raw_server, servers, monkeypatch, answer):
        monkeypatch.setattr("infinity_agents.rap.toolsets.NOTICE_TIMEOUT", 0.5)
        server = await raw_server(lambda _: answer)
        await servers(server, "http://127.0.0.1:1").thread_closed("s", "s.t1")
        assert len(server.requests) == 1


class TestChoices:
    async def test_the_answer_goes_to_who_asked(self, toolset_server, servers):
        server = await toolset_server()
        await servers(server).answer_choice("a", server.url + "/choice/1", "call-1", 2)
        assert server.requests[0].path == "/choice/1"
        assert server.requests[0].json == {"id": "call-1", "selected": 2}

    @pytest.mark.parametrize("where", ["other", "userinfo", "nonsense"])
    async def test_and_to_nobody_else(self, toolset_server, servers, where):
        server, other = await toolset_server(), await toolset_server()
        host = server.url.removeprefix("http://")
        url = {
            "other": other.url + "/choice/1",
            "userinfo": f"http://{host}@{other.url.removeprefix('http://')}/",
            "nonsense": "\x00",
        }[where]
        with pytest.raises(ToolRefused, match="response_url"):
            await servers(server, other).answer_choice("a", url, "call-1", 0)
        assert server.requests + other.requests == []

    @pytest.mark.parametrize("tool_set", [None, "gone"])
    async def test_without_the_server_there_is_nowhere_to_go(self, toolset_server, servers, tool_set):
        server = await toolset_server()
        with pytest.raises(ToolRefused, match="nowhere to go"):
            await servers(server).answer_choice(tool_set, server.url, "call-1", 0)

    async def test_what_is_refused_and_what_may_pass(self, raw_server, servers):
        answers = [Answer(503), Answer(), Answer(404), *[Answer(500)] * 4]
        server = await raw_server(lambda _: answers.pop(0))
        loaded = servers(server)
        await loaded.answer_choice("a", server.url, "call-1", 0)
        with pytest.raises(ToolRefused, match="404"):
            await loaded.answer_choice("a", server.url, "call-1", 0)
        with pytest.raises(ToolUnreachable, match="500"):
            await loaded.answer_choice("a", server.url, "call-1", 0)
