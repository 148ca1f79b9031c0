"""The host: how it takes messages, stops, restarts, and what it does with those that can never be handled."""

import asyncio
import json
import sqlite3

import pytest

from infinity_agents.conversation.content import Blob, plain_text
from infinity_agents.conversation.history import UserEntry
from infinity_agents.conversation.messages import Control, InputMessage, ToolResult
from infinity_agents.conversation.turn import Stopped, TextDelta
from infinity_agents.errors import Misconfigured, ModelForbidden, ModelThrottled, Reject
from infinity_agents.local.wiring import LocalAgent
from infinity_agents.testing.scripted_model import Reply, ScriptedModel, heard, says
from infinity_agents.wire.inputs import encode

from .conftest import until


class HeldModel(ScriptedModel):
    """Says a few words, then stands still until ``go`` is set."""

    def __init__(self):
        super().__init__(lambda _: says(""))
        self.speaking = asyncio.Event()
        self.go = asyncio.Event()

    async def stream(self, request):
        yield TextDelta("Once upon a time ")
        self.speaking.set()
        await self.go.wait()
        yield TextDelta("there was an end.")
        yield Stopped()


def echo(request):
    return says(f"You said {heard(request)[:80]}")


async def put(agent, body, group_id="c", dedup_id="d"):
    await agent.queue.send(body, group_id=group_id, dedup_id=dedup_id)


# ------------------------------------------------------------------------------------------------------- messages


async def test_the_plainest_json_is_answered(open_agent):
    agent = open_agent(model=ScriptedModel(echo))
    async with agent.hosted():
        await put(agent, '{"content": {"type": "text", "text": "hello"}, "group_id": "c"}')
        await agent.hears("You said hello", "c")
        await agent.idle()
    assert [(step.heard, step.did) for step in agent.slices] == [(("text",), ("said",))]


async def test_a_message_of_another_process_is_noticed(open_agent):
    agent, other = open_agent(model=ScriptedModel(echo)), open_agent()
    async with agent.hosted():
        await agent.send("c", "first")
        await agent.hears("You said first")
        await agent.idle()
        await other.send("c", "hello")
        await other.hears("You said hello")


async def test_the_same_message_id_is_heard_once(open_agent):
    agent = open_agent(model=ScriptedModel(echo))
    async with agent.hosted():
        for _ in range(3):
            await agent.send("c", "hello", message_id="once")
            await agent.idle()
    assert len(await agent.told("c")) == 1


async def test_threads_run_side_by_side_and_no_more_than_allowed(open_agent):
    model = HeldModel()
    agent = open_agent(model=model)
    async with agent.hosted(slices_at_once=3) as host:
        for number in range(5):
            await agent.send(f"c{number}", "hello")

        async def are_three():
            return len(host._slices) == 3

        await until(are_three)
        await asyncio.sleep(0.05)
        assert len(host._slices) == 3
        model.go.set()
        await agent.idle()
    assert len(await agent.told()) == 5


async def test_timers_fire(open_agent):
    agent = open_agent()
    async with agent.hosted():
        await agent.send("c", "remind me in 1 second to stretch")
        await agent.hears("Woke up after 1 seconds (for: stretch).")


# ------------------------------------------------------------------------------------------------------ large, odd


async def test_five_megabytes_of_text_are_taken(open_agent):
    agent = open_agent()
    text = "é" * 5_000_000
    async with agent.hosted():
        await agent.send("c", text)
        await agent.hears("You said")
        await agent.idle()
    (entry, _) = await agent.history("c")
    assert isinstance(entry, UserEntry)
    (part,) = entry.content
    assert isinstance(part, Blob)
    assert json.loads(await agent.services.blobs.get(part.sha256))["text"] == text


async def test_nul_and_lone_surrogates_are_mended_for_the_model(open_agent):
    model = ScriptedModel(echo)
    agent = open_agent(model=model)
    async with agent.hosted():
        await agent.send("c", "a\x00b\ud800c")
        await agent.hears("You said")
    assert heard(model.requests[0]) == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"


async def test_blank_text_is_answered(open_agent):
    agent = open_agent(model=ScriptedModel(echo))
    async with agent.hosted():
        await agent.send("c", " \n")
        await agent.hears("You said [empty message]")


@pytest.mark.parametrize("wrong", ["g" * 129, "caf\N{HOT BEVERAGE}", "", "a b"])
async def test_a_group_id_that_sqs_would_not_take_is_refused(open_agent, wrong):
    agent = open_agent()
    with pytest.raises(Reject, match=r"group_id .*must be 1 to 128 letters, digits and ASCII punctuation"):
        await agent.send(wrong, "hello")


# ------------------------------------------------------------------------------------------------- dead letters, P5

UNPROVEN = encode(InputMessage(content=ToolResult(id="x", content=()), group_id="c"), None)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("certainly not JSON", "the body is not JSON"),
        ('["a", "list"]', "must be a JSON object, not list"),
        ('{"content": {"type": "nonsense"}, "group_id": "c"}', "content"),
        ('{"content": {"type": "text", "text": "hello"}, "group_id": "elsewhere"}', "'elsewhere' is not the queue's"),
        ('{"content": {"type": "text", "text": "x"}, "group_id": "\\ud83d\\ude00"}', "must be 1 to 128"),
        (UNPROVEN, "a tool_result message needs a mac of ours, and it has none"),
    ],
)
async def test_p5_what_can_never_be_handled_is_parked_on_the_first_try(open_agent, body, reason):
    agent = open_agent(model=ScriptedModel(echo))
    await agent.send("c", "before")
    await put(agent, body)
    await agent.send("c", "after")
    async with agent.hosted():
        await agent.hears("after", "c")
        await agent.idle()
    (letter,) = await agent.queue.dead_letters()
    assert reason in letter.reason
    assert (letter.body, letter.receive_count) == (body, 1)
    said = [plain_text(entry.content) for entry in await agent.history("c") if isinstance(entry, UserEntry)]
    assert said == ["before", "after"]


