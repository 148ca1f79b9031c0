"""Models behind chat completions: OpenAI's own, and those of every endpoint that speaks it, as Ollama and vLLM do."""

import json
import logging
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never
from urllib.parse import urlsplit

from ..conversation.content import Blob, Document, Image, Part, Text, note_of, plain_text
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
    from openai import AsyncOpenAI

_log = logging.getLogger(__name__)

WINDOWS: Mapping[str, int] = {
    "gpt-5.6-luna": 400_000,
    "gpt-5.6": 1_050_000,
    "gpt-5.5": 1_050_000,
    "gpt-5.4": 1_050_000,
    "gpt-5": 272_000,
    "gpt-4.1": 1_047_576,
    "gpt-4o": 128_000,
    "gpt-oss": 131_072,
    "o1": 200_000,
    "o3": 200_000,
    "o4": 200_000,
}
"""Tokens that models read, by the beginning of their names; the longest beginning counts. From OpenAI's model pages."""
DEFAULT_WINDOW = 32_768
"""What is taken for the window of a model of which nothing is known. It is low: a window that is taken for too large
loses the beginning of the conversation in silence where an endpoint truncates."""

_LONGEST_NAME = 64
_CUT = frozenset({"length", "content_filter"})
"""Reasons after which the last call is not whole."""
_OPTIONAL = ("parallel_tool_calls", "stream_options", "reasoning_content", "reasoning_effort")
"""What a request can do without. ``reasoning_effort`` is conceded by sending ``none``: newer models of OpenAI take no
tools here while they reason."""
_TOO_LONG = (
    "context_length_exceeded",
    "context length",
    "context window",
    "context size",
    "prompt is too long",
    "input is too long",
    "request too large",
)
# A proxy of the environment is for the world, not for this machine.
_UNPROXIED = {"all://localhost": None, "all://127.0.0.1": None, "all://[::1]": None}


