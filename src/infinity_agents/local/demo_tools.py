"""The demo's own tool server: a slow job, and something to watch. Port 0 is any free port."""

import argparse
import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from pydantic import Field

from ..rap.server import Event, ToolServer

_BETWEEN_EVENTS = 0.5

server = ToolServer(name="demo-tools", description="A slow job, and something to watch.")


@server.tool(long_running=True)
async def slow_job(seconds: Annotated[float, Field(description="How long the job takes", ge=0, le=600)] = 5) -> str:
    """Do a job that takes a while."""
    await asyncio.sleep(seconds)
    return f"the job is done, after {seconds:g} seconds"


@server.subscription
async def watch(
    topic: Annotated[str, Field(description="What to watch")],
    events: Annotated[int, Field(description="After how many events to stop", ge=1, le=100)] = 1,
) -> AsyncIterator[Event]:
    """Watch a topic, and tell whenever something happens to it."""
    for number in range(1, events + 1):
        await asyncio.sleep(_BETWEEN_EVENTS)
        yield Event(
            f"something happened to {topic} ({number} of {events})", event_id=str(number), final=number == events
        )


def main() -> None:
    """Serve on loopback until interrupted."""
    parser = argparse.ArgumentParser(description=server.description)
    parser.add_argument("--port", type=int, default=8002, help="port to listen on, 0 for a free one (default: 8002)")
    server.run(port=parser.parse_args().port)


if __name__ == "__main__":
    main()
