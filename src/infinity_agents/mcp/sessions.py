"""One session with an MCP server: opened when it is needed, kept over calls, and opened anew when it is lost."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TextIO, TypeVar

import httpx2
import mcp_types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from mcp import Client, StdioServerParameters

from ..errors import StoreUnavailable
from .addresses import GuardedTransport
from .results import McpError
from .servers import HttpServer, McpServer, StdioServer

OPEN_TIMEOUT = 60.0
"""Seconds in which a server starts and a session begins; ``uvx`` and ``npx`` may install first."""
LIST_TIMEOUT = 30.0
MAX_EVENT = 32 * 1024 * 1024
"""The largest answer, in bytes, that a server may give in one event; what of it a model gets is cut later."""
MAX_TOOLS = 2000
"""How many tools of one server are listed: a list that never ends must not fill the memory."""

T = TypeVar("T")


class Challenged(Exception):
    """The server wants a person to authorize: ``response`` says how."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(f"the server answered {response.status_code}: it wants to be authorized")
        self.response = response


class McpSession:
    """A session with ``server``, for one person where there is an ``auth``."""

    def __init__(self, server: McpServer, *, auth: httpx2.Auth | None = None) -> None:
        self._server = server
        self._auth = auth
        self._opening = asyncio.Lock()
        self._open: _Open | None = None

    async def tools(self) -> Sequence[mcp_types.Tool]:
        """Return all that the server offers, page by page.

        Raises:
            McpError: the server cannot be had, or answers with an error.
            Challenged: it wants to be authorized.
        """

        async def read(client: Client) -> Sequence[mcp_types.Tool]:
            found: list[mcp_types.Tool] = []
            cursor: str | None = None
            while len(found) < MAX_TOOLS:
                page = await client.list_tools(cursor=cursor, cache_mode="bypass")
                found += page.tools
                if page.next_cursor is None or page.next_cursor == cursor:
                    break
                cursor = page.next_cursor
            return found[:MAX_TOOLS]

        return await self._use(read, seconds=OPEN_TIMEOUT + LIST_TIMEOUT, is_repeatable=True)

    async def call(
        self, tool: str, arguments: Mapping[str, Any], *, seconds: float, is_repeatable: bool
    ) -> mcp_types.CallToolResult:
        """Return what ``tool`` answers within ``seconds``.

        A call that was certainly not carried out, because the session was over or the server dead before, is made again
        in a new one, once; a call that may have been only if it ``is_repeatable``.

        Raises:
            McpError: the server cannot be had, or answers with an error, or not in time.
            Challenged: it wants to be authorized.
        """

        async def call(client: Client) -> mcp_types.CallToolResult:
            return await client.call_tool(tool, dict(arguments))

        return await self._use(call, seconds=seconds, is_repeatable=is_repeatable)

    async def aclose(self) -> None:
        """End the session, and the server's process if there is one."""
        if self._open is not None:
            await self._open.aclose()
            self._open = None

    async def _use(self, work: Callable[[Client], Awaitable[T]], *, seconds: float, is_repeatable: bool) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await self._tried(work, is_repeatable=is_repeatable)
        except TimeoutError as error:
            doubt = "" if is_repeatable else ". It may be done all the same; look before you call it again."
            raise McpError(f"the MCP server did not answer within {seconds:.0f} seconds{doubt}") from error

    async def _tried(self, work: Callable[[Client], Awaitable[T]], *, is_repeatable: bool) -> T:
        for is_last in (False, True):
            seen = _Seen()
            _seen.set(seen)
            opened = await self._opened()
            sent = opened.sent
            try:
                return await opened.use(work)
            except (_Lost, MCPError, ValidationError) as error:
                if seen.unauthorized is not None:
                    raise McpError(str(seen.unauthorized)) from seen.unauthorized
                if seen.challenge is not None:
                    await self._drop(opened)
                    raise Challenged(seen.challenge) from error
                is_expired = seen.is_expired or (seen.is_refused and _code(error) in _NO_ANSWER_OF_A_TOOL)
                is_lost = isinstance(error, _Lost) or _code(error) == mcp_types.CONNECTION_CLOSED
                if not is_lost and not is_expired:
                    raise McpError(_told(error)) from error
                was_not_done = is_expired or opened.sent == sent
                await self._drop(opened)
                if is_last or not (was_not_done or is_repeatable):
                    raise McpError(
                        f"the MCP server was lost during the call ({_told(error)}). It may be done in part; look "
                        "before you call it again. The next call opens a new session."
                    ) from error
        raise AssertionError("the last try returns or raises")

    async def _opened(self) -> "_Open":
        async with self._opening:
            if self._open is None or self._open.is_over:
                opened = _Open(self._server, self._auth)
                await opened.begin()
                self._open = opened
            return self._open

    async def _drop(self, opened: "_Open") -> None:
        async with self._opening:
            if self._open is opened:
                self._open = None
        await opened.retire()


