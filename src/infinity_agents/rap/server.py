"""Write a tool server: a typed function is a tool, and ``ToolServer`` is an ASGI application that serves it.

Parameters are described by ``Annotated[str, Field(description="A city")]``, the tool by its docstring::

    server = ToolServer(name="weather-tools")

    @server.tool(read_only=True)
    async def get_weather(location: str) -> str: ...

    server.run(port=8001)
"""

import asyncio
import contextlib
import hmac
import json
import logging
import secrets
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import httpx
from pydantic import ValidationError

from ..conversation.content import without_surrogates
from ..errors import Misconfigured, Undecodable
from ..wire import rap
from ..wire.inputs import explain
from .functions import FunctionTool, parts_of

MAX_REQUEST = 8 * 1024 * 1024
"""The largest body that a server takes, in bytes."""
KNOWN_CALLS = 10_000
"""How many calls a server remembers, so as to do repeats of them once."""
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0, 60.0, 60.0)
"""Seconds between the tries of a callback that the runtime could not take."""
SHUTDOWN_GRACE = 5.0
"""Seconds that running calls have to finish when the server stops."""

CALLBACK_TIMEOUT = 30.0
"""Seconds that the runtime has to take a callback."""

_log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Function = TypeVar("Function", bound=Callable[..., Any])
Outgoing = rap.ResultCallback | rap.EventCallback | rap.OauthCallback | rap.ChoiceCallback


class Undelivered(Exception):
    """The runtime did not take a callback; ``status`` is its HTTP status, ``None`` where there was no answer."""

    def __init__(self, text: str, status: int | None) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Subscribed:
    """What a tool returns when it has started a subscription.

    ``following`` runs once the runtime knows of the subscription, emits its events, and is cancelled with it.
    """

    text: str
    following: Coroutine[Any, Any, None] | None = None


class ToolContext:
    """What a tool may know of its call, and say to the conversation while it works.

    A parameter annotated with this class receives it, and the model does not see that parameter.
    """

    def __init__(self, invocation: rap.Invocation, server: "ToolServer", base_url: str) -> None:
        self._invocation = invocation
        self._server = server
        self._base_url = base_url

    @property
    def call_id(self) -> str:
        """The runtime's id of the call: the same on every repeat."""
        return self._invocation.id

    @property
    def thread_id(self) -> str:
        """The conversation thread that made the call."""
        return self._invocation.group_id

    @property
    def thread_ancestors(self) -> tuple[str, ...]:
        """The threads above this one, from the root down."""
        return self._invocation.thread_ancestors

    @property
    def user_id(self) -> str | None:
        """The person for whom the call acts, where the runtime knows one."""
        return self._invocation.user_id

    async def emit(
        self, text: str, *, associative: bool = False, final: bool = False, event_id: str | None = None
    ) -> None:
        """Tell the conversation of an event of the subscription that this call started.

        An ``associative`` event goes to the thread itself, any other to a thread of its own. A ``final`` one ends the
        subscription. A stable ``event_id`` makes a repeat harmless.

        Raises:
            Undelivered: the runtime did not take it.
        """
        await self._server._post(
            self._invocation.callback_url,
            rap.EventCallback(
                group_id=self.thread_id,
                tool_call_id=self.call_id,
                text=text,
                associative=associative,
                final=final,
                # Without an id of the author's, the tries of this one event still count as one.
                event_id=event_id or secrets.token_hex(16),
            ),
        )

    async def ask(self, prompt: str, choices: Sequence[str], *, default: int = 0) -> int:
        """Ask the person to choose and return the index of the choice.

        Raises:
            Undelivered: the runtime did not take the question.
        """
        with self._server._question(self.call_id, len(choices), default) as question:
            await self._server._post(
                self._invocation.callback_url,
                rap.ChoiceCallback(
                    group_id=self.thread_id,
                    id=self.call_id,
                    call_id=self._invocation.call_id,
                    prompt=prompt,
                    choices=tuple(choices),
                    default=default,
                    response_url=f"{self._base_url}/choice/{question.key}",
                ),
            )
            return await question.answer

    async def authorize(self, url: str) -> None:
        """Send the person a link by which to authorize this tool; ``url`` is https.

        Raises:
            Undelivered: the runtime did not take it.
        """
        await self._server._post(
            self._invocation.callback_url,
            rap.OauthCallback(group_id=self.thread_id, id=self.call_id, call_id=self._invocation.call_id, auth_url=url),
        )


