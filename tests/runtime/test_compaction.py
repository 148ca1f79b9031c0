"""Compaction: a child that summarises, or a summary inside the slice; what it has swallowed is not forgotten."""

from datetime import timedelta

import pytest

from infinity_agents.conversation.events import Completed, Failed, TextStreamed
from infinity_agents.conversation.folding import COMPACTION_PROMPT
from infinity_agents.conversation.history import EventEntry
from infinity_agents.conversation.turn import Usage
from infinity_agents.errors import ContextTooLong
from infinity_agents.ports.model import ModelRequest
from infinity_agents.testing.scenarios import spawns
from infinity_agents.testing.scripted_model import Reply, Rule, ScriptedModel, breaks, calls, heard, says, text_of
from infinity_agents.testing.world import World
from tests.runtime.stepping import a_world, event, person, result, states, step, texts

FULL = Usage(input=100, cache_read=800)
WINDOW = 1000
LITTLE = Usage(input=100)


def requests(world: World, thread_id: str = "t") -> list[ModelRequest]:
    model = world.model
    assert isinstance(model, ScriptedModel)
    return [request for request in model.requests if request.thread_stack[-1] == thread_id]


def read(world: World, thread_id: str = "t") -> list[str]:
    return [text_of(entry) for entry in requests(world, thread_id)[-1].entries]


def summaries(world: World) -> list[ModelRequest]:
    model = world.model
    assert isinstance(model, ScriptedModel)
    return [request for request in model.requests if heard(request) == COMPACTION_PROMPT]


async def compacting(rules: dict[str, Rule] | None = None, *tools: str) -> World:
    script = {COMPACTION_PROMPT: says("In short: much."), "much": says("Noted.", usage=FULL), **(rules or {})}
    return await a_world(script, *tools, window=WINDOW)


async def say(world: World, text: str, thread_id: str = "t") -> None:
    await world.say(thread_id, text)
    await world.settle()


# Over three quarters of the window.


@pytest.mark.parametrize(
    ("usage", "asked"),
    [
        (Usage(input=740), 0),
        (Usage(input=760), 1),
        (Usage(input=10, cache_read=760), 1),
        (Usage(input=10, cache_write=760), 1),
    ],
)
async def test_three_quarters_of_the_window_ask_for_a_summary_and_cached_tokens_count(usage: Usage, asked: int) -> None:
    world = await compacting({"hello": says("Hello.", usage=usage)})
    await say(world, "hello")
    assert len(summaries(world)) == asked


async def test_a_summary_stands_for_what_came_before_it() -> None:
    world = await compacting()
    await say(world, "there is much to say")
    await say(world, "go on")
    assert requests(world)[-1].summary == "In short: much."
    assert read(world) == ["go on"]
    assert len(await world.history("t")) == 4
    assert await texts(world) == ["Noted.", "Understood."]


async def test_two_summaries_in_a_row_and_the_second_knows_the_first() -> None:
    world = await compacting()
    await say(world, "there is much to say")
    await say(world, "there is much more to say")
    first, second = summaries(world)
    assert first.summary is None
    assert second.summary == "In short: much."
    assert text_of(second.entries[0]) == "there is much more to say"
    await say(world, "go on")
    assert read(world) == ["go on"]
    assert len(await world.history("t")) == 6


async def test_the_thread_goes_on_while_it_is_summarised() -> None:
    world = await compacting()
    await step(world, person("there is much to say"))
    await world.turn()
    assert summaries(world) == []
    await step(world, person("go on"))
    assert read(world) == ["there is much to say", "Noted.", "go on"]
    await world.settle()
    await say(world, "and on")
    assert read(world) == ["go on", "Understood.", "and on"]


async def test_no_second_summary_is_asked_for_while_one_is_on_its_way() -> None:
    world = await compacting()
    await step(world, person("there is much to say"))
    await step(world, person("much more"))
    await world.turn()
    await step(world, person("and much more"))
    await world.settle()
    assert len(summaries(world)) == 1


async def test_after_a_summary_none_is_asked_for_before_new_usage_is_known() -> None:
    world = await compacting(
        {"watch": calls("subscribe", {}, usage=LITTLE), "subscribed": says("Good.", usage=LITTLE)}, "subscribe"
    )
    await say(world, "watch")
    await world.answer(world.server.last("subscribe"), "subscribed", subscription=True)
    await world.settle()
    await say(world, "there is much to say")
    for number in range(3):
        await world.event(world.server.last("subscribe"), "x", event_id=str(number), associative=False)
        await world.settle()
    assert len(summaries(world)) == 1


async def test_people_see_neither_the_summary_nor_the_compaction_child() -> None:
    world = await compacting()
    await say(world, "there is much to say")
    told = (await world.outputs()).values()
    assert [(output.thread_id, output.type, output.text) for output in told] == [("t", "message", "Noted.")]
    assert world.server.closed == []


