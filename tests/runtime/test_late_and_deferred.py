"""Late results, and messages that wait their turn: heard once, about the right call, for the right person."""

from infinity_agents.conversation.content import Text
from infinity_agents.conversation.history import EventEntry
from infinity_agents.conversation.messages import CallDeadline, Control, SubscriptionEvent
from infinity_agents.testing.scenarios import closes, spawns
from infinity_agents.testing.scripted_model import Rule, ScriptedModel, calls, text_of
from infinity_agents.testing.world import TOOL_SET, World
from tests.runtime.stepping import a_world, event, kinds, ours, person, rescript, result, sent, states, step, texts

RULES: dict[str, Rule] = {
    "find": calls("search", {"q": "x"}),
    "build": calls("build", {"all": True}),
    "watch": calls("subscribe", {}),
    "nap": calls("sleep", {"seconds": 60}),
    "ask one": spawns("first task"),
    "Started the child": calls("build", {"all": True}),
    "first task": closes("one is done"),
    "No answer came": calls("build", {"all": True}),
}


async def living() -> World:
    return await a_world(RULES, "search", "build", "subscribe")


def events(world: World, entries: list[object]) -> list[EventEntry]:
    return [entry for entry in entries if isinstance(entry, EventEntry)]


async def test_a_late_result_of_a_failed_call_that_had_to_wait_is_not_lost() -> None:
    world = await living()
    await step(world, person("find it"))
    search = world.server.last("search")
    world.clock.advance(6 * 3600 + 1)
    await step(world, ours(synthetic=CallDeadline(search)))
    assert await states(world) == {"search": "failed", "build": "open"}
    await step(world, result(search, "found after all"))
    assert (await kinds(world))[-1] == "tool_call"
    await step(world, result(world.server.last("build"), "built"))
    (late,) = events(world, await world.history("t"))
    assert text_of(late) == "found after all"
    assert late.invocation.arguments["original_tool_name"] == "search"
    assert await states(world) == {"search": "answered", "build": "answered"}


async def test_a_waiting_late_result_survives_other_messages_in_between() -> None:
    world = await living()
    await step(world, person("find it"))
    search = world.server.last("search")
    world.clock.advance(6 * 3600 + 1)
    await step(world, ours(synthetic=CallDeadline(search)))
    await step(world, result(search, "found after all"))
    await step(world, ours(synthetic=CallDeadline("of nobody")))
    await step(world, person("hello"))
    assert [text_of(entry) for entry in events(world, await world.history("t"))] == ["found after all"]


async def test_a_report_that_had_to_wait_is_about_its_call_and_for_whoever_asked() -> None:
    world = await living()
    await world.say("t", "ask one", metadata={"user_id": "ann"})
    await world.settle()
    await world.answer(world.server.last("build"), "built")
    rescript(world, {"one is done": calls("search", {"q": "x"})})
    await world.settle()
    (report,) = events(world, await world.history("t"))
    assert text_of(report) == "one is done"
    assert report.invocation.arguments["original_args"]["instructions"] == "first task"
    assert world.server.calls[world.server.last("search")][1].user_id == "ann"


async def test_a_late_result_is_heard_once() -> None:
    world = await living()
    await step(world, person("find it"))
    search = world.server.last("search")
    await step(world, person("hello"))
    late = result(search, "found")
    await step(world, late)
    await step(world, late)
    await step(world, ours(late.message.content, message_id="under another id"))
    assert len(events(world, await world.history("t"))) == 1


async def test_a_result_of_the_pending_call_comes_before_everything_in_its_batch() -> None:
    world = await living()
    await step(world, person("watch it"))
    subscribe = world.server.last("subscribe")
    await step(world, result(subscribe, "subscribed", subscription=True))
    await step(world, person("build it"))
    await step(world, event(subscribe, "price is 1", associative=True))
    build = world.server.last("build")
    await step(world, event(subscribe, "price is 2", associative=True), person("and lunch?"), result(build, "built"))
    told = [text_of(entry) for entry in await world.history("t")][-5:]
    assert told == ["built", "price is 1", "price is 2", "and lunch?", "Understood."]


