"""Models behind Amazon Bedrock, through ConverseStream."""

import asyncio
import base64
import contextlib
import functools
import logging
import os
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, assert_never
from urllib.parse import urlsplit

from ..conversation.content import Blob, Document, Image, Part, Text, note_of
from ..conversation.history import CallBody, Reasoning, ResultBody, SaidText
from ..conversation.transcript import ModelTurn, UserTurn, fitted_name, object_of, picture_type, transcript
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

_log = logging.getLogger(__name__)

DEFAULT_MODEL = "global.anthropic.claude-sonnet-4-6"
DEFAULT_SILENCE = 300.0
"""Seconds that the service may say nothing before the stream counts as broken."""

_PREFIX = "bedrock:"


# What is known of models.


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a model takes. ``window`` is in tokens, ``fields`` are of ConverseStream, in its words.

    ``files`` are pictures and documents. ``statuses`` tells whether a result may be marked as an error, ``cached``
    where cache points may stand, ``binds`` whether a block of reasoning is bound to all that came before it.
    """

    window: int
    files: bool = True
    statuses: bool = True
    cached: frozenset[str] = frozenset()
    fields: Mapping[str, Any] = field(default_factory=dict)
    fields_with_tools: Mapping[str, Any] = field(default_factory=dict)
    binds: bool = False


_CLAUDE = Traits(
    window=1_000_000,
    cached=frozenset({"tools", "system", "messages"}),
    # Without a limit, the most that the model can say counts against the account's quota before it says anything.
    fields={"inferenceConfig": {"maxTokens": 32_000}},
    fields_with_tools={
        "additionalModelRequestFields": {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    },
)
_SMALL_CLAUDE = replace(_CLAUDE, window=200_000)
_BINDING_CLAUDE = replace(_CLAUDE, binds=True)
_NOVA = Traits(
    window=300_000,
    cached=frozenset({"system", "messages"}),
    # https://docs.aws.amazon.com/nova/latest/userguide/prompting-tool-troubleshooting.html
    fields_with_tools={
        "inferenceConfig": {"temperature": 0.0},
        "additionalModelRequestFields": {"inferenceConfig": {"topK": 1}},
    },
)

CATALOGUE: Mapping[str, Traits] = {
    "anthropic.claude": _SMALL_CLAUDE,
    "anthropic.claude-haiku-4-5": _SMALL_CLAUDE,
    "anthropic.claude-sonnet-4-5": _SMALL_CLAUDE,
    "anthropic.claude-opus-4-5": _SMALL_CLAUDE,
    "anthropic.claude-sonnet-4-6": _CLAUDE,
    "anthropic.claude-opus-4-6": _CLAUDE,
    "anthropic.claude-opus-4-7": _CLAUDE,
    "anthropic.claude-opus-4-8": _CLAUDE,
    "anthropic.claude-sonnet-5": _CLAUDE,
    "anthropic.claude-opus-5": _CLAUDE,
    "anthropic.claude-fable-5": _CLAUDE,
    "anthropic.claude-haiku-5-5": _CLAUDE,
    "anthropic.claude-sonnet-5-5": _BINDING_CLAUDE,
    "anthropic.claude-opus-5-5": _BINDING_CLAUDE,
    "anthropic.claude-fable-5-1": _BINDING_CLAUDE,
    "anthropic.claude-fable-5-2": _BINDING_CLAUDE,
    "amazon.nova-micro": replace(_NOVA, window=128_000, files=False),
    "amazon.nova-lite": _NOVA,
    "amazon.nova-pro": _NOVA,
    "amazon.nova-2-lite": replace(_NOVA, window=1_000_000, fields_with_tools={}),
}
"""Current models, by what their ids, profiles and ARNs hold; the longest counts. From Bedrock's model cards."""
UNKNOWN = Traits(window=128_000, files=False, statuses=False)
"""What is taken for granted of a model of which nothing is known: what every model takes."""


