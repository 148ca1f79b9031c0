"""P7: user text is handled in the next slice even while a tool runs; only a stop or the model cancels the call."""

from infinity_agents.conversation.history import EventEntry, ToolResultEntry
from infinity_agents.conversation.ledger import CallState
from infinity_agents.conversation.messages import Control, InputMessage
from infinity_agents.settings import AgentSettings
from infinity_agents.testing.scenarios import by_last_words
from infinity_agents.testing.scripted_model import ScriptedModel, calls, says, text_of
from infinity_agents.testing.world import World
from tests.embeddings import in_memory

SCRIPT = by_last_words(
    {"build": calls("build", {"what": "all"}), "lunch": says("Noodles."), "all green": says("The build is done.")}
)


async def building(settings: AgentSettings | None = None) -> World:
    world = World(in_memory(), ScriptedModel(SCRIPT), tools=("build",), settings=settings)
    await world.boot()
    await world.say("t", "build it")
    await world.settle()
    return world


async def told(world: World) -> list[str]:
    return [output.text for output in (await world.outputs()).values() if output.type == "message"]


async def test_p7_a_question_is_answered_while_the_tool_runs_and_the_result_comes_as_an_event() -> None:
    world = await building()
    await world.say("t", "what is for lunch?")
    await world.settle()
    assert await told(world) == ["Noodles."]
    assert world.server.cancelled == []
    history = await world.history("t")
    assert [entry.kind for entry in history] == ["user", "tool_call", "tool_result", "user", "assistant"]
    assert "Still running" in text_of(history[2])
    await world.answer(world.server.last("build"), "all green")
    await world.settle()
    assert await told(world) == ["Noodles.", "The build is done."]
    event = (await world.history("t"))[-2]
    assert isinstance(event, EventEntry)
    assert event.invocation.arguments["original_tool_name"] == "build"
    assert event.tool_call_id == world.server.last("build")


async def test_p7_a_result_and_a_question_in_one_batch_need_no_detaching() -> None:
    world = await building()
    await world.say("t", "what is for lunch?")
    await world.answer(world.server.last("build"), "all green")
    await world.settle()
    history = await world.history("t")
    assert [entry.kind for entry in history] == ["user", "tool_call", "tool_result", "user", "assistant"]
    assert isinstance(history[2], ToolResultEntry)
    assert text_of(history[2]) == "all green"


async def test_p7_only_stop_cancels_and_a_late_result_is_absorbed() -> None:
    world = await building()
    await world.person_sends(InputMessage(Control("stop"), "t"))
    await world.settle()
    (call,) = await world.adapters.conversations.calls("t")
    assert call.state is CallState.CANCELLED
    assert world.server.cancelled == [call.id]
    await world.answer(call.id, "all green")
    await world.settle()
    assert await told(world) == []


async def test_p7_an_agent_may_choose_that_text_cancels() -> None:
    world = await building(AgentSettings(interrupt="cancel"))
    await world.say("t", "what is for lunch?")
    await world.settle()
    (call,) = await world.adapters.conversations.calls("t")
    assert call.state is CallState.CANCELLED
    assert world.server.cancelled == [call.id]
    assert await told(world) == ["Noodles."]
