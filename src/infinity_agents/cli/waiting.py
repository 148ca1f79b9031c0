"""What a thread waits for, and since when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ..conversation.content import shown
from ..conversation.ledger import Call, CallState
from ..conversation.threads import Thread
from ..ports.conversations import NO_ENTRIES, LoadRequest, Snapshot
from .opening import Agent

WaitKind = Literal["slice", "person", "limit", "tool", "time", "event", "late_tool", "subscription"]


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that a thread waits for; ``until`` is when it ends by itself.

    ``slice``: messages are on the queue. ``person``: an answer or an authorization. ``limit``: a person, as the thread
    has reached a limit. ``time`` and ``event``: it sleeps. ``late_tool``: a call that runs while the thread goes on.
    """

    kind: WaitKind
    what: str
    since: datetime | None = None
    until: datetime | None = None
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ThreadState:
    """A thread, and what it waits for, the most urgent first."""

    snapshot: Snapshot
    queued: int
    waits: tuple[Wait, ...]

    @property
    def thread(self) -> Thread:
        return self.snapshot.thread

    @property
    def is_busy(self) -> bool:
        """Whether something happens soon without a person: a message is on the queue, or a tool is at work."""
        return any(wait.kind in {"slice", "tool", "late_tool"} for wait in self.waits)

    @property
    def word(self) -> str:
        """The state in one word."""
        if self.thread.closed:
            return "closed"
        if self.queued:
            return "busy"
        if self.thread.paused_at is not None:
            return "paused"
        return "waiting" if self.waits else "idle"


async def states(agent: Agent, root_id: str | None = None, *, limit: int = 1000) -> Sequence[ThreadState]:
    """Return the threads, of one root or of all, as they are; roots before children."""
    queued = await agent.queue.outstanding()
    found = []
    for overview in await agent.services.conversations.threads(root_id=root_id, limit=limit):
        request = LoadRequest(overview.thread.id, known_to=NO_ENTRIES)
        snapshot = await agent.services.conversations.load(request)
        if snapshot is not None:
            found.append(state_of(snapshot, queued))
    return found


def state_of(snapshot: Snapshot, queued: Mapping[str, int]) -> ThreadState:
    """Return what the thread waits for, as its own record and the queue tell it."""
    thread = snapshot.thread
    count = queued.get(thread.id, 0)
    if thread.closed:
        return ThreadState(snapshot, count, ())
    waits = []
    if count:
        waits.append(Wait("slice", f"{counted(count, 'message')} on the queue"))
    if thread.paused_at is not None:
        waits.append(Wait("limit", "a person: it has reached a limit", thread.paused_at))
    asked = {choice.id for choice in snapshot.choices}
    waits += [Wait("person", shown(choice.prompt), choice.asked_at, call_id=choice.id) for choice in snapshot.choices]
    waits += [_of_call(call) for call in snapshot.calls if call.id not in asked]
    return ThreadState(snapshot, count, tuple(waits))


def _of_call(call: Call) -> Wait:
    tool, reason = shown(call.tool), shown(str(call.arguments.get("reason", "")))
    if call.is_passive:
        what = reason or tool
        return Wait("time" if call.wakes_at else "event", what, call.made_at, call.wakes_at, call.id)
    if call.state is CallState.SUBSCRIBED:
        return Wait("subscription", tool, call.made_at, call_id=call.id)
    if call.deadline_at is None and call.time_left is not None:
        return Wait("person", f"your authorization for {tool}", call.made_at, call_id=call.id)
    kind: WaitKind = "tool" if call.state is CallState.OPEN else "late_tool"
    return Wait(kind, tool, call.made_at, call.deadline_at, call.id)


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return ``count`` with the word for so many."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"