# What the service refuses.

_LONGEST_NAME = 64
_LARGEST = {"image": 3_932_160, "document": 4_718_592}
"""Bytes of one picture (3.75 MB) and of one document (4.5 MB)."""
_MOST = {"image": 20, "document": 5}
"""Pictures and documents in one message."""
_FORMATS = {
    "application/pdf": ("pdf", b"%PDF-"),
    "application/msword": ("doc", b"\xd0\xcf\x11\xe0"),
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ("docx", b"PK"),
    "application/vnd.ms-excel": ("xls", b"\xd0\xcf\x11\xe0"),
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ("xlsx", b"PK"),
    "text/csv": ("csv", b""),
    "text/html": ("html", b""),
    "text/markdown": ("md", b""),
    "text/plain": ("txt", b""),
}
"""The formats of documents by their media types, and what their bytes begin with."""
_CUT = frozenset({"max_tokens", "model_context_window_exceeded", "guardrail_intervened", "content_filtered", "refusal"})
"""Reasons after which the last call is not whole, or not meant."""
_DECLINED = frozenset({"guardrail_intervened", "content_filtered", "refusal"})
_CACHE_POINT = {"cachePoint": {"type": "default"}}
_CACHED_TURNS = 2
_BINDING = {
    "additionalModelRequestFields": {
        "anthropic_beta": ["thinking-binding-controls-2026-08-01"],
        "thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}},
    }
}
"""Has the service drop reasoning whose beginning has changed: these models think unasked, and refuse what a child or a
compacted thread replays."""
_CONCESSIONS = {
    "binding": ("block_binding", "anthropic_beta", "anthropic-beta"),
    "caching": ("cachepoint", "cache point", "prompt caching"),
    "single calls": ("tool_choice", "disable_parallel_tool_use"),
    "reasoning": ("thinking", "reasoning", "signature"),
}
"""What a request can do without, and the words of the complaints about it."""
_TOO_LONG = (
    "input is too long",
    "prompt is too long",
    "exceed context limit",
    "context window",
    "context length",
    "input tokens exceed",
    "too many total text bytes",
)
_ERRORS: Mapping[str, type[ModelError]] = {
    "throttlingexception": ModelThrottled,
    "servicequotaexceededexception": ModelThrottled,
    "modelstreamerrorexception": ModelInterrupted,
    "modeltimeoutexception": ModelInterrupted,
    "modelerrorexception": ModelInterrupted,
    "internalserverexception": ModelOverloaded,
    "serviceunavailableexception": ModelOverloaded,
    "modelnotreadyexception": ModelOverloaded,
    "accessdeniedexception": ModelForbidden,
    "resourcenotfoundexception": ModelInvalid,
    "validationexception": ModelInvalid,
}
"""By the code in lower case: it begins with a capital before the stream, and with a small letter within."""
_STATUSES: Mapping[int, type[ModelError]] = {
    402: ModelForbidden,
    403: ModelForbidden,
    408: ModelInterrupted,
    409: ModelInterrupted,
    413: ContextTooLong,
    424: ModelInterrupted,
    429: ModelThrottled,
}
_UNPROVEN = frozenset(
    {
        "expiredtokenexception",
        "incompletesignature",
        "incompletesignatureexception",
        "invalidclienttokenid",
        "invalidsignatureexception",
        "missingauthenticationtokenexception",
        "unrecognizedclientexception",
    }
)
_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (with AWS_SESSION_TOKEN where they are temporary), AWS_PROFILE, "
    "the role, or the Bedrock API key in AWS_BEARER_TOKEN_BEDROCK"
)


