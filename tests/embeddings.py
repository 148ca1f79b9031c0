"""Adapters over data that survives a crash, for the tests that run the whole runtime."""

from dataclasses import replace
from pathlib import Path

from infinity_agents.adapters.dsql import DsqlConversationStore, DsqlDatabase
from infinity_agents.adapters.memory import (
    BlobData,
    ConversationData,
    MemoryBlobStore,
    MemoryConversationStore,
    MemoryInputQueue,
    MemoryOutputs,
    MemoryStateStore,
    MemoryTimers,
    OutputData,
    QueueData,
    StateData,
    TimerData,
)
from infinity_agents.adapters.sqlite import (
    SqliteBlobStore,
    SqliteConversationStore,
    SqliteDatabase,
    SqliteInputQueue,
    SqliteOutputs,
    SqliteStateStore,
    SqliteTimers,
)
from infinity_agents.ports.clock import Clock
from infinity_agents.testing.dsql import LikeDsql
from infinity_agents.testing.world import Adapters, OpenAdapters
from tests.databases import emptied


def in_memory() -> OpenAdapters:
    """Return the way to open memory adapters over one set of data."""
    conversations, state, queue = ConversationData(), StateData(), QueueData()
    outputs, timers, blobs = OutputData(), TimerData(), BlobData()

    async def open_adapters(clock: Clock) -> Adapters:
        inputs = MemoryInputQueue(clock, queue)

        async def close() -> None:
            """Nothing is open."""

        return Adapters(
            conversations=MemoryConversationStore(conversations),
            state=MemoryStateStore(state),
            inputs=inputs,
            outputs=MemoryOutputs(outputs),
            timers=MemoryTimers(inputs, timers),
            blobs=MemoryBlobStore(blobs),
            close=close,
        )

    return open_adapters


def in_postgres(url: str) -> OpenAdapters:
    """Return the way to open adapters with the conversation store at ``url``, emptied first, and the rest in memory."""
    emptied(url)
    open_the_rest = in_memory()

    async def open_adapters(clock: Clock) -> Adapters:
        database = DsqlDatabase(LikeDsql(url), clock)
        rest = await open_the_rest(clock)
        return replace(rest, conversations=DsqlConversationStore(database), close=database.close)

    return open_adapters


def in_a_file(path: Path) -> OpenAdapters:
    """Return the way to open SQLite adapters over one file."""

    async def open_adapters(clock: Clock) -> Adapters:
        # What these tests kill is the process, not the power: waiting for the disk would add time and no proof.
        database = SqliteDatabase(path, clock, synchronous="OFF")
        inputs = SqliteInputQueue(database)

        async def close() -> None:
            database.close()

        return Adapters(
            conversations=SqliteConversationStore(database),
            state=SqliteStateStore(database),
            inputs=inputs,
            outputs=SqliteOutputs(database),
            timers=SqliteTimers(database, inputs),
            blobs=SqliteBlobStore(database),
            close=close,
        )

    return open_adapters
