"""What arrives for a thread. The fields and their spelling are those of the wire format."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from .content import Blob, Document, Image, JsonObject, Part, Text


@dataclass(frozen=True, slots=True)
class Parts:
    """Several parts in one user turn."""

    parts: tuple[Part, ...]
    type: Literal["parts"] = "parts"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call.

    ``tool_set`` is the tool server that answered, as the receiver learnt it from the token. ``ambiguous`` is set by
    us alone: the call may have reached the tool, so a late result of it is still worth hearing.
    """

    id: str
    content: tuple[Part, ...]
    call_id: str | None = None
    is_error: bool = False
    tool_set: str | None = None
    ambiguous: bool = False
    type: Literal["tool_result"] = "tool_result"


@dataclass(frozen=True, slots=True)
class OauthRequired:
    """A tool needs its user to authorize it at ``auth_url``."""

    id: str
    auth_url: str
    call_id: str | None = None
    tool_set: str | None = None
    type: Literal["oauth_required"] = "oauth_required"


@dataclass(frozen=True, slots=True)
class UserChoiceRequired:
    """A tool asks a person to choose; ``default`` is an index, the answer goes to ``response_url``."""

    id: str
    prompt: str
    choices: tuple[str, ...]
    default: int
    response_url: str
    call_id: str | None = None
    tool_set: str | None = None
    type: Literal["user_choice_required"] = "user_choice_required"


@dataclass(frozen=True, slots=True)
class UserChoiceResponse:
    """The answer to a choice: ``selected`` is an index, or ``None`` where the question was dismissed."""

    choice_id: str
    selected: int | None = None
    user_id: str | None = None
    type: Literal["user_choice_response"] = "user_choice_response"


@dataclass(frozen=True, slots=True)
class Control:
    """An order to the thread itself: ``stop`` comes from people, ``close`` only from us."""

    action: Literal["stop", "close"]
    type: Literal["control"] = "control"


Content = (
    Text
    | Image
    | Document
    | Parts
    | ToolResult
    | OauthRequired
    | UserChoiceRequired
    | UserChoiceResponse
    | Control
    | Blob
)
UserContent = Text | Image | Document | Parts | Blob


@dataclass(frozen=True, slots=True)
class SubscriptionEvent:
    """An event of the subscription that the call ``tool_call_id`` started."""

    tool_call_id: str
    associative: bool = False
    final: bool = False
    tool_set: str | None = None
    type: Literal["subscription_event"] = "subscription_event"


@dataclass(frozen=True, slots=True)
class ThreadReport:
    """A child's report to its parent, about the parent's call that made the child."""

    tool_call_id: str
    child_thread_id: str
    type: Literal["thread_report"] = "thread_report"


@dataclass(frozen=True, slots=True)
class ParentMessage:
    """A parent's message to its child, about the parent's call that made the child."""

    tool_call_id: str
    type: Literal["parent_message"] = "parent_message"


@dataclass(frozen=True, slots=True)
class Compaction:
    """A thread's request to itself to have its oldest entries summarised."""

    type: Literal["compaction"] = "compaction"


@dataclass(frozen=True, slots=True)
class CompactionComplete:
    """The summary of all that stands before position ``up_to``, from the compaction child."""

    up_to: int
    summary: str
    child_thread_id: str
    type: Literal["compaction_complete"] = "compaction_complete"


@dataclass(frozen=True, slots=True)
class CallDeadline:
    """The time is over that a call had."""

    tool_call_id: str
    type: Literal["call_deadline"] = "call_deadline"


@dataclass(frozen=True, slots=True)
class Nudge:
    """Wakes a thread to do what is left over; says nothing."""

    type: Literal["nudge"] = "nudge"


Synthetic = SubscriptionEvent | ThreadReport | ParentMessage | Compaction | CompactionComplete | CallDeadline | Nudge


@dataclass(frozen=True, slots=True)
class InputMessage:
    """One message of the input queue.

    ``group_id`` is the thread it is for. ``subscription`` says that this tool result started a subscription.
    The proof of origin (``mac``) stays on the wire: what is left of it here is ``Delivery.proven``.
    """

    content: Content
    group_id: str
    message_id: str | None = None
    metadata: JsonObject | None = None
    synthetic: Synthetic | None = None
    display_as: tuple[JsonObject, ...] | None = None
    subscription: bool = False
    trace: JsonObject | None = None

    @property
    def user_id(self) -> str | None:
        """The end user that the message speaks for, where it says so."""
        value = (self.metadata or {}).get("user_id")
        return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as a queue handed it over.

    ``proven`` tells that one of our own functions wrote it; what people send is not. ``dedup_id`` is the queue's
    deduplication id: after a redrive from a dead-letter queue it is the queue id of the first delivery.
    ``deferred_as`` is the place among the thread's deferred messages that the message was read from.
    """

    message: InputMessage
    queue_id: str
    dedup_id: str | None = None
    proven: bool = False
    sent_at: datetime | None = None
    deferred_as: tuple[int, int] | None = None

    @property
    def thread_id(self) -> str:
        return self.message.group_id

    @property
    def identity(self) -> str:
        """The id under which the inbox remembers the message.

        What people call their messages is kept apart from what we call ours, so that nobody can make the runtime
        believe that it has already heard a result.
        """
        if self.message.message_id is None:
            return self.queue_id
        return self.message.message_id if self.proven else f"said:{self.message.message_id}"

    @property
    def known_as(self) -> tuple[str, ...]:
        """Every id under which the inbox may know the message: its own, and those of deliveries it is a redrive of.

        Whoever redrives a message that has no id of its own writes the first queue id into it. What is looked up for
        what people say may be any id: all that a wrong one can absorb is the message itself.
        """
        ids = (self.identity, self.message.message_id, self.dedup_id)
        return tuple(dict.fromkeys(each for each in ids if each is not None))

    @property
    def calls_named(self) -> tuple[str, ...]:
        """The calls that the message is about: what becomes of it depends on what the ledger says of them."""
        match self.message.synthetic:
            case SubscriptionEvent() | ThreadReport() | ParentMessage() | CallDeadline() as tag:
                return (tag.tool_call_id,)
            case _:
                pass
        match self.message.content:
            case ToolResult(id=call_id) | OauthRequired(id=call_id) | UserChoiceRequired(id=call_id):
                return (call_id,)
            case UserChoiceResponse(choice_id=call_id):
                return (call_id,)
            case _:
                return ()

    @property
    def is_personal(self) -> bool:
        """Whether a person said it: plain user content that none of our functions wrote."""
        return not self.proven and self.message.synthetic is None and isinstance(self.message.content, UserContent)
