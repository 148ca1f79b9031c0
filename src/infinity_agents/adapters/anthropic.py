"""Claude models behind Anthropic's Messages API."""

import json
import logging
import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, assert_never
from urllib.parse import urlsplit

from ..conversation.content import Blob, Document, Image, Part, Text, note_of
from ..conversation.history import CallBody, Reasoning, ResultBody, SaidText
from ..conversation.transcript import ModelTurn, UserTurn, fitted_name, is_pdf, object_of, picture_type, transcript
from ..conversation.turn import (
    NOT_OF_THE_PROTOCOL,
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ModelEvent,
    ReasoningDelta,
    Stopped,
    TextDelta,
    Usage,
    Used,
    well_formed,
)
from ..errors import (
    ContextTooLong,
    Misconfigured,
    ModelError,
    ModelForbidden,
    ModelInterrupted,
    ModelInvalid,
    ModelOverloaded,
    ModelThrottled,
    without_user,
)
from ..ports.model import ModelRequest
from ..ports.tool import ToolSpec

if TYPE_CHECKING:
    from anthropic import APIStatusError, AsyncAnthropic

_log = logging.getLogger(__name__)

DEFAULT_MAX_TOKENS = 32_000
"""What a model may say in one turn, reasoning included. Every model of the catalogue takes it."""

_LARGE_WINDOW = 1_000_000
_WINDOW = 200_000
_LARGE_SINCE = (4, 6)
_BINDS_SINCE = (5, 1)
"""The version from which on a block of reasoning is bound to all that came before it."""
_VERSION = re.compile(r"claude-[a-z]+-(\d+)(?:-(\d{1,2}))?(?!\d)")

_LONGEST_NAME = 128
_LARGEST_PICTURE = 5 * 1024 * 1024
"""Characters of base64."""
_CUT = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})
"""Reasons after which the last call is not whole, or not meant."""
_CACHE = {"cache_control": {"type": "ephemeral"}}
_CACHED_TURNS = 2
_BINDING_BETA = "thinking-binding-controls-2026-08-01"
_BINDING = {"prefix_mismatch_behavior": "drop_block"}
_TOO_LONG = ("prompt is too long", "input is too long", "exceed context limit", "context window")
# A proxy of the environment is for the world, not for this machine.
_UNPROXIED = {"all://localhost": None, "all://127.0.0.1": None, "all://[::1]": None}