class BedrockModel:
    """Speaks with the models of Bedrock; new threads are given ``model``: an id, an inference profile or an ARN.

    Threads know a model as ``bedrock:ID``; a bare id is understood. Credentials, region and endpoint
    (``AWS_ENDPOINT_URL_BEDROCK_RUNTIME``) come from ``session``, a botocore ``Session``, else from where the AWS SDK
    finds them. ``silence`` is how many seconds the service may say nothing. ``traits``, by what an id holds, go before
    the catalogue: of an application inference profile nothing is known otherwise. ``options`` are further fields of
    every request, in the service's words.
    https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        base_url: str | None = None,
        region: str | None = None,
        session: Any = None,
        silence: float = DEFAULT_SILENCE,
        traits: Mapping[str, Traits] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._model = model.removeprefix(_PREFIX)
        self._base_url = base_url
        self._region = region
        self._session = session
        self._silence = silence
        self._traits = {**CATALOGUE, **(traits or {})}
        self._options = options or {}
        self._opened: Any = None
        self._opening = threading.Lock()
        self._conceded: dict[str, set[str]] = {}

    @property
    def name(self) -> str:
        """The model that new threads are given, with its provider."""
        return _PREFIX + self._model

    def context_window(self, model: str) -> int:
        """Return the tokens that ``model`` takes: as it was said, else as the catalogue has it, else a guess."""
        return self._traits_of(model).window

    def reads_images(self, model: str) -> bool:
        """Tell whether ``model`` is known to take images."""
        return self._traits_of(model).files

    def check(self) -> None:
        """Raise now what the first completion would raise for want of the SDK, credentials or a usable base URL.

        Raises:
            Misconfigured: one of these is missing or wrong.
        """
        self._client()

    async def list_models(self) -> Sequence[str]:
        """Return the names of the region's models and inference profiles, as threads know them.

        Raises:
            Misconfigured: the SDK, credentials or a usable base URL is missing.
            ModelError: the service does not tell.
        """
        await self._ready()
        try:
            return sorted([_PREFIX + listed for listed in await asyncio.to_thread(self._listed)])
        except _sdk_errors() as error:
            raise self._translated(error, None) from error

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield what the model says; of several calls, only the first.

        Raises:
            Misconfigured: the SDK, credentials or a usable base URL is missing.
            ModelError: by kind.
        """
        await self._ready()
        reading = _Reading({fitted_name(tool.name, _LONGEST_NAME): tool.name for tool in request.tools})
        async with contextlib.aclosing(self._answered(request)) as events:
            try:
                async for event in events:
                    for heard in reading.hear(event):
                        yield well_formed(heard)
                for heard in reading.finish():
                    yield well_formed(heard)
            except NOT_OF_THE_PROTOCOL as error:
                raise self._translated(error, request.model) from error

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        client, self._opened = self._opened, None
        if client is not None:
            client.close()

    async def _answered(self, request: ModelRequest) -> AsyncGenerator[Any]:
        """Yield the events that answer; what the service refuses and a request can do without is left out.

        Reasoning is bound to its model, its account and what came before it, and a thread must not hang because one of
        these has changed: it is left out of this request alone, anything else of all that follow.
        """
        lasting = self._conceded.setdefault(request.model, set())
        reasons = True
        while True:
            conceded = lasting if reasons else lasting | {"reasoning"}
            body = self._body(request, conceded)
            has_begun = False
            try:
                async with contextlib.aclosing(_told(functools.partial(self._dial, body))) as events:
                    async for event in events:
                        has_begun = True
                        yield event
                return
            except _sdk_errors() as error:
                refused = None if has_begun else _concession(error, conceded)
                if refused is None:
                    raise self._translated(error, request.model) from error
                _log.info("%s does not take our %s: going on without", request.model, refused)
                if refused == "reasoning":
                    reasons = False
                else:
                    lasting.add(refused)

    def _dial(self, body: dict[str, Any]) -> Any:
        """Return the stream that answers; blocks until it begins."""
        from botocore.exceptions import ConnectionClosedError

        client = self._client()
        try:
            answer = client.converse_stream(**body)
        except ConnectionClosedError:
            # What was idle while the sandbox was frozen is dead, and shows it only when it is used.
            client.close()
            answer = client.converse_stream(**body)
        media_type = answer["ResponseMetadata"]["HTTPHeaders"].get("content-type", "")
        if not media_type.startswith("application/vnd.amazon.eventstream"):
            answer["stream"].close()
            raise ModelInvalid(
                f"{self._where(body['modelId'])} answered {media_type}, not an event stream. Is the base URL right?"
            )
        return answer["stream"]

    def _body(self, request: ModelRequest, conceded: Iterable[str]) -> dict[str, Any]:
        traits = self._traits_of(request.model)
        if "caching" in conceded:
            traits = replace(traits, cached=frozenset())
        bare = request.model.removeprefix(_PREFIX)
        # The signature proves who reasoned; a block without one was cut.
        turns = transcript(
            request.entries,
            summary=request.summary,
            replays=lambda block: (
                "reasoning" not in conceded
                and (block.model or "").removeprefix(_PREFIX) == bare
                and bool(block.signature or block.redacted)
            ),
        )
        tools = _tools(request.tools, turns, traits)
        is_bound = traits.binds and not {"binding", "reasoning"} & set(conceded)
        body = _merged(
            {"modelId": bare, "messages": _Messages(traits).of(turns), **_system(request.system, traits), **tools},
            traits.fields,
            traits.fields_with_tools if tools and "single calls" not in conceded else {},
            _BINDING if is_bound else {},
            self._options,
        )
        if "reasoning" in conceded:
            body.get("additionalModelRequestFields", {}).pop("thinking", None)
        return body

    def _traits_of(self, model: str) -> Traits:
        known = [part for part in self._traits if part in model]
        return self._traits[max(known, key=len)] if known else UNKNOWN

    # The client.

    async def _ready(self) -> None:
        if self._opened is None:
            await asyncio.to_thread(self._client)

    def _client(self) -> Any:
        with self._opening:
            if self._opened is None:
                self._opened = self._open("bedrock-runtime")
            return self._opened

    def _open(self, service: str) -> Any:
        try:
            import botocore.session
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError as error:
            raise Misconfigured(
                f"the model {self.name} needs the AWS SDK: pip install 'infinity-agents[aws]'"
            ) from error
        try:
            self._session = self._session or botocore.session.get_session()
            # The runtime retries, from clean history and inside the slice's time.
            config = Config(
                retries={"total_max_attempts": 1},
                connect_timeout=10,
                read_timeout=self._silence,
                tcp_keepalive=True,
                max_pool_connections=50,
            )
            region = self._region or os.environ.get("AWS_REGION") or self._session.get_config_variable("region")
            client = self._session.create_client(
                service, region_name=region, endpoint_url=self._base_url, config=config
            )
            address = urlsplit(client.meta.endpoint_url)
            token = os.environ.get("AWS_BEARER_TOKEN_BEDROCK", "")
            credentials = None if token else self._session.get_credentials()
        except (BotoCoreError, ValueError) as error:
            raise Misconfigured(
                f"the client of the model {self.name} cannot be made: {error} Set AWS_REGION, the profile and the "
                "base URL right"
            ) from error
        if address.scheme not in {"http", "https"} or not address.hostname:
            raise Misconfigured(
                f"the base URL {without_user(client.meta.endpoint_url)!r} of the model {self.name} is no URL of http "
                "or https: leave it out, or give one such as https://bedrock-runtime.us-east-1.amazonaws.com"
            )
        key = token or (credentials.access_key if credentials is not None else "")
        if not key.strip():
            raise Misconfigured(f"the model {self.name} needs credentials: set {_CREDENTIALS}")
        if not (key.isascii() and key.isprintable()):
            named = "AWS_BEARER_TOKEN_BEDROCK" if token else "AWS_ACCESS_KEY_ID"
            raise Misconfigured(f"the key in {named} holds characters that no key has: set it anew")
        return client

    def _listed(self) -> set[str]:
        with contextlib.closing(self._open("bedrock")) as client:
            models = client.list_foundation_models(byOutputModality="TEXT")["modelSummaries"]
            profiles = client.get_paginator("list_inference_profiles").paginate()
            return {model["modelId"] for model in models} | {
                profile["inferenceProfileId"] for page in profiles for profile in page["inferenceProfileSummaries"]
            }

    # Errors.

    def _where(self, model: str | None) -> str:
        address = urlsplit(self._client().meta.endpoint_url)
        # A password in the URL is nobody's business.
        shown = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
        named = f"{_PREFIX}{model.removeprefix(_PREFIX)}" if model else "Bedrock"
        return f"{named} at {shown}"

    def _translated(self, error: Exception, model: str | None) -> ModelError:
        """Return what ``error`` means to the runtime, with the service and what it said."""
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            CredentialRetrievalError,
            HTTPClientError,
            NoCredentialsError,
            PartialCredentialsError,
            SSOError,
            TokenRetrievalError,
        )
        from botocore.exceptions import ConnectionError as NotConnected
        from urllib3.exceptions import HTTPError

        where = self._where(model)
        if isinstance(error, ClientError):
            return _refusal(error, where)
        if isinstance(
            error,
            NoCredentialsError | PartialCredentialsError | CredentialRetrievalError | TokenRetrievalError | SSOError,
        ):
            return ModelForbidden(f"{where}: {error}. Check {_CREDENTIALS}")
        if isinstance(error, HTTPClientError | NotConnected):
            # The whole of what the SDK says has the URL in it, and so its password.
            cause = error.kwargs.get("error") or type(error).__name__
            return ModelInterrupted(f"{where} cannot be reached: {cause}. Are the region and the base URL right?")
        if isinstance(error, HTTPError):
            return ModelInterrupted(f"{where}: the stream broke: {error}")
        if isinstance(error, BotoCoreError):
            return ModelInvalid(f"{where}: {error}")
        return ModelInterrupted(f"{where} sent what is not of the protocol: {error}")


