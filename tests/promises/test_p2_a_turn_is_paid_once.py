"""P2: once the commit is through, no redelivery calls the model again for it."""

import pytest

from infinity_agents.conversation.content import Text
from infinity_agents.conversation.events import Skipped
from infinity_agents.conversation.messages import Delivery, InputMessage
from infinity_agents.testing.faults import Crash, FaultInjector
from infinity_agents.testing.scenarios import SPAWN_AND_REPORT, TOOL_CALL, Scenario
from infinity_agents.testing.scripted_model import ScriptedModel
from tests.embeddings import in_memory
from tests.promises.playing import undisturbed


@pytest.mark.parametrize("scenario", [TOOL_CALL, SPAWN_AND_REPORT], ids=lambda scenario: scenario.name)
async def test_p2_a_crash_after_the_commit_costs_no_completion(scenario: Scenario) -> None:
    _, names = await undisturbed(scenario, in_memory)
    world = await scenario.world(in_memory())
    await world.boot()
    for stage in scenario.stages:
        await stage(world)
        await world.settle()
    model = world.model
    assert isinstance(model, ScriptedModel)
    paid_undisturbed = len(model.requests)
    for number, name in enumerate(names, start=1):
        world = await scenario.world(in_memory())
        await world.boot(FaultInjector(crash_at=number))
        for stage in scenario.stages:
            await stage(world)
            try:
                await world.settle()
            except Crash:
                await world.crashed()
                await world.settle()
        model = world.model
        assert isinstance(model, ScriptedModel)
        assert len(model.requests) == paid_undisturbed + _asked_since_the_last_commit(names[:number]), name


def _asked_since_the_last_commit(passed: list[str]) -> int:
    """Return how many completions were asked for and not committed when the process died: those may be paid twice."""
    asked = 0
    for name in passed:
        if name == "after conversations.commit":
            asked = 0
        elif name == "within model.stream":
            asked += 1
    return asked


async def test_p2_a_redrive_days_later_under_a_new_queue_id_is_known() -> None:
    world = await TOOL_CALL.world(in_memory())
    await world.boot()
    message = InputMessage(Text("look it up"), "t")
    await world.system.step([Delivery(message, queue_id="first-id", dedup_id="of the sender")])
    model = world.model
    assert isinstance(model, ScriptedModel)
    assert len(model.requests) == 1
    world.clock.advance(9 * 24 * 3600)
    outcomes = await world.system.step([Delivery(message, queue_id="second-id", dedup_id="first-id")])
    assert outcomes == {"t": Skipped()}
    assert len(model.requests) == 1
    assert len(world.server.calls) == 1


async def test_p2_a_second_redrive_of_a_message_without_an_id_is_known_too() -> None:
    world = await TOOL_CALL.world(in_memory())
    await world.boot()
    world.loses_acknowledgements = True
    await world.say("t", "look it up")
    for _ in range(3):
        await world.settle()
        (letter,) = await world.adapters.inputs.dead_letters()
        world.clock.advance(24 * 3600)
        await world.adapters.inputs.redrive(letter.queue_id)
    world.loses_acknowledgements = False
    await world.settle()
    assert [entry.kind for entry in await world.history("t")] == ["user", "assistant", "tool_call"]


async def test_p2_a_message_with_its_own_id_is_known_however_it_comes_back() -> None:
    world = await TOOL_CALL.world(in_memory())
    await world.boot()
    message = InputMessage(Text("look it up"), "t", message_id="mine")
    await world.system.step([Delivery(message, queue_id="a")])
    outcomes = await world.system.step([Delivery(message, queue_id="b", dedup_id="other")])
    assert outcomes == {"t": Skipped()}


async def test_p2_the_same_message_twice_in_one_batch_is_heard_once() -> None:
    world = await TOOL_CALL.world(in_memory())
    await world.boot()
    message = InputMessage(Text("look it up"), "t", message_id="mine")
    await world.system.step([Delivery(message, queue_id="a"), Delivery(message, queue_id="b")])
    history = await world.history("t")
    assert [entry.kind for entry in history] == ["user", "assistant", "tool_call"]
