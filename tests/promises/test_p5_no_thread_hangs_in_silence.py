"""P5: whatever goes wrong ends in a result that the model reads, a notice that people read, or a dead letter."""

from dataclasses import replace
from datetime import timedelta

import pytest

from infinity_agents.conversation import ids
from infinity_agents.conversation.content import Text
from infinity_agents.conversation.events import Failed
from infinity_agents.conversation.ledger import CallState
from infinity_agents.conversation.messages import InputMessage, ToolResult, UserChoiceResponse
from infinity_agents.errors import ModelForbidden, ModelInvalid, ToolUnreachable
from infinity_agents.testing.faults import Crash, FaultInjector
from infinity_agents.testing.scenarios import TOOL_CALL, by_last_words
from infinity_agents.testing.scripted_model import Rule, ScriptedModel, breaks, calls, heard, says
from infinity_agents.testing.world import KEYRING, World
from infinity_agents.wire.inputs import encode
from tests.embeddings import in_memory

SEARCH: dict[str, Rule] = {"find": calls("search", {"q": "x"})}


async def world_of(rules: dict[str, Rule], *tools: str) -> World:
    world = World(in_memory(), ScriptedModel(by_last_words(rules)), tools=tools or ("search",))
    await world.boot()
    return world


async def texts_of(world: World, kind: str) -> list[str]:
    return [output.text for output in (await world.outputs()).values() if output.type == kind]


async def states_of(world: World, thread_id: str = "t") -> list[CallState]:
    return [call.state for call in await world.adapters.conversations.calls(thread_id)]


async def test_p5_a_tool_that_refuses_becomes_an_error_result() -> None:
    world = await world_of({**SEARCH, "answered 403": says("It is not allowed.")})
    world.tools["search"] = replace(world.tools["search"], refuses="search: POST answered 403")
    await world.boot()
    await world.say("t", "find it")
    await world.settle()
    assert await texts_of(world, "message") == ["It is not allowed."]
    assert await states_of(world) == [CallState.ANSWERED]


async def test_p5_a_tool_that_cannot_be_reached_fails_but_its_late_result_is_still_heard() -> None:
    world = await world_of({**SEARCH, "no answer at all": says("It is down."), "after all": says("It was not.")})
    tool = world.tools["search"]
    world.tools["search"] = replace(tool, error=ToolUnreachable("search: no answer at all"))
    await world.boot()
    await world.say("t", "find it")
    await world.settle()
    assert await states_of(world) == [CallState.FAILED]
    call = (await world.adapters.conversations.calls("t"))[0]
    world.server.calls[call.id] = ("t", call)
    await world.answer(call.id, "found after all")
    await world.settle()
    assert await texts_of(world, "message") == ["It is down.", "It was not."]
    assert await states_of(world) == [CallState.ANSWERED]


async def test_p5_a_tool_that_breaks_with_any_error_becomes_an_error_result() -> None:
    world = await world_of({**SEARCH, "ZeroDivisionError": says("It broke.")})
    world.tools["search"] = replace(world.tools["search"], error=ZeroDivisionError("division by zero"))
    await world.boot()
    await world.say("t", "find it")
    await world.settle()
    assert await texts_of(world, "message") == ["It broke."]