def _sdk_errors() -> tuple[type[Exception], ...]:
    """Return what the SDK raises. The stream's bytes are read by urllib3 and decoded by botocore, untranslated."""
    from botocore.eventstream import ParserError
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError
    from urllib3.exceptions import HTTPError

    return BotoCoreError, ClientError, ParserError, ResponseParserError, HTTPError, *NOT_OF_THE_PROTOCOL


def _said_by(error: Any) -> tuple[str, str, int]:
    """Return the code in lower case, the message and the status of a ``ClientError``."""
    from botocore.exceptions import EventStreamError

    told = error.response.get("Error", {})
    # Within a stream the SDK makes up a status, 400 whatever happened.
    is_within = isinstance(error, EventStreamError)
    status = 0 if is_within else error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return str(told.get("Code", "")).lower(), str(told.get("Message", "")), status


def _concession(error: Exception, conceded: Iterable[str]) -> str | None:
    """Return what the service complains of, where a request can do without it."""
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError):
        return None
    code, message, _ = _said_by(error)
    if code not in {"validationexception", "accessdeniedexception"}:
        return None
    complaint = message.lower()
    return next(
        (
            name
            for name, words in _CONCESSIONS.items()
            if name not in conceded and any(word in complaint for word in words)
        ),
        None,
    )


