"""MCP servers that we did not write: each of their tools is listed, and one called, over stdio and HTTP."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from infinity_agents.mcp.proxy import McpProxy
from infinity_agents.mcp.servers import HttpServer, StdioServer
from tests.rap.conftest import client, invoke, raw_server, receiver, result_of, serve

__all__ = ["client", "invoke", "raw_server", "receiver", "result_of", "serve"]
pytestmark = pytest.mark.slow

CACHE = Path(__file__).parents[2] / ".cache" / "mcp"
NODE_PACKAGES = ("@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-filesystem")


def python_server(package):
    """Return the program of a package from PyPI, in an environment of its own: it may need another SDK than ours."""
    place = CACHE / package
    program = place / "bin" / package
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([place / "bin" / "pip", "install", "--quiet", package], check=True)
    return str(program)


def node_server(name):
    program = CACHE / "node" / "node_modules" / ".bin" / name
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    if not program.exists():
        (CACHE / "node").mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", *NODE_PACKAGES], cwd=CACHE / "node", check=True)
    return str(program)


@contextlib.asynccontextmanager
async def offering(server, serve, name):
    proxy = McpProxy(server, name=name, seconds=60)
    await proxy.offer()
    try:
        yield await serve(proxy.server), {tool.name.removeprefix(f"{name}_") for tool in proxy.server.offered}
    finally:
        await proxy.aclose()


async def test_time(serve, result_of):
    server = StdioServer((python_server("mcp-server-time"),))
    async with offering(server, serve, "time") as (url, tools):
        assert tools == {"get_current_time", "convert_time"}
        said = await result_of(url, "time_get_current_time", {"timezone": "Asia/Tokyo"})
        assert "Asia/Tokyo" in said["text"]
        wrong = await result_of(url, "time_get_current_time", {"timezone": "Nowhere/At_All"}, id="call-2")
        assert wrong["is_error"]
        assert "Nowhere/At_All" in wrong["text"]


@pytest.fixture
def repository(tmp_path):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    return tmp_path


async def test_git(serve, result_of, repository):
    (repository / "new.txt").write_text("x")
    server = StdioServer((python_server("mcp-server-git"), "--repository", str(repository)))
    async with offering(server, serve, "git") as (url, tools):
        assert {"git_status", "git_diff", "git_commit", "git_log"} <= tools
        said = await result_of(url, "git_git_status", {"repo_path": str(repository)})
        assert "new.txt" in said["text"]


async def test_fetch(serve, result_of, raw_server):
    from tests.rap.conftest import Answer

    page = await raw_server(lambda _: Answer(200, b"<h1>A heading</h1>", {"content-type": "text/html"}))
    server = StdioServer((python_server("mcp-server-fetch"), "--ignore-robots-txt", "--allow-private-ips"))
    async with offering(server, serve, "fetch") as (url, tools):
        assert tools == {"fetch"}
        said = await result_of(url, "fetch_fetch", {"url": page.url, "raw": True})
        assert "A heading" in said["text"]


async def test_filesystem(serve, result_of, tmp_path):
    (tmp_path / "a.txt").write_text("the text of a")
    server = StdioServer((node_server("mcp-server-filesystem"), str(tmp_path)))
    async with offering(server, serve, "files") as (url, tools):
        assert {"read_text_file", "write_file", "list_directory"} <= tools
        said = await result_of(url, "files_read_text_file", {"path": str(tmp_path / "a.txt")})
        assert said["text"] == "the text of a"
        refused = await result_of(url, "files_read_text_file", {"path": "/etc/passwd"}, id="call-2")
        assert refused["is_error"]


async def tried(url, tools, result_of):
    assert {"echo", "get-tiny-image"} <= tools
    assert (await result_of(url, "everything_echo", {"message": "hello"}))["text"] == "Echo: hello"
    shown = await result_of(url, "everything_get-tiny-image", id="call-2")
    assert "image" in {part["type"] for part in shown["content"]}
    wrong = await result_of(url, "everything_echo", {"message": 1}, id="call-3")
    assert wrong["is_error"]


async def test_everything_over_stdio(serve, result_of):
    async with offering(StdioServer((node_server("mcp-server-everything"),)), serve, "everything") as (url, tools):
        await tried(url, tools, result_of)


@contextlib.asynccontextmanager
async def everything_over_http(port):
    program = node_server("mcp-server-everything")
    process = await asyncio.create_subprocess_exec(
        program, "streamableHttp", env={**os.environ, "PORT": str(port)}, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with httpx.AsyncClient() as http:
            for _ in range(300):
                with contextlib.suppress(httpx.TransportError):
                    await http.get(f"http://127.0.0.1:{port}/")
                    break
                await asyncio.sleep(0.1)
        yield HttpServer(f"http://127.0.0.1:{port}/mcp")
    finally:
        process.terminate()
        await process.wait()


async def test_everything_over_http_and_in_a_new_session_after_its_restart(serve, result_of):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with contextlib.AsyncExitStack() as stack:
        async with everything_over_http(port) as server:
            url, tools = await stack.enter_async_context(offering(server, serve, "everything"))
            await tried(url, tools, result_of)
        async with everything_over_http(port):
            again = await result_of(url, "everything_echo", {"message": "again"}, id="call-9")
            assert again["text"] == "Echo: again"
