"""An observer's view of a step, and the step's outcome."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .content import JsonObject
from .outputs import Output
from .turn import Usage


@dataclass(frozen=True, slots=True)
class Skipped:
    """The model did not speak: every message was known already, or was taken in without it."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The slice is committed and its effects are performed.

    ``usage`` adds up the slice's completions; ``context_window`` is the model's, in tokens.
    """

    usage: Usage
    context_window: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The thread's messages must be delivered again; ``error`` says why."""

    error: Exception


StepOutcome = Skipped | Completed | Failed


@dataclass(frozen=True, slots=True)
class TextStreamed:
    """A piece of what the model says aloud."""

    thread_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningStreamed:
    """A piece of the model's reasoning."""

    thread_id: str
    text: str


@dataclass(frozen=True, slots=True)
class TurnDropped:
    """What was streamed of the current turn is void: the stream broke and starts again."""

    thread_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class CallMade:
    """The model made a call; ``display`` is how people see it."""

    thread_id: str
    call_id: str
    tool: str
    arguments: JsonObject
    display: str


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """A result or an event was folded into the history."""

    thread_id: str
    call_id: str
    text: str
    is_error: bool
    display_as: tuple[JsonObject, ...] | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """People were told something: the same value that went to the output queue."""

    thread_id: str
    output: Output


@dataclass(frozen=True, slots=True)
class Noted:
    """Something was dropped or absorbed that an operator may want to know of."""

    thread_id: str
    note: str


@dataclass(frozen=True, slots=True)
class StepFinished:
    """The thread's part of the step is over.

    ``heard`` names the messages folded, ``did`` what came of them, ``deferred`` counts those that wait, and
    ``round_trips`` the calls to each port.
    """

    thread_id: str
    outcome: StepOutcome
    heard: tuple[str, ...] = ()
    did: tuple[str, ...] = ()
    deferred: int = 0
    round_trips: Mapping[str, int] = field(default_factory=dict)


AgentEvent = TextStreamed | ReasoningStreamed | TurnDropped | CallMade | CallAnswered | Told | Noted | StepFinished
