"""What a slice sends belongs to the trace of the message that moved it."""

import json
from dataclasses import replace

from infinity_agents.conversation.content import Text
from infinity_agents.conversation.messages import CallDeadline, InputMessage
from infinity_agents.testing.scenarios import closes, spawns
from infinity_agents.testing.scripted_model import calls, says
from tests.runtime.stepping import a_world, ours, person, result, step

ONE = {"traceparent": "00-" + "1" * 32 + "-" + "a" * 16 + "-01", "tracestate": "a=1"}
TWO = {"traceparent": "00-" + "2" * 32 + "-" + "b" * 16 + "-00"}


def traced(delivery, trace):
    return replace(delivery, message=replace(delivery.message, trace=trace))


async def queued(world):
    groups = await world.adapters.inputs.receive(groups=100, batch=100, visibility=0)
    return {item.group_id: json.loads(item.body) for group in groups for item in group}


async def test_what_a_child_is_told_carries_the_last_trace_of_the_batch():
    world = await a_world({"ask one": spawns("look")})
    await step(world, person("hello", trace=ONE), person("ask one", trace=TWO), person("ask one"))
    ((child, fields),) = (await queued(world)).items()
    assert child.startswith("t.")
    assert fields["trace"] == TWO


async def test_a_report_carries_the_trace_through_the_child_back_to_its_parent():
    world = await a_world(
        {"ask one": spawns("look"), "look": closes("It is green."), "Started the child": says("Yes.")}
    )
    await world.person_sends(InputMessage(Text("ask one"), "t", trace=ONE))
    await world.turn()
    await world.turn()
    fields = (await queued(world))["t"]
    assert fields["synthetic"]["type"] == "thread_report"
    assert fields["trace"] == ONE


async def test_a_timer_carries_the_trace():
    world = await a_world({"wait": calls("sleep", {"seconds": 30})})
    await step(world, person("wait", trace=ONE))
    world.clock.advance(31)
    assert await world.adapters.timers.fire_due(world.clock.now()) == 1
    assert (await queued(world))["t"]["trace"] == ONE


async def test_the_next_slice_without_a_trace_has_none():
    world = await a_world({"hello": says("Hello."), "ask one": spawns("look")})
    await step(world, person("hello", trace=ONE))
    await step(world, person("ask one", trace={"traceparent": "00-1"}))
    ((_, fields),) = (await queued(world)).items()
    assert "trace" not in fields


async def test_what_is_done_for_a_deferred_message_belongs_to_its_own_trace():
    world = await a_world(
        {
            "find": calls("search", {"q": "x"}),
            "No answer came": calls("build", {"all": True}),
            "found after all": spawns("look"),
        },
        "search",
        "build",
    )
    await step(world, person("find it"))
    search = world.server.last("search")
    world.clock.advance(6 * 3600 + 1)
    await step(world, ours(synthetic=CallDeadline(search)))
    await step(world, traced(result(search, "found after all"), ONE))
    assert await queued(world) == {}
    await step(world, traced(result(world.server.last("build"), "built"), TWO))
    fields = next(fields for group, fields in (await queued(world)).items() if group != "t")
    assert fields["trace"] == ONE