def _refusal(error: Any, where: str) -> ModelError:
    """Return what an answer that is an error means, be it before the stream or within."""
    code, message, status = _said_by(error)
    told = f"{where}: {code or status}: {message}"
    if any(words in message.lower() for words in _TOO_LONG):
        return ContextTooLong(told)
    if code in _UNPROVEN or status == 401:
        # What the service says may hold parts of the signature.
        return ModelForbidden(f"{where} refuses the key ({code or status}): check {_CREDENTIALS}")
    kind = _ERRORS.get(code) or _STATUSES.get(status)
    if kind is ModelForbidden:
        return ModelForbidden(
            f"{told}. May this role call bedrock:InvokeModelWithResponseStream on the inference profile, and on the "
            "model in every region that it routes to?"
        )
    if kind is None:
        kind = ModelOverloaded if status >= 500 else ModelInvalid if status >= 400 else ModelInterrupted
    return kind(f"{told}. Is there such a model in this region?" if status == 404 else told)


# The stream, which blocks, and the loop, which must not.


async def _told(dial: Callable[[], Any]) -> AsyncGenerator[Any]:
    """Yield the events of the stream that ``dial`` opens; it is read in a thread of its own.

    Leaving early shuts the connection down, and never waits for the thread: it is left to notice. Where the service has
    not begun to answer, it does so when that begins, or after the silence that is allowed.
    """
    line = _Line(asyncio.get_running_loop())
    threading.Thread(target=line.listen, args=(dial,), name="bedrock", daemon=True).start()
    try:
        while (told := await line.told.get()) is not None:
            if isinstance(told, Exception):
                raise told
            yield told
    finally:
        line.hang_up()


