"""A conversation on a screen of the tests' own, which may be slow to draw."""

import asyncio
import io
import os
import termios

import pytest
from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.console import Console
from rich.text import Text

from infinity_agents.cli.chat import Chat
from infinity_agents.cli.screens import Terminal
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


class Watched(io.StringIO):
    """Takes what is shown, and notes for each piece whether the terminal would echo what is typed just then."""

    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal
        self.echoed = []

    def write(self, text):
        self.echoed.append(bool(termios.tcgetattr(self.terminal)[3] & termios.ECHO))
        return super().write(text)


@pytest.fixture
def tty():
    """A terminal of the test's own, to read what is typed from."""
    master, slave = os.openpty()
    with os.fdopen(slave, "r") as opened:
        yield opened
    os.close(master)


async def test_what_is_typed_while_something_is_shown_is_not_written_into_the_midst_of_it(tty):
    watched = Watched(tty.fileno())
    output = Vt100_Output(io.StringIO(), lambda: Size(rows=24, columns=80), enable_cpr=False)
    with create_app_session(input=Vt100Input(tty), output=output):
        screen, session = Terminal(Console(file=watched)), PromptSession("> ")
        begun = asyncio.Event()
        typing = asyncio.create_task(session.prompt_async(pre_run=begun.set))
        await begun.wait()
        # The terminal is the prompt's from its first turn on.
        await asyncio.sleep(0)
        await screen.put(Text("a row"))
        await screen.stream("a second row\nand the beginning of ")
        await screen.stream("a third")
        await screen.end_stream()
        assert session.app.is_running
        typing.cancel()
        await asyncio.wait({typing})
    assert [row.strip() for row in watched.getvalue().splitlines()] == [
        "a row",
        "a second row",
        "and the beginning of a third",
    ]
    assert watched.echoed
    assert not any(watched.echoed)
