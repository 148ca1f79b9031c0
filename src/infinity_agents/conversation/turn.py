"""What the model says in one completion, collected from its stream and kept or dropped whole."""

from dataclasses import dataclass, field, replace

from .history import Reasoning, Said, SaidText


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one completion, or of several added up; ``input`` is what was read anew, without cached ones."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def context(self) -> int:
        """Tokens of the model's window that the completion filled: cached ones count too."""
        return self.input + self.cache_read + self.cache_write + self.output

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text that is said aloud."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the current block of reasoning; a signature or redacted content completes the block."""

    text: str = ""
    signature: str | None = None
    redacted: str | None = None


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call begins; ``call_id`` is the model's own."""

    name: str
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More of the JSON text of the current call's arguments."""

    json: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The current call is whole."""


@dataclass(frozen=True, slots=True)
class Used:
    """The completion's tokens; the last one counts."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Stopped:
    """The stream is whole. ``reason`` is the service's word; the blocks decide, not the reason."""

    reason: str = "end_turn"


ModelEvent = TextDelta | ReasoningDelta | CallStarted | ArgumentsDelta | CallFinished | Used | Stopped

NOT_OF_THE_PROTOCOL = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading an answer raises that says something else than its protocol lets it: SDKs hand on whatever came."""


def well_formed(event: ModelEvent) -> ModelEvent:
    """Return ``event``, whose fields are of their types.

    Raises:
        TypeError: one is not.
    """
    match event:
        case TextDelta(str()) | ArgumentsDelta(str()) | CallFinished() | Stopped(str()):
            return event
        case ReasoningDelta(str(), str() | None, str() | None) | CallStarted(str(), str() | None):
            return event
        case Used(Usage(int(), int(), int(), int())):
            return event
        case _:
            raise TypeError(f"a {type(event).__name__} was told in values of other types")


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """The call that the model asked for; ``arguments`` is JSON text as it came ('' where there was none)."""

    name: str
    arguments: str
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model said: reasoning and text, then at most one call. ``is_whole`` tells that nobody cut it short."""

    said: tuple[Said, ...]
    call: RequestedCall | None
    usage: Usage
    reason: str
    is_whole: bool = True

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.said if isinstance(block, SaidText))


@dataclass(slots=True)
class TurnBuffer:
    """Collects a stream into a turn. The first tool call ends it; what the stream says afterwards is dropped."""

    model: str
    said: list[Said] = field(default_factory=list)
    call: RequestedCall | None = None
    usage: Usage = field(default_factory=Usage)
    reason: str | None = None
    _started: CallStarted | None = None
    _arguments: list[str] = field(default_factory=list)
    _text: list[str] = field(default_factory=list)

    def hear(self, event: ModelEvent) -> None:
        """Add one event of the stream."""
        match event:
            case Used(usage):
                self.usage = usage
            case Stopped(reason):
                self.reason = reason
            case _ if self.call is not None:
                return
            case TextDelta(text):
                self._text.append(text)
            case ReasoningDelta():
                self._reason(event)
            case CallStarted():
                if self._started is None:
                    self._started = event
                else:
                    self._finish_call()
            case ArgumentsDelta(json):
                self._arguments.append(json)
            case CallFinished():
                self._finish_call()

    def _finish_call(self) -> None:
        if self._started is not None:
            self.call = RequestedCall(self._started.name, "".join(self._arguments), self._started.call_id)

    def _reason(self, delta: ReasoningDelta) -> None:
        self._flush_text()
        last = self.said[-1] if self.said else None
        if isinstance(last, Reasoning) and last.signature is None and last.redacted is None and not delta.redacted:
            self.said[-1] = replace(last, text=last.text + delta.text, signature=delta.signature)
        else:
            self.said.append(Reasoning(delta.text, delta.signature, delta.redacted, self.model))

    def _flush_text(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        if text:
            self.said.append(SaidText(text))

    @property
    def has_text(self) -> bool:
        """Whether anything was said aloud that a person could use."""
        return any(piece.strip() for piece in self._text) or any(
            isinstance(block, SaidText) and block.text.strip() for block in self.said
        )

    def whole(self) -> Turn:
        """Return the turn of a stream that ended by itself."""
        self._flush_text()
        return Turn(tuple(self.said), self.call, self.usage, self.reason or "end_turn")

    def cut_short(self, reason: str) -> Turn:
        """Return the turn of a stream that was stopped: visible text stays, trailing reasoning and half a call go."""
        self._flush_text()
        said = list(self.said)
        while said and isinstance(said[-1], Reasoning):
            said.pop()
        return Turn(tuple(said), None, self.usage, reason, is_whole=False)