class AnthropicModel:
    """Speaks with Claude models; new threads are given ``model``.

    Threads know a model as ``provider:model``. Without ``base_url`` the service is ``ANTHROPIC_BASE_URL``, else
    Anthropic; without ``api_key`` the key is ``ANTHROPIC_API_KEY``, else what the SDK finds. ``windows`` (tokens, by
    model) goes before the catalogue. ``options`` are further fields of every request, in the service's words, such as
    ``max_tokens`` and ``thinking``. https://platform.claude.com/docs/en/api/messages
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        provider: str = "anthropic",
        windows: Mapping[str, int] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._prefix = f"{provider}:"
        self._model = model.removeprefix(self._prefix)
        self._api_key = api_key
        self._base_url = base_url
        self._windows = windows or {}
        self._options = options or {}
        self._opened: AsyncAnthropic | None = None
        self._unbound: set[str] = set()
        """The models whose service does not take ``block_binding``."""

    @property
    def name(self) -> str:
        """The model that new threads are given, with its provider."""
        return self._prefix + self._model

    def context_window(self, model: str) -> int:
        """Return the tokens that ``model`` takes: as it was said, else by its version."""
        bare = model.removeprefix(self._prefix)
        if bare in self._windows:
            return self._windows[bare]
        return _LARGE_WINDOW if _version(bare) >= _LARGE_SINCE else _WINDOW

    def reads_images(self, model: str) -> bool:
        """Return ``True``: every Claude model does."""
        return True

    def check(self) -> None:
        """Raise now what the first completion would raise for want of the SDK, the key or a usable base URL.

        Raises:
            Misconfigured: one of these is missing or wrong.
        """
        self._client()

    async def list_models(self) -> Sequence[str]:
        """Return the names of the service's models, as threads know them.

        Raises:
            Misconfigured: the SDK, the key or a usable base URL is missing.
            ModelError: the service does not tell.
        """
        client = self._client()
        from anthropic import AnthropicError
        from httpx2 import HTTPError

        try:
            return sorted([self._prefix + model.id async for model in client.models.list()])
        except (AnthropicError, HTTPError, *NOT_OF_THE_PROTOCOL) as error:
            raise self._translated(error, None) from error

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield what the model says; of several calls, only the first.

        Raises:
            Misconfigured: the SDK, the key or a usable base URL is missing.
            ModelError: by kind.
        """
        stream = await self._answered(request)
        from anthropic import AnthropicError
        from httpx2 import HTTPError

        reading = _Reading({fitted_name(tool.name, _LONGEST_NAME): tool.name for tool in request.tools})
        async with stream:
            media_type = stream.response.headers.get("content-type", "")
            if media_type.startswith(("text/html", "application/json")):
                raise ModelInvalid(
                    f"{self._where(request.model)} answered {media_type}, not a stream. Is the base URL right?"
                )
            try:
                async for event in stream:
                    for heard in reading.hear(event):
                        yield well_formed(heard)
                for heard in reading.finish():
                    yield well_formed(heard)
            except (AnthropicError, HTTPError, *NOT_OF_THE_PROTOCOL) as error:
                raise self._translated(error, request.model) from error

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        client, self._opened = self._opened, None
        if client is not None:
            await client.close()

    async def _answered(self, request: ModelRequest) -> Any:
        """Return the stream that answers.

        Reasoning that the service refuses is left out, and the request is sent once more: it is bound to its model,
        its account and all that came before it, and a thread must not hang because one of these has changed.
        """
        client = self._client()
        from anthropic import AnthropicError, BadRequestError
        from httpx2 import HTTPError

        reasons = True
        while True:
            body = self._body(request, reasons=reasons)
            try:
                messages = client.beta.messages if "betas" in body else client.messages
                return await messages.create(**body)
            except BadRequestError as error:
                complaint = error.message
                if "betas" in body and any(word in complaint for word in ("block_binding", "anthropic-beta")):
                    self._unbound.add(request.model)
                elif reasons and "thinking" in complaint:
                    reasons = False
                else:
                    raise self._translated(error, request.model) from error
                _log.info("%s refuses some reasoning: going on without", request.model)
            except (AnthropicError, HTTPError, *NOT_OF_THE_PROTOCOL) as error:
                raise self._translated(error, request.model) from error

    def _body(self, request: ModelRequest, *, reasons: bool) -> dict[str, Any]:
        # The signature proves who reasoned; a block without one was cut.
        turns = transcript(
            request.entries,
            summary=request.summary,
            replays=lambda block: reasons and block.model == request.model and bool(block.signature or block.redacted),
        )
        model = request.model.removeprefix(self._prefix)
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": DEFAULT_MAX_TOKENS,
            "system": [{"type": "text", "text": request.system, **_CACHE}],
            "messages": _messages(turns),
            "stream": True,
            **_tools(request.tools, turns),
            **self._options,
        }
        if not reasons:
            body.pop("thinking", None)
        elif _version(model) >= _BINDS_SINCE and request.model not in self._unbound:
            # These models think unasked, and refuse what a child or a compacted thread replays; told so, they drop it.
            body["thinking"] = {"type": "adaptive", **body.get("thinking", {}), "block_binding": _BINDING}
            body["betas"] = [_BINDING_BETA]
        return body

    def _client(self) -> "AsyncAnthropic":
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> "AsyncAnthropic":
        try:
            from anthropic import AnthropicError, AsyncAnthropic, DefaultAsyncHttpxClient
            from httpx2 import InvalidURL
        except ImportError as error:
            raise Misconfigured(
                f"the model {self.name} needs the Anthropic SDK: pip install 'infinity-agents[anthropic]'"
            ) from error
        key = (self._api_key or os.environ.get("ANTHROPIC_API_KEY", "")).strip()
        if not (key.isascii() and key.isprintable()):
            raise Misconfigured("the key in ANTHROPIC_API_KEY holds characters that no key has: set it anew")
        try:
            client = AsyncAnthropic(
                api_key=key or None,
                base_url=self._base_url,
                max_retries=0,
                http_client=DefaultAsyncHttpxClient(mounts=_UNPROXIED),
            )
            address = urlsplit(str(client.base_url))
            is_usable = address.scheme in {"http", "https"} and bool(address.hostname)
        except (AnthropicError, InvalidURL, ValueError) as error:
            raise Misconfigured(f"the client of the model {self.name} cannot be made: {error}") from error
        if not is_usable:
            raise Misconfigured(
                f"the base URL {without_user(str(client.base_url))!r} of the model {self.name} is no URL of http "
                "or https: leave it out, or give one such as https://api.anthropic.com"
            )
        if not (client.api_key or client.auth_token or client.credentials):
            raise Misconfigured(f"the model {self.name} needs a key: set ANTHROPIC_API_KEY")
        return client

    # Errors.

    def _where(self, model: str | None) -> str:
        address = urlsplit(str(self._client().base_url))
        # A password in the URL is nobody's business.
        shown = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
        return f"{model or self._prefix.rstrip(':')} at {shown}"

    def _translated(self, error: Exception, model: str | None) -> ModelError:
        """Return what ``error`` means to the runtime, with the service and what it said."""
        from anthropic import AnthropicError, APIConnectionError, APIStatusError
        from httpx2 import HTTPError

        where = self._where(model)
        if isinstance(error, APIStatusError):
            return _refusal(error, where)
        if isinstance(error, APIConnectionError | HTTPError):
            cause = error.__cause__ or error
            return ModelInterrupted(f"{where} cannot be reached: {cause}. Is the base URL right?")
        if isinstance(error, AnthropicError):
            return ModelInvalid(f"{where}: {error}")
        return ModelInterrupted(f"{where} sent what is not of the protocol: {error}")


