"""The page behind API Gateway that links people with an MCP server, and then has carried out what waited.

A browser waits for at most half a minute, a tool may take longer: the function hands that work to itself.
"""

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
from ..settings.tool_servers import McpOAuthEnvironment
from .http_events import BadBody, HttpRequest, request_of
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
        self._proxy.server.host(sign=signed(self._clients))
        self._pages = LinkPages(links, vault, self._hand_over)
        return self

    async def handle(self, event: object) -> Any:
        """Answer a request of API Gateway, or carry out what waited.

        Raises:
            NoRequest: the event is neither.
        """
        if isinstance(event, Mapping) and event.get("type") == RESUME:
            await self._proxy.resume(event["user"], [Waiting(**call) for call in event["waiting"]])
            return None
        request = request_of(event)
        if request.method == "GET":
            page = await self._pages.shown(request.query)
        elif request.method == "POST":
            page = await self._said_yes(request)
        else:
            page = Page(405, "This page takes GET and POST.")
        return {"statusCode": page.status, "headers": dict(HEADERS), "body": page.body}

    async def _said_yes(self, request: HttpRequest) -> Page:
        try:
            return await self._pages.said_yes(fields_of(request.body.decode("utf-8", "replace")))
        except BadBody as error:
            return Page(400, str(error))

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


async def _build() -> LinkFunction:
    environment = McpOAuthEnvironment.read(os.environ)
    return await LinkFunction(environment, AwsClients(), name=os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "")).begin()


sandbox = Sandbox(_build)


def handler(event: object, context: object) -> Any:
    """Return the answer to a browser; or carry out what waited for a link.

    Raises:
        Misconfigured: the environment, or what it names, cannot be used.
    """
    return sandbox.run(lambda function: function.handle(event))
