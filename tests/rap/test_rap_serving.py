"""A tool server in one's own program: it serves while the context is open."""

import httpx
import pytest

from infinity_agents import ToolServer
from infinity_agents.errors import Misconfigured
from infinity_agents.wire.rap import DISCOVERY_PATH


def greeting_server():
    server = ToolServer(name="greetings")

    @server.tool
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Hello, {name}."

    return server


async def test_it_serves_on_a_free_port_until_the_context_ends():
    async with httpx.AsyncClient(trust_env=False) as client:
        async with greeting_server().serving() as url:
            manifest = (await client.get(url + DISCOVERY_PATH)).json()
            assert [tool["name"] for tool in manifest["tools"]] == ["greet"]
        with pytest.raises(httpx.ConnectError):
            await client.get(url + DISCOVERY_PATH)


async def test_a_port_that_is_taken_is_named():
    async with greeting_server().serving() as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(Misconfigured, match=f"port {port}"):
            async with greeting_server().serving(port=port):
                pytest.fail("two servers share a port")


async def test_a_server_without_tools_is_not_served():
    with pytest.raises(Misconfigured, match="has no tools"):
        async with ToolServer(name="empty").serving():
            pytest.fail("a server without tools was served")
