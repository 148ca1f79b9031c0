"""The leader's batches: what is reported, hidden, deleted and parked, and when."""

import asyncio
import io
import json
import logging
import threading

import pytest

from infinity_agents.aws import leader
from infinity_agents.aws.leading import Leader
from infinity_agents.aws.logs import log_as_json
from infinity_agents.aws.sandbox import Sandbox
from infinity_agents.aws.telemetry import Telemetry
from infinity_agents.conversation.content import Text
from infinity_agents.conversation.events import Skipped, StepFinished
from infinity_agents.conversation.messages import InputMessage, ToolResult
from infinity_agents.errors import FenceLost, Misconfigured, ModelInvalid, StoreUnavailable
from infinity_agents.testing.scripted_model import ScriptedModel, breaks, calls, heard, says
from tests.aws.lambdas import Context, HandlerWorld, event_of
from tests.embeddings import in_memory

PATIENCE = 30.0


def echo(request):
    said = heard(request)
    return breaks(ModelInvalid("the model says no")) if "fail" in said else says(f"You said: {said}")


async def a_world(script=echo, **more):
    model = script if hasattr(script, "stream") else ScriptedModel(script)
    world = HandlerWorld(in_memory(), model, **more)
    await world.boot()
    return world


async def told(world):
    return [output.text for output in (await world.outputs()).values() if output.type == "message"]


def numbers(received):
    return [message.queue_id for message in received]


# ------------------------------------------------------------------------------------------------ partial failures


async def test_a_failed_group_returns_its_messages_and_no_other_group_is_touched():
    world = await a_world()
    for thread_id, text in (("a", "one"), ("a", "two fails"), ("b", "three")):
        await world.say(thread_id, text)
    a1, a2, b1 = await world.received()
    assert await world.invoked([a1, a2, b1]) == numbers([a1, a2])
    assert world.receipts.deleted == [[b1.queue_id]]
    assert await told(world) == ["You said: three"]


async def test_of_a_failed_group_only_what_its_thread_has_not_heard_is_returned():
    world = await a_world()
    await world.say("a", "one")
    await world.say("a", "two fails")
    await world.say("a", "three fails")
    await world.say("b", "four")
    a1, a2, a3, b1 = await world.received()
    # The first of them was handled by an invocation that nobody acknowledged.
    await world.system.step([leader_of(world)._decoded(a1)])
    assert await world.invoked([a1, a2, a3, b1]) == numbers([a2, a3])
    assert await told(world) == ["You said: one", "You said: four"]


def leader_of(world):
    return Leader(world.system, world.receipts, world.receipts, world.most, Telemetry("leader"))


async def test_a_failed_effect_returns_everything_so_that_the_next_delivery_performs_it():
    world = await a_world()
    await world.say("a", "one")
    received = await world.received()
    failing = FailingOnce(world.adapters.outputs)
    world.system.services.outputs._port = failing
    world.sandbox = Sandbox(lambda: ready(leader_of(world)))
    assert await world.invoked(received) == numbers(received)
    assert await told(world) == []
    await world.settle()
    assert await told(world) == ["You said: one"]
    assert len(world.model.requests) == 1


async def ready(value):
    return value


class FailingOnce:
    """Outputs that cannot be reached for a while: as long as one effect is tried."""

    def __init__(self, outputs):
        self.outputs = outputs
        self.left = 4

    async def send(self, output):
        self.left -= 1
        if self.left >= 0:
            raise StoreUnavailable("the output queue is away")
        await self.outputs.send(output)


async def test_where_a_message_cannot_be_parked_its_group_waits_and_others_go_on():
    world = await a_world()
    await world.adapters.inputs.send("no JSON", group_id="a", dedup_id="1")
    await world.say("a", "one")
    await world.say("b", "two")
    received = await world.received()

    async def unavailable(*_, **__):
        raise StoreUnavailable("the dead-letter queue is away")

    park, world.receipts.park = world.receipts.park, unavailable
    assert await world.invoked(received) == numbers(received[:2])
    assert await told(world) == ["You said: two"]
    world.receipts.park = park
    await world.settle()
    assert await told(world) == ["You said: two", "You said: one"]


async def test_what_cannot_be_hidden_or_deleted_is_left_to_the_queue():
    world = await a_world()
    await world.say("a", "one")
    await world.say("b", "fails")

    async def unavailable(*_, **__):
        raise StoreUnavailable("the queue is away")

    world.receipts.hide = world.receipts.delete = unavailable
    a1, b1 = await world.received()
    assert await world.invoked([a1, b1]) == [b1.queue_id]


# ---------------------------------------------------------------------------------------------------- visibility


async def test_messages_are_in_hand_as_long_as_the_invocation_lasts_and_a_little_longer():
    world = await a_world()
    await world.say("a", "one")
    await world.say("b", "two")
    received = await world.received()
    await world.invoked(received)
    ((hidden, seconds),) = world.receipts.hidden
    assert hidden == numbers(received)
    assert Context.seconds < seconds < 2 * Context.seconds