class _Line:
    """Carries events from a thread to ``loop``; ``None`` is the end, an exception is raised where it is awaited."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.told: asyncio.Queue[Any] = asyncio.Queue()
        self._loop = loop
        self._stream: Any = None
        self._left = threading.Event()

    def listen(self, dial: Callable[[], Any]) -> None:
        """Tell the events of the stream that ``dial`` opens, until its end or until nobody listens."""
        try:
            with contextlib.closing(dial()) as self._stream:
                if self._left.is_set():
                    return
                for event in self._stream:
                    if self._left.is_set():
                        return
                    self._tell(event)
            self._tell(None)
        except Exception as error:  # noqa: BLE001 - raised again where it is awaited
            self._tell(error)

    def _tell(self, told: Any) -> None:
        # The loop may be closed by now: then nobody listens any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.told.put_nowait, told)

    def hang_up(self) -> None:
        """Make the thread end."""
        self._left.set()
        # Closing would wait for a thread that reads, and only urllib3's own shutdown wakes it. A stream that has ended
        # has nothing to shut down.
        with contextlib.suppress(AttributeError, OSError, RuntimeError, ValueError):
            self._stream._raw_stream.shutdown()


# What is sent.


def _merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``parts`` as one; objects are merged, of anything else the last counts."""
    merged: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            before = merged.get(key)
            both = isinstance(value, Mapping) and isinstance(before, Mapping)
            merged[key] = _merged(before, value) if both and before is not None else value
    return merged


def _system(prompt: str, traits: Traits) -> dict[str, Any]:
    if not prompt.strip():
        return {}
    return {"system": [{"text": prompt}, *([_CACHE_POINT] if "system" in traits.cached else ())]}


def _tools(specs: Sequence[ToolSpec], turns: Iterable[UserTurn | ModelTurn], traits: Traits) -> dict[str, Any]:
    """Return the field about tools. A history with calls in it needs tools, even where none may be called."""
    if not specs:
        called = {block.name for turn in turns for block in turn.blocks if isinstance(block, CallBody)}
        specs = [ToolSpec(name, "Not to be called now.", {}) for name in sorted(called)]
    tools: list[dict[str, Any]] = [
        {
            "toolSpec": {
                "name": fitted_name(spec.name, _LONGEST_NAME),
                "description": spec.description.strip() or spec.name,
                "inputSchema": {"json": object_of(spec.input_schema)},
            }
        }
        for spec in specs
    ]
    if tools and "tools" in traits.cached:
        tools.append(_CACHE_POINT)
    return {"toolConfig": {"tools": tools}} if tools else {}


