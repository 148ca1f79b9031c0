"""MCP servers that are odd: what they do wrong is said, and what can be used is used."""

import json
import sys
from pathlib import Path

import pytest

from infinity_agents.mcp.proxy import McpProxy
from infinity_agents.mcp.results import MAX_RESULT, McpError
from infinity_agents.mcp.servers import HttpServer, StdioServer
from infinity_agents.mcp.sessions import McpSession
from tests.mcp.test_mcp_http import OldServer
from tests.rap.conftest import Answer, client, invoke, raw_server, receiver, result_of, serve

__all__ = ["client", "invoke", "raw_server", "receiver", "result_of", "serve"]


def odd(oddity):
    return StdioServer((sys.executable, str(Path(__file__).with_name("odd_server.py")), oddity))


async def test_junk_on_standard_output_is_passed_over_and_names_that_collide_stay_apart(serve, result_of):
    proxy = McpProxy(odd("junk"), name="odd")
    await proxy.offer()
    url, names = await serve(proxy.server), [tool.name for tool in proxy.server.offered]
    assert len(set(names)) == 2
    assert all(name.startswith("odd_a_b_") for name in names)
    said = [(await result_of(url, name, id=name))["text"] for name in names]
    assert said == ["a.b", "a/b"]
    await proxy.aclose()


@pytest.mark.parametrize(
    ("oddity", "said"),
    [
        ("ends", r"the program .*python.* ended; it said: the log of an odd server"),
        pytest.param(
            "hangs",
            r"within 2 seconds: .* must speak MCP on its standard input.*; it said: the log of an odd server",
            marks=pytest.mark.slow,
        ),
        ("no tools", "has no tools"),
    ],
)
async def test_what_cannot_be_used_is_said(monkeypatch, oddity, said):
    monkeypatch.setattr("infinity_agents.mcp.sessions.OPEN_TIMEOUT", 2.0 if oddity == "hangs" else 60.0)
    proxy = McpProxy(odd(oddity), name="odd")
    with pytest.raises(McpError, match=said):
        await proxy.offer()
    await proxy.aclose()


class Talker(OldServer):
    """Answers calls in an event of ``size`` characters."""

    size = 0

    def _answer(self, said, result, headers=None):
        if said["method"] != "tools/call":
            return super()._answer(said, result, headers)
        result = {"content": [{"type": "text", "text": "x" * self.size}]}
        event = f"event: message\ndata: {json.dumps({'jsonrpc': '2.0', 'id': said['id'], 'result': result})}\n\n"
        return Answer(200, event.encode(), {"content-type": "text/event-stream"})


async def test_a_result_that_is_too_large_is_cut_and_a_monstrous_one_is_an_error(
    raw_server, serve, result_of, monkeypatch
):
    talker = Talker()
    server = await raw_server(talker)
    proxy = McpProxy(HttpServer(server.url + "/mcp"), name="odd")
    await proxy.offer()
    url, talker.size = await serve(proxy.server), MAX_RESULT + 10
    cut = await result_of(url, "odd_tool0")
    assert f"{MAX_RESULT + 10} characters in all" in cut["text"][-200:]
    await proxy.aclose()
    monkeypatch.setattr("infinity_agents.mcp.sessions.MAX_EVENT", 100_000)
    session = McpSession(HttpServer(server.url + "/mcp"))
    with pytest.raises(McpError, match="100000"):
        await session.call("tool0", {}, seconds=20, is_repeatable=False)
    await session.aclose()
