"""A tool server for an MCP server: its tools as they are, or a pair of tools that list and invoke them."""

import asyncio
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for

from ..errors import Misconfigured
from ..rap.server import LATER, ToolContext, ToolServer, Undelivered
from ..wire import rap
from .links import Links, Waiting
from .results import McpError, value_of
from .servers import McpServer, valid_name
from .sessions import Challenged, McpSession

MAX_OFFERED = 40
"""With more tools than that, a server is offered as a pair of tools: a model reads every schema on every turn."""
MAX_NAME = 64
CALL_SECONDS = 600.0
"""How long one call may take by default."""

_log = logging.getLogger(__name__)


class McpProxy:
    """Serves the tools of ``server`` under names that begin with ``name``.

    ``links`` are with a server that wants people to authorize; then calls are made for the user of the conversation, or
    for ``sole_user`` where it has none. ``seconds`` is how long one call may take.

    Attributes:
        server: the tool server, which has its tools once ``offer`` was called, or ``offer_pair``.
    """

    def __init__(
        self,
        server: McpServer,
        *,
        name: str,
        links: Links | None = None,
        sole_user: str | None = None,
        bearer_token: str | None = None,
        seconds: float = CALL_SECONDS,
    ) -> None:
        if valid_name(name) != name or not 0 < len(name) <= 32:
            raise Misconfigured(f"the name {name[:60]!r} of an MCP server must be 1 to 32 of letters, digits, _ and -")
        self.server = ToolServer(
            name=name, description=f"The tools of the MCP server {name}.", bearer_token=bearer_token
        )
        self._name = name
        self._mcp = server
        self._links = links
        self._sole_user = sole_user
        self._seconds = seconds
        self._sessions: dict[str, McpSession] = {}
        self._promises: dict[str, rap.Annotations] = {}

    async def offer(self) -> None:
        """Offer each tool of the server as one of its own if they can be listed and are few; the pair otherwise.

        Raises:
            McpError: the server cannot be had, or has no tools.
        """
        try:
            tools = await self._session("").tools()
        except Challenged:
            if self._links is None:
                raise McpError("the MCP server wants to be authorized; give a header with a token, or oauth") from None
            self.offer_pair()
            return
        if self._links is not None:
            # That session was nobody's.
            await self._sessions.pop("").aclose()
        if not tools:
            raise McpError("the MCP server has no tools; see what it needs to have some, or leave it out")
        if len(tools) > MAX_OFFERED:
            self.offer_pair()
            return
        for offered_name, tool in zip(offered_names(self._name, tools), tools, strict=True):
            self._offer_one(offered_name, tool)

    def offer_pair(self) -> None:
        """Offer one tool that lists the server's tools, and one that invokes any of them."""
        listed, invoked = f"{self._name}_list_tools", f"{self._name}_invoke_tool"
        self.server.declare(
            rap.OfferedTool(
                name=listed,
                description=f"List the tools of {self._name}, with what each takes. Then call {invoked}.",
                input_schema={"type": "object", "properties": {}, "additionalProperties": False},
                annotations=rap.Annotations(read_only=True, idempotent=True),
            ),
            self._list,
        )
        properties = {
            "tool": {"type": "string", "description": f"The tool's name, as {listed} has it"},
            "arguments": {"type": "object", "description": "What the tool takes"},
        }
        self.server.declare(
            rap.OfferedTool(
                name=invoked,
                description=f"Call a tool of {self._name}. {listed} tells which there are, and what they take.",
                input_schema={
                    "type": "object",
                    "properties": properties,
                    "required": ["tool"],
                    "additionalProperties": False,
                },
            ),
            self._invoke,
        )

    async def resume(self, user: str, waiting: Sequence[Waiting]) -> None:
        """Carry out what waited for ``user``'s link, all at once, and answer it."""
        await self._forget(user)
        await asyncio.gather(*(self._resume(user, call) for call in waiting))

    async def aclose(self) -> None:
        """End all sessions, and the server's process if there is one."""
        await asyncio.gather(*(session.aclose() for session in self._sessions.values()))
        self._sessions.clear()

    # -------------------------------------------------------------------- calls

    def _offer_one(self, offered_name: str, tool: mcp_types.Tool) -> None:
        hints = tool.annotations or mcp_types.ToolAnnotations()
        promises = rap.Annotations(
            read_only=bool(hints.read_only_hint),
            destructive=bool(hints.destructive_hint) and not hints.read_only_hint,
            idempotent=bool(hints.idempotent_hint),
        )
        self._promises[tool.name] = promises

        async def carry_out(*, arguments: Mapping[str, Any], context: ToolContext) -> Any:
            return await self._call(tool.name, arguments, context)

        self.server.declare(
            rap.OfferedTool(
                name=offered_name,
                description=tool.description or hints.title or tool.title or f"{tool.name} of {self._name}",
                input_schema=_schema(tool),
                annotations=promises,
            ),
            carry_out,
        )

    async def _list(self, *, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        return await self._call(None, arguments, context)

    async def _invoke(self, *, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        tool, inner = arguments.get("tool"), arguments.get("arguments", {})
        if not isinstance(tool, str) or not isinstance(inner, dict):
            raise McpError("tool must be a text, and arguments an object")
        return await self._call(tool, inner, context)

    async def _call(self, tool: str | None, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        user = self._user(context)
        try:
            return await self._carried_out(user, tool, arguments)
        except Challenged as challenged:
            if self._links is None:
                raise McpError(f"{challenged}; give a header with a token, or oauth") from challenged
            waiting = Waiting(context.handle, context.call_id, tool, arguments)
            await context.authorize(await self._links.begin(user, challenged.response, waiting))
            return LATER

    async def _carried_out(self, user: str, tool: str | None, arguments: Mapping[str, Any]) -> Any:
        session = self._session(user)
        if tool is None:
            return [
                {"name": found.name, "description": found.description or found.title or "", "takes": found.input_schema}
                for found in await session.tools()
            ]
        promises = self._promises.get(tool, rap.Annotations())
        is_repeatable = promises.read_only or promises.idempotent
        result = await session.call(tool, arguments, seconds=self._seconds, is_repeatable=is_repeatable)
        return value_of(result)

    async def _resume(self, user: str, call: Waiting) -> None:
        is_error = False
        try:
            value = await self._carried_out(user, call.tool, call.arguments)
        except Challenged:
            value, is_error = "the MCP server does not take the link that was just made; ask its operator", True
        except Exception as error:  # noqa: BLE001 - whoever waits for the call is told
            _log.exception("call %s failed after its link was made", call.call_id)
            value, is_error = f"{type(error).__name__}: {error}", True
        try:
            await self.server.answer(call.handle, value, is_error=is_error)
        except ValueError as error:
            await self.server.answer(call.handle, str(error), is_error=True)
        except Undelivered:
            _log.exception("the result of call %s is lost", call.call_id)

    def _user(self, context: ToolContext) -> str:
        if self._links is None:
            return ""
        user = context.user_id or self._sole_user
        if user is None:
            raise McpError("this conversation has no user, and the MCP server is linked by each user alone")
        return user

    def _session(self, user: str) -> McpSession:
        if user not in self._sessions:
            auth = self._links.auth(user) if self._links is not None else None
            self._sessions[user] = McpSession(self._mcp, auth=auth)
        return self._sessions[user]

    async def _forget(self, user: str) -> None:
        session = self._sessions.pop(user, None)
        if session is not None:
            await session.aclose()


def offered_names(name: str, tools: Sequence[mcp_types.Tool]) -> list[str]:
    """Return a valid name for each tool, all different, the same whenever the server has the same tools."""
    plain = [f"{name}_{valid_name(tool.name)}" for tool in tools]
    return [
        said if len(said) <= MAX_NAME and plain.count(said) == 1 else _distinct(said, tool.name)
        for said, tool in zip(plain, tools, strict=True)
    ]


def _distinct(said: str, tool: str) -> str:
    digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{said[: MAX_NAME - 9]}_{digest}"


def _schema(tool: mcp_types.Tool) -> dict[str, Any]:
    """Return the tool's own schema; one that is none would have the whole server refused."""
    schema = dict(tool.input_schema)
    try:
        validator_for(schema).check_schema(schema)
        json.dumps(schema)
    except (SchemaError, ValueError, RecursionError):
        _log.warning("the MCP tool %s has no valid schema, and is offered as taking any object", tool.name)
        return {"type": "object"}
    return {"type": "object", **schema}