async def test_a_summary_takes_no_more_than_fits_with_room_for_the_answer() -> None:
    world = await a_world(
        {COMPACTION_PROMPT: says("In short."), "enough": says("Noted.", usage=Usage(input=9000))}, window=10_000
    )
    for _ in range(12):
        await say(world, "x" * 3000)
    await say(world, "enough")
    (asked,) = summaries(world)
    characters = sum(len(text_of(entry)) for entry in asked.entries)
    assert 9000 <= characters < 10_000 * 3 * 3 / 4
    await say(world, "go on")
    assert "go on" in read(world)
    assert len(read(world)) < 25


# What a summary has swallowed.


async def test_an_event_of_a_subscription_that_a_summary_has_swallowed_still_arrives() -> None:
    world = await compacting({"watch": calls("subscribe", {"of": "x"}), "subscribed": says("Good.")}, "subscribe")
    await say(world, "watch")
    await world.answer(world.server.last("subscribe"), "subscribed", subscription=True)
    await world.settle()
    await say(world, "there is much to say")
    await step(world, event(world.server.last("subscribe"), "price is 7", associative=True))
    (entry,) = requests(world)[-1].entries
    assert isinstance(entry, EventEntry)
    assert entry.invocation.arguments["original_tool_name"] == "subscribe"
    assert entry.invocation.arguments["original_args"] == {"of": "x"}
    await step(world, event(world.server.last("subscribe"), "price is 8"))
    assert (await states(world))["subscribe"] == "subscribed"
    assert len(await world.adapters.conversations.threads()) == 3


async def test_a_late_result_of_a_call_that_a_summary_has_swallowed_still_arrives() -> None:
    world = await compacting({"find": calls("search", {"q": "x"})}, "search")
    await say(world, "find it")
    await say(world, "there is much to say")
    await step(world, person("go on"))
    assert read(world) == ["go on"]
    await step(world, result(world.server.last("search"), "found"))
    assert read(world) == ["go on", "Understood.", "found"]
    assert await states(world) == {"search": "answered"}


async def test_a_summary_that_comes_while_a_call_is_pending_leaves_the_call_in_place() -> None:
    world = await compacting({"find": calls("search", {"q": "x"})}, "search")
    await step(world, person("there is much to say"))
    await world.turn()
    await step(world, person("find it"))
    await world.settle()
    await step(world, result(world.server.last("search"), "found"))
    assert requests(world)[-1].summary == "In short: much."
    assert [entry.kind for entry in requests(world)[-1].entries] == ["user", "tool_call", "tool_result"]


# Children.


async def test_a_child_compacts_what_it_inherits_without_touching_its_ancestor() -> None:
    rules: dict[str, Rule] = {
        "ask one": spawns("look at it all"),
        "Started the child": says("It is at work.", usage=LITTLE),
        "look at it all": says("There is a lot.", usage=FULL),
        "remember": says("Yes.", usage=LITTLE),
    }
    world = await compacting(rules)
    await say(world, "remember the blue door")
    await say(world, "ask one")
    (child,) = [item.thread.id for item in await world.adapters.conversations.threads() if item.thread.kind == "child"]
    await say(world, "what now?", child)
    assert requests(world, child)[-1].summary == "In short: much."
    assert read(world, child) == ["what now?"]
    await say(world, "go on")
    assert requests(world)[-1].summary is None
    assert read(world)[0] == "remember the blue door"


async def test_a_summary_of_an_ancestor_changes_nothing_for_a_child() -> None:
    rules: dict[str, Rule] = {"ask one": spawns("look"), "Started the child": says("It is.", usage=LITTLE)}
    world = await compacting(rules)
    await say(world, "the door is blue")
    await say(world, "ask one")
    (child,) = [item.thread.id for item in await world.adapters.conversations.threads() if item.thread.ancestors]
    await say(world, "there is much to say")
    await say(world, "go on")
    assert requests(world)[-1].summary == "In short: much."
    await say(world, "what colour?", child)
    assert requests(world, child)[-1].summary is None
    assert read(world, child)[0] == "the door is blue"


# A compaction child that misbehaves.


async def test_a_compaction_child_that_calls_a_tool_is_told_off_and_may_still_answer() -> None:
    world = await compacting(
        {COMPACTION_PROMPT: calls("search", {"q": "x"}), "No tool can be called": says("In short: all right.")},
        "search",
    )
    await say(world, "there is much to say")
    await say(world, "go on")
    assert world.server.calls == {}
    assert requests(world)[-1].summary == "In short: all right."


