"""A history put together again from what a protocol tells of it."""

import base64
import json
import re
from collections.abc import Iterable

from ...conversation.content import Image, Part, Text
from ...conversation.history import (
    INJECTED_CALL,
    AssistantEntry,
    CallBody,
    Entry,
    EventEntry,
    Reasoning,
    ResultBody,
    SaidText,
    ToolCallEntry,
    ToolResultEntry,
    UserEntry,
)
from ...conversation.transcript import SUMMARY_HEADING, picture_type
from ...ports.model import ModelRequest
from ...ports.tool import ToolSpec
from .serving import require

Block = Part | SaidText | Reasoning | CallBody | ResultBody

_STACK = re.compile(r"^Your thread stack, from the root to you: (\[.*\])$", re.MULTILINE)
_PICTURES = {"image/png", "image/jpeg", "image/gif", "image/webp"}


def request_of(*, model: str, system: str, blocks: Iterable[Block], tools: Iterable[ToolSpec]) -> ModelRequest:
    """Return the request that ``blocks``, in their order, and the system prompt tell of.

    Each part that was heard makes an entry of its own: a protocol does not tell which were said together.
    """
    summary, entries = None, list[Entry]()
    called: CallBody | None = None
    for block in blocks:
        match block:
            case Text(text=text) if text.startswith(SUMMARY_HEADING) and not entries:
                summary = text.removeprefix(SUMMARY_HEADING)
            case SaidText() | Reasoning():
                before = entries.pop() if entries and isinstance(entries[-1], AssistantEntry) else None
                said = before.content if isinstance(before, AssistantEntry) else ()
                entries.append(AssistantEntry((*said, block)))
            case CallBody():
                called = block
            case ResultBody():
                require(called is not None and called.id == block.id, f"the result {block.id} follows another call")
                if called is not None:
                    entries.extend(_exchange(called, block))
                called = None
            case _:
                entries.append(UserEntry((block,)))
    require(called is None, f"the call {called.id if called else ''} has no result")
    stack = _STACK.search(system)
    return ModelRequest(
        model=model,
        system=system,
        entries=entries,
        tools=tuple(tools),
        thread_stack=tuple(json.loads(stack[1])) if stack else (),
        summary=summary,
    )


def _exchange(call: CallBody, result: ResultBody) -> list[Entry]:
    if call.name == INJECTED_CALL:
        return [EventEntry(call, result, tool_call_id=str(call.arguments.get("original_tool_call_id", "")))]
    return [ToolCallEntry(call), ToolResultEntry(result)]


def picture(data: object, media_type: object) -> Image:
    """Return the picture.

    Raises:
        Refused: it is none that models read, or its label is wrong.
    """
    require(media_type in _PICTURES, f"media_type: {media_type!r} is not one of {sorted(_PICTURES)}")
    try:
        base64.b64decode(str(data), validate=True)
    except ValueError:
        require(False, "the image's data is not base64")
    image = Image(str(data), str(media_type))
    require(picture_type(image) == media_type, f"the image was labelled {media_type}, and is {picture_type(image)}")
    return image


def schema(value: object, where: str) -> None:
    """Refuse what is no schema of an object at its top."""
    require(isinstance(value, dict) and value.get("type") == "object", f"{where}: the type must be 'object'")
    alternatives = {"oneOf", "anyOf", "allOf"} & set(value if isinstance(value, dict) else ())
    require(not alternatives, f"{where}: {sorted(alternatives)} is not supported at the top level")