class _Messages:
    """Writes turns as messages that a model of ``traits`` takes."""

    def __init__(self, traits: Traits) -> None:
        self._traits = traits
        self._names: set[str] = set()
        self._room: dict[str, int] = {}

    def of(self, turns: Iterable[UserTurn | ModelTurn]) -> list[dict[str, Any]]:
        """Return the messages of a whole request."""
        messages: list[dict[str, Any]] = []
        for turn in turns:
            match turn:
                case ModelTurn(blocks=said):
                    messages.append({"role": "assistant", "content": [_said(block) for block in said]})
                case UserTurn(blocks=heard):
                    messages.append({"role": "user", "content": self._heard(heard)})
                case _:
                    assert_never(turn)
        if "messages" in self._traits.cached:
            # The last but one as well: that is where the request before this one ended.
            for message in [message for message in messages if message["role"] == "user"][-_CACHED_TURNS:]:
                _set_cache_point(message["content"])
        return messages

    def _heard(self, blocks: Iterable[Part | ResultBody]) -> list[dict[str, Any]]:
        self._room = dict(_MOST)
        blocks = tuple(blocks)
        content = [self._result(block) if isinstance(block, ResultBody) else self._part(block) for block in blocks]
        # A document alone is refused.
        if any("document" in block for block in content) and not any("text" in block for block in content):
            notes = (note_of(block) for block in blocks if isinstance(block, Document))
            content.append({"text": "\n".join(notes)})
        return content

    def _result(self, result: ResultBody) -> dict[str, Any]:
        parts = (part if isinstance(part, Text | Image) else Text(note_of(part)) for part in result.content)
        content = [self._part(part) for part in parts]
        block: dict[str, Any] = {"toolUseId": fitted_name(result.id, _LONGEST_NAME), "content": content}
        if result.is_error and self._traits.statuses:
            block["status"] = "error"
        elif result.is_error:
            content.insert(0, {"text": "Error:"})
        return {"toolResult": block}

    def _part(self, part: Part) -> dict[str, Any]:
        match part:
            case Text(text=text):
                return {"text": text}
            case Image() if (media_type := picture_type(part)) and (data := self._data("image", part)):
                return {"image": {"format": media_type.removeprefix("image/"), "source": {"bytes": data}}}
            case Document(media_type=media_type, name=name) if data := self._data("document", part):
                known, magic = _FORMATS.get(media_type.partition(";")[0].strip().lower(), ("", b""))
                if not known or not data.startswith(magic):
                    return {"text": note_of(part)}
                return {"document": {"format": known, "name": self._named(name), "source": {"bytes": data}}}
            case Image() | Document():
                return {"text": self._note(part)}
            case Blob():
                return {"text": note_of(part)}
            case _:
                assert_never(part)

    def _note(self, part: Image | Document) -> str:
        """Return what stands in place of ``part``; where only its size keeps it out, it says so."""
        note, largest = note_of(part), _LARGEST[part.type]
        size = len(part.data.rstrip("=")) * 3 // 4
        if not self._traits.files or size <= largest:
            return note
        return f"{note[:-1]}: its {size} bytes are more than the {largest} that the model takes]"

    def _data(self, kind: str, part: Image | Document) -> bytes | None:
        """Return the bytes of ``part`` where the model takes them and the message has room."""
        if not self._traits.files or not self._room[kind]:
            return None
        try:
            data = base64.b64decode(part.data, validate=True)
        except ValueError:
            return None
        if len(data) > _LARGEST[kind]:
            return None
        self._room[kind] -= 1
        return data

    def _named(self, name: str) -> str:
        """Return ``name`` as the service takes it; no two documents of a request have the same."""
        plain = re.sub(r"[^A-Za-z0-9()\[\]-]+", " ", name)[:150].strip() or "document"
        fitted, number = plain, 1
        while fitted in self._names:
            number += 1
            fitted = f"{plain} ({number})"
        self._names.add(fitted)
        return fitted


def _set_cache_point(content: list[dict[str, Any]]) -> None:
    """Put a cache point at the end of ``content``, but before documents there: right after one it is refused."""
    place = len(content)
    while place and "document" in content[place - 1]:
        place -= 1
    if place:
        content.insert(place, _CACHE_POINT)


