"""The budget of round trips per slice, counted at the adapters."""

from typing import Any

from infinity_agents.conversation.content import Text
from infinity_agents.conversation.events import Completed, Skipped
from infinity_agents.conversation.messages import Nudge
from infinity_agents.testing.scripted_model import Rule, calls, says
from infinity_agents.testing.world import World
from tests.embeddings import in_memory
from tests.runtime.stepping import Trips, a_world, event, finished, ours, person, result, step

RULES: dict[str, Rule] = {
    "find": calls("search", {"q": "x"}),
    "found": says("It is found."),
    "nap": calls("sleep", {"seconds": 60}),
    "watch": calls("subscribe", {}),
    "price": says("I see."),
    "short": calls("sleep", {"seconds": 0}),
    "over already": says("Awake."),
}
LOAD = {"conversations.load": 1, "state.performed_through": 1}
WRITE = {**LOAD, "conversations.commit": 1}
SPEAK = {**WRITE, "outputs.send": 1, "state.set_performed_through": 1}


async def counted() -> tuple[World, Trips]:
    trips = Trips()
    world = await a_world(RULES, "search", "subscribe", opening=trips.open_adapters(in_memory()))
    trips.forget()
    return world, trips


async def warm(*heard: Any) -> tuple[World, Trips]:
    """Return a world whose thread said hello, made a subscription, and heard more."""
    world, trips = await counted()
    for delivery in (person("hello"), person("watch")):
        await step(world, delivery)
    await step(world, result(world.server.last("subscribe"), "subscribed", subscription=True))
    for delivery in heard:
        await step(world, delivery)
    trips.forget()
    return world, trips


def agrees(world: World, trips: Trips, *, model: int = 0, tools: int = 0) -> None:
    """Check that what the runtime says it cost is what was counted from outside."""
    told = dict(finished(world).round_trips)
    assert told.pop("model", 0) == model
    assert told.pop("tools", 0) == tools
    assert told == trips.by_port()


async def test_a_plain_reply_costs_one_load_of_each_store_one_commit_one_output_one_finish() -> None:
    world, trips = await warm()
    assert isinstance(await step(world, person("hello again")), Completed)
    assert trips.calls == SPEAK
    agrees(world, trips, model=1)


async def test_the_first_message_of_a_thread_costs_no_more() -> None:
    world, trips = await counted()
    await step(world, person("hello"))
    assert trips.calls == SPEAK
    agrees(world, trips, model=1)


async def test_both_stores_are_asked_at_the_same_time() -> None:
    world, trips = await warm()
    await step(world, person("hello again"))
    assert frozenset({"conversations.load", "state.performed_through"}) in trips.together


async def test_a_cold_process_asks_no_more_than_a_warm_one() -> None:
    world, trips = await warm()
    await world.crashed()
    trips.forget()
    await step(world, person("hello again"))
    assert trips.calls == SPEAK


async def test_a_dispatched_call_costs_its_tool_one_call_besides() -> None:
    world, trips = await warm()
    await step(world, person("find it"))
    assert trips.calls == SPEAK
    assert world.server.invocations.count(world.server.last("search")) == 1
    agrees(world, trips, model=1, tools=1)


async def test_a_result_costs_what_a_message_costs() -> None:
    world, trips = await warm(person("find it"))
    await step(world, result(world.server.last("search"), "found"))
    assert trips.calls == SPEAK
    agrees(world, trips, model=1)


async def test_an_absorbed_duplicate_costs_the_load_alone() -> None:
    twice = person("hello again")
    world, trips = await warm(twice)
    assert await step(world, twice) == Skipped()
    assert trips.calls == LOAD
    agrees(world, trips)


async def test_a_message_that_wakes_nobody_costs_the_load_alone() -> None:
    world, trips = await counted()
    assert await step(world, ours(synthetic=Nudge())) == Skipped()
    assert trips.calls == LOAD


async def test_without_effects_there_is_no_finish() -> None:
    world, trips = await warm()
    assert await step(world, ours(synthetic=Nudge())) == Skipped()
    assert trips.calls == WRITE
    agrees(world, trips)


async def test_a_sleep_costs_one_timer_besides() -> None:
    world, trips = await warm()
    await step(world, person("nap"))
    assert trips.calls == {**SPEAK, "timers.set": 1}
    agrees(world, trips, model=1, tools=1)


async def test_a_synchronous_tool_costs_a_model_round_and_nothing_else() -> None:
    world, trips = await warm()
    await step(world, person("a short one"))
    assert trips.calls == SPEAK
    agrees(world, trips, model=2)


async def test_an_associative_event_costs_what_a_message_costs() -> None:
    world, trips = await warm()
    await step(world, event(world.server.last("subscribe"), "price is 7", associative=True))
    assert trips.calls == SPEAK
    agrees(world, trips, model=1)


async def test_plain_events_that_wait_together_cost_one_message_and_no_model() -> None:
    world, trips = await warm()
    call_id = world.server.last("subscribe")
    await step(world, *(event(call_id, f"price is {number}") for number in range(7)))
    assert trips.calls == {**WRITE, "inputs.send": 1, "state.set_performed_through": 1}
    agrees(world, trips)


async def test_ten_messages_in_one_batch_cost_what_one_costs() -> None:
    world, trips = await warm()
    await step(world, *(person(f"hello {number}") for number in range(10)))
    assert trips.calls == SPEAK
    agrees(world, trips, model=1)


async def test_a_deferred_event_costs_a_commit_and_no_effect() -> None:
    world, trips = await warm(person("find it"))
    await step(world, event(world.server.last("subscribe"), "price is 7", associative=True))
    assert trips.calls == WRITE


async def test_threads_of_one_batch_load_at_the_same_time_and_pay_for_themselves_alone() -> None:
    world, trips = await counted()
    await world.system.step([person("hello", f"t{number}") for number in range(5)], world.events)
    assert trips.calls == {name: 5 * count for name, count in SPEAK.items()}


async def test_large_values_cost_one_put_each_and_one_get_each() -> None:
    world, trips = await warm()
    await step(world, person("x" * 300_000))
    assert trips.calls == {**SPEAK, "blobs.put": 1}
    agrees(world, trips, model=1)
    trips.forget()
    await step(world, person("hello again"))
    assert {name: count for name, count in trips.calls.items() if name != "blobs.get"} == SPEAK
    assert trips.calls["blobs.get"] <= 1


async def test_a_large_value_is_fetched_once_by_a_warm_process() -> None:
    world, trips = await warm(person("x" * 300_000), person("hello again"))
    await step(world, person("and once more"))
    assert trips.calls == SPEAK
    assert isinstance(world.model.requests[-1].entries[0].content[0], Text)
    agrees(world, trips, model=1)