async def test_a_group_that_fails_comes_again_as_a_whole_and_later_each_time():
    world = await a_world()
    world.most = 4
    await world.say("a", "one")
    await world.say("a", "two fails")
    delays = []
    for _ in range(3):
        received = await world.received()
        assert await world.invoked(received) == numbers(received)
        hidden, seconds = world.receipts.hidden[-1]
        assert hidden == numbers(received)
        delays.append(seconds)
        world.clock.advance(seconds)
    assert delays == sorted(set(delays))
    assert delays[0] < 10


async def test_a_group_is_deleted_as_soon_as_it_is_done():
    class Waiting(ScriptedModel):
        async def stream(self, request):
            if "slow" in heard(request):
                assert await asyncio.to_thread(quick_is_deleted.wait, PATIENCE)
            async for event in super().stream(request):
                yield event

    quick_is_deleted = threading.Event()
    world = await a_world(Waiting(echo))
    delete = world.receipts.delete

    async def deleted(receipts):
        await delete(receipts)
        quick_is_deleted.set()

    world.receipts.delete = deleted
    await world.say("a", "slow")
    await world.say("b", "quick")
    a1, b1 = await world.received()
    assert await world.invoked([a1, b1]) == []
    assert world.receipts.deleted == [[b1.queue_id], [a1.queue_id]]


async def test_a_slice_that_outlives_the_invocation_is_reported_as_failed():
    class Silent(ScriptedModel):
        async def stream(self, request):
            await asyncio.Event().wait()
            yield

    world = await a_world(Silent(echo))
    world.context = Context(seconds=1.0)
    await world.say("a", "one")
    received = await world.received()
    assert await world.invoked(received) == numbers(received)
    assert (await world.adapters.conversations.threads()) == []


# --------------------------------------------------------------------------------------- parked, and the last attempt


async def test_what_can_never_be_read_is_parked_at_once_and_holds_nobody_up():
    world = await a_world()
    forged = InputMessage(ToolResult("call-1", (Text("forged"),)), "a")
    await world.adapters.inputs.send("no JSON", group_id="a", dedup_id="1")
    await world.person_sends(forged)
    await world.say("a", "one")
    received = await world.received()
    assert await world.invoked(received) == []
    reasons = [letter.reason for letter in await world.adapters.inputs.dead_letters()]
    assert "not JSON" in reasons[0]
    assert "needs a mac of ours" in reasons[1]
    assert await told(world) == ["You said: one"]


async def test_the_last_attempt_parks_the_message_and_tells_people_once():
    world = await a_world()
    await world.say("a", "it fails", metadata={"channel": "c1"})
    await world.settle()
    (letter,) = await world.adapters.inputs.dead_letters()
    assert letter.reason == "ModelInvalid: the model says no"
    assert letter.receive_count == world.most
    await world.sweep()
    (notice,) = (await world.outputs()).values()
    assert notice.type == "error"
    assert notice.metadata == {"channel": "c1"}
    assert "the model says no" in notice.text


async def test_a_result_that_is_parked_is_answered_by_the_keeper():
    def script(request):
        last = heard(request)
        if last == "go":
            return calls("search")
        return says("So it goes.") if "set aside" in last else breaks(ModelInvalid("the model says no"))

    world = await a_world(script, tools=["search"])
    await world.say("a", "go")
    await world.settle()
    await world.answer(world.server.last("search"), "found")
    await world.settle()
    (letter,) = await world.adapters.inputs.dead_letters()
    assert not letter.noticed
    await world.sweep()
    await world.settle()
    assert "So it goes." in await told(world)


async def test_where_people_cannot_be_told_the_message_is_left_for_the_queue_to_park():
    world = await a_world()
    world.most = 1
    await world.say("a", "it fails")

    async def unavailable(_):
        raise StoreUnavailable("the output queue is away")

    world.adapters.outputs.send = unavailable
    world.sandbox = Sandbox(lambda: ready(leader_of(world)))
    received = await world.received()
    assert await world.invoked(received) == numbers(received)
    assert await world.adapters.inputs.dead_letters() == []


# ------------------------------------------------------------------------------------------- repeats and overlaps


async def test_the_same_event_twice_is_one_slice():
    world = await a_world()
    await world.say("a", "one")
    received = await world.received()
    assert await world.invoked(received) == []
    assert await world.invoked(received) == []
    assert len(world.model.requests) == 1
    assert await told(world) == ["You said: one"]


async def test_p3_of_two_leaders_on_one_thread_one_commits_and_the_other_reports_failure():
    class Stalled(ScriptedModel):
        has_stalled, goes_on = threading.Event(), threading.Event()

        async def stream(self, request):
            if not self.has_stalled.is_set():
                self.has_stalled.set()
                assert await asyncio.to_thread(self.goes_on.wait, PATIENCE)
            async for event in super().stream(request):
                yield event

    model = Stalled(echo)
    world = await a_world(model)
    await world.say("a", "one")
    received = await world.received()
    stalled = asyncio.create_task(world.invoked(received))
    assert await asyncio.to_thread(model.has_stalled.wait, PATIENCE)
    assert await world.invoked(received, world.another_sandbox()) == []
    before = await world.state()
    model.goes_on.set()
    # What it could not commit is heard already, so that the next delivery finds nothing to do.
    assert await stalled == numbers(received)
    await world.settle()
    assert await world.state() == before
    assert await told(world) == ["You said: one"]


