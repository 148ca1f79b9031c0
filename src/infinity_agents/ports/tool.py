"""Tools: what the model can call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from ..conversation.content import JsonObject, Part, Text
from ..conversation.effects import Effect
from ..conversation.ledger import Call
from ..conversation.threads import Thread


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What the model is told of a tool. ``input_schema`` is a JSON Schema object, draft 2020-12."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """A result that is there at once."""

    content: tuple[Part, ...]
    is_error: bool = False

    @classmethod
    def of(cls, text: str) -> "ToolAnswer":
        return cls((Text(text),))

    @classmethod
    def error(cls, text: str) -> "ToolAnswer":
        return cls((Text(text),), is_error=True)


class CallContext(Protocol):
    """What a tool that is being dispatched may know and use. The turn is committed; nothing here can undo it."""

    @property
    def thread(self) -> Thread: ...

    def callback_url(self, call: Call) -> str:
        """Return the URL to which the tool's server posts: it holds a secret token for this call alone."""
        ...

    async def set_timer(self, call: Call, text: str) -> None:
        """Have ``text`` delivered as the result of ``call`` at ``call.wakes_at``."""
        ...


class SliceContext(Protocol):
    """What a synchronous tool may see and stage. What it stages happens with the commit, or not at all."""

    @property
    def thread(self) -> Thread: ...

    def stage(self, effect: Effect) -> None:
        """Have ``effect`` performed after the commit."""
        ...

    def cancel(self, call: Call) -> None:
        """Stage the end of a running call or subscription of this thread; its timer or its server is told."""
        ...

    def call(self, call_id: str) -> Call | None:
        """Return a call of this thread from which something is still expected."""
        ...

    @property
    def children(self) -> Sequence[str]:
        """The ids of the direct children that are not closed."""
        ...

    def spawn_child(self, call: Call, instructions: str) -> str:
        """Stage a child of this thread and its first message; return its id."""
        ...

    def close(self) -> None:
        """Stage the end of this thread."""
        ...

    @property
    def user_id(self) -> str | None:
        """The end user for whom this turn acts."""
        ...


class Tool(Protocol):
    """One tool.

    A tool answers in one of two ways. ``execute_synchronous`` returns an answer inside the slice. Where it returns
    ``None``, the turn is committed, ``execute`` hands the work over and returns at once, and the result arrives later
    as a message.
    """

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def is_passive(self) -> bool:
        """Whether the tool only waits: anything that arrives may interrupt it."""
        ...

    @property
    def tool_set(self) -> str | None:
        """The id of the tool set that must answer; ``None`` where we answer ourselves."""
        ...

    @property
    def call_timeout(self) -> timedelta | None:
        """How long an answer may take before it becomes an error; ``None`` for a passive tool."""
        ...

    def display(self, arguments: JsonObject) -> str:
        """Return how people see a call with these arguments, in one line."""
        ...

    def wakes_at(self, call: Call) -> datetime | None:
        """Return the moment at which a passive call is over by itself, or ``None``."""
        ...

    async def execute_synchronous(self, call: Call, context: SliceContext) -> ToolAnswer | None:
        """Answer now, or return ``None`` to be dispatched after the commit."""
        ...

    async def execute(self, call: Call, context: CallContext) -> None:
        """Hand ``call`` over and return. May be repeated with the same call.

        Raises:
            ToolRefused: the tool will never take this call.
            ToolUnreachable: it may or may not have taken it.
            Redeliver: trying again later may help.
        """
        ...


@dataclass(frozen=True, slots=True)
class Toolset:
    """The tools of a session's tool servers, and what people and logs should know of those that are missing."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class ToolServers(Protocol):
    """The tool servers of an agent, whatever protocol they speak."""

    async def load(self, session_id: str) -> Toolset:
        """Return the tools of the session (a root thread): discovered once, then from a cache.

        Raises:
            Misconfigured: the configuration itself cannot be read. A server that is down is a problem, not an error.
        """
        ...

    async def call_cancelled(self, session_id: str, thread_id: str, call_id: str, tool_set: str | None) -> None:
        """Tell the server of ``tool_set`` (all servers where it is ``None``) once, and ignore what it answers."""
        ...

    async def thread_closed(self, session_id: str, thread_id: str) -> None:
        """Tell every server once, all at the same time, and ignore what they answer."""
        ...

    async def answer_choice(self, tool_set: str | None, response_url: str, call_id: str, selected: int) -> None:
        """POST a person's answer to the server that asked.

        Raises:
            ToolRefused: the server does not take it.
            ToolUnreachable: it may or may not have taken it.
        """
        ...