class OpenAIModel:
    """Speaks with the models of one endpoint; new threads are given ``model``.

    Threads know a model as ``provider:model``. Without ``base_url`` the endpoint is ``OPENAI_BASE_URL``, else OpenAI;
    without ``api_key`` the key is ``OPENAI_API_KEY``, which only OpenAI itself insists on. ``windows`` (tokens, by
    model) goes before the catalogue. With ``images`` off, models get a note in place of each. ``options`` are further
    fields of every request, in the protocol's words. https://platform.openai.com/docs/api-reference/chat
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        provider: str = "openai",
        windows: Mapping[str, int] | None = None,
        images: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._prefix = f"{provider}:"
        self._model = model.removeprefix(self._prefix)
        self._api_key = api_key
        self._base_url = base_url
        self._windows = windows or {}
        self._images = images
        self._options = options or {}
        self._opened: AsyncOpenAI | None = None
        self._conceded: dict[str, set[str]] = {}

    @property
    def name(self) -> str:
        """The model that new threads are given, with its provider."""
        return self._prefix + self._model

    def context_window(self, model: str) -> int:
        """Return the tokens that ``model`` takes: as it was said, else as the catalogue has it, else a low guess."""
        bare = model.removeprefix(self._prefix)
        if bare in self._windows:
            return self._windows[bare]
        # Gateways put the maker before the name.
        known = [name for name in WINDOWS if bare.rpartition("/")[2].startswith(name)]
        return WINDOWS[max(known, key=len)] if known else DEFAULT_WINDOW

    def reads_images(self, model: str) -> bool:
        """Return what the constructor was told."""
        return self._images

    def check(self) -> None:
        """Raise now what the first completion would raise for want of the SDK, the key or a usable base URL.

        Raises:
            Misconfigured: one of these is missing or wrong.
        """
        self._client()

    async def list_models(self) -> Sequence[str]:
        """Return the names of the endpoint's models, as threads know them.

        Raises:
            Misconfigured: the SDK, the key or a usable base URL is missing.
            ModelError: the endpoint does not tell.
        """
        client = self._client()
        from openai import APIError

        try:
            return sorted([self._prefix + model.id async for model in client.models.list()])
        except (APIError, *NOT_OF_THE_PROTOCOL) as error:
            raise self._translated(error, None) from error

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield what the model says; of several calls, only the first.

        Raises:
            Misconfigured: the SDK, the key or a usable base URL is missing.
            ModelError: by kind.
        """
        from openai import APIError

        stream = await self._answered(request)
        reading = _Reading({fitted_name(tool.name, _LONGEST_NAME): tool.name for tool in request.tools})
        async with stream:
            media_type = stream.response.headers.get("content-type", "")
            if media_type.startswith(("text/html", "application/json")):
                raise ModelInvalid(f"{self._where(request.model)} answered {media_type}, not a stream. {self._hint()}")
            try:
                async for chunk in stream:
                    for event in reading.hear(chunk):
                        yield well_formed(event)
                for event in reading.finish():
                    yield well_formed(event)
            except (APIError, *NOT_OF_THE_PROTOCOL) as error:
                raise self._translated(error, request.model) from error

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        client, self._opened = self._opened, None
        if client is not None:
            await client.close()

    async def _answered(self, request: ModelRequest) -> Any:
        """Return the stream that answers; what the endpoint refuses and a request can do without is left out."""
        client = self._client()
        from openai import APIError

        conceded = self._conceded.setdefault(request.model, set())
        while True:
            body = self._body(request, conceded)
            try:
                return await client.chat.completions.create(**body)
            except (APIError, *NOT_OF_THE_PROTOCOL) as error:
                refused = self._concession(error, conceded)
                if refused is None:
                    raise self._translated(error, request.model) from error
                conceded.add(refused)
                _log.info("%s does not take %s: going on without", request.model, refused)

    def _concession(self, error: Exception, conceded: Iterable[str]) -> str | None:
        """Return what the endpoint complains of and this request, in its options, does not insist on."""
        if getattr(error, "status_code", None) not in {400, 422}:
            return None
        complaint = f"{getattr(error, 'param', '')} {error}"
        return next(
            (name for name in _OPTIONAL if name in complaint and name not in conceded and name not in self._options),
            None,
        )

    def _body(self, request: ModelRequest, conceded: Iterable[str]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.model.removeprefix(self._prefix),
            "messages": _messages(
                request,
                replays_reasoning="reasoning_content" not in conceded,
                reads_pdf=urlsplit(str(self._client().base_url)).hostname == "api.openai.com",
            ),
            "stream": True,
        }
        if "stream_options" not in conceded:
            body["stream_options"] = {"include_usage": True}
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
            if "parallel_tool_calls" not in conceded:
                body["parallel_tool_calls"] = False
        if "reasoning_effort" in conceded:
            body["reasoning_effort"] = "none"
        return {**body, **self._options}

    def _client(self) -> "AsyncOpenAI":
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> "AsyncOpenAI":
        try:
            from httpx2 import InvalidURL
            from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError
        except ImportError as error:
            raise Misconfigured(
                f"the model {self.name} needs the OpenAI SDK: pip install 'infinity-agents[openai]'"
            ) from error
        key = (self._api_key or os.environ.get("OPENAI_API_KEY", "")).strip()
        if not (key.isascii() and key.isprintable()):
            raise Misconfigured("the key in OPENAI_API_KEY holds characters that no key has: set it anew")
        try:
            client = AsyncOpenAI(
                api_key=key or "none",
                base_url=self._base_url,
                max_retries=0,
                http_client=DefaultAsyncHttpxClient(mounts=_UNPROXIED),
            )
            address = urlsplit(str(client.base_url))
            is_usable = address.scheme in {"http", "https"} and bool(address.hostname)
        except (OpenAIError, InvalidURL, ValueError) as error:
            raise Misconfigured(f"the client of the model {self.name} cannot be made: {error}") from error
        if not is_usable:
            raise Misconfigured(
                f"the base URL {without_user(str(client.base_url))!r} of the model {self.name} is no URL of http "
                "or https: give one such as http://127.0.0.1:11434/v1"
            )
        if not key and address.hostname == "api.openai.com":
            raise Misconfigured(
                f"the model {self.name} needs a key: set OPENAI_API_KEY, or give the base URL of an endpoint that "
                "needs none"
            )
        return client

    # Errors.

    def _where(self, model: str | None) -> str:
        address = urlsplit(str(self._client().base_url))
        # A password in the URL is nobody's business.
        shown = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
        return f"{model or self._prefix.rstrip(':')} at {shown}"

    def _hint(self) -> str:
        return "Is the base URL right? Most end in /v1."

    def _translated(self, error: Exception, model: str | None) -> ModelError:
        """Return what ``error`` means to the runtime, with the endpoint and what it said."""
        from openai import APIConnectionError, APIError

        where = self._where(model)
        if not isinstance(error, APIError):
            return ModelInterrupted(f"{where} sent what is not of the protocol: {error}")
        if isinstance(error, APIConnectionError):
            cause = error.__cause__ or error
            return ModelInterrupted(f"{where} cannot be reached: {cause}. Is it running, and is the base URL right?")
        code = error.code or ""
        # An error inside a stream has no status; some endpoints give it as the code.
        status = getattr(error, "status_code", None) or (int(code) if code.isdecimal() else None)
        told = f"{where}: {status or code}: {error.message}"
        complaint = f"{code} {error.type} {error.message}".lower()
        if status == 413 or any(words in complaint for words in _TOO_LONG):
            return ContextTooLong(told)
        if status == 401:
            # What the service says holds parts of the key.
            return ModelForbidden(f"{where} refuses the key: check OPENAI_API_KEY")
        if status in {402, 403} or "insufficient_quota" in complaint:
            return ModelForbidden(told)
        if status == 429 or "rate_limit" in complaint:
            return ModelThrottled(told)
        if status == 404:
            return ModelInvalid(f"{told}. Is there such a model? {self._hint()}")
        if "server_error" in complaint or "overload" in complaint or (status or 0) >= 500:
            return ModelOverloaded(told)
        return ModelInterrupted(told) if status in {None, 408, 409} else ModelInvalid(told)


