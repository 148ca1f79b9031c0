"""Limits: on rounds in a slice, on slices in an hour, on what one slice takes. Nothing is lost by any of them."""

from collections.abc import Callable

from infinity_agents.conversation.content import Text
from infinity_agents.conversation.messages import Control, InputMessage
from infinity_agents.ports.model import ModelRequest
from infinity_agents.settings import AgentSettings
from infinity_agents.testing.scenarios import closes, spawns
from infinity_agents.testing.scripted_model import Reply, Rule, ScriptedModel, calls, heard, says, text_of
from infinity_agents.testing.world import World
from tests.runtime.stepping import a_world, event, kinds, ours, person, rescript, result, sent, step, texts

SHORT = calls("sleep", {"seconds": 0})


def asked(world: World, thread_id: str = "t") -> list[ModelRequest]:
    model = world.model
    assert isinstance(model, ScriptedModel)
    return [request for request in model.requests if request.thread_stack[-1] == thread_id]


def read(request: ModelRequest) -> str:
    return "\n".join(text_of(entry) for entry in request.entries)


async def children(world: World) -> list[str]:
    threads = await world.adapters.conversations.threads(limit=10_000)
    return [overview.thread.id for overview in threads if overview.thread.ancestors]


async def paused(world: World, thread_id: str = "t") -> bool:
    threads = await world.adapters.conversations.threads(limit=10_000)
    return next(item.thread.paused_at is not None for item in threads if item.thread.id == thread_id)


async def deferred(world: World, thread_id: str = "t") -> int:
    threads = await world.adapters.conversations.threads(limit=10_000)
    return next(item.deferred for item in threads if item.thread.id == thread_id)


# Rounds.


async def test_a_slice_that_goes_round_and_round_pauses_with_a_notice() -> None:
    world = await a_world(lambda request: SHORT, settings=AgentSettings(rounds_per_slice=5))
    await step(world, person("loop"))
    assert len(asked(world)) == 5
    (notice,) = await texts(world, "limit_reached")
    assert "5 rounds" in notice
    assert await paused(world)


async def test_what_comes_while_paused_is_deferred_and_heard_after_the_person() -> None:
    rules: dict[str, Rule] = {
        "watch": calls("subscribe", {}),
        "loop": SHORT,
        "over already": SHORT,
        "enough": says("Sorry."),
    }
    world = await a_world(rules, "subscribe", settings=AgentSettings(rounds_per_slice=3))
    await step(world, person("watch"))
    await step(world, result(world.server.last("subscribe"), "subscribed", subscription=True))
    await step(world, person("loop"))
    await step(world, event(world.server.last("subscribe"), "price is 7", associative=True))
    await step(world, event(world.server.last("subscribe"), "price is 8"))
    assert await deferred(world) == 2
    assert asked(world)[-1].entries[-1].kind != "event"
    await step(world, person("enough"))
    assert await deferred(world) == 0
    assert not await paused(world)
    assert "price is 7" in read(asked(world)[-1])
    assert len(await children(world)) == 1
    assert "Sorry." in await texts(world)


async def test_the_person_who_starts_a_paused_thread_again_is_heard_at_once() -> None:
    rules: dict[str, Rule] = {"loop": SHORT, "over already": SHORT, "enough": says("Sorry.")}
    world = await a_world(rules, settings=AgentSettings(rounds_per_slice=3))
    await step(world, person("loop", metadata={"user_id": "ann"}))
    await step(world, person("enough", metadata={"user_id": "ann"}))
    assert len(asked(world)) == 4
    assert await texts(world) == ["Sorry."]
    assert await deferred(world) == 0


async def test_the_notice_of_a_pause_comes_once() -> None:
    world = await a_world(lambda request: SHORT, settings=AgentSettings(rounds_per_slice=2))
    await step(world, person("loop"))
    for _ in range(3):
        await step(world, ours(Text("news"), message_id=None))
    assert len(await texts(world, "limit_reached")) == 1


async def test_a_child_that_was_stopped_while_paused_does_not_go_on() -> None:
    world = await a_world(circling("go round"), settings=AgentSettings(rounds_per_slice=4))
    await world.say("t", "ask one")
    await world.settle()
    (child,) = await children(world)
    await world.person_sends(InputMessage(Control("stop"), "t"))
    await world.settle()
    before = len(asked(world, child))
    await world.say("t", "thank you")
    await world.settle()
    assert len(asked(world, child)) == before


async def test_stop_is_heard_while_paused() -> None:
    world = await a_world(lambda request: SHORT, settings=AgentSettings(rounds_per_slice=2))
    await step(world, person("loop"))
    await step(world, sent(Control("stop")))
    assert await deferred(world) == 0


