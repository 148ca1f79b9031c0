"""An MCP server, its proxy and its links, as the environment of a function names them."""

import json
from collections.abc import Mapping

from ..adapters.dynamo_records import DynamoRecords
from ..adapters.system import SystemClock
from ..aws_clients import AwsClients
from ..errors import Misconfigured
from ..mcp.discovery import Client
from ..mcp.links import Links
from ..mcp.servers import HttpServer, McpServer, StdioServer
from ..mcp.vault import Vault
from ..settings.tool_servers import McpOAuthEnvironment, McpProxyEnvironment
from .wiring import Secrets


async def server_of(environment: McpProxyEnvironment | McpOAuthEnvironment, secrets: Secrets) -> McpServer:
    """Return the server.

    Raises:
        Misconfigured: a variable is not the JSON that it must be, or names a secret that is not to be had.
        StoreUnavailable: a secret cannot be read at the moment.
    """
    if environment.mcp_url is not None:
        plain = _texts("MCP_HEADERS", environment.mcp_headers)
        secret = _texts("MCP_SECRET_HEADERS", environment.mcp_secret_headers)
        return HttpServer(environment.mcp_url, {**plain, **await _read(secret, secrets)})
    assert isinstance(environment, McpProxyEnvironment)  # noqa: S101 - the page has a URL
    command = _json("MCP_COMMAND", environment.mcp_command)
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        raise Misconfigured('MCP_COMMAND must be a list of texts in JSON, such as ["/var/task/bin/mcp-server"]')
    env = {**_texts("MCP_ENV", environment.mcp_env)}
    env |= await _read(_texts("MCP_SECRET_ENV", environment.mcp_secret_env), secrets)
    # Nothing but this directory can be written, and programs want a home.
    return StdioServer(tuple(command), {"HOME": "/tmp", **env})  # noqa: S108 - Lambda's own


async def links_of(
    environment: McpProxyEnvironment | McpOAuthEnvironment, server: HttpServer, clients: AwsClients, secrets: Secrets
) -> tuple[Links, Vault]:
    """Return the links with ``server``, and where they are kept.

    Raises:
        Misconfigured: a variable is missing, or names a secret that is not to be had.
        StoreUnavailable: a secret cannot be read at the moment.
    """
    arn, value = environment.mcp_encryption_secret_arn, environment.mcp_encryption_secret
    table, callback_url = environment.mcp_table_name, environment.mcp_callback_url
    if table is None or callback_url is None or (arn is None and value is None):
        raise Misconfigured(
            "links need MCP_CALLBACK_URL, MCP_TABLE_NAME, and MCP_ENCRYPTION_SECRET_ARN or MCP_ENCRYPTION_SECRET"
        )
    secret = value or "" if arn is None else await secrets.value(arn)
    client = None
    if environment.mcp_client_id is not None:
        client_arn = environment.mcp_client_secret_arn
        client = Client(environment.mcp_client_id, (await secrets.value(client_arn)).strip() if client_arn else None)
    clock = SystemClock()
    vault = Vault(DynamoRecords(clients, table, clock), secret.strip().encode())
    return Links(server, vault=vault, callback_url=callback_url, clock=clock, client=client), vault


async def _read(arns: Mapping[str, str], secrets: Secrets) -> dict[str, str]:
    return {name: (await secrets.value(arn)).strip() for name, arn in arns.items()}


def _texts(variable: str, text: str | None) -> dict[str, str]:
    said = {} if text is None else _json(variable, text)
    if not isinstance(said, dict) or not all(isinstance(value, str) for value in said.values()):
        raise Misconfigured(f"{variable} must be an object of texts in JSON")
    return said


def _json(variable: str, text: str | None) -> object:
    try:
        said: object = json.loads(text or "")
    except ValueError as error:
        raise Misconfigured(f"{variable} is not JSON: {error}") from error
    return said
