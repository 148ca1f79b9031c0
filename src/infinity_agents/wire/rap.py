"""RAP, the Reactive Agent Protocol, version 1: its JSON bodies, checked on the way in."""

import base64
import binascii
import ipaddress
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, cast
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from ..conversation.content import Image, Text
from ..conversation.history import INJECTED_CALL
from ..errors import Misconfigured, Undecodable
from .codecs import adapter_of, mended_json
from .inputs import explain, finite

DISCOVERY_PATH = "/.well-known/rap-toolset"
INVOKE_PATH = "/invoke"
CLOSE_THREAD_PATH = "/close_thread"
CANCEL_TOOL_CALL_PATH = "/cancel_tool_call"
MIGRATE_PATH = "/migrate"

_MAX_DEPTH = 64
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DEFAULT_PORTS = {"http": 80, "https": 443}


# ------------------------------------------------------------------- addresses


def origin(url: str) -> str:
    """Return the scheme, host and port of an absolute http or https URL, spelt one way.

    Raises:
        ValueError: it is no such URL, or one that two parsers could read as two different hosts.
    """
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise ValueError("a URL must be printable ASCII without spaces and backslashes")
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError("a URL must begin with https:// (or http://) and a host")
    if "@" in parts.netloc:
        raise ValueError("a URL must not contain a user name or password")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    try:
        port = parts.port
    except ValueError:
        # The parser's own text repeats the port, which may be a part of a password.
        raise ValueError("a URL's port must be a number up to 65535") from None
    return f"{parts.scheme}://{host}:{port or _DEFAULT_PORTS[parts.scheme]}"


def secure_url(url: str) -> str:
    """Return ``url`` if it is https, or http on this very machine.

    Raises:
        ValueError: it is neither.
    """
    if origin(url).startswith("http:") and not is_loopback(url):
        raise ValueError("a URL must be https, except on loopback")
    return url


