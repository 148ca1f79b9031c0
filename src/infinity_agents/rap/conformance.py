"""The checks of any tool server against the protocol, over HTTP: what ``infinity tools test URL`` prints."""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from ..conversation.content import JsonObject, plain_text
from ..errors import Misconfigured, Undecodable, without_user
from ..ports.http import HttpClient, HttpResponse, HttpUnreachable
from ..wire import rap
from ..wire.addresses import is_loopback, origin, secure_url
from ..wire.bodies import parse_json
from ..wire.callbacks import Callback, EventCallback, ResultCallback, ViewCallback, parse_callback
from ..wire.inputs import explain
from .asgi import Receive, Refused, Scope, Send, answer, body_of, listening_socket, refuse
from .tool import TRY_TIMEOUT, excerpt
from .toolsets import DISCOVERY_TIMEOUT, MAX_MANIFEST

OVERSIZE = 16 * 1024 * 1024
"""The size of a body that no server should take, in bytes."""
_MAX_CALLBACK = 8 * 1024 * 1024
_UNKNOWN_TOOL = "no_such_tool__conformance"

RULES = {
    "discovery": f"GET {rap.DISCOVERY_PATH} is answered with 200 and JSON",
    "manifest": "name, endpoint and at least one tool with name, description and inputSchema, each name once",
    "input-schemas": "each inputSchema is a JSON Schema without references into other documents",
    "endpoint": "the endpoint is on the origin of the server's URL",
    "credentials": "requests without the credential are answered with 401 or 403",
    "accepted": f"an invocation is answered with 200 within {TRY_TIMEOUT:g} seconds, whatever the tool then takes",
    "unknown-tool": "a tool_result with is_error, or an answer 4xx",
    "bad-arguments": "a tool_result with is_error, or an answer 4xx",
    "done-once": "one tool_result, however often an invocation comes with one Idempotency-Key",
    "callbacks": "callbacks follow the protocol, with the group_id, id and call_id of their call",
    "malformed-bodies": "400 for a body that is no invocation (422 does as well)",
    "oversize": f"413 for a body of {OVERSIZE} bytes",
    "close_thread": "200 for a thread that the server does not know",
    "cancel_tool_call": "200 for a call that the server does not know",
    "migrate": "200 for a session that the server does not know, where the manifest says needsMigration",
    "unknown-path": "404 for a path that does not exist",
    "wrong-method": "405 (or 404) for a GET of the endpoint and a POST of the manifest",
    "no-redirects": "no answer is a redirect: nobody follows one",
}
"""What is checked, in the order of the findings, and what is expected."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule came to; a rule about tools has one finding for each tool that was called."""

    rule: str
    verdict: Literal["ok", "broken", "skipped"]
    seen: str

    @property
    def expected(self) -> str:
        """What the protocol asks for."""
        return RULES[self.rule]


async def check(
    url: str,
    *,
    http: HttpClient,
    auth: str = "none",
    examples: Mapping[str, JsonObject] | None = None,
    patience: float = 10.0,
    settle: float = 0.5,
) -> list[Finding]:
    """Check the server at the base URL ``url``, and return at least one finding for each of ``RULES``, in their order.

    ``auth`` is as the HTTP port spells it. The tools in ``examples`` are called with these arguments; of the others,
    those that say ``readOnly`` or ``idempotent`` and need no argument whose value cannot be told from the schema.
    ``patience`` is how many seconds a result may take, ``settle`` how many a second one is waited for.

    Raises:
        Misconfigured: the URL is none, an example does not fit its tool, or uvicorn is not installed.
    """
    try:
        secure_url(url)
    except ValueError as error:
        raise Misconfigured(f"the URL {without_user(url)!r} of a tool server: {error}") from error
    async with _listening() as listener:
        checking = _Check(url.rstrip("/"), http, auth, listener, patience, settle)
        return await checking.run(examples or {})


