"""Write a tool server: a typed function is a tool, and ``ToolServer`` is an ASGI application that serves it.

Its docstring and parameters are what the model reads::

    server = ToolServer(name="weather-tools")

    @server.tool(read_only=True)
    async def get_weather(city: str) -> str:
        \"\"\"Tell the weather of now in a city.\"\"\"
        ...

    server.run(port=8001)
"""

import asyncio
import contextlib
import hmac
import inspect
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict, TypeVar, Unpack, overload

from pydantic import ValidationError

from ..errors import Misconfigured, Undecodable
from ..wire import rap
from ..wire.addresses import origin
from ..wire.callbacks import ResultCallback, TextPart
from ..wire.inputs import explain
from ..wire.traces import following
from .asgi import Receive, Refused, Scope, Send, answer, body_of, listening_socket, refuse, serving, trace_in, url_of
from .context import CHOICE_PATH, OpenQuestions, ToolContext
from .functions import FunctionTool, in_thread
from .loop_watch import LoopWatch
from .posting import CallbackSender, Sign, Undelivered, answer_with, handle_of, push, push_with
from .results import LATER, Diff, Event, Image, Result, event_of, failed, shortened, succeeded

__all__ = [
    "LATER",
    "Diff",
    "Event",
    "Image",
    "Result",
    "ToolContext",
    "ToolOptions",
    "ToolServer",
    "Undelivered",
    "push",
]

MAX_REQUEST = 8 * 1024 * 1024
"""The largest body that a server takes, in bytes."""
KNOWN_CALLS = 10_000
"""How many calls a server remembers, so as to do repeats of them once."""
RESULT_PATIENCE = 6 * 3600.0
"""Seconds for which a result or a generator's event is tried again: so long a runtime waits for a call."""
SHUTDOWN_GRACE = 5.0
"""Seconds that running calls have to finish when the server stops."""
LAST_WORDS = 5.0
"""Seconds in which those that did not finish are to have said so."""

_log = logging.getLogger(__name__)

Function = TypeVar("Function", bound=Callable[..., Any])


