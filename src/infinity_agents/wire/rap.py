"""RAP, the Reactive Agent Protocol, version 1: its manifest, its invocations and its notices, checked on the way in."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from ..conversation.history import INJECTED_CALL
from ..errors import Misconfigured, Undecodable
from .addresses import origin
from .bodies import Body, Name, WebUrl, parse_json, parsed
from .codecs import adapter_of
from .inputs import explain

DISCOVERY_PATH = "/.well-known/rap-toolset"
INVOKE_PATH = "/invoke"
CLOSE_THREAD_PATH = "/close_thread"
CANCEL_TOOL_CALL_PATH = "/cancel_tool_call"
MIGRATE_PATH = "/migrate"

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


# ------------------------------------------------------------------- discovery


def _unreserved(name: str) -> str:
    if name == INJECTED_CALL:
        raise ValueError("the name is reserved for the runtime; rename the tool")
    return name


_ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,128}$"), AfterValidator(_unreserved)]


class _CamelBody(Body):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


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
    annotations: Annotations = Field(default_factory=Annotations)
    display_script: str | None = None


class Manifest(_CamelBody):
    """What a tool server says of itself at ``/.well-known/rap-toolset``."""

    name: Name
    description: str = ""
    endpoint: WebUrl
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


class Invocation(Body):
    """A call, as the runtime hands it to ``endpoint``. ``id`` is the runtime's, ``call_id`` the model's own."""

    operation: str
    arguments: dict[str, Any]
    id: Name
    callback_url: WebUrl
    group_id: Name
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
    return parsed(body, Invocation.model_validate, "an invocation")


# -------------------------------------------------------- lifecycle and choices


class CloseThread(Body):
    """Nobody listens to the thread any more."""

    thread_id: str


class CancelToolCall(Body):
    """Nobody wants the call's result, or its subscription's events, any more."""

    thread_id: str
    tool_call_id: str


class Migrate(Body):
    """The session lives at ``destination_url`` from now on."""

    session_id: str
    destination_url: str


class ChoiceAnswer(Body):
    """The user's answer to a choice of the call ``id``; without ``selected`` the default counts."""

    id: str
    selected: int | None = None


_Notice = TypeVar("_Notice", CloseThread, CancelToolCall, Migrate, ChoiceAnswer)


def parse_notice(body: bytes, kind: type[_Notice]) -> _Notice:
    """Return the notice of ``kind`` in ``body``.

    Raises:
        Undecodable: it is none; the text names the field.
    """
    return parsed(body, kind.model_validate, f"a {kind.__name__}")


# ---------------------------------------------------------------------- display


class TextSegment(Body):
    """Text for people."""

    type: Literal["text"] = "text"
    content: str


class Diff(Body):
    """A change to a file."""

    path: str
    patch: str


class DiffSegment(Body):
    """A change to a file, for people."""

    type: Literal["diff"] = "diff"
    content: Diff


class Picture(Body):
    """A picture; ``data`` is base64."""

    data: str
    media_type: str = Field(alias="mediaType")


class ImageSegment(Body):
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