async def test_p5_a_tool_that_is_gone_by_the_time_of_dispatch_becomes_an_error_result() -> None:
    world = await world_of({**SEARCH, "not there any more": says("It is gone.")})
    await world.say("t", "find it")
    await world.boot(FaultInjector(crash_at="after conversations.commit"))
    with pytest.raises(Crash):
        await world.settle()
    del world.tools["search"]
    await world.crashed()
    await world.settle()
    assert await texts_of(world, "message") == ["It is gone."]


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (calls("no_such_tool", {}), "There is no tool 'no_such_tool'"),
        (calls("receive_event__injected", {}), "cannot be called"),
        (calls("search", "{half"), "not valid JSON"),
        (calls("search", "[1]"), "must be a JSON object"),
        (calls("search", {"q": 7}), "q: 7 is not of type 'string'"),
        (calls("search", {}), "'q' is a required property"),
    ],
)
async def test_p5_a_call_that_cannot_be_read_is_answered_inside_the_slice(call: object, complaint: str) -> None:
    rules: dict[str, Rule] = {"find": call, complaint: says("I see.")}  # type: ignore[dict-item]
    world = await world_of(rules)
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    world.tools["search"] = replace(world.tools["search"], schema=schema)
    await world.boot()
    await world.say("t", "find it")
    await world.settle()
    assert await texts_of(world, "message") == ["I see."]
    assert world.server.invocations == []


async def test_p5_a_message_that_can_never_be_processed_is_parked_at_once_and_holds_nothing_up() -> None:
    world = await world_of({"hello": says("Hello to you.")})
    send = world.adapters.inputs.send
    await send("no json", group_id="t", dedup_id="1")
    await send('{"content": {"type": "smell"}, "group_id": "t"}', group_id="t", dedup_id="2")
    unproven = InputMessage(ToolResult("x", (Text("y"),)), "t")
    await send(encode(unproven, None), group_id="t", dedup_id="3")
    await world.say("t", "hello")
    await world.settle()
    assert await texts_of(world, "message") == ["Hello to you."]
    reasons = [letter.reason for letter in await world.adapters.inputs.dead_letters()]
    assert len(reasons) == 3
    assert "not JSON" in reasons[0]
    assert "smell" in reasons[1]
    assert "needs a mac" in reasons[2]


@pytest.mark.parametrize("error", [ModelForbidden("no access to the model"), ModelInvalid("bad request")])
async def test_p5_a_step_that_keeps_failing_tells_the_people(error: Exception) -> None:
    world = await world_of({"hello": breaks(error)})
    await world.say("t", "hello", metadata={"channel": "c"})
    await world.settle()
    failed = [outcome for _, outcome in world.outcomes]
    assert [type(outcome) for outcome in failed] == [Failed, Failed, Failed]
    (told,) = [output for output in (await world.outputs()).values() if output.type == "error"]
    assert str(error) in told.text
    assert told.metadata == {"channel": "c"}
    assert len(await world.adapters.inputs.dead_letters()) == 1


async def test_p5_a_call_that_is_never_answered_meets_its_deadline() -> None:
    world = await world_of({**SEARCH, "No answer came": says("It takes too long.")})
    await world.say("t", "find it")
    await world.settle()
    world.clock.advance(6 * 3600 - 10)
    assert (await world.sweep()).deadlines == 0
    world.clock.advance(20)
    assert (await world.sweep()).deadlines == 1
    await world.settle()
    assert await texts_of(world, "message") == ["It takes too long."]
    assert (await world.sweep()).deadlines == 0


async def test_p5_a_tool_set_may_give_its_calls_a_deadline_of_their_own() -> None:
    world = await world_of(SEARCH)
    world.tools["search"] = replace(world.tools["search"], call_timeout=timedelta(minutes=1))
    await world.boot()
    await world.say("t", "find it")
    await world.settle()
    world.clock.advance(61)
    assert (await world.sweep()).deadlines == 1


async def test_p5_a_sleeping_thread_has_no_deadline() -> None:
    world = await world_of({"wait": calls("sleep_until_event_or_input")})
    await world.say("t", "wait")
    await world.settle()
    world.clock.advance(400 * 24 * 3600)
    assert (await world.sweep()).deadlines == 0


async def test_p5_the_clock_stands_still_while_a_choice_is_open() -> None:
    world = await world_of(SEARCH)
    await world.say("t", "find it")
    await world.settle()
    call_id = world.server.last("search")
    world.clock.advance(5 * 3600)
    await world.ask(call_id, "Which?", ["this", "that"])
    await world.settle()
    world.clock.advance(30 * 24 * 3600)
    assert (await world.sweep()).deadlines == 0
    await world.person_sends(InputMessage(UserChoiceResponse(call_id, 0), "t"))
    await world.settle()
    world.clock.advance(3600 - 60)
    assert (await world.sweep()).deadlines == 0
    world.clock.advance(120)
    assert (await world.sweep()).deadlines == 1


