"""``infinity serve``: the host without a terminal."""

import asyncio
import logging
import signal

from ..conversation.content import shown
from ..conversation.events import AgentEvent, Failed, StepFinished
from ..local.demo_host import SliceLines
from .config import AgentConfig
from .opening import hosting, log_to_stderr
from .rendering import note, put, put_json, stderr


class SliceDocuments:
    """Prints each slice as one JSON document on a line."""

    def observe(self, event: AgentEvent) -> None:
        """Print ``event`` if it is the end of a slice."""
        if isinstance(event, StepFinished):
            failed = event.outcome if isinstance(event.outcome, Failed) else None
            put_json(
                {
                    "thread_id": event.thread_id,
                    "outcome": type(event.outcome).__name__.lower(),
                    "error": None if failed is None else shown(str(failed.error)),
                    "heard": list(event.heard),
                    "did": list(event.did),
                    "round_trips": dict(event.round_trips),
                }
            )


async def run_host(config: AgentConfig, *, as_json: bool) -> None:
    """Be the host of the file until SIGTERM or SIGINT; slices that run then are finished.

    Raises:
        Misconfigured: the agent cannot be opened, or the file has a host.
    """
    log_to_stderr(logging.WARNING)
    async with hosting(config) as agent:
        async with agent.host(SliceDocuments() if as_json else SliceLines()) as host:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, host.stop)
            servers = ", ".join(server.server_url for server in config.tool_servers) or "none"
            put(
                stderr(),
                note(
                    f"process {agent.hosted_by} hosts {config.file}: model {config.model}, callbacks on port "
                    f"{agent.identity.port}, tool servers {servers}"
                ),
            )
            await host.wait()
        put(stderr(), note("stopped; what waits is in the file"))