def _said(block: SaidText | Reasoning | CallBody) -> dict[str, Any]:
    match block:
        case SaidText(text=text):
            return {"text": text}
        case Reasoning(redacted=str(redacted)):
            return {"reasoningContent": {"redactedContent": base64.b64decode(redacted)}}
        case Reasoning(text=text, signature=signature):
            return {"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}}
        case CallBody(id=call_id, name=name, arguments=arguments):
            use = {
                "toolUseId": fitted_name(call_id, _LONGEST_NAME),
                "name": fitted_name(name, _LONGEST_NAME),
                "input": dict(arguments),
            }
            return {"toolUse": use}
        case _:
            assert_never(block)


# What is heard.


@dataclass(slots=True)
class _Reading:
    """Reads a stream's events. ``names`` are the tools', by what they are called."""

    names: Mapping[str, str]
    reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    _has_said: bool = False
    _signature: str = ""
    _redacted: bytes = b""
    _call: int | None = None
    """The place of the first call."""
    _others: bool = False
    """Whether another block has begun after the call: it is whole."""

    def hear(self, event: Any) -> Iterator[ModelEvent]:
        """Yield what ``event`` adds to the turn."""
        match event:
            case {"contentBlockStart": {"start": start, "contentBlockIndex": place}}:
                yield from self._begin(place, start)
            case {"contentBlockDelta": {"delta": delta, "contentBlockIndex": place}}:
                yield from self._go_on(place, delta)
            case {"contentBlockStop": _}:
                yield from self._sign()
            case {"messageStop": {"stopReason": reason}}:
                self.reason = reason
            case {"metadata": {"usage": usage}}:
                self.usage = Usage(
                    input=usage.get("inputTokens", 0),
                    output=usage.get("outputTokens", 0),
                    cache_read=usage.get("cacheReadInputTokens", 0),
                    cache_write=usage.get("cacheWriteInputTokens", 0),
                )
            case _:
                pass

    def _begin(self, place: int, start: Mapping[str, Any]) -> Iterator[ModelEvent]:
        if self._call is not None:
            self._others = True
            return
        match start:
            # What the service calls itself is no call of ours.
            case {"toolUse": {"type": "server_tool_use"}}:
                pass
            case {"toolUse": {"name": name, "toolUseId": call_id}}:
                self._call = place
                yield CallStarted(self.names.get(name, name), call_id)
            case _:
                pass

    def _go_on(self, place: int, delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        if self._call is not None and place != self._call:
            self._others = True
        match delta:
            case {"toolUse": {"input": arguments}} if place == self._call and not self._others:
                yield ArgumentsDelta(arguments)
            case {"text": text} if self._call is None and text:
                self._has_said = True
                yield TextDelta(text)
            case {"reasoningContent": reasoning} if self._call is None:
                self._signature += reasoning.get("signature", "")
                self._redacted += reasoning.get("redactedContent", b"")
                if text := reasoning.get("text"):
                    yield ReasoningDelta(text)
            case _:
                pass

    def _sign(self) -> Iterator[ModelEvent]:
        """Complete the block of reasoning that ends here: its signature or what was redacted may come in pieces."""
        if self._signature:
            yield ReasoningDelta(signature=self._signature)
        if self._redacted:
            yield ReasoningDelta(redacted=base64.b64encode(self._redacted).decode())
        self._signature, self._redacted = "", b""

    def finish(self) -> Iterator[ModelEvent]:
        """Yield what is certain only at the end.

        Raises:
            ModelInterrupted: the stream ended before the turn did.
        """
        if self.reason is None:
            raise ModelInterrupted("the stream ended before the model had finished")
        if self._call is None and not self._has_said and self.reason in _DECLINED:
            yield TextDelta("[The model declined to answer.]")
        if self._call is not None and (self._others or self.reason not in _CUT):
            yield CallFinished()
        yield Used(self.usage)
        yield Stopped(self.reason)
