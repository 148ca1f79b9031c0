"""An agent in a file of its own, and a host that a test may open over it."""

import asyncio
import contextlib

import pytest

from infinity_agents.conversation.events import StepFinished
from infinity_agents.local.host import HostSettings
from infinity_agents.local.wiring import LocalAgent
from infinity_agents.runtime import EventCollector


class Watched:
    """An agent as a test sees it: what it says, and what its host does."""

    def __init__(self, agent):
        self.agent = agent
        self.events = EventCollector()

    def __getattr__(self, name):
        return getattr(self.agent, name)

    @contextlib.asynccontextmanager
    async def hosted(self, **settings):
        async with self.agent.host(self.events, HostSettings(**{"grace": 5.0, **settings})) as host:
            yield host

    @property
    def slices(self):
        return [event for event in self.events.events if isinstance(event, StepFinished)]

    async def told(self, thread_id=None, type="message"):
        outputs = [output for _, output in await self.agent.outputs()]
        return [output.text for output in outputs if output.type == type and thread_id in (None, output.thread_id)]

    async def hears(self, text, thread_id=None, type="message"):
        """Return once people were told something that holds ``text``."""

        async def is_told():
            return any(text in told for told in await self.told(thread_id, type))

        await until(is_told, lambda: f"{type} with {text!r}")

    async def idle(self):
        """Return once nothing is left on the queue."""

        async def is_empty():
            with self.agent.database.read() as connection:
                return connection.execute("SELECT count(*) FROM messages").fetchone() == (0,)

        await until(is_empty, lambda: "an empty queue")

    async def history(self, thread_id):
        return [entry for _, entry in await self.agent.services.conversations.history(thread_id)]


async def until(holds, what=lambda: "it", seconds=20.0):
    try:
        async with asyncio.timeout(seconds):
            while not await holds():  # noqa: ASYNC110 - what is waited for happens in a database
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"{what()} did not come within {seconds:g} seconds")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.db"


@pytest.fixture
async def open_agent(path):
    """Return the way to open the agent's file, again and again, as other processes would."""
    opened = []

    def open_again(**options):
        opened.append(LocalAgent.open(path, **{"synchronous": "OFF", **options}))
        return Watched(opened[-1])

    yield open_again
    for agent in opened:
        await agent.aclose()
