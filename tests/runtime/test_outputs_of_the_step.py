"""What people are told: with the sender's metadata, under stable ids, in an order that readers can restore."""

import asyncio

import pytest

from infinity_agents.adapters.memory import MemoryStateStore
from infinity_agents.conversation.messages import Control
from infinity_agents.conversation.outputs import Output
from infinity_agents.errors import ModelForbidden, Reject
from infinity_agents.settings import AgentSettings
from infinity_agents.testing.faults import Crash, FaultInjector
from infinity_agents.testing.scenarios import closes, spawns
from infinity_agents.testing.scripted_model import Rule, breaks, calls, says
from infinity_agents.testing.world import World
from tests.runtime.stepping import a_world, person, rescript, sent, step

SLACK = {"channel": "c-1", "user_id": "ann", "nested": {"thread": [1, 2]}}
RULES: dict[str, Rule] = {
    "find": calls("search", {"q": "x"}, text="Let me see."),
    "ask one": spawns("first task"),
    "Started the child": says("It is at work."),
    "first task": calls("search", {"q": "y"}, text="I am looking."),
    "short": calls("sleep", {"seconds": 0}, text="A nap."),
    "over already": says("Awake."),
    "silent": says(""),
}


async def outputs(world: World) -> list[Output]:
    return list((await world.outputs()).values())


async def test_metadata_come_back_as_they_were_given_on_every_output() -> None:
    world = await a_world(RULES, "search")
    await world.say("t", "find it", metadata=SLACK)
    await world.settle()
    await world.answer(world.server.last("search"), "found")
    await world.settle()
    told = await outputs(world)
    assert {output.type for output in told} == {"message", "tool_call"}
    assert [output.metadata for output in told] == [SLACK] * 3


async def test_a_childs_outputs_carry_the_roots_metadata_and_say_who_speaks() -> None:
    world = await a_world(RULES, "search")
    await world.say("t", "ask one", metadata=SLACK)
    await world.settle()
    told = [output for output in await outputs(world) if output.thread_id != "t"]
    assert [output.type for output in told] == ["message", "tool_call"]
    for output in told:
        assert output.metadata == SLACK
        assert output.group_id == "t"
        assert output.text.startswith(f"[{output.thread_id}] ")


async def test_new_metadata_replace_the_old_for_the_whole_family() -> None:
    world = await a_world(RULES, "search")
    await world.say("t", "ask one", metadata=SLACK)
    await world.settle()
    await world.say("t", "hello", metadata={"channel": "c-2"})
    await world.settle()
    rescript(world, {"found": says("It is found.")})
    await world.answer(world.server.last("search"), "found")
    await world.settle()
    assert [output.metadata for output in (await outputs(world))[-2:]] == [{"channel": "c-2"}] * 2
    assert await world.adapters.state.copies("t", "metadata") == {"t": {"channel": "c-2"}}


async def test_a_copy_that_no_store_takes_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise Reject("the metadata 't' has 500000 bytes")

    world = await a_world(RULES, "search")
    monkeypatch.setattr(MemoryStateStore, "copy", refuse)
    await world.say("t", "hello", metadata=SLACK)
    await world.settle()
    assert [output.metadata for output in await outputs(world)] == [SLACK]


async def test_a_message_without_metadata_changes_none() -> None:
    world = await a_world(RULES, "search")
    await step(world, person("hello", metadata=SLACK))
    await step(world, person("hello again"))
    assert [output.metadata for output in await outputs(world)] == [SLACK] * 2


async def test_the_place_of_each_output_is_version_and_ordinal() -> None:
    world = await a_world(RULES, "search")
    for _ in range(3):
        await step(world, person("short"))
    told = [output.seq for output in await outputs(world)]
    assert told == sorted(set(told))
    assert [version for version, _ in told] == [1, 1, 2, 2, 3, 3]
    assert len({output.output_id for output in await outputs(world)}) == 6


async def test_ids_and_places_are_the_same_after_a_crash_anywhere() -> None:
    undisturbed: list[tuple[str, tuple[int, int], str]] = []
    injector = FaultInjector()
    total, number = 1, 0
    while number <= total:
        world = await a_world(RULES, "search")
        await world.boot(injector)
        await world.say("t", "find it", metadata=SLACK)
        try:
            await world.settle()
        except Crash:
            await world.crashed()
            await world.settle()
        told = [(output.output_id, output.seq, output.text) for output in await outputs(world)]
        undisturbed = undisturbed or told
        assert told == undisturbed
        total = total if number else injector.passed
        number += 1
        injector = FaultInjector(crash_at=number)
    assert number > 10