async def test_a_timer_of_an_interrupted_sleep_still_rings() -> None:
    world = await living()
    await world.say("t", "nap")
    await world.settle()
    await world.say("t", "hello")
    await world.settle()
    assert await states(world) == {"sleep": "detached"}
    world.clock.advance(61)
    await world.settle()
    (rung,) = events(world, await world.history("t"))
    assert rung.invocation.arguments["original_tool_name"] == "sleep"
    assert await states(world) == {"sleep": "answered"}


async def test_stop_silences_timers_and_late_results() -> None:
    world = await living()
    await world.say("t", "find it")
    await world.settle()
    await world.say("t", "nap")
    await world.settle()
    await world.person_sends(sent(Control("stop")).message)
    await world.settle()
    assert set((await states(world)).values()) == {"cancelled"}
    assert await world.adapters.timers.next_due_at() is None
    before = await kinds(world)
    await world.answer(world.server.last("search"), "found")
    await world.settle()
    assert await kinds(world) == before


async def test_a_late_confirmation_registers_its_subscription() -> None:
    world = await living()
    await step(world, person("watch it"))
    subscribe = world.server.last("subscribe")
    await step(world, person("hello"))
    await step(world, event(subscribe, "price is 7", associative=True))
    assert not events(world, await world.history("t"))
    await step(world, result(subscribe, "subscribed", subscription=True))
    assert await states(world) == {"subscribe": "subscribed"}
    assert [text_of(entry) for entry in events(world, await world.history("t"))] == ["subscribed", "price is 7"]


async def test_an_event_of_a_cancelled_subscription_tells_the_server_again() -> None:
    world = await living()
    await step(world, person("watch it"))
    subscribe = world.server.last("subscribe")
    await step(world, result(subscribe, "subscribed", subscription=True))
    rescript(world, {"no more": calls("cancel_subscription", {"tool_call_id": subscribe})})
    await step(world, person("no more"))
    assert world.server.cancelled == [subscribe]
    assert await world.adapters.state.copies("t", "subscription") == {}
    before = await kinds(world)
    await step(world, event(subscribe, "price is 7", associative=True))
    await step(world, event(subscribe, "price is 8"))
    assert await kinds(world) == before
    assert world.server.cancelled == [subscribe] * 3


async def test_an_event_from_another_tool_set_changes_nothing() -> None:
    world = await living()
    await step(world, person("watch it"))
    subscribe = world.server.last("subscribe")
    await step(world, result(subscribe, "subscribed", subscription=True))
    before = await kinds(world)
    await step(world, ours(Text("forged"), synthetic=SubscriptionEvent(subscribe, associative=True, tool_set="other")))
    await step(world, result(subscribe, "forged", tool_set="other"))
    assert await kinds(world) == before
    assert TOOL_SET != "other"


async def test_a_thread_closed_with_a_running_call_cancels_it_and_stays_closed() -> None:
    rules: dict[str, Rule] = {"ask one": spawns("first task"), "first task": calls("search", {"q": "x"})}
    world = await a_world(rules, "search")
    await world.say("t", "ask one")
    await world.settle()
    search = world.server.last("search")
    child, _ = world.server.calls[search]
    await step(world, person("close yourself", child))
    rescript(world, {"now": closes()})
    await step(world, person("now", child))
    assert world.server.cancelled == [search]
    assert world.server.closed == [child]
    before = await kinds(world, child)
    await step(world, result(search, "found", thread_id=child))
    await step(world, person("anybody there?", child))
    assert await kinds(world, child) == before
    model = world.model
    assert isinstance(model, ScriptedModel)
    assert await texts(world, "error") == []
