"""P4: whatever arrives in whatever order, every call is followed by exactly one result before anything else speaks."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from infinity_agents.conversation.content import Text
from infinity_agents.conversation.folding import COMPACTION_PROMPT
from infinity_agents.conversation.history import faults
from infinity_agents.conversation.messages import Control, InputMessage, UserChoiceResponse
from infinity_agents.conversation.turn import Usage
from infinity_agents.errors import ContextTooLong, ModelInterrupted
from infinity_agents.ports.model import ModelRequest
from infinity_agents.testing.scripted_model import Reply, ScriptedModel, breaks, calls, heard, says
from infinity_agents.testing.world import World
from tests.embeddings import in_memory

THREADS = ("a", "b")


def unruly(request: ModelRequest) -> Reply:
    """Reply by a hash of what was heard: every kind of turn comes up, and the same request gets the same reply."""
    if COMPACTION_PROMPT in heard(request):
        return says("In short: much.")
    seen = f"{heard(request)}{len(request.entries)}{request.thread_stack}".encode()
    pick = int.from_bytes(hashlib.sha256(seen).digest()[:2]) % 14
    made = [entry.call.id for entry in request.entries if entry.kind == "tool_call"]
    last_call = made[-1] if made else "none"
    replies: list[Callable[[], Reply]] = [
        lambda: says("Well."),
        lambda: says("Much.", usage=Usage(input=900)),
        lambda: calls("search", {"q": "x"}, text="One moment."),
        lambda: calls("subscribe", {"to": "x"}),
        lambda: calls("search", "{broken"),
        lambda: calls("nobody", {}),
        lambda: calls("sleep", {"seconds": 40}),
        lambda: calls("sleep_until_event_or_input"),
        lambda: calls("spawn_thread", {"instructions": "Do it.", "child_of": list(request.thread_stack)}),
        lambda: calls("report_to_parent", {"report": "Done."}),
        lambda: calls("close_thread", {"thread_id": request.thread_stack[-1], "report_to_parent": "Over."}),
        lambda: calls("cancel_tool_call", {"tool_call_id": last_call}),
        lambda: calls("cancel_subscription", {"tool_call_id": last_call}),
        lambda: breaks(ContextTooLong("too long") if len(request.entries) > 6 else ModelInterrupted("broke")),
    ]
    return replies[pick]()


async def _answer(world: World, thread: str, number: int) -> None:
    del thread
    if world.server.calls:
        call_id = list(world.server.calls)[number % len(world.server.calls)]
        _, call = world.server.calls[call_id]
        await world.answer(call_id, f"answer {number}", subscription=call.tool == "subscribe", is_error=number % 5 == 0)


async def _event(world: World, thread: str, number: int) -> None:
    del thread
    if world.server.calls:
        call_id = list(world.server.calls)[number % len(world.server.calls)]
        await world.event(
            call_id, f"event {number}", event_id=f"{number % 7}", associative=number % 2 == 0, final=number % 11 == 0
        )


async def _ask(world: World, thread: str, number: int) -> None:
    del thread
    if world.server.calls:
        await world.ask(list(world.server.calls)[number % len(world.server.calls)], f"Which {number}?", ["x", "y"])


async def _choose(world: World, thread: str, number: int) -> None:
    call_id = list(world.server.calls)[number % len(world.server.calls)] if world.server.calls else "none"
    await world.person_sends(InputMessage(UserChoiceResponse(call_id, number % 3), thread))


async def _stop(world: World, thread: str, number: int) -> None:
    del number
    await world.person_sends(InputMessage(Control("stop"), thread))


async def _say(world: World, thread: str, number: int) -> None:
    await world.say(thread, f"words {number}")


async def _say_nothing(world: World, thread: str, number: int) -> None:
    del number
    await world.person_sends(InputMessage(Text(" \x00\n"), thread))


async def _wait(world: World, thread: str, number: int) -> None:
    del thread
    world.clock.advance(number * 11.0)


async def _wait_long(world: World, thread: str, number: int) -> None:
    del thread, number
    world.clock.advance(7 * 3600)
    await world.sweep()


async def _handle(world: World, thread: str, number: int) -> None:
    del thread
    for _ in range(number % 4 + 1):
        await world.turn()


ACTIONS: tuple[Callable[[World, str, int], Awaitable[None]], ...] = (
    _answer,
    _event,
    _ask,
    _choose,
    _stop,
    _say,
    _say_nothing,
    _wait,
    _wait_long,
    _handle,
    _handle,
    _handle,
)


SEQUENCES = st.lists(
    st.tuples(st.integers(0, len(ACTIONS) - 1), st.sampled_from(THREADS), st.integers(0, 40)), min_size=1, max_size=40
)
TOOLS = ("search", "subscribe")


def an_unruly_model() -> ScriptedModel:
    """Return a model that does everything that a model can do."""
    return ScriptedModel(unruly, window=1000)


async def live(world: World, sequence: list[tuple[int, str, int]]) -> None:
    """Have all this happen to ``world``, and see that no history was ever broken and nothing is left open."""
    await world.boot()
    for action, thread, number in sequence:
        await ACTIONS[action](world, thread, number)
    await world.say("a", "the end")
    for _ in range(150):
        if not await world.turn():
            break
    for request in world.model.requests:  # type: ignore[attr-defined] - it is a ScriptedModel
        assert not list(faults(request.entries))
    await world.state()  # It looks at every thread's own history.
    for overview in await world.adapters.conversations.threads():
        assert overview.thread.closed or overview.pending is None or overview.pending.state == "open"


@settings(max_examples=120, deadline=None)
@given(SEQUENCES)
def test_p4_history_stays_valid_whatever_comes(sequence: list[tuple[int, str, int]]) -> None:
    asyncio.run(live(World(in_memory(), an_unruly_model(), tools=TOOLS), sequence))