# What is sent.


def _messages(request: ModelRequest, *, replays_reasoning: bool, reads_pdf: bool) -> list[dict[str, Any]]:
    # Reasoning is sent back to the model that gave it, and to no other: only that one's endpoint knows the field.
    turns = transcript(
        request.entries,
        summary=request.summary,
        replays=lambda block: replays_reasoning and block.model == request.model and block.redacted is None,
    )
    messages: list[dict[str, Any]] = [{"role": "system", "content": request.system}]
    for turn in turns:
        match turn:
            case ModelTurn(blocks=blocks):
                messages.append(_said(blocks))
            case UserTurn(blocks=blocks):
                messages.extend(_heard(blocks, reads_pdf=reads_pdf))
            case _:
                assert_never(turn)
    return messages


def _said(blocks: Iterable[SaidText | Reasoning | CallBody]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant"}
    for block in blocks:
        match block:
            case SaidText(text=text):
                message["content"] = message.get("content", "") + text
            case Reasoning(text=text):
                message["reasoning_content"] = message.get("reasoning_content", "") + text
            case CallBody():
                function = {"name": fitted_name(block.name, _LONGEST_NAME), "arguments": json.dumps(block.arguments)}
                message["tool_calls"] = [{"id": block.id, "type": "function", "function": function}]
            case _:
                assert_never(block)
    return message


def _heard(blocks: Iterable[Part | ResultBody], *, reads_pdf: bool) -> Iterator[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if not isinstance(block, ResultBody):
            parts.append(_part(block, reads_pdf=reads_pdf))
            continue
        text = plain_text(block.content)
        yield {"role": "tool", "tool_call_id": block.id, "content": f"Error: {text}" if block.is_error else text}
        # A tool's message holds text alone: its pictures follow as the user's.
        parts.extend(_part(part, reads_pdf=reads_pdf) for part in block.content if not isinstance(part, Text))
    if len(parts) == 1 and parts[0]["type"] == "text":
        yield {"role": "user", "content": parts[0]["text"]}
    elif parts:
        yield {"role": "user", "content": parts}


def _part(part: Part, *, reads_pdf: bool) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(data=data) if media_type := picture_type(part):
            return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}}
        case Document(data=data, name=name) if reads_pdf and is_pdf(part):
            return {
                "type": "file",
                "file": {"filename": name, "file_data": f"data:application/pdf;base64,{data}"},
            }
        case Image() | Document() | Blob():
            return {"type": "text", "text": note_of(part)}
        case _:
            assert_never(part)


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {
        "name": fitted_name(tool.name, _LONGEST_NAME),
        "description": tool.description,
        "parameters": object_of(tool.input_schema),
    }
    return {"type": "function", "function": function}


