"""A history as model protocols want it: people and the model in turn, and nothing in it that a service refuses.

Every protocol spells this in JSON of its own; the order, and what may stand in it, is the same for all.
"""

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from . import ids
from .content import Document, Image, Part, Text
from .history import (
    AssistantEntry,
    CallBody,
    Entry,
    EventEntry,
    Reasoning,
    ResultBody,
    Said,
    SaidText,
    ToolCallEntry,
    ToolResultEntry,
    UserEntry,
)

SUMMARY_HEADING = "Summary of the conversation up to here:\n"
"""Stands before the summary, which is the first thing that people are taken to have said."""
_OPENING = Text("[The conversation has begun already.]")


@dataclass(frozen=True, slots=True)
class UserTurn:
    """The result of the call that came before, where there is one, and then what people said."""

    blocks: tuple[Part | ResultBody, ...]


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """What the model said, and its call, where there is one, at the end."""

    blocks: tuple[Said | CallBody, ...]


def transcript(
    entries: Iterable[Entry], *, summary: str | None, replays: Callable[[Reasoning], bool]
) -> tuple[UserTurn | ModelTurn, ...]:
    """Return ``entries`` as turns that alternate, the first of them a user's.

    An event is a call that the model made, and its result. Blank text is left out, so is reasoning that ``replays``
    does not admit, or that nothing follows within its turn. ``entries`` are valid history (promise P4).
    """
    turns = _Turns()
    if summary is not None:
        turns.hear(Text(f"{SUMMARY_HEADING}{summary}"))
    for entry in entries:
        match entry:
            case UserEntry(content=parts):
                turns.hear(*parts)
            case AssistantEntry(content=blocks):
                turns.say(*(block for block in blocks if _is_worth_saying(block, replays)))
            case ToolCallEntry(call=call):
                turns.say(call)
            case ToolResultEntry(result=result):
                turns.hear(result)
            case EventEntry(invocation=call, result=result):
                turns.say(call)
                turns.hear(result)
            case _:
                assert_never(entry)
    return turns.whole()


def _is_worth_saying(block: Said, replays: Callable[[Reasoning], bool]) -> bool:
    return bool(block.text.strip()) if isinstance(block, SaidText) else replays(block)


class _Turns:
    def __init__(self) -> None:
        self._turns: list[UserTurn | ModelTurn] = []

    def hear(self, *blocks: Part | ResultBody) -> None:
        self._end_model_turn()
        last = self._turns[-1] if self._turns else None
        if isinstance(last, UserTurn):
            self._turns[-1] = UserTurn((*last.blocks, *blocks))
        elif blocks:
            self._turns.append(UserTurn(blocks))

    def say(self, *blocks: Said | CallBody) -> None:
        if not blocks:
            return
        if not self._turns:
            self._turns.append(UserTurn((_OPENING,)))
        last = self._turns[-1]
        if isinstance(last, ModelTurn):
            self._turns[-1] = ModelTurn((*last.blocks, *blocks))
        else:
            self._turns.append(ModelTurn(blocks))

    def whole(self) -> tuple[UserTurn | ModelTurn, ...]:
        self._end_model_turn()
        return tuple(self._turns)

    def _end_model_turn(self) -> None:
        """Take reasoning from the end of the model's turn: a turn that was cut while it reasoned has no other end."""
        last = self._turns[-1] if self._turns else None
        if not isinstance(last, ModelTurn):
            return
        kept = list(last.blocks)
        while kept and isinstance(kept[-1], Reasoning):
            kept.pop()
        if len(kept) < len(last.blocks):
            self._turns[-1:] = [ModelTurn(tuple(kept))] if kept else []


# What services refuse.


def fitted_name(name: str, longest: int) -> str:
    """Return ``name`` as a protocol takes it: 1 to ``longest`` letters, digits, ``_`` and ``-``.

    A name that must be changed ends in a hash of what it was, so that no two names become one.
    """
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if plain == name and 0 < len(name) <= longest:
        return name
    digest = ids.digest(name, length=8)
    return f"{plain[: longest - 9]}_{digest}"


_NOT_AT_THE_TOP = frozenset({"oneOf", "anyOf", "allOf", "not", "enum"})


def object_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``schema`` as protocols take it at its top: an object, without alternatives.

    It asks for less than ``schema`` does; arguments are checked against the whole of that when they come.
    """
    kept = {key: value for key, value in schema.items() if key not in _NOT_AT_THE_TOP}
    return {"properties": {}, **kept, "type": "object"}


_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def picture_type(image: Image) -> str | None:
    """Return the media type that the bytes of ``image`` are of; ``None`` where it is none that models read.

    The label that came with it does not count: services refuse the whole request where label and bytes differ.
    """
    data = _decoded(image.data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for magic, media_type in _MAGIC.items() if data.startswith(magic)), None)


def is_pdf(document: Document) -> bool:
    """Tell whether the bytes of ``document`` are a PDF's."""
    return _decoded(document.data).startswith(b"%PDF-")


def _decoded(data: str) -> bytes:
    """Return what the base64 ``data`` stands for; nothing where it is not base64 to its end."""
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        return b""
