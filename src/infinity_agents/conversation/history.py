"""The entries of a thread's history, and what makes a history valid."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from .content import JsonObject, Part, Text, is_mended, mended

INJECTED_CALL = "receive_event__injected"
"""The name of the call that stands before an event. The model never sees it among its tools."""


@dataclass(frozen=True, slots=True)
class SaidText:
    """Text that the model said."""

    text: str
    type: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A block of the model's reasoning; ``redacted`` is base64. Only ``model`` accepts the signature."""

    text: str = ""
    signature: str | None = None
    redacted: str | None = None
    model: str | None = None
    type: Literal["reasoning"] = "reasoning"


Said = SaidText | Reasoning


@dataclass(frozen=True, slots=True)
class CallBody:
    """A tool call: ``id`` is ours, ``call_id`` the model's own."""

    id: str
    name: str
    arguments: JsonObject
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ResultBody:
    """What a call came to: ``id`` is the call's, ``call_id`` the model's own."""

    id: str
    content: tuple[Part, ...]
    call_id: str | None = None
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class UserEntry:
    """What a person, a parent or the runtime said to the model."""

    content: tuple[Part, ...]
    kind: Literal["user"] = "user"


@dataclass(frozen=True, slots=True)
class AssistantEntry:
    """What the model said in one turn, reasoning included, but for its call."""

    content: tuple[Said, ...]
    kind: Literal["assistant"] = "assistant"

    @property
    def text(self) -> str:
        """What was said aloud, without reasoning."""
        return "".join(block.text for block in self.content if isinstance(block, SaidText))


@dataclass(frozen=True, slots=True)
class ToolCallEntry:
    """A call that the model made; ``display_as`` is how people see it."""

    call: CallBody
    display_as: str | None = None
    kind: Literal["tool_call"] = "tool_call"


@dataclass(frozen=True, slots=True)
class ToolResultEntry:
    """The result of the call that stands right before it."""

    result: ResultBody
    display_segments: tuple[JsonObject, ...] | None = None
    kind: Literal["tool_result"] = "tool_result"


@dataclass(frozen=True, slots=True)
class EventEntry:
    """A call that the model never made, and its result: how a model hears of something that nobody asked for now."""

    invocation: CallBody
    result: ResultBody
    tool_call_id: str
    child_thread_id: str | None = None
    display_segments: tuple[JsonObject, ...] | None = None
    kind: Literal["event"] = "event"


Entry = UserEntry | AssistantEntry | ToolCallEntry | ToolResultEntry | EventEntry


@dataclass(frozen=True, slots=True)
class Summary:
    """Stands for every entry of ``thread_id``'s history before the position ``up_to``."""

    thread_id: str
    up_to: int
    text: str


def parts_of(entry: Entry) -> tuple[Part, ...]:
    """Return the parts that a person, a tool or an event contributed to ``entry``."""
    match entry:
        case UserEntry(content=parts):
            return parts
        case ToolResultEntry(result=result) | EventEntry(result=result):
            return result.content
        case _:
            return ()


LONG_TEXT = 20_000
"""The number of characters from which on a text may be too long for some model's window."""


def is_plain(entry: Entry) -> bool:
    """Tell whether every model can read ``entry`` as it is: nothing to fetch, no pictures, no long text."""
    for part in parts_of(entry):  # noqa: SIM110 - a generator costs twice as much, for every entry of a cold load
        if not isinstance(part, Text) or len(part.text) > LONG_TEXT:
            return False
    return True


def pending_call(entries: Sequence[Entry]) -> ToolCallEntry | None:
    """Return the last entry when it is a call without a result."""
    last = entries[-1] if entries else None
    return last if isinstance(last, ToolCallEntry) else None


def faults(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield what is invalid about a history: every call is followed by exactly its result (promise P4)."""
    waiting: ToolCallEntry | None = None
    seen: set[str] = set()
    for position, entry in enumerate(entries):
        if isinstance(entry, ToolResultEntry):
            if waiting is None:
                yield f"entry {position}: result {entry.result.id} follows no call"
            elif entry.result.id != waiting.call.id:
                yield f"entry {position}: result {entry.result.id} follows the call {waiting.call.id}"
            waiting = None
            continue
        if waiting is not None:
            yield f"entry {position}: {entry.kind} stands between the call {waiting.call.id} and its result"
            waiting = None
        if isinstance(entry, ToolCallEntry):
            waiting = entry
            made = entry.call.id
        elif isinstance(entry, EventEntry):
            made = entry.invocation.id
            if entry.result.id != made:
                yield f"entry {position}: the event's result {entry.result.id} is not of its call {made}"
        else:
            continue
        if made in seen:
            yield f"entry {position}: the id {made} is used twice"
        seen.add(made)


def readable(entry: Entry) -> Entry:
    """Return ``entry`` as a model can take it: without NUL, lone surrogates and blank text. Unchanged where it is so.

    Mending twice changes nothing, so an entry may be mended once and kept.
    """
    match entry:
        case UserEntry(content=parts):
            return entry if _is_readable(parts) else replace(entry, content=_readable_parts(parts, "[empty message]"))
        case AssistantEntry(content=blocks):
            if _is_said_clean(blocks):
                return entry
            return replace(
                entry,
                content=tuple(
                    replace(block, text=mended(block.text)) if isinstance(block, SaidText) else block
                    for block in blocks
                    if not isinstance(block, SaidText) or block.text.strip()
                ),
            )
        case ToolCallEntry(call=call):
            return entry if _has_readable(call) else replace(entry, call=_readable_call(call))
        case ToolResultEntry(result=result):
            return entry if _is_readable(result.content) else replace(entry, result=_readable_result(result))
        case EventEntry(invocation=call, result=result):
            if _has_readable(call) and _is_readable(result.content):
                return entry
            return replace(entry, invocation=_readable_call(call), result=_readable_result(result))


def _is_clean(text: str) -> bool:
    return text != "" and not text.isspace() and is_mended(text)


def _is_said_clean(blocks: tuple[Said, ...]) -> bool:
    for block in blocks:  # noqa: SIM110 - as above
        if isinstance(block, SaidText) and not _is_clean(block.text):
            return False
    return True


def _is_readable(parts: tuple[Part, ...]) -> bool:
    for part in parts:
        if isinstance(part, Text) and not _is_clean(part.text):
            return False
    return bool(parts)


def _readable_parts(parts: tuple[Part, ...], instead: str) -> tuple[Part, ...]:
    taken = tuple(
        Text(mended(part.text)) if isinstance(part, Text) else part
        for part in parts
        if not isinstance(part, Text) or part.text.strip()
    )
    return taken or (Text(instead),)


def _readable_result(result: ResultBody) -> ResultBody:
    return replace(result, content=_readable_parts(result.content, "[no output]"))


def _has_readable(call: CallBody) -> bool:
    for text in (call.name, *call.arguments, *call.arguments.values()):
        if not isinstance(text, str) or not is_mended(text):
            return False
    return True


def _readable_call(call: CallBody) -> CallBody:
    return replace(call, name=mended(call.name), arguments=_mended_values(call.arguments))


def _mended_values(value: Any) -> Any:
    if isinstance(value, str):
        return mended(value)
    if isinstance(value, list | tuple):
        return [_mended_values(item) for item in value]
    if isinstance(value, dict):
        return {mended(key): _mended_values(item) for key, item in value.items()}
    return value
