"""An MCP server over HTTP: pages of tools, and a session that the server has forgotten."""

import json

import pytest

from infinity_agents.mcp.results import McpError
from infinity_agents.mcp.servers import HttpServer
from infinity_agents.mcp.sessions import McpSession
from tests.rap.conftest import Answer, raw_server

__all__ = ["raw_server"]


class OldServer:
    """Speaks the revision with sessions, forgets them when told to, and has a tool on each page."""

    def __init__(self):
        self.sessions, self.calls, self.heads = set(), [], []
        self.tells_in_json = False
        self.lists = 0

    def __call__(self, request):
        if request.method != "POST":
            return Answer(405, b"")
        said, session = request.json, request.headers.get("mcp-session-id")
        self.heads.append(request.headers)
        if said["method"] == "initialize":
            session = f"s{len(self.calls)}-{len(self.heads)}"
            self.sessions.add(session)
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "old", "version": "1"},
            }
            return self._answer(said, result, {"mcp-session-id": session})
        if session is None:
            return Answer(400, b"")
        if session not in self.sessions:
            error = {"jsonrpc": "2.0", "id": said.get("id"), "error": {"code": -32001, "message": "Session not found"}}
            body = json.dumps(error).encode() if self.tells_in_json else b"gone"
            kind = "application/json" if self.tells_in_json else "text/plain"
            return Answer(404, body, {"content-type": kind})
        if "id" not in said:
            return Answer(202, b"")
        if said["method"] == "tools/list":
            page = int((said.get("params") or {}).get("cursor") or 0)
            self.lists += 1
            tools = [{"name": f"tool{page}", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}}]
            return self._answer(said, {"tools": tools, **({"nextCursor": str(page + 1)} if page < 4 else {})})
        self.calls.append((session, said["params"]["name"]))
        return self._answer(said, {"content": [{"type": "text", "text": session}]})

    def _answer(self, said, result, headers=None):
        body = json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}).encode()
        return Answer(200, body, {"content-type": "application/json", **(headers or {})})


@pytest.mark.parametrize("tells_in_json", [False, True])
async def test_a_session_is_kept_and_begun_anew_once_it_is_over(raw_server, tells_in_json):
    old = OldServer()
    old.tells_in_json = tells_in_json
    server = await raw_server(old)
    session = McpSession(HttpServer(server.url + "/mcp", {"x-key": "k"}))
    first = await session.call("a", {}, seconds=20, is_repeatable=False)
    second = await session.call("b", {}, seconds=20, is_repeatable=False)
    assert first.content[0].text == second.content[0].text
    old.sessions.clear()
    third = await session.call("c", {}, seconds=20, is_repeatable=False)
    assert third.content[0].text != first.content[0].text
    assert [name for _, name in old.calls] == ["a", "b", "c"]
    assert all(headers["x-key"] == "k" for headers in old.heads)
    # One that forgets every session at once is not asked for ever.
    old.sessions = _Forgetful()
    before = len(old.heads)
    with pytest.raises(McpError):
        await session.call("d", {}, seconds=20, is_repeatable=True)
    begun = [head for head in old.heads[before:] if "mcp-session-id" not in head]
    assert len(begun) <= 4
    await session.aclose()


class _Forgetful(set):
    def add(self, _):
        pass


async def test_all_pages_of_tools_are_read(raw_server):
    server = await raw_server(OldServer())
    session = McpSession(HttpServer(server.url + "/mcp"))
    assert [tool.name for tool in await session.tools()] == [f"tool{page}" for page in range(5)]
    await session.aclose()


async def test_a_result_counts_whatever_its_schema_says(raw_server):
    old = OldServer()
    server = await raw_server(old)
    session = McpSession(HttpServer(server.url + "/mcp"))
    # The schema promises an object, and a text comes.
    assert (await session.call("tool0", {}, seconds=20, is_repeatable=True)).content[0].text.startswith("s")
    await session.tools()
    assert (await session.call("tool0", {}, seconds=20, is_repeatable=True)).content[0].text.startswith("s")
    assert (len(old.calls), old.lists) == (2, 5)
    await session.aclose()


async def test_a_server_that_is_not_there_is_said(raw_server):
    server = await raw_server(lambda _: Answer(500, b""))
    with pytest.raises(McpError):
        await McpSession(HttpServer(server.url)).tools()
    with pytest.raises(McpError):
        await McpSession(HttpServer("http://127.0.0.1:9/mcp")).tools()