class _Lost(Exception):
    """The connection ended."""


@dataclass
class _Seen:
    """How one call went over HTTP: what another call of the same session is answered says nothing about it."""

    is_expired: bool = False
    """Whether the server said that it does not know the session any more."""
    is_refused: bool = False
    """Whether it called the request a bad one, as many servers do about sessions that they do not know."""
    challenge: httpx2.Response | None = None
    unauthorized: Exception | None = None
    """Why the request could not be authorized at the moment, and did not go out."""


_seen: ContextVar[_Seen] = ContextVar("_seen")
"""Of the call that is made: the SDK sends each message in the context of whoever gave it."""


class _HttpClient(httpx2.AsyncClient):
    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        seen = _seen.get()
        try:
            response = await super().send(request, **options)
        except (McpError, StoreUnavailable) as error:
            # Raised, it would end the session and all other calls with it.
            seen.unauthorized = error
            return httpx2.Response(503, request=request)
        # Only what is posted tells: a server need not have a stream to GET.
        if request.method == "POST":
            if "mcp-session-id" in request.headers:
                seen.is_expired |= response.status_code == 404
                seen.is_refused = response.status_code == 400
            refused = response.headers.get("www-authenticate", "")
            is_challenge = response.status_code == 401 or (
                response.status_code == 403 and "insufficient_scope" in refused
            )
            seen.challenge = response if is_challenge else None
        return response


