"""The agent that a command works on. Whatever a command reads or sends goes through what is opened here."""

import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ..conversation.content import shown
from ..conversation.messages import Control, UserChoiceResponse
from ..conversation.outputs import Output
from ..errors import Misconfigured
from ..local.models import models_for
from ..local.wiring import LocalAgent, environment_secret
from ..ports.clock import Clock
from ..ports.conversations import ConversationStore
from ..ports.queues import DeadLetters
from ..ports.state import StateStore
from .config import AgentConfig, Stack

if TYPE_CHECKING:
    from ..aws.deployed import DeployedAgent


class Stores(Protocol):
    """What an agent remembers."""

    @property
    def conversations(self) -> ConversationStore: ...

    @property
    def state(self) -> StateStore: ...

    @property
    def clock(self) -> Clock: ...


class Queue(DeadLetters, Protocol):
    """The dead letters, and what is on its way."""

    async def outstanding(self) -> Mapping[str, int]:
        """Return how many messages each thread has still to hear, as far as that can be told."""
        ...


class Changes(Protocol):
    """Tells when to look at the stores again."""

    def data_version(self) -> int:
        """Return a number that is another one when they may have changed."""
        ...


class Log(Protocol):
    """The log of outputs."""

    async def last_place(self) -> int:
        """Return the place of the newest; 0 where there is none."""
        ...


class Agent(Protocol):
    """What commands need of an agent, be it in a file or on AWS."""

    @property
    def services(self) -> Stores: ...

    @property
    def queue(self) -> Queue: ...

    @property
    def database(self) -> Changes: ...

    @property
    def outputs_log(self) -> Log: ...

    @property
    def hosted_by(self) -> str | None: ...

    async def send(
        self, thread_id: str, content: str | UserChoiceResponse | Control, *, message_id: str | None = None
    ) -> str:
        """Put what a person says on the queue; return the message's id."""
        ...

    async def outputs(
        self, *, after: int = 0, group_id: str | None = None, limit: int = 1000
    ) -> Sequence[tuple[int, Output]]:
        """Return what the log of outputs has behind the place ``after``."""
        ...


@contextlib.asynccontextmanager
async def hosting(config: AgentConfig) -> AsyncIterator[LocalAgent]:
    """Give the agent with its model and its tool servers, to be hosted; a file that is not there is made.

    Raises:
        Misconfigured: the model, a token of a tool server or the file is not to be had.
    """
    # It prints, and what prints imports this module.
    from .mcp_servers import mcp_servers

    for server in config.tool_servers:
        if server.auth.startswith("bearer:"):
            await environment_secret(server.auth.removeprefix("bearer:"))
    model = models_for(config.model, config.base_url)
    async with mcp_servers(config) as proxies:
        agent = LocalAgent.open(
            config.file, model=model, tool_servers=(*config.tool_servers, *proxies), settings=config.settings
        )
        try:
            yield agent
        finally:
            await agent.aclose()


@contextlib.asynccontextmanager
async def visiting(config: AgentConfig, *, makes: bool = False) -> AsyncIterator[Agent]:
    """Give the agent, to read and to send. A file that is not there is made only where ``makes`` says so.

    Raises:
        Misconfigured: the file or the stack is not there, or cannot be used.
    """
    if config.stack is not None:
        async with deployed(config.stack) as found:
            yield found
    else:
        async with visiting_file(config, makes=makes) as local:
            yield local


@contextlib.asynccontextmanager
async def visiting_file(config: AgentConfig, *, makes: bool = False) -> AsyncIterator[LocalAgent]:
    """Give the agent in the file, as ``visiting`` does."""
    if not makes and not config.file.exists():
        raise Misconfigured(
            f"there is no agent in {config.file}; `infinity chat` makes one there, and --file names another place"
        )
    agent = LocalAgent.open(config.file)
    try:
        yield agent
    finally:
        await agent.aclose()


@contextlib.asynccontextmanager
async def deployed(stack: Stack) -> AsyncIterator["DeployedAgent"]:
    """Give the agent that ``stack`` has deployed.

    Raises:
        Misconfigured: there is no such stack or agent, or these credentials may not use it.
    """
    try:
        from ..aws.deployed import DeployedAgent
    except ModuleNotFoundError as error:
        raise Misconfigured(f"--stack needs {error.name}: pip install 'infinity-agents[aws]'") from error
    agent = await DeployedAgent.find(stack.name, stack.agent)
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
