"""A conversation on a screen of the tests' own, which may be slow to draw."""

import asyncio

import pytest

from infinity_agents.cli.chat import Chat
from infinity_agents.conversation.events import Skipped, StepFinished, TextStreamed
from infinity_agents.local.wiring import LocalAgent

from .conftest import PATIENCE


class SlowScreen:
    """Takes its time for all that it shows."""

    streams = True
    recalls = True

    def __init__(self, seconds):
        self.seconds = seconds
        self.shown = []
        self.begun = ""

    async def put(self, *lines):
        await asyncio.sleep(self.seconds)
        self.shown += [line.plain for line in lines]

    async def stream(self, piece):
        await asyncio.sleep(self.seconds)
        self.begun += piece

    async def end_stream(self):
        if self.begun:
            self.shown.append(self.begun)
        self.begun = ""

    async def tell(self, text):
        await asyncio.sleep(self.seconds)

    async def log(self, told):
        pass

    async def ask(self, choices):
        pass


@pytest.mark.parametrize("seconds", [0, 0.005, 0.02])
def test_a_screen_that_is_slow_to_draw_shows_everything_once(place, odd_tools, seconds):
    screen = SlowScreen(seconds)
    asyncio.run(_three_calls(screen, odd_tools))
    assert screen.shown == [
        line
        for number in (1, 2, 3)
        for line in (
            f'  → shout(text="{number}")',
            f"  ← {number}",
            f"(demo model) shout says: {number}",
        )
    ]


async def _three_calls(screen, odd_tools):
    agent = LocalAgent.open("agent.db", synchronous="OFF", tool_servers=[odd_tools])
    chat = Chat(agent, "main", screen)
    try:
        async with asyncio.timeout(PATIENCE):
            await chat.begin()
            following = asyncio.create_task(chat.follow())
            async with agent.host(chat):
                for number in (1, 2, 3):
                    await chat.say(f'call shout {{"text": "{number}"}}')
                    # Until the agent is done; what the screen has drawn by then is another matter.
                    async for _ in agent.follow("main"):
                        pass
            await chat.rested()
            following.cancel()
            await asyncio.wait({following})
            await chat.finish()
    finally:
        await agent.aclose()


def test_a_step_of_another_thread_does_not_break_a_reply_in_two(place):
    screen = SlowScreen(0)
    asyncio.run(_interrupted(screen))
    assert len(screen.shown) == 1
    assert screen.shown[0].startswith('(demo model) You said: "hello".')


async def _interrupted(screen):
    agent = LocalAgent.open("agent.db", synchronous="OFF")
    chat = Chat(agent, "main", screen)
    try:
        async with asyncio.timeout(PATIENCE):
            await chat.begin()
            await chat.say("hello")
            async with agent.host():
                (reply,) = [output.text async for _, output in agent.follow("main")]
            chat.observe(TextStreamed("main", reply[:9]))
            chat.observe(StepFinished("main.child", Skipped()))
            chat.observe(TextStreamed("main", reply[9:]))
            chat.observe(StepFinished("main", Skipped()))
            await chat.finish()
    finally:
        await agent.aclose()