class _Open:
    """A session that is open. The SDK wants it closed by the task that opened it: that is one of its own."""

    def __init__(self, server: McpServer, auth: httpx2.Auth | None) -> None:
        self._server = server
        self._auth = auth
        self._closing = asyncio.Event()
        self._holding: asyncio.Task[None] | None = None
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._log: TextIO | None = None
        self._last_words = ""
        self._using = 0
        self._is_retired = False
        self.sent = 0
        """How many messages went out."""

    @property
    def _said(self) -> str:
        return f"; it said: {self._last_words}" if self._last_words else ""

    @property
    def is_over(self) -> bool:
        return self._holding is None or self._holding.done()

    async def begin(self) -> None:
        self._holding = asyncio.create_task(self._hold(), name="an MCP session")
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                await asyncio.shield(self._client)
        except TimeoutError as error:
            await self.aclose()
            hint = ""
            if isinstance(self._server, StdioServer):
                hint = f": {self._server.command[0]} must speak MCP on its standard input and output"
            raise McpError(
                f"the MCP server did not begin within {OPEN_TIMEOUT:.0f} seconds{hint}{self._said}"
            ) from error
        except asyncio.CancelledError:
            await self.aclose()
            raise
        except Exception as error:
            await self.aclose()
            seen = _seen.get()
            if seen.unauthorized is not None:
                raise McpError(str(seen.unauthorized)) from seen.unauthorized
            if seen.challenge is not None:
                raise Challenged(seen.challenge) from error
            why = _told(_first(error))
            if isinstance(self._server, StdioServer) and _code(_first(error)) == mcp_types.CONNECTION_CLOSED:
                why = f"the program {self._server.command[0]} ended"
            raise McpError(f"no session with the MCP server: {why}{self._said}") from error

    async def use(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Return what ``work`` does with the client.

        Raises:
            _Lost: the connection ended meanwhile.
        """
        working = asyncio.ensure_future(work(await self._client))
        assert self._holding is not None  # noqa: S101 - it has begun
        self._using += 1
        try:
            await asyncio.wait({working, self._holding}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise _Lost("the connection ended")
            try:
                return working.result()
            except (OSError, httpx2.HTTPError, RuntimeError) as error:
                raise _Lost(_told(error)) from error
        finally:
            working.cancel()
            self._using -= 1
            if self._is_retired:
                await self.retire()

    async def retire(self) -> None:
        """Close it once nobody uses it any more."""
        self._is_retired = True
        if not self._using:
            await self.aclose()

    async def aclose(self) -> None:
        self._closing.set()
        if self._holding is not None:
            done, _ = await asyncio.wait({self._holding}, timeout=_CLOSE_TIMEOUT)
            if not done:
                self._holding.cancel()
                await asyncio.wait({self._holding}, timeout=_CLOSE_TIMEOUT)

    async def _hold(self) -> None:
        try:
            async with Client(self._counted(), client_info=_INFO) as client:
                # That would list the tools after a call, and fail a call that is done where it cannot, or where the
                # result is not what its schema says: a model reads it all the same.
                client.session.validate_tool_result = _take_as_it_is  # type: ignore[method-assign]
                self._client.set_result(client)
                await self._closing.wait()
        except Exception as error:  # noqa: BLE001 - told to whoever opens the session, or lost with it
            if not self._client.done():
                self._client.set_exception(error)
                self._client.exception()

    @contextlib.asynccontextmanager
    async def _counted(self) -> AsyncIterator[Any]:
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(self._server, HttpServer):
                client = _HttpClient(
                    transport=GuardedTransport(self._server.url),
                    headers=dict(self._server.headers),
                    auth=self._auth,
                    timeout=httpx2.Timeout(30.0, read=None),
                )
                await stack.enter_async_context(client)
                streams = streamable_http_client(self._server.url, http_client=client, max_sse_event_size=MAX_EVENT)
            else:
                command, *arguments = self._server.command
                # What it logs is shown only where it does not start: it is not to be mixed with what we say.
                log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the stack
                self._log = stack.enter_context(log)
                streams = stdio_client(
                    StdioServerParameters(command=command, args=arguments, env=dict(self._server.env)), self._log
                )
            read, write = await stack.enter_async_context(streams)
            try:
                yield read, _Counting(write, self)
            finally:
                if self._log is not None:
                    self._log.seek(0)
                    self._last_words = self._log.read().strip()[-_LAST_WORDS:]


class _Counting:
    """A stream to the server that counts what it is given."""

    def __init__(self, stream: Any, opened: _Open) -> None:
        self._stream = stream
        self._opened = opened

    async def send(self, item: Any) -> None:
        self._opened.sent += 1
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> "_Counting":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> Any:
        return await self._stream.__aexit__(*raised)


_CLOSE_TIMEOUT = 8.0
_LAST_WORDS = 1000
_NO_ANSWER_OF_A_TOOL = {mcp_types.INTERNAL_ERROR, mcp_types.INVALID_REQUEST, -32000}
"""What comes with a bad request that no tool has seen."""
_INFO = mcp_types.Implementation(name="infinity-agents", version="1")


async def _take_as_it_is(name: str, result: mcp_types.CallToolResult) -> None:
    pass


def _code(error: BaseException) -> int | None:
    return error.code if isinstance(error, MCPError) else None


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _told(error: BaseException) -> str:
    return error.message if isinstance(error, MCPError) else f"{type(error).__name__}: {error}"
