"""A tool server for the tests of the command line: it asks, sends links, and says what terminals must not obey."""

import argparse
import asyncio
from collections.abc import AsyncIterator

from infinity_agents.rap.server import Event, ToolContext, ToolServer

server = ToolServer(name="odd-tools")


@server.tool
async def paint(context: ToolContext) -> str:
    """Paint the shed in a colour that the person chooses."""
    colours = ["red", "green", "blue"]
    chosen = await context.ask("Which colour for the shed?", colours, default=1)
    return f"the shed is {chosen}"


@server.tool
async def mail(context: ToolContext) -> str:
    """Read the mail, once its owner has allowed it."""
    await context.authorize("https://mail.example.com/authorize?client=1&state=" + "x" * 80)
    await asyncio.sleep(600)
    return "no mail"


@server.tool(read_only=True)
async def shout(text: str = "hey") -> str:
    """Say something with terminal escapes in it."""
    return f"\x1b[31m\x1b]0;title\x07{text}\x1b[2J"


@server.subscription
async def tick() -> AsyncIterator[Event]:
    """Say the same thing twice."""
    await asyncio.sleep(0.1)
    yield Event("tick", associative=True)
    await asyncio.sleep(0.5)
    yield Event("tick", associative=True)


@server.tool(read_only=True)
async def nap(seconds: float = 1) -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return f"napped for {seconds:g} seconds"


@server.tool(read_only=True)
async def much(megabytes: int) -> str:
    """Return a lot."""
    return "x" * megabytes * 1_000_000


@server.tool
async def fail() -> str:
    """Fail."""
    raise ValueError("the shed is on fire")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    server.run(port=parser.parse_args().port)