@dataclass(frozen=True, slots=True)
class _Called:
    """What came of one invocation: the answers to its posts, and the callbacks."""

    invocation: rap.Invocation
    answers: Sequence[HttpResponse | HttpUnreachable]
    heard: "_Heard"

    @property
    def is_taken(self) -> bool:
        return all((_status(answer) or 500) < 300 for answer in self.answers)

    @property
    def is_over(self) -> bool:
        """Whether the server has nothing left to do."""
        return any(not result.subscription for result in self.heard.results)


@dataclass
class _Check:
    url: str
    http: HttpClient
    auth: str
    listener: "_Listener"
    patience: float
    settle: float
    findings: list[Finding] = field(default_factory=list)
    redirects: list[str] = field(default_factory=list)
    calls: list[_Called] = field(default_factory=list)
    accepting: dict[str, HttpResponse | HttpUnreachable] = field(default_factory=dict)

    async def run(self, examples: Mapping[str, JsonObject]) -> list[Finding]:
        fields = await self._discover()
        manifest = self._manifest(fields)
        endpoint = self._endpoint(fields)
        tools = manifest.tools if manifest else ()
        chosen = _chosen(tools, examples)
        await self._credentials(endpoint)
        if endpoint is None:
            for rule in ("unknown-tool", "bad-arguments", "done-once", "malformed-bodies", "oversize"):
                self._found(rule, "skipped", "there is no endpoint to send to")
        else:
            await self._unknown_tool(endpoint)
            await self._tools(endpoint, tools, chosen)
            await self._malformed(endpoint)
            await self._oversize(endpoint)
        await self._cancel_what_is_left()
        self._accepted()
        self._callbacks()
        await self._lifecycle(needs_migration=manifest is not None and manifest.needs_migration)
        await self._paths(endpoint)
        self._judge("no-redirects", not self.redirects, "; ".join(self.redirects) or "none")
        order = list(RULES)
        return sorted(self.findings, key=lambda finding: order.index(finding.rule))

    def _found(self, rule: str, verdict: Literal["ok", "broken", "skipped"], seen: str) -> None:
        self.findings.append(Finding(rule, verdict, seen))

    def _judge(self, rule: str, is_right: bool, seen: str) -> None:
        self._found(rule, "ok" if is_right else "broken", seen)

    # ----------------------------------------------------------------- requests

    async def _send(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        *,
        auth: str | None = None,
        key: str | None = None,
        timeout: float = TRY_TIMEOUT,  # noqa: ASYNC109 - the port's
    ) -> HttpResponse | HttpUnreachable:
        headers = {} if body is None else {"Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        try:
            answer = await self.http.request(
                method,
                url,
                body=body,
                headers=headers,
                auth=self.auth if auth is None else auth,
                timeout=timeout,
                max_bytes=MAX_MANIFEST,
            )
        except HttpUnreachable as error:
            return error
        if 300 <= answer.status < 400:
            self.redirects.append(f"{method} {url}: HTTP {answer.status}")
        return answer

    async def _call(
        self, endpoint: str, operation: str, arguments: JsonObject, *, posts: int = 1, again: bool = False
    ) -> _Called:
        """POST an invocation ``posts`` times at once, wait for its result, and then POST it ``again``."""
        heard = self.listener.expect()
        token = secrets.token_hex(8)
        invocation = rap.Invocation(
            operation=operation,
            arguments=dict(arguments),
            id=f"call-{token}",
            call_id=f"model-{token}",
            callback_url=heard.url,
            group_id=f"conformance-{token}",
        )
        body = json.dumps(invocation.to_json()).encode()
        key = f"{invocation.group_id}:{invocation.id}"
        answers = list(await asyncio.gather(*(self._send("POST", endpoint, body, key=key) for _ in range(posts))))
        called = _Called(invocation, answers, heard)
        self.calls.append(called)
        if called.is_taken:
            await heard.outcome(self.patience)
            if again:
                answers.append(await self._send("POST", endpoint, body, key=key))
                await asyncio.sleep(self.settle)
        return called

    # ---------------------------------------------------------------- discovery

    async def _discover(self) -> Any:
        answer = await self._send("GET", self.url + rap.DISCOVERY_PATH, timeout=DISCOVERY_TIMEOUT)
        fields = None
        if isinstance(answer, HttpResponse) and answer.status == 200:
            try:
                fields = parse_json(answer.body)
            except Undecodable as error:
                self._found("discovery", "broken", f"HTTP 200, but {error}")
                return None
        self._judge("discovery", fields is not None, _told(answer))
        return fields

    def _manifest(self, fields: Any) -> rap.Manifest | None:
        if fields is None:
            self._found("manifest", "skipped", "there is no manifest")
            self._found("input-schemas", "skipped", "there is no manifest")
            return None
        try:
            manifest = rap.Manifest.model_validate(fields)
        except ValidationError as error:
            self._found("manifest", "broken", explain(error))
            self._found("input-schemas", "skipped", "there is no valid manifest")
            return None
        self._found("manifest", "ok", f"{manifest.name!r} with {len(manifest.tools)} tools")
        faults = [f"{tool.name}: {fault}" for tool in manifest.tools if (fault := rap.schema_fault(tool.input_schema))]
        self._judge("input-schemas", not faults, "; ".join(faults) or f"{len(manifest.tools)} schemas")
        return None if faults else manifest

    def _endpoint(self, fields: Any) -> str | None:
        endpoint = fields.get("endpoint") if isinstance(fields, dict) else None
        if not isinstance(endpoint, str):
            self._found("endpoint", "skipped", "the manifest names none")
            return None
        try:
            is_own = origin(endpoint) == origin(self.url)
        except ValueError as error:
            self._found("endpoint", "broken", f"{without_user(endpoint)!r}: {error}")
            return None
        self._judge("endpoint", is_own, f"{endpoint} for a server at {self.url}")
        return endpoint if is_own else None

    async def _credentials(self, endpoint: str | None) -> None:
        if self.auth == "none":
            self._found("credentials", "skipped", "the server is checked without a credential")
            return
        answers = {"GET of the manifest": await self._send("GET", self.url + rap.DISCOVERY_PATH, auth="none")}
        if endpoint is not None:
            answers["POST to the endpoint"] = await self._send("POST", endpoint, b"{}", auth="none")
        self._judge_answers("credentials", answers, {401, 403})

    def _judge_answers(self, rule: str, answers: Mapping[str, HttpResponse | HttpUnreachable], right: set[int]) -> None:
        wrong = {what: answer for what, answer in answers.items() if _status(answer) not in right}
        seen = "; ".join(f"{what}: {_told(answer)}" for what, answer in (wrong or answers).items())
        self._judge(rule, not wrong, seen)

    # -------------------------------------------------------------------- calls

    async def _unknown_tool(self, endpoint: str) -> None:
        self._judge_refusal("unknown-tool", await self._call(endpoint, _UNKNOWN_TOOL, {}))

    async def _tools(self, endpoint: str, tools: Sequence[rap.OfferedTool], chosen: Mapping[str, JsonObject]) -> None:
        if not chosen:
            reason = "no tool says readOnly or idempotent and can be called as it is; give example arguments for one"
            self._found("done-once", "skipped", reason)
        bad = {
            tool.name: wrong
            for tool in tools
            if tool.name in chosen and (wrong := _wrong(tool.input_schema)) is not None
        }
        if not bad:
            reason = "no tool that may be called has a schema that arguments could break; give example arguments"
            self._found("bad-arguments", "skipped", reason)
        # One after the other: a server whose every request may start a process should not be judged by many at once.
        for name, arguments in chosen.items():
            await self._done_once(endpoint, name, arguments)
        for name, arguments in bad.items():
            await self._bad_arguments(endpoint, name, arguments)

    async def _bad_arguments(self, endpoint: str, name: str, arguments: JsonObject) -> None:
        self._judge_refusal("bad-arguments", await self._call(endpoint, name, arguments))

    async def _done_once(self, endpoint: str, name: str, arguments: JsonObject) -> None:
        called = await self._call(endpoint, name, arguments, posts=2, again=True)
        self.accepting[name] = called.answers[0]
        results = len(called.heard.results)
        if not called.is_taken:
            self._found("done-once", "skipped", f"{name}: the invocation was not taken")
        elif results:
            seen = f"{name}: {results} result(s) for {len(called.answers)} posts"
            error = called.heard.results[0].is_error and plain_text(called.heard.results[0].parts)[:200]
            self._judge("done-once", results == 1, f"{seen}, and it is an error: {error!r}" if error else seen)
        elif called.heard.callbacks:
            self._found("done-once", "skipped", f"{name}: it asks a person first")
        else:
            self._silent("done-once", name)

    def _judge_refusal(self, rule: str, called: _Called) -> None:
        what = f"{called.invocation.operation}({json.dumps(called.invocation.arguments)[:100]})"
        if not called.is_taken:
            is_refused = 400 <= (_status(called.answers[0]) or 500) < 500
            self._judge(rule, is_refused, f"{what}: {_told(called.answers[0])}")
            return
        self.accepting[called.invocation.operation] = called.answers[0]
        if called.heard.results:
            result = called.heard.results[0]
            text = plain_text(result.parts)[:200]
            self._judge(rule, result.is_error, f"{what}: {'an error' if result.is_error else 'no error'}, {text!r}")
        elif called.heard.callbacks:
            self._found(rule, "broken", f"{what}: it asks a person first")
        else:
            self._silent(rule, what)

    async def _cancel_what_is_left(self) -> None:
        """Leave no question open and no subscription behind."""
        left = [call.invocation for call in self.calls if not call.is_over]
        notices = [rap.CancelToolCall(thread_id=call.group_id, tool_call_id=call.id) for call in left]
        bodies = [json.dumps(notice.to_json()).encode() for notice in notices]
        await asyncio.gather(*(self._send("POST", self.url + rap.CANCEL_TOOL_CALL_PATH, body) for body in bodies))

    def _silent(self, rule: str, what: str) -> None:
        silence = f"{what}: no callback within {self.patience:g} seconds"
        if is_loopback(self.url):
            self._found(rule, "broken", silence)
        else:
            remedy = "check it from the machine that it runs on"
            self._found(rule, "skipped", f"{silence}; it may not reach this machine, {remedy}")

    def _accepted(self) -> None:
        if self.accepting:
            self._judge_answers("accepted", self.accepting, {200})
        else:
            self._found("accepted", "skipped", "there was no invocation that had to be taken")

    def _callbacks(self) -> None:
        faults = [fault for call in self.calls for fault in _faults(call)]
        count = sum(len(call.heard.callbacks) for call in self.calls)
        if faults or count:
            self._judge("callbacks", not faults, "; ".join(faults) or f"{count} callbacks")
        else:
            self._found("callbacks", "skipped", "none was heard")

    # ------------------------------------------------------------------- bodies

    async def _malformed(self, endpoint: str) -> None:
        right: dict[str, Any] = {
            "operation": _UNKNOWN_TOOL,
            "arguments": {},
            "id": "call-malformed",
            "call_id": None,
            "callback_url": self.listener.url,
            "group_id": "conformance-malformed",
        }
        bodies = {
            "an empty body": b"",
            "half a JSON object": b'{"operation":',
            "bytes that are not UTF-8": b"\xff\xfe",
            "a list": b"[]",
            "arguments that are a list": json.dumps({**right, "arguments": []}).encode(),
            **{
                f"no {name}": json.dumps({key: value for key, value in right.items() if key != name}).encode()
                for name in ("operation", "arguments", "id", "callback_url", "group_id")
            },
        }
        answers = {what: await self._send("POST", endpoint, body) for what, body in bodies.items()}
        wrong = {what: answer for what, answer in answers.items() if _status(answer) not in (400, 422)}
        seen = "; ".join(f"{what}: {_told(answer)}" for what, answer in wrong.items())
        self._judge("malformed-bodies", not wrong, seen or f"{len(bodies)} such bodies refused")

    async def _oversize(self, endpoint: str) -> None:
        body = b'{"operation": "%s", "arguments": {"text": "%s"}}'
        body %= (_UNKNOWN_TOOL.encode(), b"x" * (OVERSIZE - len(body)))
        self._judge_answers("oversize", {f"{len(body)} bytes": await self._send("POST", endpoint, body)}, {413})

    # -------------------------------------------------------- lifecycle and paths

    async def _lifecycle(self, *, needs_migration: bool) -> None:
        unknown = "conformance-unknown"
        notices: dict[str, rap.CloseThread | rap.CancelToolCall | rap.Migrate] = {
            rap.CLOSE_THREAD_PATH: rap.CloseThread(thread_id=unknown),
            rap.CANCEL_TOOL_CALL_PATH: rap.CancelToolCall(thread_id=unknown, tool_call_id=unknown),
        }
        if needs_migration:
            notices[rap.MIGRATE_PATH] = rap.Migrate(session_id=unknown, destination_url=self.url)
        else:
            self._found("migrate", "skipped", "the manifest does not say needsMigration")
        for path, notice in notices.items():
            answer = await self._send("POST", self.url + path, json.dumps(notice.to_json()).encode())
            self._judge_answers(path.strip("/"), {f"POST {path}": answer}, {200})

    async def _paths(self, endpoint: str | None) -> None:
        path = "/no_such_path__conformance"
        self._judge_answers("unknown-path", {f"GET {path}": await self._send("GET", self.url + path)}, {404})
        answers = {f"POST {rap.DISCOVERY_PATH}": await self._send("POST", self.url + rap.DISCOVERY_PATH, b"{}")}
        if endpoint is not None:
            answers["GET of the endpoint"] = await self._send("GET", endpoint)
        self._judge_answers("wrong-method", answers, {404, 405})


def _status(answer: HttpResponse | HttpUnreachable) -> int | None:
    return answer.status if isinstance(answer, HttpResponse) else None


def _told(answer: HttpResponse | HttpUnreachable) -> str:
    if isinstance(answer, HttpUnreachable):
        return f"no answer ({answer})"
    return f"HTTP {answer.status}{'' if answer.status == 200 else excerpt(answer)}"


# ------------------------------------------------------------------- arguments


def _chosen(tools: Sequence[rap.OfferedTool], examples: Mapping[str, JsonObject]) -> dict[str, JsonObject]:
    """Return the tools that may be called, with arguments that fit."""
    offered = {tool.name: tool for tool in tools}
    chosen: dict[str, JsonObject] = {}
    for name, tool in offered.items():
        is_safe = tool.annotations.read_only or tool.annotations.idempotent
        if is_safe and (arguments := _fitting(tool.input_schema)) is not None:
            chosen[name] = arguments
    for name, arguments in examples.items() if offered else ():
        if name not in offered:
            raise Misconfigured(f"there is no tool {name!r} for the example; there are: {', '.join(offered)}")
        if fault := _misfit(offered[name].input_schema, arguments):
            raise Misconfigured(f"the example arguments for {name} do not fit its inputSchema: {fault}")
        chosen[name] = arguments
    return chosen


def _fitting(schema: JsonObject) -> JsonObject | None:
    """Return arguments as far as the schema itself says what they could be; ``None`` where it does not."""
    properties = schema.get("properties", {})
    arguments = {}
    for name in schema.get("required", ()):
        values = _values(properties.get(name))
        if not values:
            return None
        arguments[name] = values[0]
    return None if _misfit(schema, arguments) else arguments


def _values(schema: Any) -> list[Any]:
    if not isinstance(schema, dict):
        return []
    single = [schema[key] for key in ("default", "const") if key in schema]
    return [*schema.get("examples", ()), *single, *schema.get("enum", ())]


def _wrong(schema: JsonObject) -> JsonObject | None:
    """Return arguments that the schema refuses, or ``None`` where it takes whatever comes to mind."""
    absurd = {"no_such_parameter": {"no_such": ["value"]}}
    candidates: list[JsonObject] = [{}, absurd]
    candidates += [{**absurd, name: absurd} for name in schema.get("properties", {})]
    return next((candidate for candidate in candidates if _misfit(schema, candidate)), None)


def _misfit(schema: JsonObject, arguments: JsonObject) -> str | None:
    from jsonschema.validators import Draft202012Validator, validator_for  # noqa: PLC0415 - costs a cold start dearly

    validator = validator_for(schema, default=Draft202012Validator)(schema)
    error = next(iter(validator.iter_errors(arguments)), None)
    return None if error is None else error.message[:200]


# -------------------------------------------------------------------- listener


class _Heard:
    """The callbacks of one call: ``callbacks`` that could be read, ``faults`` of those that could not."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.callbacks: list[Callback] = []
        self.faults: list[str] = []
        self._has_outcome = asyncio.Event()

    @property
    def results(self) -> list[ResultCallback]:
        return [callback for callback in self.callbacks if isinstance(callback, ResultCallback)]

    def add(self, body: bytes) -> None:
        try:
            callback = parse_callback(body)
        except Undecodable as error:
            self.faults.append(str(error))
            self._has_outcome.set()
            raise
        self.callbacks.append(callback)
        if not isinstance(callback, ViewCallback | EventCallback):
            self._has_outcome.set()

    async def outcome(self, patience: float) -> None:
        """Return once there is a result or a question to a person, or after ``patience`` seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_outcome.wait(), patience)


