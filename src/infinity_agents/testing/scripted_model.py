"""A model that says what a test wants it to say."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..conversation.content import plain_text
from ..conversation.history import Entry, EventEntry, ToolResultEntry, UserEntry
from ..conversation.turn import (
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ModelEvent,
    ReasoningDelta,
    Stopped,
    TextDelta,
    Usage,
    Used,
)
from ..ports.model import ModelRequest

_USAGE = Usage(input=10, output=10)


@dataclass(frozen=True, slots=True)
class Reply:
    """One completion. ``call`` is a tool's name and its arguments (text is sent as it is).

    With ``error``, the stream breaks with it after the text. ``unfinished`` cuts the call before it is whole.
    """

    text: str = ""
    call: tuple[str, Mapping[str, Any] | str] | None = None
    reasoning: str = ""
    usage: Usage = _USAGE
    error: BaseException | None = None
    unfinished: bool = False
    reason: str = "end_turn"


def says(text: str, **more: Any) -> Reply:
    """Return a reply that is text alone."""
    return Reply(text=text, **more)


def calls(tool: str, arguments: Mapping[str, Any] | str | None = None, *, text: str = "", **more: Any) -> Reply:
    """Return a reply that ends in a tool call."""
    return Reply(text=text, call=(tool, arguments if arguments is not None else {}), **more)


def breaks(error: BaseException, *, text: str = "") -> Reply:
    """Return a reply whose stream breaks."""
    return Reply(text=text, error=error)


Rule = Reply | Callable[[ModelRequest], Reply]
Script = Callable[[ModelRequest], Reply]


class ScriptedModel:
    """Gives the replies of a script: a function of the request, or a list that is worked off.

    Only a function answers a repeated request as it answered the first one; crash tests need that. Every request is
    kept in ``requests``.
    """

    def __init__(
        self,
        script: Script | Sequence[Reply],
        *,
        name: str = "scripted",
        window: int = 200_000,
        images: bool = True,
        chunk: int = 40,
    ) -> None:
        self._script = script if callable(script) else _worked_off(list(script))
        self._name = name
        self._window = window
        self._images = images
        self._chunk = chunk
        self.requests: list[ModelRequest] = []

    @property
    def name(self) -> str:
        return self._name

    def context_window(self, model: str) -> int:
        return self._window

    def reads_images(self, model: str) -> bool:
        return self._images

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the script's reply to ``request``, in chunks."""
        self.requests.append(request)
        reply = self._script(request)
        if reply.reasoning:
            yield ReasoningDelta(reply.reasoning)
            yield ReasoningDelta(signature="signed")
        for start in range(0, len(reply.text), self._chunk):
            yield TextDelta(reply.text[start : start + self._chunk])
        if reply.error is not None:
            raise reply.error
        if reply.call is not None:
            tool, arguments = reply.call
            spelt = arguments if isinstance(arguments, str) else json.dumps(arguments)
            yield CallStarted(tool, f"model-{len(request.entries)}")
            for start in range(0, len(spelt), self._chunk):
                yield ArgumentsDelta(spelt[start : start + self._chunk])
            if not reply.unfinished:
                yield CallFinished()
        yield Used(reply.usage)
        yield Stopped(reply.reason)


def _worked_off(replies: list[Reply]) -> Script:
    def next_reply(request: ModelRequest) -> Reply:
        if not replies:
            raise AssertionError(f"the script is at its end, and was asked once more after {heard(request)!r}")
        return replies.pop(0)

    return next_reply


def heard(request: ModelRequest) -> str:
    """Return the text of the last thing that the model hears: what a script usually decides by."""
    return text_of(request.entries[-1]) if request.entries else ""


def text_of(entry: Entry) -> str:
    """Return what ``entry`` says to a reader of text."""
    match entry:
        case UserEntry(content=parts):
            return plain_text(parts)
        case ToolResultEntry(result=result) | EventEntry(result=result):
            return plain_text(result.content)
        case _:
            return getattr(entry, "text", "")
