"""What a step will do to the outside world, written down in the commit before it is done.

Every effect is performed at least once, in order, under an id that makes a repeat harmless.
"""

from dataclasses import dataclass
from typing import Literal

from .content import JsonObject
from .messages import InputMessage
from .outputs import Output


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Hand the call to its tool. Repeats carry the same call id."""

    call_id: str
    tool: str
    kind: Literal["dispatch"] = "dispatch"


@dataclass(frozen=True, slots=True)
class SendInput:
    """Put a message of ours on the input queue. Its ``message_id`` is the deduplication id."""

    message: InputMessage
    kind: Literal["send_input"] = "send_input"


@dataclass(frozen=True, slots=True)
class SendOutput:
    """Tell people. ``output_id`` names repeats."""

    output: Output
    kind: Literal["send_output"] = "send_output"


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Forget the timer of the passive call ``call_id``."""

    call_id: str
    kind: Literal["cancel_timer"] = "cancel_timer"


@dataclass(frozen=True, slots=True)
class NotifyCancelled:
    """Tell the tool server, once and without waiting, that nobody wants the call or subscription any more."""

    call_id: str
    tool_set: str | None = None
    kind: Literal["notify_cancelled"] = "notify_cancelled"


@dataclass(frozen=True, slots=True)
class NotifyClosed:
    """Tell every tool server of the session that this thread is closed."""

    kind: Literal["notify_closed"] = "notify_closed"


@dataclass(frozen=True, slots=True)
class AnswerChoice:
    """POST a person's answer to the tool that asked."""

    call_id: str
    response_url: str
    selected: int
    tool_set: str | None = None
    kind: Literal["answer_choice"] = "answer_choice"


@dataclass(frozen=True, slots=True)
class CopyState:
    """Copy a value to the state store for outside readers; an absent ``value`` takes it away. Newer versions win."""

    item: Literal["metadata", "choice", "subscription"]
    key: str
    value: JsonObject | None = None
    kind: Literal["copy_state"] = "copy_state"


Effect = Dispatch | SendInput | SendOutput | CancelTimer | NotifyCancelled | NotifyClosed | AnswerChoice | CopyState


@dataclass(frozen=True, slots=True)
class PlannedEffect:
    """An effect and its place: the ``ordinal``-th of the commit ``version``."""

    version: int
    ordinal: int
    effect: Effect
