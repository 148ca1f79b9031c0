"""Tools that answer inside the slice, our own and others', and what happens where they break."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from infinity_agents.conversation.content import Text
from infinity_agents.conversation.effects import SendInput
from infinity_agents.conversation.events import Completed, Failed
from infinity_agents.conversation.messages import InputMessage
from infinity_agents.errors import StoreUnavailable, TellModel
from infinity_agents.ports.tool import ToolAnswer, ToolSpec
from infinity_agents.runtime import AgentSystem
from infinity_agents.testing.faults import FaultInjector
from infinity_agents.testing.scenarios import by_last_words
from infinity_agents.testing.scripted_model import Rule, ScriptedModel, calls, heard, says, text_of
from infinity_agents.testing.world import World
from tests.embeddings import in_memory
from tests.runtime.stepping import kinds, person, step, texts


@dataclass
class Homemade:
    """A synchronous tool of somebody's own; ``breaks`` names the methods that raise ``error``."""

    error: Exception = field(default_factory=lambda: ZeroDivisionError("division by zero"))
    breaks: tuple[str, ...] = ()
    answer: ToolAnswer = field(default_factory=lambda: ToolAnswer.of("four"))
    stages: bool = False
    ran: int = 0

    spec = ToolSpec("add", "Adds.", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    is_passive = False
    tool_set: str | None = None
    call_timeout: timedelta | None = None

    def _may_break(self, name: str) -> None:
        if name in self.breaks:
            raise self.error

    def display(self, arguments: Any) -> str:
        self._may_break("display")
        return f"add {arguments.get('n')}"

    def wakes_at(self, call: Any) -> datetime | None:
        self._may_break("wakes_at")
        return None

    async def execute_synchronous(self, call: Any, context: Any) -> ToolAnswer:
        self.ran += 1
        if self.stages:
            context.stage(SendInput(InputMessage(Text("staged"), "elsewhere", message_id="staged")))
        self._may_break("execute_synchronous")
        return self.answer

    async def execute(self, call: Any, context: Any) -> None:
        raise AssertionError("it has answered already")


RULES: dict[str, Rule] = {
    "sum up": calls("add", {"n": 2}),
    "four": says("It is four."),
    "ZeroDivision": says("It broke."),
}


async def adding(tool: Homemade, rules: dict[str, Rule] | None = None) -> World:
    world = World(in_memory(), ScriptedModel(by_last_words(rules or RULES)))
    await world.boot()
    services = world.services(FaultInjector())
    world.system = AgentSystem(replace(services, tools=(*services.tools, tool)))
    return world


async def test_its_answer_is_read_inside_the_slice() -> None:
    world = await adding(Homemade())
    assert isinstance(await step(world, person("sum up")), Completed)
    assert await kinds(world) == ["user", "tool_call", "tool_result", "assistant"]
    assert await texts(world) == ["It is four."]
    assert (await world.adapters.conversations.calls("t"))[0].state == "answered"


@pytest.mark.parametrize("broken", ["execute_synchronous", "wakes_at"])
async def test_whatever_it_raises_the_model_reads_as_an_error(broken: str) -> None:
    world = await adding(Homemade(breaks=(broken,)))
    assert isinstance(await step(world, person("sum up")), Completed)
    (entry,) = [entry for entry in await world.history("t") if entry.kind == "tool_result"]
    assert entry.result.is_error
    assert "division by zero" in text_of(entry)
    assert await texts(world) == ["It broke."]


async def test_a_display_that_breaks_is_no_reason_not_to_run() -> None:
    world = await adding(Homemade(breaks=("display",)))
    assert isinstance(await step(world, person("sum up")), Completed)
    assert await texts(world) == ["It is four."]


async def test_what_is_meant_for_the_model_is_told_in_its_own_words() -> None:
    tool = Homemade(error=TellModel("Say how many."), breaks=("execute_synchronous",))
    world = await adding(tool, {"sum up": calls("add", {"n": 2}), "Say how many": says("How many?")})
    await step(world, person("sum up"))
    assert await texts(world) == ["How many?"]


async def test_a_store_that_is_away_fails_the_step_and_the_next_delivery_runs_it_again() -> None:
    tool = Homemade(error=StoreUnavailable("no connection"), breaks=("execute_synchronous",))
    world = await adding(tool)
    message = person("sum up")
    assert isinstance(await step(world, message), Failed)
    assert await world.adapters.conversations.threads() == []
    tool.breaks = ()
    assert isinstance(await step(world, message), Completed)
    assert await texts(world) == ["It is four."]


async def test_arguments_that_do_not_fit_never_reach_it() -> None:
    tool = Homemade(breaks=("display",))
    world = await adding(tool, {"sum up": calls("add", {"n": "two"}), "not of type": says("I see.")})
    await step(world, person("sum up"))
    assert tool.ran == 0
    assert await texts(world) == ["I see."]


async def test_an_answer_without_content_is_still_an_answer() -> None:
    tool = Homemade(answer=ToolAnswer(()))
    world = await adding(tool, {"sum up": calls("add", {"n": 2}), "no output": says("Nothing came.")})
    await step(world, person("sum up"))
    assert await texts(world) == ["Nothing came."]


async def test_what_it_stages_happens_with_the_commit_and_once() -> None:
    tool = Homemade(stages=True)
    world = await adding(tool)
    await step(world, person("sum up"))
    ((message,),) = await world.adapters.inputs.receive(groups=5, batch=5, visibility=5)
    assert (message.group_id, message.dedup_id) == ("elsewhere", "staged")


async def test_what_it_stages_does_not_happen_without_the_commit() -> None:
    def script(request: Any) -> Any:
        return calls("add", {"n": 2}) if heard(request) == "sum up" else 1 / 0

    world = await adding(Homemade(stages=True))
    world.model._script = script
    assert isinstance(await step(world, person("sum up")), Failed)
    assert await world.adapters.inputs.receive(groups=5, batch=5, visibility=5) == []


async def test_sixteen_calls_in_one_slice_keep_the_history_valid() -> None:
    replies = [calls("add", {"n": number}) for number in range(15)]
    world = await adding(Homemade())
    world.model = ScriptedModel([*replies, says("Enough.")])
    services = world.services(FaultInjector())
    world.system = AgentSystem(replace(services, tools=(*services.tools, Homemade())))
    assert isinstance(await step(world, person("sum up")), Completed)
    assert (await kinds(world))[1:-1] == ["tool_call", "tool_result"] * 15
    ids = [call.id for call in await world.adapters.conversations.calls("t")]
    assert len(set(ids)) == 15