def _version(model: str) -> tuple[int, int]:
    """Return the version in the model's name; (0, 0) where there is none, as in names older than these."""
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def _refusal(error: "APIStatusError", where: str) -> ModelError:
    """Return what an answer that is an error means; one inside a stream has a type, and the status of its stream."""
    kind, status = error.type or "", error.status_code
    told = f"{where}: {kind or status}: {error.api_message or error.message}"
    if status == 413 or any(words in told.lower() for words in _TOO_LONG):
        return ContextTooLong(told)
    if kind == "authentication_error" or status == 401:
        return ModelForbidden(f"{where} refuses the key: check ANTHROPIC_API_KEY")
    is_unpaid = kind == "billing_error" or status == 402 or "spend_limit" in (error.error_code or "")
    if is_unpaid or kind == "permission_error" or status == 403:
        return ModelForbidden(told)
    if kind == "rate_limit_error" or status == 429:
        return ModelThrottled(told)
    if kind == "not_found_error" or status == 404:
        return ModelInvalid(f"{told}. Is there such a model, and is the base URL right?")
    if kind == "timeout_error" or status in {408, 409, 499}:
        return ModelInterrupted(told)
    if kind in {"overloaded_error", "api_error"} or status >= 500:
        return ModelOverloaded(told)
    return ModelInterrupted(told) if status < 400 else ModelInvalid(told)


# What is sent.


def _messages(turns: Sequence[UserTurn | ModelTurn]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in turns:
        match turn:
            case ModelTurn(blocks=said):
                messages.append({"role": "assistant", "content": [_said(block) for block in said]})
            case UserTurn(blocks=heard):
                messages.append({"role": "user", "content": [_heard(block) for block in heard]})
            case _:
                assert_never(turn)
    # The last but one as well: that is where the request before this one ended.
    for message in [message for message in messages if message["role"] == "user"][-_CACHED_TURNS:]:
        message["content"][-1] |= _CACHE
    return messages


def _said(block: SaidText | Reasoning | CallBody) -> dict[str, Any]:
    match block:
        case SaidText(text=text):
            return {"type": "text", "text": text}
        case Reasoning(redacted=str(redacted)):
            return {"type": "redacted_thinking", "data": redacted}
        case Reasoning(text=text, signature=signature):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case CallBody(id=call_id, name=name, arguments=arguments):
            return {"type": "tool_use", "id": call_id, "name": fitted_name(name, _LONGEST_NAME), "input": arguments}
        case _:
            assert_never(block)


def _heard(block: Part | ResultBody) -> dict[str, Any]:
    if isinstance(block, ResultBody):
        content = [_part(part) for part in block.content]
        result = {"type": "tool_result", "tool_use_id": block.id, "content": content}
        return {**result, "is_error": True} if block.is_error else result
    return _part(block)


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(data=data) if len(data) <= _LARGEST_PICTURE and (media_type := picture_type(part)):
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}
        case Document(data=data, name=name) if is_pdf(part):
            source = {"type": "base64", "media_type": "application/pdf", "data": data}
            return {"type": "document", "source": source, "title": name}
        case Image() | Document() | Blob():
            return {"type": "text", "text": note_of(part)}
        case _:
            assert_never(part)