async def test_p5_people_are_told_of_a_step_that_keeps_failing(open_agent):
    def script(request):
        if "poison" in heard(request):
            return Reply(error=ModelForbidden("this model may not be used"))
        return echo(request)

    agent = open_agent(model=ScriptedModel(script))
    async with agent.hosted(first_delay=0.001, sweep_every=0.05):
        await agent.send("c", "poison", metadata={"channel": 7})
        await agent.send("other", "hello")
        await agent.hears("this model may not be used", "c", "error")
        await agent.hears("You said hello", "other")
        await asyncio.sleep(0.2)
    (letter,) = await agent.queue.dead_letters()
    assert (letter.receive_count, letter.reason) == (5, "ModelForbidden: this model may not be used")
    (output,) = [output for _, output in await agent.outputs() if output.type == "error"]
    assert output.metadata == {"channel": 7}


async def test_p5_a_dead_letter_may_be_redriven_when_the_fault_is_mended(open_agent):
    broken = [ModelForbidden("not yet")] * 2
    agent = open_agent(model=ScriptedModel(lambda request: Reply(error=broken.pop()) if broken else echo(request)))
    async with agent.hosted(first_delay=0.001, max_receive_count=2):
        await agent.send("c", "hello")
        await agent.hears("not yet", "c", "error")
        await agent.idle()
        (letter,) = await agent.queue.dead_letters()
        await agent.queue.redrive(letter.queue_id)
        await agent.hears("You said hello", "c")


async def test_a_passing_failure_is_tried_again(open_agent):
    broken = [ModelThrottled("slow down")]
    agent = open_agent(model=ScriptedModel(lambda request: Reply(error=broken.pop()) if broken else echo(request)))
    async with agent.hosted():
        await agent.send("c", "hello")
        await agent.hears("You said hello", "c")
    assert await agent.queue.dead_letters() == []


# -------------------------------------------------------------------------------------------------- stop, P7


async def test_p7_a_stop_does_not_wait_for_the_model(open_agent):
    model = HeldModel()
    agent = open_agent(model=model)
    async with agent.hosted():
        await agent.send("c", "tell me a story")
        await model.speaking.wait()
        await agent.send("c", Control("stop"))
        await agent.hears("Once upon a time", "c")
        await agent.idle()
    assert agent.slices[-1].did == ("stopped",)


async def test_p7_a_stop_of_another_process_does_not_wait_either(open_agent):
    model = HeldModel()
    agent, other = open_agent(model=model), open_agent()
    async with agent.hosted():
        await agent.send("c", "tell me a story")
        await agent.send("d", "and me")
        await model.speaking.wait()
        await other.send("c", Control("stop"))
        await agent.hears("Once upon a time", "c")
        assert await agent.told("d") == []
        model.go.set()
        await agent.hears("there was an end", "d")


# ------------------------------------------------------------------------------------------------ stop and restart


async def test_what_runs_is_finished_when_the_host_stops(open_agent):
    model = HeldModel()
    agent = open_agent(model=model)
    async with agent.hosted() as host:
        await agent.send("c", "hello")
        await model.speaking.wait()
        host.stop()
        await agent.send("later", "hello")
        model.go.set()
        await host.wait()
    assert await agent.told() == ["Once upon a time there was an end."]
    async with agent.hosted():
        await agent.hears("Once upon a time", "later")


async def test_a_host_that_stops_waits_for_no_model_for_ever(open_agent):
    model = HeldModel()
    agent = open_agent(model=model)
    async with agent.hosted(grace=0.05):
        await agent.send("c", "hello")
        await model.speaking.wait()
    assert await agent.told("c") == ["Once upon a time "]


async def test_what_a_dead_host_had_in_hand_is_handled_at_once(open_agent):
    agent = open_agent(model=ScriptedModel(echo))
    await agent.send("c", "hello")
    await agent.queue.receive(groups=10, batch=10, visibility=3600)
    async with agent.hosted():
        await agent.hears("You said hello", "c")


async def test_a_file_has_one_host(open_agent):
    first, second = open_agent(), open_agent()
    async with first.hosted():
        with pytest.raises(Misconfigured, match=r"process \d+ is already the host of .*agent\.db"):
            async with second.hosted():
                pass
    async with second.hosted():
        pass


async def test_a_file_that_cannot_be_written_is_a_clear_error(open_agent, path, monkeypatch):
    open_agent()
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda name, **options: connect(f"file:{name}?mode=ro", uri=True, **options)
    )
    with pytest.raises(Misconfigured, match=r"agent\.db cannot be written .*let this user write the file"):
        LocalAgent.open(path)


# ---------------------------------------------------------------------------------------------------- tool servers


async def test_a_tool_server_that_is_down_is_told_and_holds_up_nobody(open_agent):
    agent = open_agent(model=ScriptedModel(echo), tool_servers=["http://127.0.0.1:9"])
    async with agent.hosted():
        await agent.send("c", "hello")
        await agent.hears("Some tools are missing: The tool set '127.0.0.1:9' is missing", "c", "error")
        await agent.hears("You said hello", "c")


@pytest.mark.parametrize("url", ["http://tools.example.com", "ftp://127.0.0.1", "127.0.0.1:80"])
def test_a_tool_server_must_be_reached_safely(path, url):
    with pytest.raises(Misconfigured, match=r"the tools configuration in tool_servers: .*a URL must"):
        LocalAgent.open(path, tool_servers=[url])