@pytest.mark.parametrize("answer", [says(" \n"), calls("search", {"q": "x"})])
async def test_a_compaction_child_that_gives_no_summary_is_asked_again_by_the_next_completion(answer: Reply) -> None:
    world = await compacting({COMPACTION_PROMPT: answer, "No tool can be called": answer}, "search")
    await say(world, "there is much to say")
    await say(world, "go on")
    assert requests(world)[-1].summary is None
    assert read(world) == ["there is much to say", "Noted.", "go on"]
    rescripted: dict[str, Rule] = {COMPACTION_PROMPT: says("In short."), "much": says("Noted.", usage=FULL)}
    world.model = ScriptedModel(lambda request: says("Noted.", usage=FULL), window=WINDOW)
    await world.boot()
    await world.say("t", "and more")
    await world.turn()
    world.model = (await a_world(rescripted, window=WINDOW)).model
    await world.boot()
    await world.settle()
    await say(world, "and on")
    assert requests(world)[-1].summary == "In short."
    assert await texts(world, "limit_reached") == []


async def test_a_compaction_child_that_never_comes_back_is_replaced_after_an_hour() -> None:
    world = await compacting()
    await step(world, person("there is much to say"))
    await world.turn()
    # The child is there; its message is lost.
    ((message,),) = await world.adapters.inputs.receive(groups=1, batch=1, visibility=300)
    await world.adapters.inputs.park(message, "lost")
    await say(world, "and much more")
    assert summaries(world) == []
    world.clock.advance(timedelta(hours=1, minutes=1).total_seconds())
    await say(world, "and much, much more")
    assert len(summaries(world)) == 1
    await say(world, "go on")
    assert requests(world)[-1].summary == "In short: much."
    assert read(world) == ["go on"]


# Inside the slice.


def overflowing(most: int) -> object:
    def script(request: ModelRequest) -> Reply:
        if heard(request) == COMPACTION_PROMPT:
            return says("In short: much.")
        return breaks(ContextTooLong("too long")) if len(request.entries) > most else says("Well.")

    return script


async def test_what_is_too_long_is_summarised_inside_the_slice_and_tried_again() -> None:
    world = await a_world(overflowing(4))
    for text in ("one", "two", "three", "four"):
        assert isinstance(await step(world, person(text)), Completed)
    assert requests(world)[-1].summary == "In short: much."
    assert heard(requests(world)[-1]) == "four"
    assert await texts(world) == ["Well."] * 4
    assert len([entry for entry in await world.history("t") if entry.kind == "user"]) == 4


async def test_the_summary_is_not_shown_to_whoever_watches() -> None:
    world = await a_world(overflowing(2))
    for text in ("one", "two"):
        await step(world, person(text))
    streamed = [event.text for event in world.events.events if isinstance(event, TextStreamed)]
    assert streamed == ["Well.", "Well."]


async def test_it_is_tried_again_once_only() -> None:
    world = await a_world(overflowing(0))
    await world.adapters.conversations.threads()
    outcome = await step(world, person("one"), person("two"), person("three"))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ContextTooLong)
    assert len([request for request in requests(world) if heard(request) != COMPACTION_PROMPT]) <= 2
    assert len(summaries(world)) <= 1


async def test_where_nothing_is_left_to_summarise_people_are_told_so_clearly() -> None:
    world = await a_world(overflowing(0))
    await say(world, "one enormous message")
    (told,) = await texts(world, "error")
    assert "does not fit" in told
    assert len(await world.adapters.inputs.dead_letters()) == 1
    world.model = ScriptedModel(lambda request: says("Better."))
    await world.boot()
    await say(world, "a small one")
    assert await texts(world) == ["Better."]
    assert read(world) == ["a small one"]


async def test_a_summary_inside_the_slice_makes_one_on_its_way_void() -> None:
    world = await compacting()
    await step(world, person("there is much to say"))
    await world.turn()
    world.model = ScriptedModel(overflowing(2), window=WINDOW)
    await world.boot()
    await step(world, person("one"))
    assert requests(world)[-1].summary == "In short: much."
    await world.settle()
    await say(world, "two")
    assert heard(requests(world)[-1]) == "two"
    assert isinstance(world.outcomes[-1][1], Completed)


async def test_a_pending_call_is_never_cut_from_its_result() -> None:
    def script(request: ModelRequest) -> Reply:
        if heard(request) == COMPACTION_PROMPT:
            return says("In short: much.")
        if heard(request) == "find":
            return calls("search", {"q": "x"})
        return breaks(ContextTooLong("too long")) if len(request.entries) > 3 else says("Well.")

    world = await a_world(script, "search")
    await step(world, person("one"))
    await step(world, person("find"))
    await step(world, result(world.server.last("search"), "found"))
    last = requests(world)[-1]
    assert last.summary == "In short: much."
    assert [entry.kind for entry in last.entries][-2:] == ["tool_call", "tool_result"]
