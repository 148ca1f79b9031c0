"""What is new in one conversation: the thread's own entries, what its children and the runtime tell, and its state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..conversation.history import Entry
from ..conversation.outputs import Output
from ..conversation.threads import Choice
from ..ports.conversations import NO_ENTRIES, LoadRequest, Snapshot
from .opening import Agent
from .waiting import ThreadState, states

_VIEW = "infinity-chat"
"""The view of a thread that keeps how far it has been shown: the state store has it wherever the agent lives."""
_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """How far a conversation has been shown: up to the entry at ``position``, and the output at ``output``."""

    position: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True)
class News:
    """What has come since a place; ``place`` is the next one.

    ``told`` is all that people were told, with its places in the log; ``outputs`` is what of it no entry of the thread
    itself stands for. ``family`` is the thread, where there is one
    yet, and all below it. ``queued`` is how many messages wait for the thread itself.
    """

    entries: Sequence[Entry] = ()
    told: Sequence[tuple[int, Output]] = ()
    outputs: Sequence[Output] = ()
    place: Place = Place()
    family: Mapping[str, ThreadState] = field(default_factory=dict)
    queued: int = 0

    @property
    def choices(self) -> Sequence[tuple[str, Choice]]:
        """The open questions, each with the thread that it was asked in."""
        return [(name, choice) for name, state in self.family.items() for choice in state.snapshot.choices]


async def news_since(agent: Agent, thread_id: str, place: Place) -> News:
    """Return what has come in the conversation since ``place``."""
    snapshot = await agent.services.conversations.load(LoadRequest(thread_id, known_to=place.position))
    root_id = snapshot.thread.root_id if snapshot else thread_id
    family = {
        state.thread.id: state
        for state in await states(agent, root_id, limit=_AT_ONCE)
        if thread_id in state.thread.stack
    }
    outputs = await agent.outputs(after=place.output, group_id=root_id, limit=_AT_ONCE)
    told = [(number, output) for number, output in outputs if output.thread_id in {thread_id, *family}]
    entries = await _entries(agent, snapshot, place.position) if snapshot else ()
    return News(
        entries=entries,
        told=told,
        outputs=[output for _, output in told if not _is_an_entry(output, thread_id)],
        place=Place(snapshot.thread.end if snapshot else place.position, outputs[-1][0] if outputs else place.output),
        family=family,
        queued=(await agent.queue.outstanding()).get(thread_id, 0),
    )


async def _entries(agent: Agent, snapshot: Snapshot, position: int) -> Sequence[Entry]:
    """Return the thread's own entries from ``position`` on."""
    thread = snapshot.thread
    start = max(position, thread.base)
    if snapshot.entries_from <= start:
        return snapshot.entries[len(snapshot.entries) - (thread.end - start) :]
    # A summary stands for some of them; they are there all the same.
    return [entry for place, entry in await agent.services.conversations.history(thread.id) if place >= start]


def _is_an_entry(output: Output, thread_id: str) -> bool:
    return output.thread_id == thread_id and output.type in {"message", "tool_call"}


async def place_shown(agent: Agent, thread_id: str) -> Place | None:
    """Return how far the conversation was shown the last time; ``None`` where it never was."""
    kept = (await agent.services.state.views(thread_id)).get(_VIEW)
    return None if kept is None else Place(kept["position"], kept["output"])


async def keep_place(agent: Agent, thread_id: str, place: Place) -> None:
    """Remember how far the conversation has been shown."""
    content = {"position": place.position, "output": place.output}
    await agent.services.state.put_view(thread_id, _VIEW, content, agent.services.clock.now().timestamp())


async def end_of(agent: Agent, thread_id: str) -> int:
    """Return the position that the thread's next entry will have; 0 where there is no thread yet."""
    snapshot = await agent.services.conversations.load(LoadRequest(thread_id, known_to=NO_ENTRIES))
    return snapshot.thread.end if snapshot else 0