@dataclass(frozen=True, slots=True)
class _Question:
    """A choice that waits for its answer; ``key`` is the secret part of its ``response_url``."""

    key: str
    call_id: str
    choices: int
    default: int
    answer: asyncio.Future[int]


class _Refused(Exception):
    """The request is answered with ``status`` and the reason; ``allow`` is the method that would be right."""

    def __init__(self, status: int, reason: str, *, allow: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.allow = allow


class ToolServer:
    """An ASGI application that serves functions as tools.

    ``url`` is the base URL by which the runtime knows the server, where that is not what its requests say (behind a
    proxy). With a ``bearer_token``, requests must carry it. ``sleep`` waits between the tries of a callback.
    """

    def __init__(
        self,
        *,
        name: str,
        description: str = "",
        url: str | None = None,
        bearer_token: str | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if not 0 < len(name) <= 128:
            raise Misconfigured(f"the name {name[:140]!r} of a tool server must have 1 to 128 characters")
        self.name = name
        self.description = description
        self._url = url.rstrip("/") if url else None
        self._bearer_token = bearer_token
        self._sleep = sleep
        self._tools: dict[str, FunctionTool] = {}
        self._known: OrderedDict[tuple[str, ...], None] = OrderedDict()
        self._calls: dict[asyncio.Task[None], tuple[str, str]] = {}
        self._followers: dict[asyncio.Task[None], tuple[str, str]] = {}
        self._questions: dict[str, _Question] = {}
        self._client: httpx.AsyncClient | None = None

    # -------------------------------------------------------------------- tools

    @overload
    def tool(self, function: Function, /) -> Function: ...

    @overload
    def tool(
        self,
        *,
        read_only: bool = False,
        destructive: bool = False,
        idempotent: bool = False,
        long_running: bool = False,
        requires_auth: str | None = None,
        display_script: str | None = None,
    ) -> Callable[[Function], Function]: ...

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        *,
        read_only: bool = False,
        destructive: bool = False,
        idempotent: bool = False,
        long_running: bool = False,
        requires_auth: str | None = None,
        display_script: str | None = None,
    ) -> Any:
        """Offer a function as a tool, and return it as it was.

        Its name, docstring and annotated parameters are what the model reads. It may be async or not, and return text,
        an ``Image``, a list of texts and images, ``Subscribed``, or anything that has a JSON form. What it raises
        becomes an error result with the exception's type and message.

        Raises:
            Misconfigured: the function cannot be a tool; the text says why.
        """

        def offer(function: Function) -> Function:
            tool = FunctionTool.of(
                function,
                context_type=ToolContext,
                annotations=rap.Annotations(
                    read_only=read_only,
                    destructive=destructive,
                    idempotent=idempotent,
                    long_running=long_running,
                    requires_auth=requires_auth,
                ),
                display_script=display_script,
            )
            if tool.offered.name in self._tools:
                raise Misconfigured(f"the tool {tool.offered.name} stands there twice; rename one of the functions")
            self._tools[tool.offered.name] = tool
            return function

        return offer if function is None else offer(function)

    # --------------------------------------------------------------------- ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            headers: list[tuple[bytes, bytes]] = []
            try:
                status, fields = 200, await self._answer(scope, receive)
            except _Refused as refusal:
                status, fields = refusal.status, {"error": str(refusal)}
                if refusal.allow:
                    headers.append((b"allow", refusal.allow.encode()))
            body = json.dumps(fields).encode()
            headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await send({"type": "lifespan.startup.complete"})

    async def _answer(self, scope: Scope, receive: Receive) -> Mapping[str, Any]:
        path = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/"))
        routes = {
            rap.INVOKE_PATH: self._invoke,
            rap.CLOSE_THREAD_PATH: self._close_thread,
            rap.CANCEL_TOOL_CALL_PATH: self._cancel_tool_call,
            rap.MIGRATE_PATH: self._migrate,
        }
        is_choice = path.startswith("/choice/")
        if path != rap.DISCOVERY_PATH and not is_choice and path not in routes:
            raise _Refused(404, f"there is nothing at {path}; discovery is at {rap.DISCOVERY_PATH}")
        wanted = "GET" if path == rap.DISCOVERY_PATH else "POST"
        if scope["method"] != wanted:
            raise _Refused(405, f"{path} takes {wanted}, not {scope['method']}", allow=wanted)
        headers = {name.lower(): value for name, value in scope["headers"]}
        self._admit(headers)
        base_url = self._base_url(scope, headers)
        if path == rap.DISCOVERY_PATH:
            return self._manifest(base_url)
        body = await _body(receive)
        try:
            if is_choice:
                self._take_answer(path.removeprefix("/choice/"), rap.parse_notice(body, rap.ChoiceAnswer))
            else:
                routes[path](body, base_url)
        except Undecodable as error:
            raise _Refused(400, str(error)) from error
        return {"ok": True}

    def _admit(self, headers: Mapping[bytes, bytes]) -> None:
        # A browser names the page that sends a request. A page has no business here: it could call the tools of a
        # server that listens on loopback.
        if b"origin" in headers:
            raise _Refused(403, "requests from web pages are not served")
        if self._bearer_token is not None:
            wanted = f"Bearer {self._bearer_token}".encode()
            if not hmac.compare_digest(headers.get(b"authorization", b""), wanted):
                raise _Refused(401, "the bearer token is missing or wrong")

    def _base_url(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str:
        if self._url is not None:
            return self._url
        host = headers.get(b"host", b"").decode("latin-1")
        base_url = f"{scope.get('scheme', 'http')}://{host}{scope.get('root_path', '').rstrip('/')}"
        try:
            rap.origin(base_url)
        except ValueError as error:
            raise _Refused(400, f"the Host header {host!r} makes no URL: {error}") from error
        return base_url

    def _manifest(self, base_url: str) -> Mapping[str, Any]:
        try:
            manifest = rap.Manifest(
                name=self.name,
                description=self.description,
                endpoint=base_url + rap.INVOKE_PATH,
                tools=tuple(tool.offered for tool in self._tools.values()),
            )
        except ValidationError as error:
            raise _Refused(500, f"the server has no valid manifest: {explain(error)}") from error
        return manifest.to_json()

    def _invoke(self, body: bytes, base_url: str) -> None:
        invocation = rap.parse_invocation(body)
        # Two runtimes may give two calls the same ids, and one that restarts elsewhere repeats a call whose first
        # answer nobody hears any more: a call is a repeat if its answer is wanted at the same place.
        key = (rap.origin(invocation.callback_url), invocation.group_id, invocation.id)
        if key in self._known:
            return
        self._known[key] = None
        if len(self._known) > KNOWN_CALLS:
            self._known.popitem(last=False)
        self._start(self._calls, invocation, self._run(invocation, base_url, key))

    def _close_thread(self, body: bytes, base_url: str) -> None:
        thread_id = rap.parse_notice(body, rap.CloseThread).thread_id
        self._cancel(lambda thread, _: thread == thread_id)

    def _cancel_tool_call(self, body: bytes, base_url: str) -> None:
        notice = rap.parse_notice(body, rap.CancelToolCall)
        self._cancel(lambda thread, call: (thread, call) == (notice.thread_id, notice.tool_call_id))

    def _migrate(self, body: bytes, base_url: str) -> None:
        rap.parse_notice(body, rap.Migrate)  # the manifest does not say needsMigration: there is nothing to move

    def _cancel(self, is_meant: Callable[[str, str], bool]) -> None:
        for task, about in [*self._calls.items(), *self._followers.items()]:
            if is_meant(*about):
                task.cancel()

    # -------------------------------------------------------------------- calls

    def _start(
        self,
        tasks: dict[asyncio.Task[None], tuple[str, str]],
        invocation: rap.Invocation,
        work: Coroutine[Any, Any, None],
    ) -> None:
        task = asyncio.create_task(work)
        tasks[task] = (invocation.group_id, invocation.id)
        task.add_done_callback(tasks.pop)

    async def _run(self, invocation: rap.Invocation, base_url: str, key: tuple[str, ...]) -> None:
        context = ToolContext(invocation, self, base_url)
        result, following = await self._result(invocation, context)
        try:
            await self._deliver(invocation, result)
        except Undelivered as error:
            _log.error("the result of call %s in thread %s is lost: %s", invocation.id, invocation.group_id, error)
            self._known.pop(key, None)
        else:
            if following is not None:
                self._start(self._followers, invocation, self._follow(invocation, context, following))
                following = None
        finally:
            if following is not None:
                following.close()

    async def _result(
        self, invocation: rap.Invocation, context: ToolContext
    ) -> tuple[rap.ResultCallback, Coroutine[Any, Any, None] | None]:
        tool = self._tools.get(invocation.operation)
        if tool is None:
            offered = ", ".join(self._tools)
            return _failed(invocation, f"There is no tool {invocation.operation!r} here; there are: {offered}."), None
        try:
            keywords = tool.bound(invocation.arguments, context)
        except ValueError as error:
            return _failed(invocation, f"Invalid arguments for {invocation.operation}: {error}"), None
        following = None
        try:
            value = await tool.run(keywords)
            if isinstance(value, Subscribed):
                following = value.following
                return _succeeded(invocation, value.text, subscription=True), following
            return _succeeded(invocation, value), None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a tool raises is for the model to read
            _log.exception("the tool %s failed in call %s", invocation.operation, invocation.id)
            if following is not None:
                following.close()
            return _failed(invocation, _told(error)), None

    async def _deliver(self, invocation: rap.Invocation, result: rap.ResultCallback) -> None:
        try:
            await self._post(invocation.callback_url, result)
        except Undelivered as error:
            if error.status not in (400, 413):
                raise
            # The call still waits for a result, and the model can act on the reason.
            await self._post(invocation.callback_url, _failed(invocation, f"The result was refused: {error}"))

    async def _follow(
        self, invocation: rap.Invocation, context: ToolContext, following: Coroutine[Any, Any, None]
    ) -> None:
        try:
            await following
        except Undelivered as error:
            _log.error("the subscription %s of thread %s has ended: %s", invocation.id, invocation.group_id, error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            _log.exception("the subscription of call %s failed", invocation.id)
            with contextlib.suppress(Undelivered):
                await context.emit(f"The subscription failed: {_told(error)}", associative=True, final=True)

    @contextlib.contextmanager
    def _question(self, call_id: str, choices: int, default: int) -> Iterator[_Question]:
        """Keep a question open, so that its answer finds its way back."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        question = _Question(secrets.token_urlsafe(16), call_id, choices, default, answer)
        self._questions[question.key] = question
        try:
            yield question
        finally:
            del self._questions[question.key]

    def _take_answer(self, key: str, answer: rap.ChoiceAnswer) -> None:
        question = self._questions.get(key)
        if question is None:
            raise _Refused(404, "the question is not open any more")
        if answer.id != question.call_id:
            raise _Refused(403, "the question is of another call")
        selected = question.default if answer.selected is None else answer.selected
        if not 0 <= selected < question.choices:
            raise _Refused(400, f"selected {selected} is not an index into {question.choices} choices")
        if not question.answer.done():
            question.answer.set_result(selected)

    # ---------------------------------------------------------------- callbacks

    async def _post(self, url: str, callback: Outgoing) -> None:
        """POST a callback until the runtime takes it.

        Raises:
            Undelivered: it was refused (4xx other than 429), or not taken in the last of eleven tries.
        """
        body = json.dumps(callback.to_json()).encode()
        for pause in (*PAUSES, None):
            status, text = await self._try(url, body)
            if status is not None and status < 300:
                return
            is_passing = status is None or status >= 500 or status == 429
            if pause is None or not is_passing:
                raise Undelivered(f"the runtime did not take a {callback.type}: {text}", status)
            await self._sleep(pause)

    async def _try(self, url: str, body: bytes) -> tuple[int | None, str]:
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=CALLBACK_TIMEOUT, follow_redirects=False, mounts=_UNPROXIED)
        headers = {"Content-Type": "application/json"}
        try:
            async with self._client.stream("POST", url, content=body, headers=headers) as answer:
                text = await anext(answer.aiter_text(500), "")
                return answer.status_code, f"HTTP {answer.status_code} {text[:500]}".strip()
        except _FAILURES as error:
            return None, type(error).__name__  # its text may hold the URL, which is a secret

    # ------------------------------------------------------------------ running

    async def aclose(self) -> None:
        """Give running calls five seconds to finish, then cancel them and all subscriptions."""
        if self._calls:
            await asyncio.wait(list(self._calls), timeout=SHUTDOWN_GRACE)
        left = [*self._calls, *self._followers]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def run(self, *, host: str = "127.0.0.1", port: int = 8000) -> None:
        """Serve until interrupted; print the URL once requests are taken. Port 0 is any free port.

        Raises:
            Misconfigured: uvicorn is not installed, the port is taken, or there are no tools.
        """
        try:
            import uvicorn  # noqa: PLC0415 - an optional extra
        except ImportError as error:
            raise Misconfigured("serving needs uvicorn: pip install 'infinity-agents[local]'") from error
        if not self._tools:
            raise Misconfigured(f"the tool server {self.name!r} has no tools; decorate a function with @server.tool")
        try:
            listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as error:
            raise Misconfigured(f"cannot listen on {host} port {port}: {error.strerror}; use --port 0") from error
        shown_host = f"[{host}]" if ":" in host else host
        with listening:
            url = f"http://{shown_host}:{listening.getsockname()[1]}"
            print(f"{self.name} listens on {url}", flush=True)  # noqa: T201 - whoever started it needs the URL
            # No access log: the URLs of answers to choices are secrets.
            config = uvicorn.Config(self, log_level="warning", access_log=False, lifespan="on")
            with contextlib.suppress(KeyboardInterrupt):
                uvicorn.Server(config).run(sockets=[listening])


# A proxy of the environment is for the world, not for this machine.
_UNPROXIED = {"all://localhost": None, "all://127.0.0.1": None, "all://[::1]": None}

# What httpx lets through beside its own: a host that is no name, a port that is no port, a group of these.
_FAILURES = (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, OverflowError, ExceptionGroup)

# httpx logs the URL of every request, and a callback's is a secret.
if logging.getLogger("httpx").level == logging.NOTSET:
    logging.getLogger("httpx").setLevel(logging.WARNING)


async def _body(receive: Receive) -> bytes:
    """Return the body; what goes over the limit is read and dropped, so that the sender gets to the answer."""
    body, size = bytearray(), 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Refused(400, "the request was not finished")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size <= MAX_REQUEST:
            body += chunk
        if not message.get("more_body", False):
            break
    if size > MAX_REQUEST:
        raise _Refused(413, f"the body has {size} bytes, and {MAX_REQUEST} are allowed; send less")
    return bytes(body)


def _succeeded(invocation: rap.Invocation, value: Any, *, subscription: bool = False) -> rap.ResultCallback:
    parts = parts_of(value)
    only_text = parts[0].text if len(parts) == 1 and isinstance(parts[0], rap.TextPart) else None
    return rap.ResultCallback(
        group_id=invocation.group_id,
        id=invocation.id,
        call_id=invocation.call_id,
        text=only_text,
        content=parts if only_text is None else None,
        subscription=subscription,
    )


def _failed(invocation: rap.Invocation, text: str) -> rap.ResultCallback:
    return rap.ResultCallback(
        group_id=invocation.group_id,
        id=invocation.id,
        call_id=invocation.call_id,
        text=without_surrogates(text),
        is_error=True,
    )


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
