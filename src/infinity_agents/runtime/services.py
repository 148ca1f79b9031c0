"""What a step works with: the ports, the settings, and the run of one thread's part of a step."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from ..conversation.events import AgentEvent
from ..conversation.ledger import Call
from ..errors import Misconfigured, ToolRefused
from ..ports.blobs import BlobStore
from ..ports.clock import Clock, IdSource
from ..ports.conversations import ConversationStore
from ..ports.model import Model
from ..ports.observer import Observer
from ..ports.queues import InputSender, OutputSender
from ..ports.state import StateStore
from ..ports.timer import Timers
from ..ports.tool import Tool, ToolServers, Toolset, ToolSpec
from ..settings import AgentSettings
from ..wire.keys import Keyring
from .cancellation import Cancellation
from .known import LargeCache

_log = logging.getLogger(__name__)


class CallbackUrls(Protocol):
    """Makes the URLs to which tool servers answer."""

    def __call__(self, thread_id: str, call_id: str, tool_set: str | None) -> str:
        """Return the URL, with its secret token, to which the call's server posts."""
        ...


class NoToolServers:
    """The ``ToolServers`` of an agent that has none: all its tools run in its own process."""

    async def load(self, session_id: str) -> Toolset:
        return Toolset()

    async def call_cancelled(self, session_id: str, thread_id: str, call_id: str, tool_set: str | None) -> None:
        """Do nothing: there is nobody to tell."""

    async def thread_closed(self, session_id: str, thread_id: str) -> None:
        """Do nothing: there is nobody to tell."""

    async def answer_choice(self, tool_set: str | None, response_url: str, call_id: str, selected: int) -> None:
        raise ToolRefused(f"there is no tool server that could have asked (call {call_id})")


def no_callbacks(thread_id: str, call_id: str, tool_set: str | None) -> str:
    """Refuse to make a URL: nothing receives callbacks."""
    raise Misconfigured(
        f"thread {thread_id}, call {call_id}: the tool set {tool_set!r} asks for a callback URL, and none is configured"
    )


@dataclass(frozen=True, slots=True)
class Services:
    """Everything outside that a step needs, each by its role."""

    conversations: ConversationStore
    state: StateStore
    model: Model
    inputs: InputSender
    outputs: OutputSender
    timers: Timers
    blobs: BlobStore
    clock: Clock
    ids: IdSource
    keyring: Keyring
    tools: Sequence[Tool] = ()
    tool_servers: ToolServers = field(default_factory=NoToolServers)
    callback_urls: CallbackUrls = no_callbacks
    settings: AgentSettings = field(default_factory=AgentSettings)


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of a session, by name, and what is wrong with those that are missing."""

    tools: dict[str, Tool]
    specs: tuple[ToolSpec, ...]
    problems: tuple[str, ...]


@dataclass(slots=True)
class Run:
    """One thread's part of one step: who watches, when it must be over, and what it cost in round trips."""

    services: Services
    observer: Observer
    deadline: datetime | None = None
    cancellation: Cancellation | None = None
    large: LargeCache = field(default_factory=LargeCache)
    round_trips: Counter[str] = field(default_factory=Counter)
    _toolbox: Toolbox | None = None

    def observe(self, event: AgentEvent) -> None:
        """Let the observer see ``event``. Whoever only watches cannot make the step fail."""
        try:
            self.observer.observe(event)
        except Exception:  # noqa: BLE001 - it is somebody else's code, and only watches
            _log.exception("the observer %s failed on %s", type(self.observer).__name__, type(event).__name__)

    def trip(self, port: str) -> None:
        """Count one call to ``port``."""
        self.round_trips[port] += 1

    def time_left(self) -> float | None:
        """Return the seconds that are left until the deadline, ``None`` where there is none."""
        if self.deadline is None:
            return None
        return (self.deadline - self.services.clock.now()).total_seconds()

    async def toolbox(self, session_id: str) -> Toolbox:
        """Return the session's tools: ours, and those of its servers. A name of ours cannot be taken by a server."""
        if self._toolbox is None:
            loaded = await self.services.tool_servers.load(session_id)
            tools = {tool.spec.name: tool for tool in self.services.tools}
            problems = list(loaded.problems)
            for name, tool in loaded.tools.items():
                if name in tools:
                    problems.append(f"the tool {name!r} of {tool.tool_set} is left out: a built-in tool has that name")
                else:
                    tools[name] = tool
            self._toolbox = Toolbox(tools, tuple(tool.spec for tool in tools.values()), tuple(problems))
        return self._toolbox


def deadline_of(tool: Tool, now: datetime) -> datetime | None:
    """Return the moment at which a call of ``tool`` made ``now`` becomes an error."""
    if tool.is_passive:
        return None
    return now + (tool.call_timeout or DEFAULT_CALL_TIMEOUT)


DEFAULT_CALL_TIMEOUT = timedelta(hours=6)


def is_wanted(call: Call | None) -> bool:
    """Tell whether something is still expected of ``call``: it is neither settled nor unknown."""
    return call is not None and call.state in {"open", "detached"}
