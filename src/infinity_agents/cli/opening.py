"""The agent that a command works on. Whatever a command reads or sends goes through what is opened here."""

import contextlib
import logging
from collections.abc import AsyncIterator

from ..conversation.content import shown
from ..errors import Misconfigured
from ..local.models import models_for
from ..local.wiring import LocalAgent, environment_secret
from .config import AgentConfig


@contextlib.asynccontextmanager
async def hosting(config: AgentConfig) -> AsyncIterator[LocalAgent]:
    """Give the agent with its model and its tool servers, to be hosted; a file that is not there is made.

    Raises:
        Misconfigured: the model, a token of a tool server or the file is not to be had.
    """
    for server in config.tool_servers:
        if server.auth.startswith("bearer:"):
            await environment_secret(server.auth.removeprefix("bearer:"))
    model = models_for(config.model, config.base_url)
    agent = LocalAgent.open(config.file, model=model, tool_servers=config.tool_servers, settings=config.settings)
    try:
        yield agent
    finally:
        await agent.aclose()


@contextlib.asynccontextmanager
async def visiting(config: AgentConfig, *, makes: bool = False) -> AsyncIterator[LocalAgent]:
    """Give the agent, to read and to send. A file that is not there is made only where ``makes`` says so.

    Raises:
        Misconfigured: the file is not there, or cannot be used.
    """
    if not makes and not config.file.exists():
        raise Misconfigured(
            f"there is no agent in {config.file}; `infinity chat` makes one there, and --file names another place"
        )
    agent = LocalAgent.open(config.file)
    try:
        yield agent
    finally:
        await agent.aclose()


class _Shown(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record))


def log_to_stderr(level: int) -> None:
    """Have what the runtime logs from ``level`` on written to standard error, as people may see it."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Shown("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
