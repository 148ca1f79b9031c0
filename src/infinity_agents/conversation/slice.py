"""A slice: what one step knows of a thread, and what it will write. Values only; nothing here touches the world."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from ..settings import AgentSettings
from . import ids
from .content import JsonObject, Part, Text, plain_text, shown
from .effects import (
    CancelTimer,
    CopyState,
    Effect,
    NotifyCancelled,
    NotifyClosed,
    PlannedEffect,
    SendInput,
    SendOutput,
)
from .events import AgentEvent, CallAnswered, Noted
from .history import (
    INJECTED_CALL,
    CallBody,
    Entry,
    EventEntry,
    ResultBody,
    Summary,
    ToolResultEntry,
    is_plain,
    pending_call,
    readable,
)
from .ledger import ACTIVE_STATES, Call, CallState
from .lineage import Lineage, inherit, last_safe_point
from .messages import Control, Delivery, InputMessage, Nudge, Parts
from .outputs import Output, OutputType, spoken
from .threads import Choice, Thread, ThreadKind
from .turn import Usage

STOPPED = "Stopped by the user."
"""The result of a call that a person stopped: nobody wants the turn to go on."""

_ANSWER_SHARE = 4
"""One part in so many of the window is left free for the answer when a range to summarise is chosen."""

_COMPACTION_PATIENCE = timedelta(hours=1)
_RUNNING = frozenset({CallState.OPEN, CallState.DETACHED})


@dataclass(slots=True)
class Slice:
    """One thread during one step.

    The first group of fields is what is known and kept up to date; the second is what the commit will write.
    ``history`` is all that the model sees, from the position ``history_from`` on; ``special`` are the positions of
    those entries that are not plain. ``window`` is the model's, in tokens. ``defers`` is
    off where the embedder holds events itself: then an event detaches the running call.
    """

    thread: Thread
    lineage: Lineage
    summary: Summary | None
    history: list[Entry]
    history_from: int
    special: list[int]
    calls: dict[str, Call]
    choices: dict[str, Choice]
    children: list[str]
    waiting: list[Delivery]
    now: datetime
    settings: AgentSettings
    window: int
    is_new: bool = False
    waiting_more: bool = False
    root_metadata: JsonObject | None = None
    person_heard_at: datetime | None = None
    recent_slices: int = 0
    paused: tuple[str, ...] = ()
    defers: bool = True

    first_position: int = 0
    new_entries: list[Entry] = field(default_factory=list)
    changed_calls: dict[str, Call] = field(default_factory=dict)
    effects: list[PlannedEffect] = field(default_factory=list)
    spawned: list[tuple[Thread, Lineage]] = field(default_factory=list)
    summaries: list[Summary] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    deferred: list[Delivery] = field(default_factory=list)
    undeferred: list[tuple[int, int]] = field(default_factory=list)
    choices_opened: dict[str, Choice] = field(default_factory=dict)
    choices_closed: list[str] = field(default_factory=list)
    bursts: dict[str, list[Delivery]] = field(default_factory=dict)

    respond: bool = False
    personal: bool = False
    spoke: bool = False
    acting_for: str | None = None
    usage: Usage = field(default_factory=Usage)
    asked_to_compact: bool = False
    told: list[str] = field(default_factory=list)
    did: list[str] = field(default_factory=list)
    events: list[AgentEvent] = field(default_factory=list)
    _call_ordinal: int = 0

    def __post_init__(self) -> None:
        self.first_position = self.thread.end

    # What is known.

    @property
    def version(self) -> int:
        """The version that the commit will have."""
        return self.thread.version + 1

    @property
    def pending(self) -> Call | None:
        """The call whose result the thread waits for."""
        entry = pending_call(self.history)
        return self.calls[entry.call.id] if entry else None

    @property
    def is_busy(self) -> bool:
        """Whether an active call is pending: only its result, or a person, may come before that."""
        pending = self.pending
        return pending is not None and not pending.is_passive

    @property
    def is_compacting(self) -> bool:
        """Whether a summary is on its way; one that has not come within an hour is not waited for any longer."""
        since = self.thread.compacting_since
        return since is not None and self.now - since < _COMPACTION_PATIENCE

    @property
    def is_mid_turn(self) -> bool:
        """Whether the model was to go on when the limit on rounds stopped it."""
        last = self.history[-1] if self.history else None
        return isinstance(last, ToolResultEntry) and plain_text(last.result.content) != STOPPED

    @property
    def room_to_summarise(self) -> int:
        """Return the tokens of history that fit the window beside the summary that stands and the answer."""
        standing = _size(self.summary.text) if self.summary else 0
        return max(self.window - self.window // _ANSWER_SHARE - standing, 0)

    @property
    def has_news(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.heard or self.new_entries or self.changed_calls or self.effects or self.undeferred)

    # History.

    def append(self, entry: Entry) -> None:
        """Add ``entry``: as it is to what is written, and as a model can take it to what the model reads."""
        self.new_entries.append(entry)
        self.history.append(readable(entry))
        if not is_plain(entry):
            self.special.append(self.history_from + len(self.history) - 1)

    @property
    def special_indexes(self) -> list[int]:
        """Where in ``history`` the entries stand that are not plain."""
        return [position - self.history_from for position in self.special]

    def new_call_id(self) -> str:
        """Return an id for a call of this slice; replays of the slice make the same ones."""
        self._call_ordinal += 1
        return ids.call_id(self.thread.id, self.version, self._call_ordinal)

    def answer(
        self,
        call: Call,
        content: tuple[Part, ...],
        state: CallState,
        *,
        is_error: bool = False,
        display: tuple[JsonObject, ...] | None = None,
    ) -> None:
        """Append the result of the pending ``call`` and move it to ``state``."""
        body = ResultBody(id=call.id, call_id=call.call_id, content=content, is_error=is_error)
        self.append(ToolResultEntry(body, display))
        self.record(call.now(state))
        self._answered(call.id, content, is_error, display)

    def answer_text(self, call: Call, text: str, state: CallState, *, is_error: bool = False) -> None:
        self.answer(call, (Text(text),), state, is_error=is_error)

    def hear_event(
        self,
        about: Call | None,
        about_id: str,
        content: tuple[Part, ...],
        *,
        is_error: bool = False,
        child_thread_id: str | None = None,
        original_tool: str = "spawn_thread",
        display: tuple[JsonObject, ...] | None = None,
    ) -> None:
        """Append an event pair about the call ``about_id``; ``about`` is its row where this thread has it."""
        made = self.new_call_id()
        invocation = CallBody(
            id=made,
            name=INJECTED_CALL,
            arguments={
                "original_tool_name": about.tool if about else original_tool,
                "original_tool_call_id": about_id,
                "original_args": about.arguments if about else {},
            },
        )
        result = ResultBody(id=made, content=content, is_error=is_error)
        self.append(EventEntry(invocation, result, about_id, child_thread_id, display))
        self._answered(about_id, content, is_error, display)

    def _answered(
        self, call_id: str, content: Iterable[Part], is_error: bool, display: tuple[JsonObject, ...] | None
    ) -> None:
        text = " ".join(part.text for part in content if isinstance(part, Text))
        self.events.append(CallAnswered(self.thread.id, call_id, shown(text), is_error, display))

    # Ledger, choices.

    def record(self, call: Call) -> None:
        """Write ``call`` to the ledger; one that runs no longer leaves no question open."""
        self.calls[call.id] = call
        self.changed_calls[call.id] = call
        if call.state not in _RUNNING:
            self.dismiss_choice(call.id)

    def open_choice(self, choice: Choice) -> None:
        self.choices[choice.id] = choice
        self.choices_opened[choice.id] = choice
        self.plan(
            CopyState(
                "choice",
                choice.id,
                {"prompt": choice.prompt, "choices": list(choice.choices), "default": choice.default},
            )
        )

    def dismiss_choice(
        self, choice_id: str, text: str = "The question is no longer open.", *, answered_by: str | None = None
    ) -> None:
        """Close the question, where it is open, and tell people."""
        if self.choices.pop(choice_id, None) is None:
            return
        self.choices_opened.pop(choice_id, None)
        self.choices_closed.append(choice_id)
        self.plan(CopyState("choice", choice_id))
        self.tell("user_choice_complete", text, choice_id=choice_id, user_id=answered_by)

    def cancel(self, call: Call) -> None:
        """Have the running call or subscription ended, and its timer or server told."""
        if call.wakes_at is not None:
            self.plan(CancelTimer(call.id))
        if not call.is_passive:
            self.plan(NotifyCancelled(call.id, call.tool_set))
        if call.state is CallState.SUBSCRIBED:
            self.plan(CopyState("subscription", call.id))
        self.record(call.now(CallState.CANCELLED))

    # Effects.

    def plan(self, effect: Effect) -> None:
        """Have ``effect`` performed after the commit."""
        self.effects.append(PlannedEffect(self.version, len(self.effects), effect))

    def tell(self, type: OutputType, text: str, **details: Any) -> None:
        """Tell people. A child's text says which thread speaks."""
        self.told.append(type)
        self.plan(
            SendOutput(
                Output(
                    type=type,
                    text=spoken(text, self.thread.id, self.thread.root_id),
                    group_id=self.thread.root_id,
                    thread_id=self.thread.id,
                    output_id=ids.output_id(self.thread.id, self.version, len(self.effects)),
                    seq=(self.version, len(self.effects)),
                    metadata=self.root_metadata,
                    details={key: value for key, value in details.items() if value is not None} or None,
                )
            )
        )

    def send(self, message: InputMessage) -> None:
        self.plan(SendInput(message))

    def note(self, text: str) -> None:
        """Leave a note for observers and logs. It never holds what people or tools said."""
        self.events.append(Noted(self.thread.id, text))

    # Threads.

    def spawn(
        self,
        kind: ThreadKind,
        child_id: str,
        *,
        born_of: str | None,
        first: tuple[Part, ...],
        stop: int | None = None,
        compacts_to: int | None = None,
    ) -> str:
        """Stage a child that sees this history up to position ``stop`` (the last safe point), and its first message."""
        if stop is None:
            stop = self.history_from + last_safe_point(self.history)
        child = Thread(
            id=child_id,
            kind=kind,
            model=self.thread.model,
            created_at=self.now,
            base=stop,
            ancestors=self.thread.stack,
            born_of=born_of,
            compacts_to=compacts_to,
        )
        lineage = inherit(self.lineage, self.thread.id, self.thread.base, stop, self.summary)
        self.spawned.append((child, lineage))
        self.children.append(child_id)
        self.did.append(f"spawned {child_id}")
        self.send(
            InputMessage(
                content=first[0] if len(first) == 1 else Parts(first),
                group_id=child_id,
                message_id=ids.message_id("first", child_id),
                metadata={"user_id": self.acting_for} if self.acting_for else None,
            )
        )
        return child_id

    def close(self) -> None:
        """Stage the end of the thread: what it waits for is cancelled, its children are closed too."""
        self.thread = replace(self.thread, closed=True)
        self.respond = False
        for call in list(self.calls.values()):
            if call.state in ACTIVE_STATES:
                self.cancel(call)
        for choice_id in list(self.choices):
            self.dismiss_choice(choice_id)
        for child in self.children:
            self.send(
                InputMessage(
                    content=Control("close"), group_id=child, message_id=ids.message_id("close", child, self.thread.id)
                )
            )
        if self.thread.kind is not ThreadKind.COMPACTION:
            self.plan(NotifyClosed())
        self.deferred.clear()
        self.bursts.clear()
        self.did.append("closed")

    def pause(self, text: str) -> None:
        """Stage a pause: only a person starts the thread again."""
        self.thread = replace(self.thread, paused_at=self.now)
        self.tell("limit_reached", text)
        self.did.append("paused")

    def resume(self) -> None:
        """Stage the end of a pause."""
        self.thread = replace(self.thread, paused_at=None)

    def wake_paused(self) -> None:
        """Have every other thread of the family that reached a limit look whether it may go on."""
        for thread_id in self.paused:
            self.send(self.nudge_for(thread_id))
        self.paused = ()

    def nudge_for(self, thread_id: str) -> InputMessage:
        """Return a message that wakes ``thread_id`` and says nothing."""
        return InputMessage(
            content=Text(""),
            group_id=thread_id,
            message_id=ids.message_id("nudge", thread_id, self.thread.id, self.version),
            synthetic=Nudge(),
        )

    def summarise(self, up_to: int, text: str) -> None:
        """Let ``text`` stand for everything before the position ``up_to`` from now on."""
        self.summary = Summary(self.thread.id, up_to, text)
        self.summaries.append(self.summary)
        del self.history[: up_to - self.history_from]
        self.history_from = up_to
        self.special = [position for position in self.special if position >= up_to]


_CHARACTERS_PER_TOKEN = 3
_TOKENS_PER_IMAGE = 1600
_TOKENS_PER_ENTRY = 12


def size_of(entry: Entry) -> int:
    """Return a careful (high) estimate of the tokens that ``entry`` fills."""
    return _TOKENS_PER_ENTRY + _size(entry)


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) // _CHARACTERS_PER_TOKEN + 1
    if isinstance(value, tuple | list):
        return sum(_size(item) for item in value)
    if isinstance(value, dict):
        return sum(_size(key) + _size(item) for key, item in value.items())
    if getattr(value, "type", None) in {"image", "document"}:
        return _TOKENS_PER_IMAGE
    if getattr(value, "type", None) == "blob":
        return _TOKENS_PER_IMAGE if value.of != "text" else int(value.size) // _CHARACTERS_PER_TOKEN
    slots = getattr(value, "__dataclass_fields__", None)
    if slots is None:
        return 1
    return sum(_size(getattr(value, name)) for name in slots)