class Declared(Protocol):
    """Carries out a tool that was declared with a schema of its own."""

    async def __call__(self, *, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Return what any tool may return."""
        ...


Take = Callable[[rap.Invocation, str], Awaitable[None]]
"""Sees to it that an invocation at the base URL is carried out, and returns once that is sure."""


class ToolOptions(TypedDict, total=False):
    """What a tool's author promises about it, and how people see its calls."""

    read_only: bool
    """It changes nothing."""
    destructive: bool
    """It may destroy something."""
    idempotent: bool
    """Calling it twice does the same as calling it once."""
    long_running: bool
    """It may take days: the runtime waits 14 instead of 6 hours."""
    requires_auth: str
    """What a person must have logged in to, in words."""
    display_script: str
    """An expression over ``args`` that people see instead of the call."""


@dataclass(eq=False, slots=True)
class _Running:
    """A call at work. It is a subscription once that is ``confirmed``."""

    invocation: rap.Invocation
    confirmed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ids(self) -> tuple[str, str]:
        return self.invocation.group_id, self.invocation.id


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
        self._sender = CallbackSender(sleep)
        self._take: Take | None = None
        self._tools: dict[str, FunctionTool] = {}
        self._cancel_hooks: list[Callable[..., Any]] = []
        self._close_hooks: list[Callable[..., Any]] = []
        self._known: OrderedDict[tuple[str, ...], None] = OrderedDict()
        self._running: dict[asyncio.Task[None], _Running] = {}
        self._telling: set[asyncio.Task[None]] = set()
        self._questions = OpenQuestions()
        self._watch = LoopWatch()
        self._is_stopping = False

    # ------------------------------------------------------- what authors offer

    @overload
    def tool(self, function: Function, /) -> Function: ...

    @overload
    def tool(self, **options: Unpack[ToolOptions]) -> Callable[[Function], Function]: ...

    def tool(self, function: Callable[..., Any] | None = None, **options: Unpack[ToolOptions]) -> Any:
        """Offer a function as a tool, and return it as it was.

        Its name, docstring and annotated parameters are what the model reads. It may be async or not, and return text,
        an ``Image``, a list of texts and images, a ``Result``, or anything that has a JSON form. What it raises becomes
        an error result with the exception's type and message.

        Raises:
            Misconfigured: the function cannot be a tool; the text says why.
        """
        return self._offering(function, options, is_subscription=False)

    @overload
    def subscription(self, function: Function, /) -> Function: ...

    @overload
    def subscription(self, **options: Unpack[ToolOptions]) -> Callable[[Function], Function]: ...

    def subscription(self, function: Callable[..., Any] | None = None, **options: Unpack[ToolOptions]) -> Any:
        """Offer a function as a tool that starts a subscription, and return it as it was.

        An async generator yields the events: texts, or an ``Event``. It lives as long as the process. What it raises
        before it first waits is an error result; later, the subscription's last event.

        Any other function returns what confirms the subscription, and keeps ``ctx.handle`` for ``push``.

        Raises:
            Misconfigured: the function cannot be a tool; the text says why.
        """
        return self._offering(function, options, is_subscription=True)

    def declare(self, offered: rap.OfferedTool, function: Declared) -> None:
        """Offer a tool whose schema is known and no function's: ``function(arguments=…, context=…)`` carries it out.

        Raises:
            Misconfigured: there is a tool of that name.
        """
        self._add(FunctionTool.declared(offered, function))

    def _offering(self, function: Callable[..., Any] | None, options: ToolOptions, *, is_subscription: bool) -> Any:
        promises = dict(options)
        display_script: Any = promises.pop("display_script", None)
        annotations = rap.Annotations.model_validate(promises)

        def offer(function: Function) -> Function:
            tool = FunctionTool.of(
                function,
                context_type=ToolContext,
                annotations=annotations,
                display_script=display_script,
                is_subscription=is_subscription,
            )
            self._add(tool)
            return function

        return offer if function is None else offer(function)

    def _add(self, tool: FunctionTool) -> None:
        if tool.offered.name in self._tools:
            raise Misconfigured(f"the tool {tool.offered.name} stands there twice; rename one of the functions")
        self._tools[tool.offered.name] = tool

    def on_cancel(self, function: Function) -> Function:
        """Have ``function(thread_id, call_id)`` called when nobody wants a call's result or events any more.

        A running async function or generator gets ``CancelledError`` besides. It may be called about calls that this
        server never heard of, and twice about one.
        """
        self._cancel_hooks.append(_hook(function, "thread_id", "call_id"))
        return function

    def on_close(self, function: Function) -> Function:
        """Have ``function(thread_id)`` called when a thread, with all its calls and subscriptions, is closed."""
        self._close_hooks.append(_hook(function, "thread_id"))
        return function

    async def push(
        self,
        handle: str,
        text: str,
        *,
        final: bool = False,
        associative: bool = False,
        event_id: str | None = None,
    ) -> None:
        """Do what the function ``push`` does, over this server's connections.

        Raises:
            Undelivered: the runtime did not take it, in some four minutes.
            ValueError: the handle is none, or the text is larger than 5.5 MB.
        """
        await push_with(self._sender, handle, Event(text, associative, final, event_id))

    async def answer(self, handle: str, value: Any, *, is_error: bool = False) -> None:
        """Answer the call behind ``handle``, whose tool returned ``LATER``, with anything that a tool may return.

        Raises:
            Undelivered: the runtime did not take it, in some four minutes.
            ValueError: the handle is none, or the value has no JSON form or is larger than 5.5 MB.
        """
        await answer_with(self._sender, handle, value, is_error=is_error)

    # ----------------------------------------------------- a host of another kind

    @property
    def offered(self) -> tuple[rap.OfferedTool, ...]:
        """What the model is told of each tool."""
        return tuple(tool.offered for tool in self._tools.values())

    def host(self, *, sign: Sign, take: Take | None = None) -> None:
        """Have callbacks signed, and invocations taken by ``take``, which brings each of them to ``carry_out``.

        ``take`` is for a host whose processes stop once they have answered. A person's choice would not find its way
        back to the process that asked: ``ask`` is refused there. One that gets no invocations needs none.
        """
        self._take = take
        self._sender.sign = sign

    async def carry_out(self, invocation: rap.Invocation, base_url: str, *, seconds: float) -> None:
        """Carry a call out to its end; what is not over after ``seconds`` ends in an error result that says so.

        Raises:
            Undelivered: the runtime did not take the result.
        """
        running = _Running(invocation)
        try:
            async with asyncio.timeout(seconds):
                await self._serve(running, base_url)
        except TimeoutError:
            text = f"{invocation.operation} was cut off after {seconds:.0f} seconds: its function has no more time"
            if running.confirmed.is_set():
                await self._push_last(running, f"{text}. The subscription has ended.", patience=0.0)
            else:
                result = failed(invocation, f"{text}. It may be done in part; look before you call it again.")
                await self._sender.post(invocation.callback_url, result, patience=0.0)

    async def refuse(self, invocation: rap.Invocation, text: str) -> None:
        """Answer a call with an error for the model to read.

        Raises:
            Undelivered: the runtime did not take it, in some four minutes.
        """
        await self._sender.post(invocation.callback_url, failed(invocation, text))

    async def settled(self) -> None:
        """Return once the hooks that were called are done."""
        if self._telling:
            await asyncio.wait(self._telling)

    # --------------------------------------------------------------------- ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            try:
                with following(trace_in(scope)):
                    fields = await self._answer(scope, receive)
            except Refused as refusal:
                await refuse(send, refusal)
            else:
                await answer(send, fields)

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
        choice_path, _, choice_key = path.rpartition("/")
        is_choice = choice_path == CHOICE_PATH
        if path != rap.DISCOVERY_PATH and not is_choice and path not in routes:
            raise Refused(404, f"there is nothing at {path}; discovery is at {rap.DISCOVERY_PATH}")
        wanted = "GET" if path == rap.DISCOVERY_PATH else "POST"
        if scope["method"] != wanted:
            raise Refused(405, f"{path} takes {wanted}, not {scope['method']}", allow=wanted)
        headers = {name.lower(): value for name, value in scope["headers"]}
        self._admit(headers)
        base_url = self._base_url(scope, headers)
        if path == rap.DISCOVERY_PATH:
            return self._manifest(base_url)
        body = await body_of(receive, MAX_REQUEST)
        try:
            if path == rap.INVOKE_PATH and self._take is not None:
                await self._take(rap.parse_invocation(body), base_url)
            elif is_choice:
                self._questions.take(choice_key, rap.parse_notice(body, rap.ChoiceAnswer))
            else:
                routes[path](body, base_url)
        except Undecodable as error:
            raise Refused(400, str(error)) from error
        return {"ok": True}

    def _admit(self, headers: Mapping[bytes, bytes]) -> None:
        # A browser names the page that sends a request. A page has no business here: it could call the tools of a
        # server that listens on loopback.
        if b"origin" in headers:
            raise Refused(403, "requests from web pages are not served")
        if self._bearer_token is not None:
            wanted = f"Bearer {self._bearer_token}".encode()
            if not hmac.compare_digest(headers.get(b"authorization", b""), wanted):
                raise Refused(401, "the bearer token is missing or wrong")

    def _base_url(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str:
        if self._url is not None:
            return self._url
        host = headers.get(b"host", b"").decode("latin-1")
        base_url = f"{scope.get('scheme', 'http')}://{host}{scope.get('root_path', '').rstrip('/')}"
        try:
            origin(base_url)
        except ValueError as error:
            raise Refused(400, f"the Host header {host!r} makes no URL: {error}") from error
        return base_url

    def _manifest(self, base_url: str) -> Mapping[str, Any]:
        try:
            manifest = rap.Manifest(
                name=self.name,
                description=self.description,
                endpoint=base_url + rap.INVOKE_PATH,
                tools=self.offered,
            )
        except ValidationError as error:
            raise Refused(500, f"the server has no valid manifest: {explain(error)}") from error
        return manifest.to_json()

    def _invoke(self, body: bytes, base_url: str) -> None:
        invocation = rap.parse_invocation(body)
        # Two runtimes may give two calls the same ids, and one that restarts elsewhere repeats a call whose first
        # answer nobody hears any more: a call is a repeat if its answer is wanted at the same place.
        key = (origin(invocation.callback_url), invocation.group_id, invocation.id)
        if key in self._known:
            return
        self._known[key] = None
        if len(self._known) > KNOWN_CALLS:
            self._known.popitem(last=False)
        running = _Running(invocation)
        task = asyncio.create_task(self._run(running, base_url, key), name=f"the tool {invocation.operation[:128]}")
        self._running[task] = running
        task.add_done_callback(self._running.pop)

    def _close_thread(self, body: bytes, base_url: str) -> None:
        thread_id = rap.parse_notice(body, rap.CloseThread).thread_id
        self._cancel(lambda thread, _: thread == thread_id)
        self._tell(self._close_hooks, {"thread_id": thread_id})

    def _cancel_tool_call(self, body: bytes, base_url: str) -> None:
        notice = rap.parse_notice(body, rap.CancelToolCall)
        self._cancel(lambda *ids: ids == (notice.thread_id, notice.tool_call_id))
        self._tell(self._cancel_hooks, {"thread_id": notice.thread_id, "call_id": notice.tool_call_id})

    def _migrate(self, body: bytes, base_url: str) -> None:
        rap.parse_notice(body, rap.Migrate)  # the manifest does not say needsMigration: there is nothing to move

    def _cancel(self, is_meant: Callable[[str, str], bool]) -> None:
        for task, running in self._running.items():
            if is_meant(*running.ids):
                task.cancel()

    def _tell(self, hooks: list[Callable[..., Any]], ids: Mapping[str, str]) -> None:
        for hook in hooks:
            task = asyncio.create_task(self._called(hook, ids), name=f"the hook {hook.__name__}")
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _called(self, hook: Callable[..., Any], ids: Mapping[str, str]) -> None:
        try:
            with self._watch.watching():
                await (hook(*ids.values()) if inspect.iscoroutinefunction(hook) else in_thread(hook, *ids.values()))
        except Exception:  # noqa: BLE001 - whoever sent the notice has its answer
            _log.exception("the hook %s failed for %s", hook.__name__, dict(ids))

    # -------------------------------------------------------------------- calls

    async def _run(self, running: _Running, base_url: str, key: tuple[str, ...]) -> None:
        try:
            await self._serve(running, base_url)
        except Undelivered as error:
            thread, call = running.ids
            _log.error("a message of call %s in thread %s is lost: %s", call, thread, error)
            if not running.confirmed.is_set():
                self._known.pop(key, None)
        except asyncio.CancelledError:
            if self._is_stopping:
                await self._say_so(running)
            raise

    async def _serve(self, running: _Running, base_url: str) -> None:
        invocation = running.invocation
        tool = self._tools.get(invocation.operation)
        if tool is None:
            offered = ", ".join(self._tools)
            text = f"There is no tool {invocation.operation!r} here; there are: {offered}."
            return await self._deliver(failed(invocation, text), invocation)
        context = ToolContext(
            invocation,
            sender=self._sender,
            questions=self._questions if self._take is None else None,
            base_url=base_url,
            confirmed=running.confirmed,
        )
        try:
            keywords = tool.bound(invocation.arguments, context)
        except ValueError as error:
            text = f"Invalid arguments for {invocation.operation}: {error}"
            return await self._deliver(failed(invocation, text), invocation)
        if tool.is_generator:
            return await self._follow(running, tool.function(**keywords))
        result = await self._result(invocation, tool, keywords)
        if result is None:
            return None
        if running.confirmed.is_set():
            return await self._push_last(running, _text_of(result))
        return await self._deliver(result, invocation)

    async def _result(
        self, invocation: rap.Invocation, tool: FunctionTool, keywords: Mapping[str, Any]
    ) -> ResultCallback | None:
        """Return the result to be delivered; ``None`` where the tool answers later."""
        try:
            with self._watch.watching():
                value = await tool.run(keywords)
            if value is LATER and not tool.is_subscription:
                return None
            return succeeded(invocation, value, subscription=tool.is_subscription)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a tool raises is for the model to read
            _log.exception("the tool %s failed in call %s", invocation.operation, invocation.id)
            return failed(invocation, _told(error))

    async def _deliver(self, result: ResultCallback, invocation: rap.Invocation) -> None:
        try:
            await self._sender.post(invocation.callback_url, result, patience=RESULT_PATIENCE)
            return
        except ValueError as error:
            reason = str(error)
        except Undelivered as error:
            if error.status not in (400, 413):
                raise
            reason = f"the result was refused: {error}"
        # The call still waits for a result, and the model can act on the reason.
        await self._sender.post(invocation.callback_url, failed(invocation, reason), patience=RESULT_PATIENCE)

    async def _follow(self, running: _Running, events: AsyncGenerator[Any, None]) -> None:
        invocation = running.invocation
        name = f"the subscription {invocation.operation}"
        following = asyncio.create_task(self._push_all(running, events), name=name)
        try:
            with self._watch.watching():
                # The generator runs up to where it first waits: what it refuses until then, it refuses the call.
                await asyncio.sleep(0)
                if not following.done():
                    text = f"Subscribed with {invocation.operation}; the events come by themselves."
                    await self._deliver(succeeded(invocation, text, subscription=True), invocation)
                    running.confirmed.set()
                await following
        except Undelivered:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            _log.exception("the subscription %s of call %s failed", invocation.operation, invocation.id)
            if running.confirmed.is_set():
                await self._push_last(running, f"The subscription failed: {shortened(_told(error))}")
            else:
                await self._deliver(failed(invocation, _told(error)), invocation)
        finally:
            following.cancel()
            await asyncio.wait([following])

    async def _push_all(self, running: _Running, events: AsyncGenerator[Any, None]) -> None:
        async with contextlib.aclosing(events):
            async for value in events:
                event = event_of(value)
                await running.confirmed.wait()
                await push_with(self._sender, handle_of(running.invocation), event, patience=RESULT_PATIENCE)
                if event.final:
                    return
        await running.confirmed.wait()
        await self._push_last(running, "The subscription has ended.")

    async def _push_last(self, running: _Running, text: str, *, patience: float = RESULT_PATIENCE) -> None:
        last = Event(text, associative=True, final=True)
        await push_with(self._sender, handle_of(running.invocation), last, patience=patience)

    async def _say_so(self, running: _Running) -> None:
        """Tell a conversation in one try that the server stops; otherwise it would wait for what never comes."""
        with contextlib.suppress(Undelivered):
            if running.confirmed.is_set():
                await self._push_last(running, "The tool server stopped, and this subscription with it.", patience=0.0)
            else:
                result = failed(running.invocation, "The tool server stopped before the call was done.")
                await self._sender.post(running.invocation.callback_url, result, patience=0.0)

    # ------------------------------------------------------------------ running

    async def aclose(self) -> None:
        """Give running calls five seconds to finish, then cancel them and all subscriptions, and tell who waits."""
        self._is_stopping = True
        calls = [task for task, running in self._running.items() if not running.confirmed.is_set()]
        if calls or self._telling:
            await asyncio.wait([*calls, *self._telling], timeout=SHUTDOWN_GRACE)
        for _ in range(2):  # the second time, those that are still telling it
            left = [*self._running, *self._telling]
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=LAST_WORDS)
        self._is_stopping = False
        await self._sender.aclose()

    @contextlib.asynccontextmanager
    async def serving(self, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Serve on the running loop while the context is open, and give the URL: for tests and one's own programs.

        Raises:
            Misconfigured: uvicorn is not installed, the port is taken, or there are no tools.
        """
        self._refuse_to_serve_nothing()
        try:
            async with serving(self, host, port) as url:
                yield url
        except OSError as error:
            raise Misconfigured(f"cannot listen on {host} port {port}: {error.strerror}; use port 0") from error

    def run(self, *, host: str = "127.0.0.1", port: int = 8000) -> None:
        """Serve until interrupted; print the URL once requests are taken. Port 0 is any free port.

        Raises:
            Misconfigured: uvicorn is not installed, the port is taken, or there are no tools.
        """
        try:
            import uvicorn  # noqa: PLC0415 - an optional extra
        except ImportError as error:
            raise Misconfigured("serving needs uvicorn: pip install 'infinity-agents[local]'") from error
        self._refuse_to_serve_nothing()
        try:
            listening = listening_socket(host, port)
        except OSError as error:
            raise Misconfigured(f"cannot listen on {host} port {port}: {error.strerror}; use --port 0") from error
        with listening:
            print(f"{self.name} listens on {url_of(listening)}", flush=True)  # noqa: T201 - whoever started it needs the URL
            # No access log: the URLs of answers to choices are secrets.
            config = uvicorn.Config(self, log_level="warning", access_log=False, lifespan="on")
            with contextlib.suppress(KeyboardInterrupt):
                uvicorn.Server(config).run(sockets=[listening])

    def _refuse_to_serve_nothing(self) -> None:
        if not self._tools:
            raise Misconfigured(f"the tool server {self.name!r} has no tools; decorate a function with @server.tool")


def _hook(function: Callable[..., Any], *ids: str) -> Callable[..., Any]:
    try:
        inspect.signature(function).bind(*ids)
    except TypeError as error:
        raise Misconfigured(f"the hook {function.__name__} must take ({', '.join(ids)}): {error}") from error
    return function


def _text_of(result: ResultCallback) -> str:
    """Return a result as an event can say it, which has no pictures."""
    if result.content is None:
        return result.text or ""
    return "\n".join(part.text if isinstance(part, TextPart) else "[a picture]" for part in result.content)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