def is_loopback(url: str) -> bool:
    """Return whether the host of ``url`` is this very machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _web_url(url: str) -> str:
    origin(url)
    return url


_SecureUrl = Annotated[str, AfterValidator(secure_url)]
_WebUrl = Annotated[str, AfterValidator(_web_url)]


# ------------------------------------------------------------------------ JSON


def parse_json(body: bytes) -> Any:
    """Return the JSON value of ``body``; lone surrogates in its texts are replaced.

    Raises:
        Undecodable: it is not UTF-8, not JSON (NaN and numbers beyond a float's range are none), or nested more than
            64 deep.
    """
    try:
        value = mended_json(json.loads(body.decode(), parse_constant=finite, parse_float=finite))
    except ValueError as error:
        raise Undecodable(f"the body is not JSON in UTF-8: {error}") from error
    except RecursionError as error:
        raise Undecodable("the body is nested too deeply") from error
    if _is_deeper(value, _MAX_DEPTH):
        raise Undecodable(f"the body is nested more than {_MAX_DEPTH} deep")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_is_deeper(item, levels - 1) for item in inner if isinstance(item, dict | list))


_Parsed = TypeVar("_Parsed")


class _Body(BaseModel):
    """A JSON object. Unknown fields are ignored; null means absent wherever a field may be absent."""

    # Each is built when it is first used: a receiver needs few of them, and all are a good part of its cold start.
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        optional = {field.alias or name for name, field in cls.model_fields.items() if not field.is_required()}
        return {name: value for name, value in fields.items() if value is not None or name not in optional}

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values in the wire's spelling, without those that are absent."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class _CamelBody(_Body):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


def _parsed(body: bytes, validate: Callable[[Any], _Parsed], what: str) -> _Parsed:
    fields = parse_json(body)
    try:
        return validate(fields)
    except ValidationError as error:
        raise Undecodable(f"not {what}: {explain(error)}") from error


# ------------------------------------------------------------------- discovery


def _unreserved(name: str) -> str:
    if name == INJECTED_CALL:
        raise ValueError("the name is reserved for the runtime; rename the tool")
    return name


_Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]
_ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,128}$"), AfterValidator(_unreserved)]


class Annotations(_CamelBody):
    """What a tool's author promises about it."""

    requires_auth: str | None = None
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    long_running: bool = False


class OfferedTool(_CamelBody):
    """One tool of a manifest."""

    name: _ToolName
    description: str
    input_schema: dict[str, Any]
    annotations: Annotations = Annotations()
    display_script: str | None = None


class Manifest(_CamelBody):
    """What a tool server says of itself at ``/.well-known/rap-toolset``."""

    name: _Name
    description: str = ""
    endpoint: _WebUrl
    needs_migration: bool = False
    tools: Annotated[tuple[OfferedTool, ...], Field(min_length=1)]

    @field_validator("tools")
    @classmethod
    def _names_are_unique(cls, tools: tuple[OfferedTool, ...]) -> tuple[OfferedTool, ...]:
        names = [tool.name for tool in tools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the tool {twice[0]!r} stands there twice")
        return tools


def parse_manifest(body: bytes, base_url: str) -> Manifest:
    """Return the manifest that the server at ``base_url`` answered with, checked down to its JSON Schemas.

    Raises:
        Misconfigured: it is refused, whole; the text gives the reason.
    """
    try:
        fields = parse_json(body)
    except Undecodable as error:
        raise _refused(base_url, str(error)) from error
    manifest = read_manifest(fields, base_url)
    for number, tool in enumerate(manifest.tools):
        fault = schema_fault(tool.input_schema)
        if fault:
            raise _refused(base_url, f"tools.{number}.inputSchema of {tool.name!r}: {fault}")
    return manifest


def read_manifest(fields: Any, base_url: str) -> Manifest:
    """Return the manifest that ``fields`` are; its JSON Schemas were checked when it was fetched.

    Raises:
        Misconfigured: it is refused, whole; the text gives the reason.
    """
    try:
        manifest = Manifest.model_validate(fields)
    except ValidationError as error:
        raise _refused(base_url, explain(error)) from error
    if origin(manifest.endpoint) != origin(base_url):
        raise _refused(base_url, f"endpoint {manifest.endpoint!r} is not on the server's own origin {origin(base_url)}")
    return manifest


def _refused(base_url: str, reason: str) -> Misconfigured:
    return Misconfigured(f"the manifest of {base_url} is refused: {reason}")


def schema_fault(schema: dict[str, Any]) -> str | None:
    """Return why ``schema`` is no JSON Schema that a runtime may check arguments by, or ``None``."""
    # Only a fetch needs these, and they cost a cold start dearly.
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415
    from jsonschema.validators import validator_for  # noqa: PLC0415

    dialect = schema.get("$schema", _DIALECT)
    unknown: Any = None
    validator = validator_for({"$schema": dialect}, default=unknown) if isinstance(dialect, str) else None
    if validator is None:
        return f"the dialect {dialect!r} is unknown; leave $schema out for draft 2020-12"
    try:
        validator.check_schema(schema)
    except SchemaError as error:
        return f"not a JSON Schema at {error.json_path}: {error.message[:200]}"
    except RecursionError:
        return "the schema is nested too deeply"
    # A reference into another document would make whoever checks arguments fetch what the server names.
    elsewhere = next((ref for ref in _references(schema) if not ref.startswith("#")), None)
    return f"$ref {elsewhere!r} leads outside the schema; put its target under $defs" if elsewhere else None


def _references(schema: Any) -> Iterator[str]:
    for key, value in schema.items() if isinstance(schema, dict) else enumerate(schema):
        if key in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            yield from _references(value)


# ------------------------------------------------------------------ invocation


class Invocation(_Body):
    """A call, as the runtime hands it to ``endpoint``. ``id`` is the runtime's, ``call_id`` the model's own."""

    operation: str
    arguments: dict[str, Any]
    id: _Name
    callback_url: _WebUrl
    group_id: _Name
    call_id: str | None = None
    thread_ancestors: tuple[str, ...] = ()
    user_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values: ``call_id`` even where it is null, no empty ``thread_ancestors``."""
        fields = {**super().to_json(), "call_id": self.call_id}
        if not self.thread_ancestors:
            del fields["thread_ancestors"]
        return fields


def parse_invocation(body: bytes) -> Invocation:
    """Return the invocation in ``body``.

    Raises:
        Undecodable: it is none; the text names the field.
    """
    return _parsed(body, Invocation.model_validate, "an invocation")


# ------------------------------------------------------------------- callbacks


def _base64(data: str) -> str:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not base64: {error}") from error
    return data


class TextPart(_Body):
    """Text in a result."""

    type: Literal["text"] = "text"
    text: str


class ImagePart(_Body):
    """A picture in a result; ``data`` is base64."""

    type: Literal["image"] = "image"
    data: Annotated[str, AfterValidator(_base64)]
    media_type: str = Field(alias="mediaType")


_Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class ResultCallback(_Body):
    """The result of a call; ``content`` wins over ``text``."""

    type: Literal["tool_result"] = "tool_result"
    group_id: str
    id: str
    call_id: str | None = None
    text: str | None = None
    content: tuple[_Part, ...] | None = None
    display_as: tuple[dict[str, Any], ...] | None = None
    subscription: bool = False
    is_error: bool = False

    @model_validator(mode="after")
    def _says_something(self) -> "ResultCallback":
        if self.text is None and self.content is None:
            raise ValueError("a tool_result needs text or content")
        return self

    @property
    def parts(self) -> tuple[Text | Image, ...]:
        """The result as contents; never none."""
        if not self.content:
            return (Text(self.text or ""),)
        return tuple(
            Text(part.text) if isinstance(part, TextPart) else Image(part.data, part.media_type)
            for part in self.content
        )


class EventCallback(_Body):
    """An event of a subscription; a stable ``event_id`` makes a repeat harmless."""

    type: Literal["subscription_event"] = "subscription_event"
    group_id: str
    tool_call_id: str
    text: str
    associative: bool = False
    final: bool = False
    event_id: str | None = None


class OauthCallback(_Body):
    """The tool needs the user's authorization."""

    type: Literal["oauth"] = "oauth"
    group_id: str
    id: str
    call_id: str | None = None
    auth_url: _SecureUrl


class ChoiceCallback(_Body):
    """The tool asks the user to choose; the answer is wanted at ``response_url``."""

    type: Literal["user_choice"] = "user_choice"
    group_id: str
    id: str
    call_id: str | None = None
    prompt: str
    choices: Annotated[tuple[str, ...], Field(min_length=1)]
    default: Annotated[int, Field(ge=0)]
    response_url: _WebUrl

    @model_validator(mode="after")
    def _default_is_a_choice(self) -> "ChoiceCallback":
        if self.default >= len(self.choices):
            raise ValueError(f"default {self.default} is not an index into {len(self.choices)} choices")
        return self


class ViewCallback(_Body):
    """What people may look at beside the conversation, newest of its type."""

    type: Literal["view_update"] = "view_update"
    group_id: str
    view_type: _Name
    content: Any


Callback = ResultCallback | EventCallback | OauthCallback | ChoiceCallback | ViewCallback
_callback = adapter_of(Annotated[Callback, Field(discriminator="type")])


def parse_callback(body: bytes) -> Callback:
    """Return the callback in ``body``.

    Raises:
        Undecodable: it is none; the text names the field.
    """
    return cast("Callback", _parsed(body, _callback().validate_python, "a callback"))


# -------------------------------------------------------- lifecycle and choices


class CloseThread(_Body):
    """Nobody listens to the thread any more."""

    thread_id: str


class CancelToolCall(_Body):
    """Nobody wants the call's result, or its subscription's events, any more."""

    thread_id: str
    tool_call_id: str


class Migrate(_Body):
    """The session lives at ``destination_url`` from now on."""

    session_id: str
    destination_url: str


class ChoiceAnswer(_Body):
    """The user's answer to a choice of the call ``id``; without ``selected`` the default counts."""

    id: str
    selected: int | None = None


_Notice = TypeVar("_Notice", CloseThread, CancelToolCall, Migrate, ChoiceAnswer)


def parse_notice(body: bytes, kind: type[_Notice]) -> _Notice:
    """Return the notice of ``kind`` in ``body``.

    Raises:
        Undecodable: it is none; the text names the field.
    """
    return _parsed(body, kind.model_validate, f"a {kind.__name__}")


# ---------------------------------------------------------------------- display


class TextSegment(_Body):
    """Text for people."""

    type: Literal["text"] = "text"
    content: str


class Diff(_Body):
    """A change to a file."""

    path: str
    patch: str


class DiffSegment(_Body):
    """A change to a file, for people."""

    type: Literal["diff"] = "diff"
    content: Diff


class Picture(_Body):
    """A picture; ``data`` is base64."""

    data: str
    media_type: str = Field(alias="mediaType")


class ImageSegment(_Body):
    """A picture for people."""

    type: Literal["image"] = "image"
    content: Picture


Segment = TextSegment | DiffSegment | ImageSegment
_segment = adapter_of(Annotated[Segment, Field(discriminator="type")])


def first_known_segment(display_as: Sequence[Mapping[str, Any]]) -> Segment | None:
    """Return the first segment that this version knows how to show; ``None`` means: show the raw text."""
    for fields in display_as:
        try:
            return cast("Segment", _segment().validate_python(fields))
        except ValidationError:
            continue
    return None
