"""The MCP servers of an agent in a file, each served as a tool server on loopback while the agent is hosted."""

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..adapters.memory_records import MemoryRecords
from ..adapters.sqlite_records import SqliteRecords
from ..adapters.system import SystemClock
from ..conversation.ids import digest
from ..errors import Misconfigured
from ..local.callbacks import HOST
from ..local.identity import Identity
from ..mcp.servers import HttpServer
from ..rap.asgi import listening_socket, serving
from ..rap.toolsets import ToolSetConfig
from ..wire import rap
from .config import AgentConfig, McpConfig
from .rendering import note, put, stderr
from .waiting import counted

_PORTS = range(30_000, 32_000)
_SOLE_USER = "you"


@contextlib.asynccontextmanager
async def mcp_servers(config: AgentConfig) -> AsyncIterator[Sequence[ToolSetConfig]]:
    """Give the tool servers that stand for the MCP servers of ``config``.

    Raises:
        Misconfigured: one of them cannot be had; the text names it and says why.
    """
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(_served(server, config)) for server in config.mcp_servers]


@dataclass(frozen=True, slots=True)
class Offered:
    """What the agent has of an MCP server; ``problem`` says why it has nothing."""

    name: str
    transport: Literal["stdio", "http"]
    tools: Sequence[rap.OfferedTool] = ()
    problem: str | None = None


async def offered(config: AgentConfig) -> Sequence[Offered]:
    """Return what each MCP server of ``config`` offers. Each is started and ended, and nothing is kept."""
    return await asyncio.gather(*(_offered(server) for server in config.mcp_servers))


async def _offered(configured: McpConfig) -> Offered:
    server, clock = configured.server, SystemClock()
    transport: Literal["stdio", "http"] = "http" if isinstance(server, HttpServer) else "stdio"
    try:
        from ..mcp.links import Links
        from ..mcp.pages import PATH
        from ..mcp.proxy import McpProxy
        from ..mcp.results import McpError
        from ..mcp.vault import Vault
    except ModuleNotFoundError as error:
        return Offered(configured.name, transport, problem=_lacks(error))
    links = None
    if isinstance(server, HttpServer) and not server.headers:
        # One that wants people to authorize has its tools all the same: they ask for that when they are called.
        vault = Vault(MemoryRecords(clock), secrets.token_bytes(32))
        links = Links(server, vault=vault, callback_url=f"http://{HOST}{PATH}", clock=clock)
    proxy = McpProxy(server, name=configured.name, links=links)
    try:
        await proxy.offer()
    except McpError as error:
        return Offered(configured.name, transport, problem=str(error))
    finally:
        await proxy.aclose()
    return Offered(configured.name, transport, proxy.server.offered)


def _lacks(error: ModuleNotFoundError) -> str:
    return f"MCP servers need {error.name}: pip install 'infinity-agents[mcp]'"


@contextlib.asynccontextmanager
async def _served(configured: McpConfig, config: AgentConfig) -> AsyncIterator[ToolSetConfig]:
    try:
        from ..mcp.links import Links
        from ..mcp.pages import PATH, LinkPages, with_pages
        from ..mcp.proxy import McpProxy
        from ..mcp.results import McpError
        from ..mcp.vault import Vault
    except ModuleNotFoundError as error:
        raise Misconfigured(_lacks(error)) from error
    server, name, clock = configured.server, configured.name, SystemClock()
    put(stderr(), note(f"starting the MCP server {name}"))
    identity = Identity.beside(config.file)
    port = _port(digest(str(config.file.resolve()), name))
    vault = Vault(
        SqliteRecords(config.file.with_name(f"{config.file.name}.mcp"), clock),
        identity.keyring.sign("mcp records", b"").encode(),
    )
    links = None
    if isinstance(server, HttpServer) and not server.headers:
        links = Links(server, vault=vault, callback_url=f"http://{HOST}:{port}{PATH}", clock=clock)
    # Others on this machine reach loopback too, and the server may act with this person's tokens.
    variable, token = (
        f"INFINITY_MCP_{name.upper().replace('-', '_')}",
        identity.keyring.sign("mcp proxy", name.encode()),
    )
    os.environ[variable] = token
    proxy = McpProxy(server, name=name, links=links, sole_user=_SOLE_USER, bearer_token=token)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(proxy.aclose)
        try:
            await proxy.offer()
        except McpError as error:
            raise Misconfigured(f"the MCP server {name}: {error}") from error
        pages = LinkPages(links, vault, proxy.resume) if links else None
        application = with_pages(pages, proxy.server) if pages else proxy.server
        url = await stack.enter_async_context(serving(application, HOST, port))
        put(stderr(), note(f"{name}: {counted(len(proxy.server.offered), 'tool')}"))
        yield ToolSetConfig(f"mcp-{name}", url, auth=f"bearer:{variable}")


def _port(key: str) -> int:
    """Return the port for a server of that key: the same each time, where it is free.

    A conversation keeps the addresses of its tool servers, and an authorization server that of our page.
    """
    for port in (_PORTS[int(key, 16) % len(_PORTS)], 0):
        with contextlib.suppress(OSError), listening_socket(HOST, port) as listening:
            found: int = listening.getsockname()[1]
            return found
    raise Misconfigured(f"no port on {HOST} can be had for an MCP server")
