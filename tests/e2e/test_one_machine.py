"""From ``aws sqs send-message`` to the output queue, through functions that run as processes of their own."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from infinity_agents.conversation.content import plain_text
from infinity_agents.conversation.history import ToolResultEntry, UserEntry
from infinity_agents.testing.doubles import FrozenClock
from infinity_agents.testing.scripted_model import calls, says
from tests.e2e.conftest import PATIENCE

WORDS = {
    "What time is it in Tokyo?": calls("get_time", {"timezone": "Asia/Tokyo"}),
    "Wait a moment.": calls("sleep", {"seconds": 3}),
    "Wait for twenty minutes.": calls("sleep", {"seconds": 1200}),
}


@pytest.fixture
def script():
    """A model that does what the last message asks, and repeats what a tool says."""

    def reply(request):
        last = request.entries[-1]
        if isinstance(last, ToolResultEntry):
            return says(f"I was told: {plain_text(last.result.content)}")
        assert isinstance(last, UserEntry)
        text = plain_text(last.content)
        return WORDS.get(text) or says(f"You said: {text}")

    return reply


def body_of(text, group):
    return json.dumps({"content": {"type": "text", "text": text}, "group_id": group})


async def test_a_message_is_answered(agent):
    agent.send(body_of("Hello.", "one"), "one", "1")
    told = await agent.told()
    assert (told["text"], told["group_id"]) == ("You said: Hello.", "one")
    assert told["usage"]["input"] > 0


@pytest.mark.slow
async def test_through_a_tool_over_http(agent):
    """The words of the README, and the tool's answer comes through the receiver."""
    agent.send(body_of("What time is it in Tokyo?", "my-conversation"), "my-conversation", "1")
    told = await agent.told()
    assert told["text"].startswith("I was told: 20")
    assert "(Asia/Tokyo, UTC+09:00)" in told["text"]


@pytest.mark.slow
async def test_a_short_sleep_is_the_delay_queues(agent):
    agent.send(body_of("Wait a moment.", "sleepy"), "sleepy", "1")
    told = await agent.told()
    assert told["text"].startswith("I was told: ")
    assert await agent.schedules() == []


@pytest.mark.slow
async def test_a_long_sleep_is_schedulers(agent):
    begun = datetime.now(UTC)
    agent.send(body_of("Wait for twenty minutes.", "sleepy"), "sleepy", "1")
    call = await agent.told("tool_call")
    assert call["tool"] == "sleep"
    async with asyncio.timeout(PATIENCE):
        while not (schedules := await agent.schedules()):  # noqa: ASYNC110 - what makes it is another process
            await asyncio.sleep(0.05)
    [schedule] = schedules
    assert schedule["ActionAfterCompletion"] == "DELETE"
    clock = FrozenClock(begun + timedelta(minutes=19))
    await agent.later(clock)
    assert len(await agent.schedules()) == 1
    clock.advance(120)
    await agent.later(clock)
    assert (await agent.told())["text"].startswith("I was told: ")
    assert await agent.schedules() == []


@pytest.mark.slow
async def test_a_function_that_is_killed_goes_on_where_it_was(agent):
    """Killed as soon as people were told, which is before the message was deleted."""
    agent.send(body_of("Hello.", "one"), "one", "1")
    first = await agent.told()
    for function in agent.functions.values():
        function.kill()
    agent.send(body_of("What time is it in Tokyo?", "one"), "one", "2")
    told = await agent.told()
    assert "Asia/Tokyo" in told["text"]
    assert told["output_id"] != first["output_id"]