# What is heard.


@dataclass(slots=True)
class _Reading:
    """Reads a stream's chunks, which need not keep the protocol. ``names`` are the tools', by what they are called."""

    names: Mapping[str, str]
    reason: str | None = None
    usage: Usage | None = None
    _call: tuple[Any, Any] | None = None
    """The place and the id of the first call."""
    _others: bool = False
    """Whether another call has begun: the first is whole."""

    def hear(self, chunk: Any) -> Iterator[ModelEvent]:
        """Yield what ``chunk`` adds to the turn."""
        self.usage = _usage(getattr(chunk, "usage", None)) or self.usage
        choices = getattr(chunk, "choices", None)
        if not choices:
            return
        delta = getattr(choices[0], "delta", None)
        if self._call is None:
            if reasoning := _text(delta, "reasoning_content", "reasoning"):
                yield ReasoningDelta(reasoning)
            if text := _text(delta, "content", "refusal"):
                yield TextDelta(text)
        for piece in getattr(delta, "tool_calls", None) or ():
            yield from self._hear_call(piece)
        self.reason = _text(choices[0], "finish_reason") or self.reason

    def _hear_call(self, piece: Any) -> Iterator[ModelEvent]:
        place, call_id = getattr(piece, "index", None), getattr(piece, "id", None) or None
        function = getattr(piece, "function", None)
        if self._call is None:
            name = _text(function, "name")
            if not name:
                return
            self._call = (place, call_id)
            yield CallStarted(self.names.get(name, name), call_id)
        # Some endpoints give every call the same place, others give none.
        elif self._others or place != self._call[0] or call_id not in {None, self._call[1]}:
            self._others = True
            return
        if arguments := _text(function, "arguments"):
            yield ArgumentsDelta(arguments)

    def finish(self) -> Iterator[ModelEvent]:
        """Yield what is certain only at the end.

        Raises:
            ModelInterrupted: the stream ended before the turn did.
        """
        if self.reason is None:
            raise ModelInterrupted("the stream ended before the model had finished")
        if self._call is not None and (self._others or self.reason not in _CUT):
            yield CallFinished()
        if self.usage is not None:
            yield Used(self.usage)
        yield Stopped(self.reason)


def _text(holder: Any, *names: str) -> str:
    """Return the first of these fields that is text and says something."""
    found = (getattr(holder, name, None) for name in names)
    return next((value for value in found if isinstance(value, str) and value), "")


def _usage(told: Any) -> Usage | None:
    if told is None:
        return None
    details = getattr(told, "prompt_tokens_details", None)
    cache_read, cache_write = _count(details, "cached_tokens"), _count(details, "cache_write_tokens")
    return Usage(
        input=max(_count(told, "prompt_tokens") - cache_read - cache_write, 0),
        output=_count(told, "completion_tokens"),
        cache_read=cache_read,
        cache_write=cache_write,
    )


def _count(holder: Any, name: str) -> int:
    value = getattr(holder, name, None)
    return value if isinstance(value, int) else 0
