"""The keeper: what it sees to, once, however often it looks; and what it forgets."""

from infinity_agents.conversation.content import Text
from infinity_agents.conversation.events import Skipped
from infinity_agents.conversation.messages import Delivery, InputMessage, Nudge
from infinity_agents.errors import ModelForbidden
from infinity_agents.runtime.keeper import Swept
from infinity_agents.testing.faults import Crash, FaultInjector
from infinity_agents.testing.scripted_model import Rule, breaks, calls, says, text_of
from infinity_agents.testing.world import World
from tests.runtime.stepping import a_world, kinds, ours, rescript, step, texts

DAY = 24 * 3600
RULES: dict[str, Rule] = {
    "find": calls("search", {"q": "x"}),
    "No answer came": says("It takes too long."),
    "set aside": says("It was lost."),
}


async def searching() -> World:
    world = await a_world(RULES, "search")
    await world.say("t", "find it")
    await world.settle()
    return world


async def left_behind() -> World:
    """Return a world whose process died before it performed anything, and whose message was taken off the queue."""
    world = await a_world(RULES, "search")
    await world.boot(FaultInjector(crash_at="after conversations.commit"))
    await world.say("t", "find it")
    try:
        await world.settle()
    except Crash:
        await world.adapters.inputs.delete(world.in_hand)
        world.in_hand = []
        await world.crashed()
    world.clock.advance(300)
    return world


async def test_where_there_is_nothing_to_see_to_nothing_is_done() -> None:
    world = await searching()
    assert await world.sweep() == Swept()


async def test_a_deadline_is_met_once_however_often_the_keeper_looks() -> None:
    world = await searching()
    world.clock.advance(6 * 3600 + 1)
    for _ in range(3):
        await world.sweep()
    await world.settle()
    world.clock.advance(600)
    await world.sweep()
    await world.settle()
    results = [text_of(entry) for entry in await world.history("t") if entry.kind == "tool_result"]
    assert len(results) == 1
    assert "No answer came" in results[0]
    assert await texts(world) == ["It takes too long."]


async def test_a_deadline_message_that_comes_again_much_later_is_known() -> None:
    world = await searching()
    world.clock.advance(6 * 3600 + 1)
    await world.sweep()
    ((received,),) = await world.adapters.inputs.receive(groups=1, batch=1, visibility=0)
    await world.settle()
    before = await kinds(world)
    world.clock.advance(3 * DAY)
    await world.adapters.inputs.send(received.body, group_id="t", dedup_id="again")
    await world.settle()
    assert await kinds(world) == before


async def test_effects_left_behind_are_performed_once_however_often_the_keeper_looks() -> None:
    world = await left_behind()
    assert world.server.calls == {}
    for _ in range(3):
        await world.sweep()
    await world.settle()
    assert len(world.server.invocations) == 1
    world.clock.advance(600)
    assert await world.sweep() == Swept()


async def test_effects_that_are_performed_are_only_forgotten() -> None:
    world = await searching()
    world.clock.advance(600)
    assert await world.sweep() == Swept()
    await world.settle()
    assert len(world.server.invocations) == 1
    assert world.adapters.conversations.data.threads["t"].effects == {}


async def test_a_fresh_slice_is_given_time_to_perform_what_it_decided() -> None:
    world = await left_behind()
    world.clock.advance(-300)
    assert (await world.sweep()).nudged == 0


async def test_a_nudge_to_a_thread_that_has_nothing_left_changes_nothing() -> None:
    world = await searching()
    before = await world.state()
    assert await step(world, ours(synthetic=Nudge())) == Skipped()
    assert await world.state() == before


async def test_a_dead_result_is_answered_once() -> None:
    world = await searching()
    await world.answer(world.server.last("search"), "found")
    ((received,),) = await world.adapters.inputs.receive(groups=1, batch=1, visibility=5)
    await world.adapters.inputs.park(received, "failed five times")
    assert [(await world.sweep()).dead_letters for _ in range(3)] == [1, 0, 0]
    await world.settle()
    assert await texts(world) == ["It was lost."]


async def test_a_dead_result_that_is_redriven_afterwards_comes_as_an_event_once() -> None:
    world = await searching()
    await world.answer(world.server.last("search"), "found")
    ((received,),) = await world.adapters.inputs.receive(groups=1, batch=1, visibility=5)
    await world.adapters.inputs.park(received, "failed five times")
    await world.sweep()
    await world.settle()
    before = await kinds(world)
    await world.adapters.inputs.redrive(received.queue_id)
    await world.settle()
    assert await kinds(world) == [*before, "event", "assistant"]
    await world.answer(world.server.last("search"), "found")
    await world.settle()
    assert await kinds(world) == [*before, "event", "assistant"]


async def test_a_dead_letter_is_told_once_under_the_same_id() -> None:
    world = await a_world({"hello": breaks(ModelForbidden("no access"))})
    await world.adapters.inputs.send("garbage", group_id="t", dedup_id="1")
    await world.settle()
    for _ in range(3):
        await world.sweep()
    assert len(await texts(world, "error")) == 1


async def test_the_inbox_is_kept_for_thirty_five_days() -> None:
    world = await searching()
    world.clock.advance(34 * DAY)
    assert (await world.sweep()).forgotten == 0
    world.clock.advance(2 * DAY)
    assert (await world.sweep()).forgotten == 1
    assert (await world.sweep()).forgotten == 0


async def test_a_message_from_a_month_ago_is_still_known() -> None:
    world = await a_world(RULES)
    message = InputMessage(Text("hello"), "t")
    await step(world, Delivery(message, "first"))
    world.clock.advance(34 * DAY)
    await world.sweep()
    assert await step(world, Delivery(message, "second", dedup_id="first")) == Skipped()
    assert await kinds(world) == ["user", "assistant"]


async def test_a_result_after_the_inbox_has_forgotten_it_is_still_heard_once() -> None:
    world = await searching()
    await world.answer(world.server.last("search"), "found")
    await world.settle()
    before = await kinds(world)
    world.clock.advance(40 * DAY)
    await world.sweep()
    await world.answer(world.server.last("search"), "found")
    await world.settle()
    assert await kinds(world) == before


async def test_a_paused_call_meets_its_deadline_after_the_pause() -> None:
    world = await searching()
    rescript(world, {"loop": calls("sleep", {"seconds": 0}), "over already": calls("sleep", {"seconds": 0})})
    await world.say("t", "loop")
    await world.settle()
    assert len(await texts(world, "limit_reached")) == 1
    world.clock.advance(6 * 3600 + 1)
    for _ in range(3):
        world.clock.advance(600)
        await world.sweep()
        await world.settle()
    rescript(world, RULES)
    await world.say("t", "go on")
    await world.settle()
    events = [text_of(entry) for entry in await world.history("t") if entry.kind == "event"]
    assert len(events) == 1
    assert "No answer came" in events[0]
