"""Trying again, by error type, inside the time that is left."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from infinity_agents.adapters.memory import MemoryConversationStore, MemoryOutputs
from infinity_agents.conversation.events import Completed, Failed, Skipped, Told, TurnDropped
from infinity_agents.conversation.folding import COMPACTION_PROMPT
from infinity_agents.conversation.messages import Control
from infinity_agents.conversation.outputs import Output
from infinity_agents.errors import (
    ContextTooLong,
    ModelForbidden,
    ModelInterrupted,
    ModelInvalid,
    ModelOverloaded,
    ModelThrottled,
    StoreUnavailable,
)
from infinity_agents.ports.conversations import Commit
from infinity_agents.ports.model import ModelRequest
from infinity_agents.runtime import AgentSystem
from infinity_agents.settings import AgentSettings
from infinity_agents.testing.faults import FaultInjector
from infinity_agents.testing.scripted_model import Reply, ScriptedModel, breaks, calls, heard, says
from infinity_agents.testing.world import RemoteTools, World
from tests.embeddings import in_memory
from tests.runtime.stepping import a_world, kinds, person, sent, step, texts, with_adapters

PASSING = [ModelThrottled("slow down"), ModelInterrupted("cut off"), ModelOverloaded("too busy")]
LASTING = [ModelInvalid("no such field"), ModelForbidden("no access")]


def named(error: Exception) -> str:
    return type(error).__name__


def asked(world: World) -> list[ModelRequest]:
    model = world.model
    assert isinstance(model, ScriptedModel)
    return model.requests


@pytest.mark.parametrize("error", PASSING, ids=named)
async def test_what_may_pass_is_tried_again_from_clean_history(error: Exception) -> None:
    world = await a_world([breaks(error, text="Half a th"), says("A whole thought.")])
    assert isinstance(await step(world, person("hello")), Completed)
    assert await texts(world) == ["A whole thought."]
    assert await kinds(world) == ["user", "assistant"]
    first, second = asked(world)
    assert first.entries == second.entries
    assert [type(event) for event in world.events.events].count(TurnDropped) == 1
    assert len(world.clock.slept) == 1


@pytest.mark.parametrize("error", LASTING, ids=named)
async def test_what_will_not_pass_is_not_tried_again(error: Exception) -> None:
    world = await a_world([breaks(error, text="Half a th")])
    assert await step(world, person("hello")) == Failed(error)
    assert world.clock.slept == []
    assert await world.outputs() == {}
    assert await world.adapters.conversations.threads() == []


async def test_the_tries_are_bounded_and_each_waits_longer() -> None:
    error = ModelThrottled("slow down")
    world = await a_world(lambda request: breaks(error), settings=AgentSettings(model_tries=4))
    assert await step(world, person("hello")) == Failed(error)
    assert len(asked(world)) == 4
    slept = world.clock.slept
    assert len(slept) == 3
    assert slept == sorted(set(slept))


async def test_the_pauses_stay_inside_the_time_that_is_left() -> None:
    error = ModelThrottled("slow down")
    world = await a_world(lambda request: breaks(error), settings=AgentSettings(model_tries=1000))
    deadline = world.clock.now() + timedelta(seconds=30)
    assert await step(world, person("hello"), deadline=deadline) == Failed(error)
    assert world.clock.now() < deadline
    assert 0 < sum(world.clock.slept) < 30


async def test_a_later_round_is_tried_again_without_the_earlier_ones() -> None:
    world = await a_world(
        [
            calls("sleep", {"seconds": 0}, text="One moment."),
            breaks(ModelInterrupted("cut off"), text="And n"),
            says("And now."),
        ]
    )
    await step(world, person("hello"))
    assert await kinds(world) == ["user", "assistant", "tool_call", "tool_result", "assistant"]
    assert await texts(world) == ["One moment.", "And now."]


async def test_a_broken_call_leaves_nothing_behind() -> None:
    world = await a_world([Reply(text="Let me ", error=ModelInterrupted("x")), calls("search", {"q": 1})], "search")
    await step(world, person("find it"))
    assert await kinds(world) == ["user", "tool_call"]
    assert await texts(world) == []
    assert len(world.server.calls) == 1


async def test_a_summary_inside_the_slice_is_tried_again_too() -> None:
    replies = [breaks(ModelThrottled("slow down")), says("In short.")]

    def script(request: ModelRequest) -> Reply:
        if COMPACTION_PROMPT in heard(request):
            return replies.pop(0)
        return breaks(ContextTooLong("too long")) if len(request.entries) > 3 else says("Well.")

    world = await a_world(script)
    for text in ("one", "two", "three"):
        assert isinstance(await step(world, person(text)), Completed)
    assert replies == []
    assert await texts(world) == ["Well.", "Well.", "Well."]


# Stores.


class Uncertain(MemoryConversationStore):
    """Fails its first commits, ``before`` of them without effect and ``after`` of them once it has written."""

    def __init__(self, store: MemoryConversationStore, *, before: int = 0, after: int = 0) -> None:
        super().__init__(store.data)
        self.before, self.after = before, after
        self.tried: list[Commit] = []

    async def commit(self, commit: Commit) -> None:
        self.tried.append(commit)
        if self.before:
            self.before -= 1
            raise StoreUnavailable("no connection")
        await super().commit(commit)
        if self.after:
            self.after -= 1
            raise StoreUnavailable("the connection broke")


async def uncertain(**failures: int) -> tuple[World, Uncertain]:
    opening = with_adapters(in_memory(), conversations=lambda store: Uncertain(store, **failures))
    world = await a_world({"find": calls("search", {"q": "x"})}, "search", opening=opening)
    store = world.adapters.conversations
    assert isinstance(store, Uncertain)
    return world, store


@pytest.mark.parametrize("failures", [{"before": 2}, {"after": 1}, {"before": 1, "after": 1}], ids=str)
async def test_a_commit_that_may_have_failed_is_the_same_commit_again(failures: dict[str, int]) -> None:
    world, store = await uncertain(**failures)
    assert isinstance(await step(world, person("find it")), Completed)
    assert len(store.tried) > 1
    assert all(commit == store.tried[0] for commit in store.tried)
    assert len(asked(world)) == 1
    assert await kinds(world) == ["user", "tool_call"]
    assert len(world.server.invocations) == 1
    assert isinstance(await step(world, person("never mind")), Completed)
    assert await kinds(world) == ["user", "tool_call", "tool_result", "user", "assistant"]


async def test_a_commit_whose_outcome_stays_unknown_ends_in_one_copy() -> None:
    world, store = await uncertain(after=100)
    message = person("find it")
    outcome = await step(world, message)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StoreUnavailable)
    assert len(store.tried) < 10
    assert world.server.invocations == []
    store.after = 0
    assert await step(world, message) == Skipped()
    assert len(asked(world)) == 1
    assert await kinds(world) == ["user", "tool_call"]
    assert len(world.server.invocations) == 1


async def test_a_store_that_stays_away_fails_the_step_and_writes_nothing() -> None:
    world, store = await uncertain(before=100)
    message = person("find it")
    assert isinstance(await step(world, message), Failed)
    assert await store.threads() == []
    store.before = 0
    assert isinstance(await step(world, message), Completed)
    assert await kinds(world) == ["user", "tool_call"]


class Stuttering(MemoryOutputs):
    """Fails its first sends, once what was sent is there."""

    def __init__(self, outputs: MemoryOutputs, failures: int) -> None:
        super().__init__(outputs.data)
        self.failures = failures

    async def send(self, output: Output) -> None:
        await super().send(output)
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("no answer")


async def stuttering(failures: int) -> tuple[World, Any]:
    opening = with_adapters(in_memory(), outputs=lambda outputs: Stuttering(outputs, failures))
    world = await a_world({"hello": says("Hello to you.")}, opening=opening)
    return world, world.adapters.outputs


async def test_an_effect_that_fails_for_a_moment_is_done_again_at_once() -> None:
    world, _ = await stuttering(2)
    assert isinstance(await step(world, person("hello")), Completed)
    assert await texts(world) == ["Hello to you."]
    assert await world.adapters.state.performed_through("t") == 1


async def test_effects_that_cannot_be_done_now_are_done_by_the_next_delivery() -> None:
    world, outputs = await stuttering(100)
    message = person("hello")
    outcome = await step(world, message)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StoreUnavailable)
    assert await world.adapters.state.performed_through("t") == 0
    outputs.failures = 0
    assert await step(world, message) == Skipped()
    assert len(asked(world)) == 1
    assert await texts(world) == ["Hello to you."]
    assert len([event for event in world.events.events if isinstance(event, Told)]) == 1
    assert await world.adapters.state.performed_through("t") == 1


# What a tool server is told.


class Unwell(RemoteTools):
    """Tool servers whose client breaks whenever a server is to be told something."""

    async def call_cancelled(self, session_id: str, thread_id: str, call_id: str, tool_set: str | None) -> None:
        raise UnicodeError("label too long")


async def test_a_notice_that_breaks_does_not_hold_the_thread_up() -> None:
    world = await a_world({"find": calls("search", {"q": "x"})}, "search")
    services = world.services(FaultInjector())
    world.system = AgentSystem(replace(services, tool_servers=Unwell(world.tools, world.server)))
    await step(world, person("find it"))
    assert await step(world, sent(Control("stop"))) == Skipped()
    assert isinstance(await step(world, person("hello")), Completed)
    assert await texts(world) == ["Understood."]
