"""Small builders for slices and deliveries, and words for what a slice decided."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from infinity_agents.conversation.content import Text
from infinity_agents.conversation.effects import (
    AnswerChoice,
    CancelTimer,
    CopyState,
    Dispatch,
    NotifyCancelled,
    NotifyClosed,
    SendInput,
    SendOutput,
)
from infinity_agents.conversation.events import Noted
from infinity_agents.conversation.history import (
    INJECTED_CALL,
    AssistantEntry,
    CallBody,
    EventEntry,
    ResultBody,
    SaidText,
    ToolCallEntry,
    ToolResultEntry,
    UserEntry,
    is_plain,
)
from infinity_agents.conversation.ledger import Call, CallState
from infinity_agents.conversation.lineage import Lineage
from infinity_agents.conversation.messages import (
    CallDeadline,
    Delivery,
    InputMessage,
    Parts,
    SubscriptionEvent,
    ToolResult,
)
from infinity_agents.conversation.slice import Slice
from infinity_agents.conversation.threads import Thread, ThreadKind
from infinity_agents.settings import AgentSettings

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SERVER = "weather-tools"
_numbers = itertools.count()


def call(id, state=CallState.OPEN, **fields):
    """Return a row of the ledger: a call of a tool server, or of ours where ``tool_set`` is None."""
    row = Call(id=id, tool="get_weather", arguments={"location": "Rome"}, state=CallState.OPEN, made_at=NOW - HOUR)
    return replace(row, **{"tool_set": SERVER, **fields}).now(CallState(state))


def nap(id, state=CallState.OPEN, **fields):
    """Return a row of the ledger: a passive call of ours."""
    return call(id, state, tool="sleep_until_event_or_input", arguments={}, tool_set=None, is_passive=True, **fields)


def timed_nap(id, state=CallState.OPEN):
    return nap(id, state, wakes_at=NOW + HOUR)


def user(text="hello"):
    return UserEntry((Text(text),))


def said(text):
    return AssistantEntry((SaidText(text),))


def called(id, tool="get_weather", arguments=None):
    return ToolCallEntry(CallBody(id, tool, arguments or {}))


def result(id, text="done", **fields):
    return ToolResultEntry(ResultBody(id, (Text(text),), **fields))


def event(id, about="c", text="news"):
    return EventEntry(CallBody(id, INJECTED_CALL, {}), ResultBody(id, (Text(text),)), about)


ROOT = Thread(id="root", kind=ThreadKind.ROOT, model="model-1", created_at=NOW - HOUR, version=4)
CHILD = replace(ROOT, id="root.child", kind=ThreadKind.CHILD, ancestors=("root",), born_of="spawning")


def a_slice(*, pending=None, calls=(), history=None, thread=ROOT, settings=None, **fields):
    """Return a slice of a thread that said hello; with a ``pending`` call, it waits for its result."""
    history = [user()] if history is None else list(history)
    if pending is not None:
        history.append(called(pending.id, pending.tool))
    return Slice(
        thread=replace(thread, length=len(history)),
        history=history,
        calls={row.id: row for row in (*calls, *([pending] if pending else []))},
        **{
            "lineage": Lineage(),
            "summary": None,
            "history_from": thread.base,
            "special": [place for place, entry in enumerate(history, thread.base) if not is_plain(entry)],
            "choices": {},
            "children": [],
            "waiting": [],
            "now": NOW,
            "window": 200_000,
            **fields,
        },
        settings=settings or AgentSettings(),
    )


def ours(content, *, to="root", message_id=None, **fields):
    """Return a delivery that one of our functions wrote."""
    number = next(_numbers)
    message = InputMessage(content, to, message_id=message_id or f"ours-{number}", **fields)
    return Delivery(message, f"queue-{number}", proven=True)


def theirs(content, *, to="root", **fields):
    """Return a delivery that a person sent."""
    return Delivery(InputMessage(content, to, **fields), f"queue-{next(_numbers)}")


def says(text, *, user_id=None, **fields):
    return theirs(Text(text), metadata={"user_id": user_id} if user_id else None, **fields)


def answers(id, text="done", *, tool_set=SERVER, subscription=False, display_as=None, **fields):
    return ours(
        ToolResult(id, (Text(text),), tool_set=tool_set, **fields), subscription=subscription, display_as=display_as
    )


def happens(id, text="news", *, associative=False, final=False, tool_set=SERVER, content=None, **fields):
    return ours(content or Text(text), synthetic=SubscriptionEvent(id, associative, final, tool_set), **fields)


def expires(id):
    return ours(Text(""), synthetic=CallDeadline(id))


def kept(*deliveries):
    """Return deliveries as they are read from the thread's deferred messages."""
    return [replace(delivery, deferred_as=(2, place)) for place, delivery in enumerate(deliveries)]


# Words.


def plain(text):
    """Return ``text`` without capitals and punctuation: a document names words, not their setting."""
    return "".join(letter for letter in text.lower() if letter not in ".,:;!?")


def _text(parts):
    return plain(" ".join(part.text if isinstance(part, Text) else f"<{part.type}>" for part in parts))


def entries(slice_):
    """Return the slice's new entries in words."""
    return [_entry(entry) for entry in slice_.new_entries]


def _entry(entry):
    match entry:
        case UserEntry(content=parts):
            return f"user: {_text(parts)}"
        case ToolResultEntry(result=body):
            return f"{'error' if body.is_error else 'result'} of {body.id}: {_text(body.content)}"
        case EventEntry(tool_call_id=about, result=body):
            return f"{'error event' if body.is_error else 'event'} about {about}: {_text(body.content)}"
    raise AssertionError(f"nothing else is folded into a history: {entry}")


def effects(slice_):
    """Return the slice's effects in words."""
    return [_effect(planned.effect) for planned in slice_.effects]


def _effect(effect):
    match effect:
        case Dispatch(call_id=id):
            return f"dispatch {id}"
        case SendInput(message=message):
            kind = message.synthetic.type if message.synthetic else getattr(message.content, "action", "text")
            if message.message_id.startswith("first:"):
                return f"first to {_SPAWNED[message.group_id.rpartition('.')[2][0]]}"
            return f"{kind} to {message.group_id}"
        case SendOutput(output=output):
            return f"tell {output.type}"
        case CancelTimer(call_id=id):
            return f"cancel timer of {id}"
        case NotifyCancelled(call_id=id):
            return f"cancel notice for {id}"
        case NotifyClosed():
            return "close notice"
        case AnswerChoice(call_id=id, selected=selected):
            return f"answer {id} with {selected}"
        case CopyState(item=item, value=value):
            return f"{'keep' if value is not None else 'drop'} {item}"
    raise AssertionError(effect)


_SPAWNED = {"e": "an event thread", "c": "a compaction child", "t": "a child"}


def states(slice_):
    """Return the states of the calls that the slice changed."""
    return {id: str(row.state) for id, row in slice_.changed_calls.items()}


def notes(slice_):
    return [item.note for item in slice_.events if isinstance(item, Noted)]


def outputs(slice_):
    return [planned.effect.output for planned in slice_.effects if isinstance(planned.effect, SendOutput)]


def sent(slice_):
    return [planned.effect.message for planned in slice_.effects if isinstance(planned.effect, SendInput)]


def words(message):
    content = message.content
    return " ".join(part.text for part in (content.parts if isinstance(content, Parts) else (content,)))