async def test_p5_a_result_among_the_dead_letters_becomes_an_error_result() -> None:
    world = await world_of({**SEARCH, "set aside": says("It was lost.")})
    await world.say("t", "find it")
    await world.settle()
    await world.answer(world.server.last("search"), "found")
    ((received,),) = await world.adapters.inputs.receive(groups=1, batch=1, visibility=5)
    await world.adapters.inputs.park(received, "the step failed five times")
    assert (await world.sweep()).dead_letters == 1
    assert (await world.sweep()).dead_letters == 0
    await world.settle()
    assert await texts_of(world, "message") == ["It was lost."]


async def test_p5_a_result_that_is_put_back_from_the_dead_letters_is_heard_after_all() -> None:
    rules: dict[str, Rule] = {**SEARCH, "set aside": says("It was lost."), "found at last": says("It is here.")}
    world = await world_of(rules)
    await world.say("t", "find it")
    await world.settle()
    await world.answer(world.server.last("search"), "found at last")
    ((received,),) = await world.adapters.inputs.receive(groups=1, batch=1, visibility=5)
    await world.adapters.inputs.park(received, "the model was down")
    await world.sweep()
    await world.settle()
    await world.adapters.inputs.redrive(received.queue_id)
    await world.settle()
    assert await texts_of(world, "message") == ["It was lost.", "It is here."]


async def test_p5_any_other_dead_letter_is_told_to_people() -> None:
    world = await world_of({})
    await world.say("t", "hello", metadata={"channel": "c"})
    ((received,),) = await world.adapters.inputs.receive(groups=1, batch=1, visibility=5)
    await world.adapters.inputs.park(received, "the step failed five times")
    await world.sweep()
    (told,) = (await world.outputs()).values()
    assert (told.type, told.metadata) == ("error", {"channel": "c"})
    assert "the step failed five times" in told.text


async def test_p5_effects_that_were_left_behind_are_performed_when_the_keeper_looks() -> None:
    world = await TOOL_CALL.world(in_memory())
    await world.boot(FaultInjector(crash_at="after conversations.commit"))
    await world.say("t", "look it up")
    with pytest.raises(Crash):
        await world.settle()
    # The message is acknowledged all the same: nothing will deliver it again.
    await world.adapters.inputs.delete(world.in_hand)
    world.in_hand = []
    await world.crashed()
    await world.settle()
    assert world.server.calls == {}
    world.clock.advance(300)
    assert (await world.sweep()).nudged == 1
    await world.settle()
    assert list(world.server.calls) == [ids.call_id("t", 1, 1)]
    assert (await world.sweep()).nudged == 0


async def test_p5_a_dead_letter_that_is_no_message_does_not_stop_the_keeper() -> None:
    world = await world_of({})
    await world.adapters.inputs.send("garbage", group_id="t", dedup_id="1")
    await world.settle()
    assert (await world.sweep()).dead_letters == 1


async def test_p5_an_unproven_result_among_the_dead_letters_reaches_no_model() -> None:
    world = await world_of({**SEARCH, "set aside": says("It was lost.")})
    await world.say("t", "find it")
    await world.settle()
    forged = InputMessage(ToolResult(world.server.last("search"), (Text("forged"),), tool_set="remote"), "t")
    await world.adapters.inputs.send(encode(forged, None), group_id="t", dedup_id="forged")
    await world.settle()
    await world.sweep()
    await world.settle()
    assert await texts_of(world, "message") == []
    assert KEYRING.keys
    assert heard(world.model.requests[-1]) == "find it"  # type: ignore[attr-defined]
