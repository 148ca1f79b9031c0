"""The page behind API Gateway that links people with an MCP server, and then has carried out what waited.

A browser waits for at most half a minute, a tool may take longer: the function hands that work to itself.
"""

import base64
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..aws_clients import AwsClients
from ..mcp.links import Waiting
from ..mcp.pages import HEADERS, LinkPages, Page, fields_of
from ..mcp.proxy import McpProxy
from ..mcp.servers import HttpServer
from ..settings import McpOAuthEnvironment
from ..wire import rap
from .mcp_linking import links_of, server_of
from .sandbox import Sandbox
from .tool_servers import signed
from .wiring import Secrets

RESUME = "mcp_resume"
"""The ``type`` of the event by which the function hands over what waited."""


class LinkFunction:
    """Both invocations of the function named ``name``."""

    def __init__(self, environment: McpOAuthEnvironment, clients: AwsClients, *, name: str) -> None:
        self._environment = environment
        self._clients = clients
        self._name = name

    async def begin(self) -> "LinkFunction":
        """Read the secrets; return the function.

        Raises:
            Misconfigured: what the environment names cannot be used.
            StoreUnavailable: a secret cannot be read at the moment.
        """
        secrets = Secrets(self._clients)
        server = await server_of(self._environment, secrets)
        assert isinstance(server, HttpServer)  # noqa: S101 - it has a URL
        links, vault = await links_of(self._environment, server, self._clients, secrets)
        self._proxy = McpProxy(server, name=self._environment.mcp_name, links=links)
        self._proxy.server.host(take=_take_nothing, sign=signed(self._clients))
        self._pages = LinkPages(links, vault, self._hand_over)
        return self

    async def handle(self, event: Mapping[str, Any]) -> Any:
        """Answer a request of API Gateway, whichever its payload format, or carry out what waited."""
        if event.get("type") == RESUME:
            await self._proxy.resume(event["user"], [Waiting(**call) for call in event["waiting"]])
            return None
        http = event.get("requestContext", {}).get("http", {})
        method = http.get("method") or event.get("httpMethod", "")
        if method == "GET":
            page = await self._pages.shown(event.get("queryStringParameters") or {})
        elif method == "POST":
            text: str = event.get("body") or ""
            body = base64.b64decode(text).decode("utf-8", "replace") if event.get("isBase64Encoded") else text
            page = await self._pages.said_yes(fields_of(body))
        else:
            page = Page(405, "This page takes GET and POST.")
        return {"statusCode": page.status, "headers": dict(HEADERS), "body": page.body}

    async def _hand_over(self, user: str, waiting: Sequence[Waiting]) -> None:
        # One by one: together they may be larger than an invocation takes.
        for call in waiting:
            payload = {"type": RESUME, "user": user, "waiting": [asdict(call)]}
            await self._clients.call(
                "lambda",
                "invoke",
                FunctionName=self._name,
                InvocationType="Event",
                Payload=json.dumps(payload).encode(),
            )


async def _take_nothing(invocation: rap.Invocation, base_url: str) -> None:
    raise NotImplementedError("calls are taken by the proxy")


async def _build() -> LinkFunction:
    environment = McpOAuthEnvironment.read(os.environ)
    return await LinkFunction(environment, AwsClients(), name=os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "")).begin()


_sandbox = Sandbox(_build)


def handler(event: Mapping[str, Any], context: object) -> Any:
    """Return the answer to a browser; or carry out what waited for a link.

    Raises:
        Misconfigured: the environment, or what it names, cannot be used.
    """
    return _sandbox.run(lambda function: function.handle(event))
