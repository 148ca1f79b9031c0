"""What a tool returns and a subscription yields, and how it is spelt on the wire."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, assert_never

from pydantic_core import to_jsonable_python

from ..conversation.content import without_surrogates
from ..wire import rap
from ..wire.callbacks import ImagePart, ResultCallback, TextPart

MAX_ERROR = 10_000
"""The longest error text that a model is given, in characters."""

_SIGNATURES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8"}


@dataclass(frozen=True, slots=True)
class Image:
    """A picture, made from the bytes of a PNG, JPEG, GIF or WebP file."""

    data: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.data, bytes):
            raise TypeError(f"an Image is made from bytes, not from {type(self.data).__name__}; read the file first")
        _ = self.media_type

    @property
    def media_type(self) -> str:
        """What the bytes say they are, such as ``image/png``.

        Raises:
            ValueError: it is a kind of picture that models do not read.
        """
        for media_type, signature in _SIGNATURES.items():
            if self.data.startswith(signature):
                return media_type
        if self.data[:4] == b"RIFF" and self.data[8:12] == b"WEBP":
            return "image/webp"
        raise ValueError(f"bytes that begin with {self.data[:8]!r} are no PNG, JPEG, GIF or WebP; convert the picture")

    @property
    def base64(self) -> str:
        """The bytes, as the wire has them."""
        return base64.b64encode(self.data).decode()


@dataclass(frozen=True, slots=True)
class Diff:
    """A change to the file at ``path``; ``patch`` is a unified diff."""

    path: str
    patch: str


@dataclass(frozen=True, slots=True)
class Result:
    """A tool's result, of which people are shown something else than the model reads.

    ``content`` is for the model: whatever a tool may return. ``display`` is for people: a reader shows the first one
    that it knows how to show.
    """

    content: Any
    display: Sequence[str | Diff | Image]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a subscription.

    An ``associative`` event goes to the thread itself, any other to a thread of its own. A ``final`` one ends the
    subscription. A stable ``event_id`` makes a repeat harmless.
    """

    text: str
    associative: bool = False
    final: bool = False
    event_id: str | None = None


class Later(Enum):
    """What a tool returns whose call is answered later, by its handle, from whatever process hears of the outcome."""

    LATER = "later"


LATER = Later.LATER


def succeeded(invocation: rap.Invocation, value: Any, *, subscription: bool = False) -> ResultCallback:
    """Return the callback that answers ``invocation`` with what its function returned.

    Raises:
        ValueError: it has no JSON form.
    """
    return succeeded_call(invocation.group_id, invocation.id, invocation.call_id, value, subscription=subscription)


def succeeded_call(
    thread_id: str, call_id: str, models_id: str | None, value: Any, *, subscription: bool = False
) -> ResultCallback:
    """Return the callback that answers a call with ``value``; ``models_id`` is the model's own id of it.

    Raises:
        ValueError: it has no JSON form.
    """
    result = value if isinstance(value, Result) else Result(value, ())
    parts = _parts(result.content)
    only_text = parts[0].text if len(parts) == 1 and isinstance(parts[0], TextPart) else None
    return ResultCallback(
        group_id=thread_id,
        id=call_id,
        call_id=models_id,
        text=only_text,
        content=parts if only_text is None else None,
        display_as=tuple(_segment(shown).to_json() for shown in result.display) or None,
        subscription=subscription,
    )


def failed(invocation: rap.Invocation, text: str) -> ResultCallback:
    """Return the callback that answers ``invocation`` with an error for the model to read."""
    return ResultCallback(
        group_id=invocation.group_id,
        id=invocation.id,
        call_id=invocation.call_id,
        text=without_surrogates(shortened(text)),
        is_error=True,
    )


def shortened(text: str) -> str:
    """Return an error's text, cut to what a model can do something with."""
    return text if len(text) <= MAX_ERROR else f"{text[:MAX_ERROR]}… ({len(text)} characters in all)"


def event_of(value: Any) -> Event:
    """Return what a subscription yielded as an event.

    Raises:
        ValueError: it has no JSON form, or is a picture.
    """
    if isinstance(value, Event):
        return value
    match _parts(value):
        case [TextPart(text=text)]:
            return Event(text)
        case _:
            raise ValueError("an event is text; put the picture where a tool can fetch it, and say where")


def _parts(value: Any) -> tuple[TextPart | ImagePart, ...]:
    """Return texts and pictures as they are, all else as JSON."""
    match value:
        case None:
            return (TextPart(text="Done."),)
        case str():
            return (TextPart(text=without_surrogates(value)),)
        case Image():
            return (ImagePart(data=value.base64, media_type=value.media_type),)
        case list() | tuple() if _is_illustrated(value):
            return tuple(part for item in value for part in _parts(item))
        case _:
            return (TextPart(text=without_surrogates(_json(value))),)


def _is_illustrated(values: Sequence[Any]) -> bool:
    return any(isinstance(item, Image) for item in values) and all(isinstance(item, str | Image) for item in values)


def _json(value: Any) -> str:
    try:
        return json.dumps(to_jsonable_python(value), ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"the result, a {type(value).__name__}, has no JSON form ({error}); return text, numbers, lists, "
            "dictionaries, dataclasses, pydantic models or an Image"
        ) from error


def _segment(shown: str | Diff | Image) -> rap.Segment:
    match shown:
        case str():
            return rap.TextSegment(content=without_surrogates(shown))
        case Diff():
            return rap.DiffSegment(content=rap.Diff(path=shown.path, patch=without_surrogates(shown.patch)))
        case Image():
            return rap.ImageSegment(content=rap.Picture(data=shown.base64, media_type=shown.media_type))
        case _:
            assert_never(shown)