async def test_a_lost_fence_is_the_failure_of_one_group_alone():
    world = await a_world()
    await world.say("a", "one")
    await world.say("b", "two")
    store = world.adapters.conversations
    commit = store.commit

    async def lost(committed):
        if committed.thread.id == "a":
            raise FenceLost("somebody was first")
        await commit(committed)

    store.commit = lost
    world.sandbox = Sandbox(lambda: ready(leader_of(world)))
    a1, b1 = await world.received()
    assert await world.invoked([a1, b1]) == [a1.queue_id]


# ----------------------------------------------------------------------------------------------------- the sandbox


async def test_everything_is_built_once_and_lives_on_one_loop():
    world, loops = await a_world(), []
    build = world.sandbox._build

    async def counted():
        loops.append(asyncio.get_running_loop())
        return await build()

    world.sandbox = Sandbox(counted)
    for text in ("one", "two", "three"):
        await world.say("a", text)
        received = await world.received()
        assert await world.invoked(received) == []
        assert world.sandbox._loop is loops[0]
    assert len(loops) == 1
    assert await told(world) == ["You said: one", "You said: two", "You said: three"]


def test_a_sandbox_that_could_not_be_built_is_built_by_the_next_invocation():
    tries = iter([StoreUnavailable("the secret is away"), None])

    async def build():
        error = next(tries)
        if error is not None:
            raise error
        return 7

    sandbox = Sandbox(build)
    with pytest.raises(StoreUnavailable):
        sandbox.run(ready)
    assert sandbox.run(ready) == 7


def test_an_incomplete_environment_fails_the_invocation_with_all_names(monkeypatch):
    monkeypatch.delenv("INPUT_QUEUE_URL", raising=False)
    monkeypatch.setattr(leader, "sandbox", Sandbox(leader.sandbox._build))
    with pytest.raises(Misconfigured, match=r"function leader: INPUT_QUEUE_URL, DELAY_QUEUE_URL, .* must"):
        leader.handler(event_of([]), Context())


async def test_metrics_are_one_line_and_name_no_thread(capsys):
    world = await a_world()
    await world.say("thread-1", "one")
    await world.adapters.inputs.send("no JSON", group_id="thread-2", dedup_id="1")
    await world.invoked(await world.received())
    (line,) = capsys.readouterr().out.splitlines()
    fields = json.loads(line)
    (directive,) = fields["_aws"]["CloudWatchMetrics"]
    assert directive["Dimensions"] == [["service"]]
    counted = {name: fields[name][0] for name in ("Slices", "Rounds", "InputTokens", "Parked", "ColdStarts")}
    assert counted == {"Slices": 1, "Rounds": 1, "InputTokens": 10, "Parked": 1, "ColdStarts": 1}
    assert "thread-" not in line
    await world.say("thread-1", "two")
    await world.invoked(await world.received())
    assert "ColdStarts" not in capsys.readouterr().out


def test_deferred_messages_are_among_the_metrics(capsys):
    telemetry = Telemetry("leader")
    telemetry.observe(StepFinished("thread-1", Skipped(), deferred=2))
    telemetry.observe(StepFinished("thread-2", Skipped(), deferred=1))
    telemetry.flush()
    fields = json.loads(capsys.readouterr().out)
    assert (fields["Slices"], fields["Deferred"]) == ([2], [3])


@pytest.fixture
def log_lines():
    """What a handler like Lambda's own writes, once ``log_as_json`` has had it."""
    root, written, lambdas = logging.getLogger(), io.StringIO(), logging.StreamHandler()
    lambdas.setStream(written)
    before, level = root.handlers, root.level
    root.handlers = [lambdas]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:1")
        log_as_json("leader")
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    root.handlers = before
    root.setLevel(level)


async def test_log_lines_of_a_thread_name_the_trace_of_its_message_and_metrics_do_not(log_lines, capsys):
    world = await a_world()
    trace = {"traceparent": f"00-{'1' * 32}-{'a' * 16}-01"}
    await world.person_sends(InputMessage(Text("one fails"), "a", trace=trace))
    await world.person_sends(InputMessage(Text("two fails"), "b"))
    await world.invoked(await world.received())
    lines = [line for line in log_lines() if "step failed" in line["message"]]
    assert {line["message"].split(":")[0]: line.get("trace_id") for line in lines} == {
        "thread a": "1" * 32,
        "thread b": None,
    }
    metrics = capsys.readouterr().out
    assert "FailedSlices" in metrics
    assert "1" * 32 not in metrics
