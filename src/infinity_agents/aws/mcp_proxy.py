"""The proxy of an MCP server as a Lambda function."""

import os

from ..aws_clients import AwsClients
from ..mcp.proxy import McpProxy
from ..mcp.servers import HttpServer
from ..rap.server import ToolServer
from ..settings.tool_servers import McpProxyEnvironment
from .mcp_linking import links_of, server_of
from .tool_servers import tool_handler
from .wiring import Secrets


async def proxied() -> ToolServer:
    """Return the tool server of the MCP server that the environment names.

    Raises:
        Misconfigured: the environment, or what it names, cannot be used.
        McpError: the MCP server cannot be had.
    """
    environment, clients = McpProxyEnvironment.read(os.environ), AwsClients()
    secrets = Secrets(clients)
    server = await server_of(environment, secrets)
    links = None
    if environment.mcp_callback_url is not None and isinstance(server, HttpServer):
        links, _ = await links_of(environment, server, clients, secrets)
    proxy = McpProxy(server, name=environment.mcp_name, links=links)
    if links is None:
        await proxy.offer()
    else:
        # What a person may use is known only once that person has a link.
        proxy.offer_pair()
    return proxy.server


handler = tool_handler(proxied)
