"""A batch of threads in one step, one thread by itself, and embedders who hold events themselves."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from infinity_agents.conversation.content import Text
from infinity_agents.conversation.events import AgentEvent, Completed, Failed, Noted, Skipped, StepFinished, Told
from infinity_agents.conversation.messages import Nudge
from infinity_agents.conversation.turn import ModelEvent
from infinity_agents.errors import ModelForbidden, Reject, StoreUnavailable
from infinity_agents.ports.model import ModelRequest
from infinity_agents.runtime import EventCollector, InMemoryDeferQueue, NoDeferral
from infinity_agents.settings import AgentSettings
from infinity_agents.testing.faults import FaultInjector
from infinity_agents.testing.scripted_model import Rule, ScriptedModel, breaks, calls, heard, says, text_of
from infinity_agents.testing.world import World
from tests.embeddings import in_memory
from tests.runtime.stepping import Trips, a_world, event, kinds, ours, person, rescript, result, states, step, texts

RULES: dict[str, Rule] = {
    "find": calls("search", {"q": "x"}),
    "watch": calls("subscribe", {}),
    "forbidden": breaks(ModelForbidden("no access")),
}


async def living(**more: object) -> World:
    return await a_world(RULES, "search", "subscribe", **more)


async def busy(**more: object) -> World:
    """Return a world whose thread has a subscription and waits for a search."""
    world = await living(**more)
    await step(world, person("watch it"))
    await step(world, result(world.server.last("subscribe"), "subscribed", subscription=True))
    await step(world, person("find it"))
    return world


def price(world: World, number: int, *, plain: bool = False) -> object:
    return event(world.server.last("subscribe"), f"price is {number}", associative=not plain)


async def told_to_model(world: World, thread_id: str = "t") -> list[str]:
    return [text_of(entry) for entry in await world.history(thread_id) if entry.kind in {"event", "user"}]


# A batch.


async def test_each_thread_of_a_batch_has_its_own_outcome() -> None:
    world = await living()
    await step(world, person("find it", "b"))
    known = person("hello", "d")
    await step(world, known)
    outcomes = await world.system.step(
        [
            person("hello", "a"),
            result(world.server.last("search"), "found", thread_id="b"),
            person("forbidden", "c"),
            known,
            person("hello again", "a"),
            ours(synthetic=Nudge(), thread_id="nobody"),
        ],
        world.events,
    )
    assert list(outcomes) == ["a", "b", "c", "d", "nobody"]
    assert [type(outcome) for outcome in outcomes.values()] == [Completed, Completed, Failed, Skipped, Skipped]
    assert await kinds(world, "a") == ["user", "user", "assistant"]


async def test_an_outcome_is_told_as_soon_as_its_thread_is_done() -> None:
    class Ordered(ScriptedModel):
        """Lets each thread speak only when those behind it in the alphabet have finished."""

        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            if request.thread_stack[0] == "a":
                await others.wait()
            async for said in super().stream(request):
                yield said

    seen: list[str] = []
    others = asyncio.Event()

    class Watching:
        def observe(self, event: AgentEvent) -> None:
            if isinstance(event, StepFinished):
                seen.append(event.thread_id)
                if len(seen) == 2:
                    others.set()

    world = await living()
    world.model = Ordered(lambda request: says("Yes."))
    await world.boot()
    outcomes = await world.system.step([person("hello", name) for name in ("a", "b", "c")], Watching())
    assert sorted(seen[:2]) == ["b", "c"]
    assert seen[2] == "a"
    assert list(outcomes) == ["a", "b", "c"]


async def test_a_store_that_fails_for_one_thread_fails_no_other() -> None:
    world = await living()
    await step(world, person("hello", "a"))
    rows = world.adapters.conversations.data.threads["a"]
    del rows.entries[0]
    await world.crashed()
    outcomes = await world.system.step([person("hello", "a"), person("hello", "b")], world.events)
    assert isinstance(outcomes["a"], Failed)
    assert isinstance(outcomes["b"], Completed)


async def test_many_threads_side_by_side_keep_to_themselves() -> None:
    world = await a_world(lambda request: says(f"<{heard(request)}>"))
    for turn in range(3):
        await world.system.step([person(f"{name} {turn}", f"t{name}") for name in range(40)], world.events)
    for name in range(40):
        entries = [text_of(entry) for entry in await world.history(f"t{name}")]
        assert entries == [said for turn in range(3) for said in (f"{name} {turn}", f"<{name} {turn}>")]


async def test_a_parent_and_its_child_in_one_batch() -> None:
    world = await living()
    await step(world, person("watch it"))
    await step(world, result(world.server.last("subscribe"), "subscribed", subscription=True))
    await step(world, price(world, 1, plain=True))
    (child,) = [item.thread.id for item in await world.adapters.conversations.threads() if item.thread.ancestors]
    outcomes = await world.system.step([person("hello", child), person("hello"), price(world, 2)], world.events)
    assert [type(outcome) for outcome in outcomes.values()] == [Completed, Completed]
    assert (await told_to_model(world, child))[-1] == "hello"


async def test_an_empty_batch_is_nothing() -> None:
    world = await living()
    assert await world.system.step([]) == {}


async def test_two_systems_of_one_process_do_not_get_in_each_others_way() -> None:
    world = await living()
    other = world.system_with(FaultInjector())
    for number in range(10):
        await (other if number % 2 else world.system).step([person(f"hello {number}")])
    assert await told_to_model(world) == [f"hello {number}" for number in range(10)]


# What is observed.


async def test_the_collector_keeps_everything_in_order() -> None:
    world = await living()
    events = EventCollector()
    await world.system.step([person("hello")], events)
    assert [type(event).__name__ for event in events.events] == ["TextStreamed", "Told", "StepFinished"]
    last = events.events[-1]
    assert isinstance(last, StepFinished)
    assert (last.thread_id, last.heard, isinstance(last.outcome, Completed)) == ("t", ("text",), True)


async def test_the_outcome_names_the_usage_of_all_rounds_and_the_window() -> None:
    world = await a_world([calls("sleep", {"seconds": 0}), says("Awake.")], window=1234)
    outcome = await step(world, person("hello"))
    assert isinstance(outcome, Completed)
    assert (outcome.usage.input, outcome.usage.output, outcome.context_window) == (20, 20, 1234)


class Clumsy:
    """An observer that breaks on everything that it sees."""

    def __init__(self) -> None:
        self.seen: list[AgentEvent] = []

    def observe(self, event: AgentEvent) -> None:
        self.seen.append(event)
        raise ZeroDivisionError("division by zero")


async def test_an_observer_that_breaks_harms_no_thread() -> None:
    world = await living()
    outcomes = await world.system.step(
        [person("hello", "a"), person("find it", "b"), person("forbidden", "c")], Clumsy()
    )
    assert [type(outcome) for outcome in outcomes.values()] == [Completed, Completed, Failed]
    assert await texts(world) == ["Understood."]
    assert len(world.server.invocations) == 1
    assert await world.adapters.state.performed_through("a") == 1


async def test_what_was_dropped_is_noted_without_what_was_said() -> None:
    world = await living()
    await step(world, person("hello"))
    await step(world, result("no such call", "a secret"))
    (note,) = [event for event in world.events.events if isinstance(event, Noted)]
    assert "no such call" in note.note
    assert "a secret" not in note.note


# One thread, and events that are held.


async def test_one_thread_is_stepped_by_itself() -> None:
    world = await living()
    thread = await world.system.thread("t")
    events = EventCollector()
    assert isinstance(await thread.step([person("hello")], events), Completed)
    assert [type(event) for event in events.events].count(Told) == 1


async def test_a_message_for_another_thread_is_not_folded_into_this_one() -> None:
    world = await living()
    thread = await world.system.thread("t")
    outcome = await thread.step([person("hello", "other")])
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, Reject)
    assert await world.adapters.conversations.threads() == []


async def test_without_a_queue_events_are_deferred_durably() -> None:
    world = await busy()
    thread = await world.system.thread("t")
    assert await thread.step([price(world, 1)]) == Skipped()
    await world.crashed()
    await step(world, result(world.server.last("search"), "found"))
    assert await told_to_model(world) == ["watch it", "find it", "price is 1"]


async def test_where_nothing_can_be_held_an_event_detaches_the_running_call() -> None:
    world = await busy()
    thread = await world.system.thread("t")
    assert isinstance(await thread.step([price(world, 1)], defer=NoDeferral()), Completed)
    assert (await states(world))["search"] == "detached"
    assert await told_to_model(world) == ["watch it", "find it", "price is 1"]
    await step(world, result(world.server.last("search"), "found"))
    assert (await told_to_model(world))[-1] == "found"


async def test_a_queue_in_memory_holds_events_until_the_result() -> None:
    world = await busy()
    thread = await world.system.thread("t")
    queue = InMemoryDeferQueue()
    before = len(world.adapters.conversations.data.threads["t"].commits)
    for number in (1, 2):
        assert await thread.step([price(world, number)], defer=queue) == Skipped()
    assert len(world.adapters.conversations.data.threads["t"].commits) == before
    await thread.step([result(world.server.last("search"), "found")], defer=queue)
    assert await told_to_model(world) == ["watch it", "find it", "price is 1", "price is 2"]
    assert (await states(world))["search"] == "answered"
    assert queue.take("t") == []


async def test_a_batch_that_is_held_whole_is_finished_too() -> None:
    world = await busy()
    events = EventCollector()
    await world.system.step([price(world, 1)], events, InMemoryDeferQueue())
    (last,) = events.events
    assert isinstance(last, StepFinished)
    assert last.outcome == Skipped()


async def test_a_persons_text_lets_held_events_go_on() -> None:
    world = await busy()
    thread = await world.system.thread("t")
    queue = InMemoryDeferQueue()
    await thread.step([price(world, 1)], defer=queue)
    await thread.step([person("lunch?")], defer=queue)
    assert sorted(await told_to_model(world)) == ["find it", "lunch?", "price is 1", "watch it"]
    assert (await states(world))["search"] == "detached"


async def test_the_halves_are_the_step() -> None:
    world = await busy()
    thread = await world.system.thread("t")
    queue = InMemoryDeferQueue()
    held, text = price(world, 1), person("lunch?")
    assert await thread.filter_deferrable([held], queue) == []
    batch = await thread.filter_deferrable([text], queue)
    assert list(batch) == [held, text]
    events = EventCollector()
    assert isinstance(await thread.step_no_defer(batch, events), Completed)
    assert isinstance(events.events[-1], StepFinished)
    assert queue.take("t") == []


async def test_with_nothing_to_hold_the_first_half_gives_everything_back() -> None:
    world = await busy()
    thread = await world.system.thread("t")
    batch = [price(world, 1)]
    assert await thread.filter_deferrable(batch, NoDeferral()) == batch


async def test_what_was_held_is_not_lost_by_a_step_that_fails() -> None:
    world = await busy()
    thread = await world.system.thread("t")
    queue = InMemoryDeferQueue()
    for number in (1, 2):
        await thread.step([price(world, number)], defer=queue)
    found = result(world.server.last("search"), "found")
    rescript(world, lambda request: breaks(ModelForbidden("no access")))
    assert isinstance(await thread.step([found], defer=queue), Failed)
    rescript(world, RULES)
    assert isinstance(await thread.step([found], defer=queue), Completed)
    assert await told_to_model(world) == ["watch it", "find it", "price is 1", "price is 2"]


async def test_what_was_held_is_not_lost_by_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await busy()
    thread = await world.system.thread("t")
    queue = InMemoryDeferQueue()
    await thread.step([price(world, 1)], defer=queue)
    store = world.adapters.conversations
    loading = store.load

    async def away(request: object) -> None:
        raise StoreUnavailable("no connection")

    monkeypatch.setattr(store, "load", away)
    found = result(world.server.last("search"), "found")
    assert isinstance(await thread.step([found], defer=queue), Failed)
    monkeypatch.setattr(store, "load", loading)
    assert isinstance(await thread.step([found], defer=queue), Completed)
    assert await told_to_model(world) == ["watch it", "find it", "price is 1"]


async def test_an_event_that_comes_twice_is_held_once_and_detaches_nothing() -> None:
    world = await busy()
    thread = await world.system.thread("t")
    queue = InMemoryDeferQueue()
    once = ours(Text("x"), message_id="the same")
    tag = price(world, 1).message.synthetic
    twice = [ours(once.message.content, message_id="the same", synthetic=tag) for _ in range(2)]
    assert await thread.step(twice, defer=queue) == Skipped()
    assert await thread.step([twice[1]], defer=queue) == Skipped()
    assert (await states(world))["search"] == "open"
    assert len(queue.take("t")) == 1


async def test_more_than_a_slice_takes_is_not_held_in_memory_with_nobody_to_wake_it() -> None:
    world = await busy(settings=AgentSettings(deliveries_per_slice=5))
    queue = InMemoryDeferQueue()
    world.defer = queue
    await step(world, *(person(f"<{number}>") for number in range(12)), defer=queue)
    assert queue.take("t") == []
    await world.settle()
    assert (await told_to_model(world))[2:] == [f"<{number}>" for number in range(12)]


async def test_a_held_event_costs_loads_and_nothing_else() -> None:
    trips = Trips()
    world = await busy(opening=trips.open_adapters(in_memory()))
    trips.forget()
    await step(world, price(world, 1), defer=InMemoryDeferQueue())
    assert trips.calls == {"conversations.load": 1, "state.performed_through": 1}