def circling(words: str) -> Callable[[ModelRequest], Reply]:
    """Return a script in which a child goes round until it has done so seven times, then reports."""

    def script(request: ModelRequest) -> Reply:
        if len(request.thread_stack) == 1:
            return spawns(words)(request) if heard(request) == "ask one" else says("I see.")
        rounds = sum("over already" in text_of(entry) for entry in request.entries)
        return SHORT if rounds < 7 else closes("the child is done")(request)

    return script


async def test_a_child_that_paused_after_too_many_rounds_goes_on_once_the_person_spoke() -> None:
    world = await a_world(circling("go round"), settings=AgentSettings(rounds_per_slice=4))
    await world.say("t", "ask one")
    await world.settle()
    (child,) = await children(world)
    assert await paused(world, child)
    (notice,) = await texts(world, "limit_reached")
    assert notice.startswith(f"[{child}] ")
    await world.say("t", "go on then")
    await world.settle()
    assert "the child is done" in read(asked(world)[-1])


# Slices.


def chattering(request: ModelRequest) -> Reply:
    return says("Thanks for the news.")


async def subscribed(settings: AgentSettings) -> World:
    rules: dict[str, Rule] = {
        "watch": calls("subscribe", {}),
        "thread of your own": closes(),
    }
    world = await a_world(rules, "subscribe", settings=settings)
    await world.say("t", "watch")
    await world.settle()
    await world.answer(world.server.last("subscribe"), "subscribed", subscription=True)
    await world.settle()
    return world


async def test_a_thread_that_nobody_talks_to_pauses_after_so_many_slices() -> None:
    world = await subscribed(AgentSettings(slices_per_hour=6))
    call_id = world.server.last("subscribe")
    for number in range(9):
        await world.event(call_id, f"price is {number}", event_id=str(number), associative=True)
        await world.settle()
    # The confirming result was the first of the six.
    assert len(asked(world)) == 7
    assert len(await texts(world, "limit_reached")) == 1
    assert await deferred(world) == 4
    await world.say("t", "go on")
    await world.settle()
    assert await deferred(world) == 0
    assert [f"price is {number}" in read(asked(world)[-1]) for number in range(9)] == [True] * 9
    assert heard(asked(world)[-1]) == "go on"


async def test_event_threads_count_for_their_root() -> None:
    world = await subscribed(AgentSettings(slices_per_hour=6))
    call_id = world.server.last("subscribe")
    for number in range(9):
        await world.event(call_id, f"price is {number}", event_id=str(number))
        await world.settle()
    model = world.model
    assert isinstance(model, ScriptedModel)
    # The person's slice does not count, the confirming result's does.
    assert len(model.requests) - 1 <= 7
    assert len(await texts(world, "limit_reached")) >= 1
    await world.say("t", "go on")
    await world.settle()
    assert await deferred(world) == 0
    seen = [read(request) for request in model.requests if len(request.thread_stack) == 2]
    assert all(any(f"price is {number}" in text for text in seen) for number in range(9))


async def test_an_hour_later_the_count_begins_anew() -> None:
    world = await subscribed(AgentSettings(slices_per_hour=6))
    call_id = world.server.last("subscribe")
    for number in range(20):
        world.clock.advance(900)
        await world.event(call_id, f"price is {number}", event_id=str(number), associative=True)
        await world.settle()
    assert await texts(world, "limit_reached") == []


async def test_a_person_resets_the_count() -> None:
    world = await subscribed(AgentSettings(slices_per_hour=4))
    call_id = world.server.last("subscribe")
    for number in range(12):
        await world.event(call_id, f"price is {number}", event_id=str(number), associative=True)
        await world.settle()
        await world.say("t", "noted")
        await world.settle()
    assert await texts(world, "limit_reached") == []


async def test_two_threads_that_talk_to_each_other_are_stopped() -> None:
    def script(request: ModelRequest) -> Reply:
        child = len(request.thread_stack) == 2
        if child:
            return says("Waiting.") if "Reported." in heard(request) else calls("report_to_parent", {"report": "ping"})
        if heard(request) == "begin":
            return spawns("ping me")(request)
        if "ping" in heard(request):
            started = next(text_of(entry) for entry in request.entries if "Started the child" in text_of(entry))
            name = started.split()[-1].rstrip(".")
            return calls("send_message_to_child", {"thread_id": name, "message": "pong"})
        return says("Well.")

    world = await a_world(script, settings=AgentSettings(slices_per_hour=20))
    await world.say("t", "begin")
    await world.settle(most=400)
    slices = [commit for rows in world.adapters.conversations.data.threads.values() for commit in rows.commits.values()]
    assert sum(commit.spoke for commit in slices) <= 22
    assert await texts(world, "limit_reached")


