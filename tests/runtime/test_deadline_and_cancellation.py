"""The slice ends in time, and when it is told to; what a person can use is kept."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

from infinity_agents.conversation.events import Completed, Failed, StepOutcome
from infinity_agents.conversation.folding import COMPACTION_PROMPT
from infinity_agents.conversation.history import AssistantEntry, Reasoning
from infinity_agents.conversation.messages import Compaction, Control
from infinity_agents.conversation.turn import (
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ModelEvent,
    ReasoningDelta,
    TextDelta,
)
from infinity_agents.errors import ContextTooLong, DeadlineReached, StepCancelled
from infinity_agents.ports.model import ModelRequest
from infinity_agents.runtime import Cancellation
from infinity_agents.testing.scripted_model import Reply, ScriptedModel, breaks, heard, says, text_of
from infinity_agents.testing.world import World
from tests.runtime.stepping import a_world, kinds, ours, person, rescript, sent, step, texts


class Hanging(ScriptedModel):
    """Says what it is given and then hangs: the stream never ends. ``hangs`` tells when."""

    def __init__(self, *events: ModelEvent, when: Callable[[ModelRequest], bool] = lambda _: True) -> None:
        super().__init__(lambda request: says("Understood."))
        self.events = events
        self.when = when
        self.hangs = asyncio.Event()
        self.closed = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        if not self.when(request):
            async for event in super().stream(request):
                yield event
            return
        self.requests.append(request)
        try:
            for event in self.events:
                yield event
            self.hangs.set()
            await asyncio.Event().wait()
        finally:
            self.closed += 1


async def hanging(*events: ModelEvent, when: Callable[[ModelRequest], bool] = lambda _: True) -> tuple[World, Hanging]:
    model = Hanging(*events, when=when)
    world = await a_world([], "search")
    world.model = model
    await world.boot()
    return world, model


async def in_time(world: World, text: str = "hello") -> StepOutcome:
    """Step with so little time left that a hung stream must be stopped at once."""
    return await step(world, person(text), deadline=world.clock.now() + timedelta(seconds=1))


async def cancelled(world: World, model: Hanging, text: str = "hello") -> StepOutcome:
    """Step, and cancel once the stream hangs."""
    cancel = Cancellation()
    thread = await world.system.thread("t")
    going = asyncio.ensure_future(thread.step([person(text)], world.events, None, cancel))
    await model.hangs.wait()
    cancel.cancel()
    return await going


async def said(world: World) -> list[str]:
    return [entry.text for entry in await world.history("t") if isinstance(entry, AssistantEntry)]


# The deadline.


async def test_at_the_deadline_what_was_said_is_kept_and_told() -> None:
    world, model = await hanging(TextDelta("The first half, "), TextDelta("and a bit"))
    assert isinstance(await in_time(world), Completed)
    assert await texts(world) == ["The first half, and a bit"]
    assert await kinds(world) == ["user", "assistant"]
    assert model.closed == 1


async def test_at_the_deadline_half_a_call_and_trailing_reasoning_are_dropped() -> None:
    world, _ = await hanging(
        TextDelta("Let me look."), ReasoningDelta("which tool?"), CallStarted("search"), ArgumentsDelta('{"q": ')
    )
    assert isinstance(await in_time(world), Completed)
    assert await kinds(world) == ["user", "assistant"]
    (entry,) = [entry for entry in await world.history("t") if isinstance(entry, AssistantEntry)]
    assert not any(isinstance(block, Reasoning) for block in entry.content)
    assert world.server.calls == {}


async def test_at_the_deadline_with_nothing_said_the_step_fails_and_writes_nothing() -> None:
    world, model = await hanging(ReasoningDelta("hm"), TextDelta(" \n"))
    outcome = await in_time(world)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, DeadlineReached)
    assert await world.adapters.conversations.threads() == []
    assert await world.outputs() == {}
    assert model.closed == 1


async def test_a_stream_that_hangs_from_the_start_is_stopped() -> None:
    world, _ = await hanging()
    outcome = await in_time(world)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, DeadlineReached)


async def test_after_the_deadline_the_same_message_is_handled_by_the_next_delivery() -> None:
    world, _ = await hanging(when=lambda request: len(world.model.requests) == 0)
    message = person("hello")
    assert isinstance(await step(world, message, deadline=world.clock.now() + timedelta(seconds=1)), Failed)
    assert isinstance(await step(world, message), Completed)
    assert await kinds(world) == ["user", "assistant"]


async def test_one_thread_at_its_deadline_is_no_other_threads_concern() -> None:
    world, _ = await hanging(when=lambda request: heard(request) == "hang")
    outcomes = await world.system.step(
        [person("hang", "a"), person("hello", "b")], deadline=world.clock.now() + timedelta(seconds=1)
    )
    assert isinstance(outcomes["a"], Failed)
    assert isinstance(outcomes["b"], Completed)


async def test_without_a_deadline_in_sight_the_stream_is_heard_to_its_end() -> None:
    world = await a_world([says("A whole thought.")])
    outcome = await step(world, person("hello"), deadline=world.clock.now() + timedelta(seconds=300))
    assert isinstance(outcome, Completed)
    assert await texts(world) == ["A whole thought."]


# A summary is whole, or it is none: what it stands for can never be read again.


async def test_half_a_summary_of_a_compaction_child_is_not_taken() -> None:
    world, _ = await hanging(
        TextDelta("In short: the user's name is"), when=lambda request: COMPACTION_PROMPT in heard(request)
    )
    await step(world, person("my name is Ann, and I owe you 7"))
    await step(world, ours(synthetic=Compaction()))
    (child,) = [
        overview.thread.id for overview in await world.adapters.conversations.threads() if overview.thread.ancestors
    ]
    ((received,),) = await world.adapters.inputs.receive(groups=1, batch=1, visibility=0)
    assert received.group_id == child
    outcome = await step(world, person(COMPACTION_PROMPT, child), deadline=world.clock.now() + timedelta(seconds=1))
    assert isinstance(outcome, Failed)
    await step(world, person("what is my name?"))
    assert "my name is Ann, and I owe you 7" in [text_of(entry) for entry in world.model.requests[-1].entries]


async def test_half_a_summary_inside_the_slice_is_not_taken() -> None:
    world, _ = await hanging(
        TextDelta("In short: the user's name is"), when=lambda request: COMPACTION_PROMPT in heard(request)
    )

    def script(request: ModelRequest) -> Reply:
        return breaks(ContextTooLong("too long")) if len(request.entries) > 2 else says("Understood.")

    rescript(world, script)
    await in_time(world, "my name is Ann")
    outcome = await in_time(world, "what is my name?")
    assert isinstance(outcome, Failed)
    assert await kinds(world) == ["user", "assistant"]
    assert (await world.adapters.conversations.history("t"))[0][0] == 0
    assert world.adapters.conversations.data.threads["t"].summaries == {}


# Cancellation.


async def test_a_cancelled_stream_keeps_what_was_said_aloud() -> None:
    world, model = await hanging(
        TextDelta("So far, "), TextDelta("so good."), ReasoningDelta("but"), CallStarted("search"), ArgumentsDelta("{")
    )
    assert isinstance(await cancelled(world, model), Completed)
    assert await texts(world) == ["So far, so good."]
    assert await kinds(world) == ["user", "assistant"]
    assert await said(world) == ["So far, so good."]
    assert world.server.calls == {}
    assert model.closed == 1


async def test_reasoning_before_the_kept_text_stays() -> None:
    world, model = await hanging(
        ReasoningDelta("first"), ReasoningDelta(signature="signed"), TextDelta("Aloud."), ReasoningDelta("then")
    )
    await cancelled(world, model)
    (entry,) = [entry for entry in await world.history("t") if isinstance(entry, AssistantEntry)]
    assert [block.type for block in entry.content] == ["reasoning", "text"]


async def test_a_whole_call_of_a_cancelled_stream_is_dropped_all_the_same() -> None:
    world, model = await hanging(TextDelta("Let me look."), CallStarted("search"), ArgumentsDelta("{}"), CallFinished())
    await cancelled(world, model)
    assert await kinds(world) == ["user", "assistant"]
    assert world.server.calls == {}


async def test_cancelled_with_nothing_said_the_step_fails_and_writes_nothing() -> None:
    world, model = await hanging(ReasoningDelta("hm"))
    outcome = await cancelled(world, model)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StepCancelled)
    assert await world.adapters.conversations.threads() == []
    assert await world.outputs() == {}
    assert model.closed == 1


async def test_cancelled_before_the_stream_the_model_is_not_asked_and_the_message_is_not_lost() -> None:
    world = await a_world([says("Right on time.")])
    cancel = Cancellation()
    cancel.cancel()
    thread = await world.system.thread("t")
    message = person("hello")
    outcome = await thread.step([message], world.events, None, cancel)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StepCancelled)
    assert world.model.requests == []
    assert isinstance(await step(world, message), Completed)
    assert await texts(world) == ["Right on time."]


async def test_a_stop_behind_a_cancelled_step_leaves_the_persons_words_and_no_answer() -> None:
    world, model = await hanging(when=lambda request: len(model.requests) == 0)
    message = person("hello")
    cancel = Cancellation()
    thread = await world.system.thread("t")
    going = asyncio.ensure_future(thread.step([message], world.events, None, cancel))
    await model.hangs.wait()
    cancel.cancel()
    assert isinstance(await going, Failed)
    await step(world, message, sent(Control("stop")))
    assert await kinds(world) == ["user"]
    assert len(model.requests) == 1


async def test_cancelling_twice_and_after_the_end_is_harmless() -> None:
    world, model = await hanging(TextDelta("So far."))
    cancel = Cancellation()
    thread = await world.system.thread("t")
    going = asyncio.ensure_future(thread.step([person("hello")], world.events, None, cancel))
    await model.hangs.wait()
    cancel.cancel()
    await asyncio.sleep(0)
    cancel.cancel()
    assert isinstance(await going, Completed)
    cancel.cancel()
    assert await texts(world) == ["So far."]


async def test_the_thread_goes_on_after_a_cancelled_step() -> None:
    world, model = await hanging(TextDelta("So far."), when=lambda request: heard(request) == "hang")
    await cancelled(world, model, "hang")
    await step(world, person("hello"))
    assert await texts(world) == ["So far.", "Understood."]
    assert [text_of(entry) for entry in model.requests[-1].entries] == ["hang", "So far.", "hello"]


async def test_a_cancelled_step_performs_its_effects_and_finishes() -> None:
    world, model = await hanging(TextDelta("So far."))
    await cancelled(world, model)
    assert await world.adapters.state.performed_through("t") == 1