def _tools(specs: Sequence[ToolSpec], turns: Iterable[UserTurn | ModelTurn]) -> dict[str, Any]:
    """Return the fields about tools. A history with calls in it needs tools, even where none may be called."""
    if specs:
        tools = [_tool(spec) for spec in specs]
        choice = {"type": "auto", "disable_parallel_tool_use": True}
    else:
        called = {block.name for turn in turns for block in turn.blocks if isinstance(block, CallBody)}
        tools = [_tool(ToolSpec(name, "Not to be called now.", {})) for name in sorted(called)]
        choice = {"type": "none"}
    if not tools:
        return {}
    tools[-1] |= _CACHE
    return {"tools": tools, "tool_choice": choice}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {
        "name": fitted_name(spec.name, _LONGEST_NAME),
        "description": spec.description,
        "input_schema": object_of(spec.input_schema),
    }


# What is heard.


@dataclass(slots=True)
class _Reading:
    """Reads a stream's events. ``names`` are the tools', by what they are called."""

    names: Mapping[str, str]
    reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    _has_said: bool = False
    _call: int | None = None
    """The place of the first call."""
    _others: bool = False
    """Whether another block has begun after the call: it is whole."""

    def hear(self, event: Any) -> Iterator[ModelEvent]:
        """Yield what ``event`` adds to the turn."""
        match getattr(event, "type", None):
            case "message_start":
                self._count(event.message)
            case "content_block_start":
                yield from self._begin(event.index, event.content_block)
            case "content_block_delta" if not self._others:
                yield from self._go_on(event.index, event.delta)
            case "message_delta":
                self._count(event)
                self.reason = event.delta.stop_reason or self.reason
                details = getattr(event.delta, "stop_details", None)
                if self.reason == "refusal" and not self._has_said:
                    yield TextDelta(getattr(details, "explanation", None) or "[The model declined to answer.]")
            case _:
                pass

    def _begin(self, place: int, block: Any) -> Iterator[ModelEvent]:
        if self._call is not None:
            self._others = True
            return
        match getattr(block, "type", None):
            case "tool_use":
                self._call = place
                yield CallStarted(self.names.get(block.name, block.name), block.id)
                # Some gateways send the arguments at once.
                if block.input:
                    yield ArgumentsDelta(json.dumps(block.input))
            case "text" if block.text:
                self._has_said = True
                yield TextDelta(block.text)
            case "redacted_thinking":
                yield ReasoningDelta(redacted=block.data)
            case _:
                pass

    def _go_on(self, place: int, delta: Any) -> Iterator[ModelEvent]:
        match getattr(delta, "type", None):
            case "text_delta" if self._call is None and delta.text:
                self._has_said = True
                yield TextDelta(delta.text)
            case "thinking_delta" if self._call is None:
                yield ReasoningDelta(delta.thinking)
            case "signature_delta" if self._call is None:
                yield ReasoningDelta(signature=delta.signature)
            case "input_json_delta" if self._call == place:
                yield ArgumentsDelta(delta.partial_json)
            case _:
                pass

    def _count(self, told: Any) -> None:
        """Take over the counts that ``told`` has: they add up from event to event, and some are told only once."""
        names = {
            "input": "input_tokens",
            "output": "output_tokens",
            "cache_read": "cache_read_input_tokens",
            "cache_write": "cache_creation_input_tokens",
        }
        usage = getattr(told, "usage", None)
        counts = {ours: getattr(usage, theirs, None) for ours, theirs in names.items()}
        self.usage = replace(self.usage, **{name: count for name, count in counts.items() if isinstance(count, int)})

    def finish(self) -> Iterator[ModelEvent]:
        """Yield what is certain only at the end.

        Raises:
            ModelInterrupted: the stream ended before the turn did.
        """
        if self.reason is None:
            raise ModelInterrupted("the stream ended before the model had finished")
        if self._call is not None and (self._others or self.reason not in _CUT):
            yield CallFinished()
        yield Used(self.usage)
        yield Stopped(self.reason)