async def test_a_paused_child_with_waiting_messages_is_woken_when_the_person_speaks_to_the_root() -> None:
    def script(request: ModelRequest) -> Reply:
        if len(request.thread_stack) == 1:
            return spawns("work")(request) if heard(request) == "begin" else says("Good.")
        return closes("worked")(request) if "found" in heard(request) else calls("search", {})

    world = await a_world(script, "search", settings=AgentSettings(slices_per_hour=1))
    await world.say("t", "begin")
    await world.settle()
    (child,) = await children(world)
    await world.answer(world.server.last("search"), "found")
    await world.settle()
    assert await paused(world, child)
    assert await deferred(world, child) == 1
    await world.say("t", "go on")
    await world.settle()
    assert await deferred(world, child) == 0
    assert heard(asked(world, child)[-1]) == "found"
    assert world.server.closed == [child]


# What one slice takes.


async def test_a_hundred_and_twenty_messages_in_one_step_are_all_heard_in_order() -> None:
    world = await a_world(lambda request: says("Yes."))
    await step(world, *(person(f"<{number}>") for number in range(120)))
    assert len(await kinds(world)) == 51
    await world.settle()
    users = [text_of(entry) for entry in await world.history("t") if entry.kind == "user"]
    assert users == [f"<{number}>" for number in range(120)]
    assert len(asked(world)) == 3
    assert await deferred(world) == 0


async def test_a_burst_of_a_thousand_events_is_handled_to_the_last_one() -> None:
    world = await subscribed(AgentSettings())
    call_id = world.server.last("subscribe")
    await step(world, *(event(call_id, f"<{number}>") for number in range(1000)))
    await world.settle(most=400)
    assert await deferred(world) == 0
    model = world.model
    assert isinstance(model, ScriptedModel)
    first = [heard(request) for request in model.requests if len(request.thread_stack) == 2]
    assert len(first) == 40
    seen = "\n".join(first)
    assert all(seen.count(f"<{number}>") == 1 for number in range(1000))
    assert await texts(world, "limit_reached") == []


async def test_a_burst_of_a_thousand_associative_events_is_handled_in_order() -> None:
    world = await subscribed(AgentSettings())
    call_id = world.server.last("subscribe")
    await step(world, *(event(call_id, f"<{number}>", associative=True) for number in range(1000)))
    await world.settle(most=400)
    told = [text_of(entry) for entry in await world.history("t") if entry.kind == "event"]
    assert told == [f"<{number}>" for number in range(1000)]
    assert await deferred(world) == 0


async def test_a_thread_does_not_wake_itself_for_what_only_a_result_can_free() -> None:
    world = await subscribed(AgentSettings())
    call_id = world.server.last("subscribe")
    rescript(world, {"busy": calls("subscribe", {})})
    await step(world, person("be busy"))
    await step(world, *(event(call_id, f"<{number}>", associative=True) for number in range(120)))
    for _ in range(20):
        if not await world.turn():
            break
    else:
        raise AssertionError("the thread keeps waking itself")
    assert await deferred(world) == 120
    await world.answer(world.server.last("subscribe"), "done")
    await world.settle()
    told = [text_of(entry) for entry in await world.history("t") if entry.kind == "event"]
    assert told == [f"<{number}>" for number in range(120)]


async def test_after_a_pause_a_person_is_heard_however_much_is_waiting() -> None:
    world = await subscribed(AgentSettings(slices_per_hour=6))
    call_id = world.server.last("subscribe")
    for number in range(5):
        await step(world, event(call_id, f"<{number}>", associative=True))
    await step(world, *(event(call_id, f"<{number}>", associative=True) for number in range(5, 180)))
    await world.settle()
    assert await paused(world)
    await world.say("t", "go on")
    await world.settle(most=400)
    users = [text_of(entry) for entry in await world.history("t") if entry.kind == "user"]
    assert users[-1] == "go on"
    assert len(await texts(world, "limit_reached")) == 1
    assert await deferred(world) == 0
    told = [text_of(entry) for entry in await world.history("t") if entry.kind == "event"]
    assert told == [f"<{number}>" for number in range(180)]


async def test_a_person_is_heard_while_a_tool_runs_however_much_is_waiting() -> None:
    world = await subscribed(AgentSettings())
    call_id = world.server.last("subscribe")
    rescript(world, {"busy": calls("subscribe", {})})
    await step(world, person("be busy"))
    waiting = [event(call_id, f"<{number}>", associative=True) for number in range(60)]
    await step(world, *waiting)
    await step(world, *(event(call_id, f"{number}") for number in range(60)), person("lunch?"))
    await world.settle()
    users = [text_of(entry) for entry in await world.history("t") if entry.kind == "user"]
    assert users[-1] == "lunch?"


def test_messages_have_their_own_ids() -> None:
    assert person("a").identity != person("a").identity
    assert isinstance(person("a").message, InputMessage)