async def test_a_turn_in_which_nothing_is_said_is_told_as_a_status() -> None:
    world = await a_world(RULES)
    await step(world, person("silent"))
    (told,) = await outputs(world)
    assert (told.type, told.text) == ("status", "")


async def test_a_childs_pause_and_its_failures_carry_metadata_and_name_too() -> None:
    world = await a_world({**RULES, "first task": breaks(ModelForbidden("no access"))}, "search")
    await world.say("t", "ask one", metadata=SLACK)
    await world.settle()
    (failed,) = [output for output in await outputs(world) if output.type == "error"]
    assert failed.thread_id != "t"
    assert failed.group_id == "t"
    assert failed.metadata == SLACK
    assert failed.text.startswith(f"[{failed.thread_id}] ")
    assert "no access" in failed.text


async def test_a_dead_letter_of_a_child_is_told_in_its_conversation() -> None:
    world = await a_world(RULES, "search")
    await world.say("t", "ask one", metadata=SLACK)
    await world.settle()
    child, _ = world.server.calls[world.server.last("search")]
    await world.post(sent(Control("close"), child).message)
    ((received,),) = await world.adapters.inputs.receive(groups=1, batch=1, visibility=5)
    await world.adapters.inputs.park(received, "it failed five times")
    before = len(await outputs(world))
    await world.sweep()
    await world.sweep()
    (told,) = (await outputs(world))[before:]
    assert (told.type, told.group_id, told.thread_id, told.metadata) == ("error", "t", child, SLACK)
    assert told.text.startswith(f"[{child}] ")
    assert "it failed five times" in told.text


async def test_the_limit_notice_carries_metadata() -> None:
    world = await a_world(lambda request: calls("sleep", {"seconds": 0}), settings=AgentSettings(rounds_per_slice=2))
    await step(world, person("loop", metadata=SLACK))
    assert [(output.type, output.metadata) for output in await outputs(world)] == [("limit_reached", SLACK)]


async def test_a_call_names_its_tool_and_arguments() -> None:
    world = await a_world(RULES, "search")
    await step(world, person("find it"))
    (call,) = [output for output in await outputs(world) if output.type == "tool_call"]
    assert call.details == {"call_id": world.server.last("search"), "tool": "search", "arguments": {"q": "x"}}


async def test_usage_of_the_slice_comes_with_what_was_said() -> None:
    world = await a_world(RULES)
    await step(world, person("short"))
    first, second = await outputs(world)
    assert (first.details or {})["usage"]["input"] == 10
    assert (second.details or {})["usage"] == {"input": 20, "output": 20, "cache_read": 0, "cache_write": 0}


async def test_a_child_acts_for_whoever_asked_its_parent() -> None:
    world = await a_world(RULES, "search")
    await world.say("t", "ask one", metadata={"user_id": "ann"})
    await world.settle()
    await world.say("t", "hello", metadata={"user_id": "bob"})
    await world.settle()
    assert world.server.calls[world.server.last("search")][1].user_id == "ann"


async def test_a_report_makes_the_parent_act_for_whoever_asked() -> None:
    rules: dict[str, Rule] = {**RULES, "first task": closes("one is done"), "one is done": calls("search", {"q": "z"})}
    world = await a_world(rules, "search")
    await world.say("t", "ask one", metadata={"user_id": "ann"})
    await world.turn()
    await world.say("t", "hello", metadata={"user_id": "bob"})
    await world.settle()
    assert world.server.calls[world.server.last("search")][1].user_id == "ann"


async def test_two_readers_of_one_conversation_never_see_one_id_for_two_things() -> None:
    world = await a_world(RULES, "search")
    for name in ("a", "b"):
        await world.say(name, "ask one")
    await world.settle()
    sent_ids = [output.output_id for output in world.adapters.outputs.sent]
    assert len(sent_ids) == len(set(sent_ids))
    assert asyncio.all_tasks() == {asyncio.current_task()}
