"""An MCP server over stdio, behind the proxy: what it answers, and what becomes of calls when it dies."""

import sys
from pathlib import Path

import pytest
from mcp_types import Tool

from infinity_agents.errors import Misconfigured
from infinity_agents.mcp.proxy import MAX_NAME, McpProxy, offered_names
from infinity_agents.mcp.results import MAX_RESULT, McpError
from infinity_agents.mcp.servers import HttpServer, StdioServer, name_of, server_of
from infinity_agents.mcp.sessions import McpSession
from tests.rap.conftest import client, invoke, raw_server, receiver, result_of, serve

__all__ = ["client", "invoke", "raw_server", "receiver", "result_of", "serve"]

SERVER = StdioServer((sys.executable, str(Path(__file__).with_name("stdio_server.py"))))


async def proxied(pair=False, **options):
    proxy = McpProxy(SERVER, name="test", **options)
    if pair:
        proxy.offer_pair()
    else:
        await proxy.offer()
    return proxy


async def test_each_tool_is_one_of_its_own_and_answers(serve, result_of, receiver):
    proxy = await proxied()
    url = await serve(proxy.server)
    offered = {tool.name: tool for tool in proxy.server.offered}
    assert offered["test_add"].input_schema["required"] == ["a", "b"]
    assert offered["test_add"].annotations.read_only
    assert "test_pick_ture" in offered
    added = await result_of(url, "test_add", {"a": 1, "b": 2})
    assert added["text"] == "3"
    shown = await result_of(url, "test_pick_ture", id="call-2")
    assert [part["type"] for part in shown["content"]] == ["text", "image", "text"]
    assert "image/svg+xml" in shown["content"][2]["text"]
    read = await result_of(url, "test_resources", id="call-3")
    assert read["text"] == (
        "[the resource file:///a.txt]\nthe text of a\n[the resource file:///b.bin, application/x-b, 3 bytes]"
    )
    failed = await result_of(url, "test_fail", id="call-4")
    assert failed["is_error"]
    assert "fail" in failed["text"]
    much = await result_of(url, "test_huge", {"characters": MAX_RESULT + 10}, id="call-5")
    assert f"{MAX_RESULT + 10} characters in all" in much["text"][-200:]
    # The process is the same over calls; it dies in one, which is not made again, and the next has another.
    first = (await result_of(url, "test_pid", id="call-6"))["text"]
    assert (await result_of(url, "test_pid", id="call-7"))["text"] == first
    await proxy.aclose()


@pytest.mark.slow
async def test_a_call_in_which_the_server_dies_is_made_again_only_if_it_may(tmp_path):
    session = McpSession(SERVER)
    first = await session.call("pid", {}, seconds=30, is_repeatable=False)
    marks = tmp_path / "marks"
    with pytest.raises(McpError, match="may be done in part"):
        await session.call("die", {"marks": str(marks)}, seconds=30, is_repeatable=False)
    assert marks.read_text() == "called\n"
    second = await session.call("pid", {}, seconds=30, is_repeatable=False)
    assert first.content != second.content
    again = tmp_path / "again"
    answered = await session.call("die_once", {"marks": str(again)}, seconds=30, is_repeatable=True)
    assert answered.content[0].text == "alive"
    assert again.read_text() == "called\n" * 2
    with pytest.raises(McpError, match="within 0 seconds"):
        await session.call("wait", {}, seconds=0.2, is_repeatable=False)
    assert (await session.call("add", {"a": 1, "b": 1}, seconds=30, is_repeatable=False)).content[0].text == "2"
    await session.aclose()


@pytest.mark.slow
async def test_the_pair_lists_and_invokes(serve, result_of):
    proxy = await proxied(pair=True)
    url = await serve(proxy.server)
    assert [tool.name for tool in proxy.server.offered] == ["test_list_tools", "test_invoke_tool"]
    assert '"name": "pick.ture"' in (await result_of(url, "test_list_tools"))["text"]
    called = {"tool": "add", "arguments": {"a": 2, "b": 2}}
    assert (await result_of(url, "test_invoke_tool", called, id="call-2"))["text"] == "4"
    unknown = await result_of(url, "test_invoke_tool", {"tool": "nope"}, id="call-3")
    assert unknown["is_error"]
    wrong = await result_of(url, "test_invoke_tool", {"tool": 1}, id="call-4")
    assert "tool must be a text" in wrong["text"]
    await proxy.aclose()


@pytest.mark.slow
async def test_a_server_that_does_not_start_says_why():
    with pytest.raises(McpError, match="this server does not start"):
        await McpSession(StdioServer((*SERVER.command, "--fail"))).tools()
    with pytest.raises(McpError, match="no-such-program"):
        await McpSession(StdioServer(("no-such-program",))).tools()


def tool(name):
    return Tool(name=name, input_schema={"type": "object"})


def test_names_are_valid_unique_and_stable():
    tools = [tool("a.b"), tool("a/b"), tool("x" * 100), tool("x" * 101), tool("plain")]
    names = offered_names("s", tools)
    assert len(set(names)) == len(names)
    assert all(0 < len(name) <= MAX_NAME and name.replace("-", "").replace("_", "").isalnum() for name in names)
    assert names[-1] == "s_plain"
    assert names[0] == offered_names("s", [tools[1], tools[0]])[1]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("uvx mcp-server-time", "time"),
        ("npx -y @modelcontextprotocol/server-everything@1.2.3 stdio", "everything"),
        ("/usr/bin/some-server --flag", "some-server"),
        ("https://mcp.example.com/mcp", "mcp_example_com"),
    ],
)
def test_a_server_is_named_for_its_program_or_host(text, name):
    assert name_of(server_of(text)) == name


@pytest.mark.parametrize(
    "text",
    ["", "  ", "a 'b", "http://mcp.example.com/mcp", "https://user:pw@example.com/", "FTP://user:pw@example.com/"],
)
def test_what_is_no_server_is_refused(text):
    with pytest.raises(Misconfigured) as refused:
        server_of(text)
    assert "user:pw" not in str(refused.value)


def test_headers_and_environment_are_not_shown():
    assert "secret" not in repr(HttpServer("https://a.example/", {"x": "secret"})) + repr(
        StdioServer(("a",), {"b": "secret"})
    )