class _Listener:
    """An ASGI application that takes callbacks as a runtime does."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._expected: dict[str, _Heard] = {}

    def expect(self) -> _Heard:
        path = f"/callback/{secrets.token_urlsafe(16)}"
        self._expected[path] = _Heard(self.url + path)
        return self._expected[path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            heard = self._expected.get(scope["path"])
            if heard is None or scope["method"] != "POST":
                raise Refused(404, "nobody waits for a callback here")
            heard.add(await body_of(receive, _MAX_CALLBACK))
        except Undecodable as error:
            await refuse(send, Refused(400, str(error)))
        except Refused as refusal:
            await refuse(send, refusal)
        else:
            await answer(send, {"ok": True})


def _faults(called: _Called) -> list[str]:
    expected = called.invocation
    faults = list(called.heard.faults)
    for callback in called.heard.callbacks:
        named: dict[str, tuple[str | None, str | None]] = {"group_id": (callback.group_id, expected.group_id)}
        if isinstance(callback, EventCallback):
            named["tool_call_id"] = (callback.tool_call_id, expected.id)
        elif not isinstance(callback, ViewCallback):
            named["id"] = (callback.id, expected.id)
            named["call_id"] = (callback.call_id or expected.call_id, expected.call_id)
        faults += [
            f"{callback.type} of {expected.operation}: {name} {seen!r} instead of {wanted!r}"
            for name, (seen, wanted) in named.items()
            if seen != wanted
        ]
    return faults


@contextlib.asynccontextmanager
async def _listening() -> AsyncIterator[_Listener]:
    """Take callbacks on a free port of this machine while the context is open."""
    try:
        import uvicorn  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise Misconfigured("the checks need uvicorn: pip install 'infinity-agents[local]'") from error
    with listening_socket("127.0.0.1", 0) as listening:
        listener = _Listener(f"http://127.0.0.1:{listening.getsockname()[1]}")
        config = uvicorn.Config(
            listener, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        # The signals of the process are its owner's business.
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield listener
        finally:
            server.should_exit = True
            await serving
