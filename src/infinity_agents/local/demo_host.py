"""A host in a process of its own: ``python -m infinity_agents.local.demo_host agent.db http://127.0.0.1:8001``."""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from typing import assert_never

from ..conversation.content import shown
from ..conversation.events import AgentEvent, Completed, Failed, Skipped, StepFinished
from ..errors import Misconfigured
from .wiring import LocalAgent


class SliceLines:
    """Prints each slice in one line: the thread, what it heard, what it did, and its round trips."""

    def observe(self, event: AgentEvent) -> None:
        """Print ``event`` if it is the end of a slice."""
        if isinstance(event, StepFinished):
            print(line_of(event), flush=True)


def line_of(event: StepFinished) -> str:
    """Return the line that tells of a slice."""
    match event.outcome:
        case Failed(error):
            did = f"failed: {shown(str(error))}"
        case Completed() | Skipped():
            did = ", ".join(event.did) or "nothing new"
        case _:
            assert_never(event.outcome)
    trips = " ".join(f"{port}:{count}" for port, count in event.round_trips.items())
    heard = ", ".join(event.heard) or "nothing new"
    return f"  [{event.thread_id}] heard {heard} -> {did} ({trips})"


async def host(path: str, tool_servers: Sequence[str], *, quiet: bool) -> None:
    """Be the host of ``path`` until SIGTERM or SIGINT.

    Raises:
        Misconfigured: the file cannot be used, or has a host.
    """
    agent = LocalAgent.open(path, tool_servers=tool_servers)
    async with agent.host(None if quiet else SliceLines()) as running:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, running.stop)
        await running.wait()
    await agent.aclose()


def main() -> None:
    """Be the host until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="the SQLite file")
    parser.add_argument("tool_servers", nargs="*", help="base URLs of tool servers")
    parser.add_argument("--quiet", action="store_true", help="print no slices")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR, format="%(name)s: %(message)s")
    try:
        asyncio.run(host(options.path, options.tool_servers, quiet=options.quiet))
    except Misconfigured as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
