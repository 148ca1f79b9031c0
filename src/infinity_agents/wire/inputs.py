"""``InputMessage`` as JSON, and the proof that one of our functions wrote it."""

import json
import math
import re
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from datetime import datetime
from typing import Annotated, Any, cast

from pydantic import Field, TypeAdapter, ValidationError

from ..conversation import ids, messages
from ..conversation.content import Blob, Document, Image, Part, Text, without_surrogates
from ..conversation.messages import Delivery, InputMessage, UserContent
from ..errors import Undecodable, Unproven, without_user
from .codecs import adapter_of, mended_json
from .keys import Keyring

_PURPOSE = "input-message"
_DEEPEST = 100
_SHA256 = re.compile("[0-9a-f]{64}")
_INNER = {"parts": "parts", "tool_result": "content"}
"""The field of a content, by its type, that is a list of parts."""


_content = adapter_of(Annotated[messages.Content, Field(discriminator="type")])
_part = adapter_of(Annotated[Part, Field(discriminator="type")])
_synthetic = adapter_of(Annotated[messages.Synthetic, Field(discriminator="type")])
_message = adapter_of(InputMessage)

_FROM_ANYONE = (*UserContent.__args__, messages.UserChoiceResponse)


def decode(
    body: str,
    *,
    keyring: Keyring,
    queue_id: str,
    group_id: str,
    dedup_id: str | None = None,
    sent_at: datetime | None = None,
) -> Delivery:
    """Return the delivery that the queue's record stands for.

    ``group_id`` is the queue's own; a message must be for that thread.

    Raises:
        Undecodable: it is not JSON, not an ``InputMessage``, or for another thread; the text names the field.
        Unproven: it is of a kind that needs a MAC, and carries none that is right.
    """
    try:
        fields = parse_json(body)
    except ValueError as error:
        raise Undecodable(f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise Undecodable("the body is nested too deeply") from error
    if not isinstance(fields, dict):
        raise Undecodable(f"the body must be a JSON object, not {type(fields).__name__}")
    proof = fields.pop("mac", None)
    proven = isinstance(proof, str) and keyring.proves(_PURPOSE, _canonical(fields), proof)
    message = _parse(mended_json(fields))
    if not ids.is_sendable(message.group_id):
        raise Undecodable(
            f"group_id {message.group_id[:140]!r} must be 1 to {ids.MAX_ID} letters, digits and ASCII punctuation"
        )
    if message.group_id != group_id:
        raise Undecodable(f"group_id {message.group_id!r} is not the queue's message group {group_id!r}")
    if not proven and not _may_come_from_anyone(message):
        kind = message.synthetic.type if message.synthetic else message.content.type
        raise Unproven(f"a {kind} message needs a mac of ours, and {'its mac is wrong' if proof else 'it has none'}")
    return Delivery(message=message, queue_id=queue_id, dedup_id=dedup_id, proven=proven, sent_at=sent_at)


def _may_come_from_anyone(message: InputMessage) -> bool:
    if message.synthetic is not None or message.subscription or message.display_as:
        return False
    if isinstance(message.content, messages.Control):
        return message.content.action == "stop"
    return isinstance(message.content, _FROM_ANYONE)


def _parse(fields: dict[str, Any]) -> InputMessage:
    synthetic = fields.get("synthetic")
    if isinstance(synthetic, str):
        # An old spelling: the bare tag of a subscription event, whose call the tag then does not name.
        fields = {**fields, "synthetic": {"type": "subscription_event", "tool_call_id": synthetic}}
    if isinstance(fields.get("synthetic"), dict):
        fields = {**fields, "synthetic": _tagged(_synthetic(), fields["synthetic"], "synthetic")}
    if isinstance(fields.get("content"), dict):
        fields = {**fields, "content": _parse_content(fields["content"])}
    try:
        return cast("InputMessage", _message().validate_python(fields))
    except ValidationError as error:
        raise Undecodable(f"not an input message: {explain(error)}") from error


def _parse_content(content: dict[str, Any]) -> Any:
    """Read by tag, innermost first, so that an error speaks of the one kind that was meant."""
    tag = content.get("type")
    field = _INNER.get(tag) if isinstance(tag, str) else None
    if field is not None and isinstance(content.get(field), list):
        read = [_tagged(_part(), item, f"content.{field}.{index}") for index, item in enumerate(content[field])]
        content = {**content, field: tuple(read)}
    return _tagged(_content(), content, "content")


def _tagged(adapter: TypeAdapter[Any], value: Any, where: str) -> Any:
    try:
        read = adapter.validate_python(value)
    except ValidationError as error:
        raise Undecodable(f"not an input message: {where}: {explain(error)}") from error
    if isinstance(read, Blob) and not _SHA256.fullmatch(read.sha256):
        # It becomes the name of a file or an object: anybody may have sent it.
        raise Undecodable(f"not an input message: {where}.sha256: must be 64 hex digits, got {_short(read.sha256)}")
    return read


def explain(error: ValidationError, limit: int = 3) -> str:
    """Return what is wrong in one line: each field's path, and what was expected there."""
    problems = error.errors(include_url=False, include_context=False)
    told = [
        f"{'.'.join(str(step) for step in problem['loc'])}: {_clipped(problem['msg'])}".removeprefix(": ")
        + ("" if isinstance(problem["input"], dict | list) else f", got {_short(problem['input'])}")
        for problem in problems[:limit]
    ]
    more = f" (and {len(problems) - limit} more)" if len(problems) > limit else ""
    return without_surrogates("; ".join(told)) + more


def _clipped(text: str) -> str:
    # What was sent may stand in the middle of it.
    return text if len(text) <= 400 else f"{text[:200]} ... {text[-200:]}"


def _short(value: object) -> str:
    text = repr(without_user(value) if isinstance(value, str) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def parse_json(text: str) -> Any:
    """Return the JSON value that ``text`` spells, where all that keep or pass it on can take it.

    Raises:
        ValueError: it is not JSON; NaN and numbers beyond a float's range are none either.
        RecursionError: it is nested more than 100 levels deep.
    """
    value = json.loads(text, parse_constant=finite, parse_float=finite)
    level = [value]
    for _ in range(_DEEPEST):
        level = [item for outer in level for item in _items(outer)]
        if not level:
            return value
    raise RecursionError(f"nested more than {_DEEPEST} levels deep")


def _items(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def finite(spelt: str) -> float:
    """Return the number that ``spelt`` is.

    Raises:
        ValueError: it is infinite, or none: JSON has no word for it, so it could not be passed on.
    """
    value = float(spelt)
    if not math.isfinite(value):
        raise ValueError(f"the number {spelt[:40]} is out of range")
    return value


def encode(message: InputMessage, keyring: Keyring | None) -> str:
    """Return ``message`` as ASCII JSON; with a ``keyring``, it carries our proof."""
    fields = to_json(message)
    if keyring is not None:
        fields["mac"] = keyring.sign(_PURPOSE, _canonical(fields))
    return json.dumps(fields, separators=(",", ":"))


def redriven(body: str, queue_id: str) -> str:
    """Return ``body`` as it goes back on the queue: a message without an id of its own is named by its first queue id.

    A second redrive then still finds it. What is no message, and what carries our proof, stays as it is.
    """
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return body
    if not isinstance(fields, dict) or fields.get("message_id") is not None or "mac" in fields:
        return body
    return json.dumps({**fields, "message_id": queue_id}, separators=(",", ":"))


def to_json(message: InputMessage) -> dict[str, Any]:
    """Return the fields of ``message`` as JSON values, without those that are absent."""
    fields = cast("dict[str, Any]", _plain(message))
    if not message.subscription:
        fields.pop("subscription")
    return fields


def _plain(value: Any) -> Any:
    # By hand: the adapter that reads messages takes a receiver longer to build than all else it does.
    if is_dataclass(value):
        told = ((field.name, getattr(value, field.name)) for field in fields_of(value))
        return {name: _plain(inner) for name, inner in told if inner is not None}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def from_json(fields: dict[str, Any]) -> InputMessage:
    """Return the message that ``to_json`` gave these fields."""
    return cast("InputMessage", _message().validate_python(fields))


def _canonical(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def content_to_json(content: Text | Image | Document | Blob | messages.Parts) -> dict[str, Any]:
    """Return one content as JSON values: what a blob keeps."""
    return cast("dict[str, Any]", _plain(content))


def content_from_json(fields: Any) -> Any:
    """Return the content that ``content_to_json`` gave these fields."""
    return _content().validate_python(fields)
