"""The SQLite adapters keep the contracts of their ports."""

import pytest

from infinity_agents.adapters.sqlite import (
    SqliteBlobStore,
    SqliteConversationStore,
    SqliteDatabase,
    SqliteInputQueue,
    SqliteOutputs,
    SqliteStateStore,
    SqliteTimers,
)
from infinity_agents.testing.contracts import (
    BlobStoreContract,
    ConversationStoreContract,
    InputQueueContract,
    OutputLogContract,
    StateStoreContract,
    TimersContract,
)
from infinity_agents.testing.doubles import FrozenClock


class InOneFile:
    """Opens the file anew each time, as a restarted process does; nothing is closed before, as after a crash."""

    @pytest.fixture(autouse=True)
    def file(self, tmp_path):
        self.path = tmp_path / "agents.db"
        self.opened = []
        yield
        for database in self.opened:
            database.close()

    def open(self, clock=None):
        self.opened.append(SqliteDatabase(self.path, clock or FrozenClock(), "OFF"))
        return self.opened[-1]


class TestSqliteConversationStore(InOneFile, ConversationStoreContract):
    async def make(self):
        return SqliteConversationStore(self.open())

    reopen = make


class TestSqliteStateStore(InOneFile, StateStoreContract):
    async def make(self):
        return SqliteStateStore(self.open())

    reopen = make


class TestSqliteInputQueue(InOneFile, InputQueueContract):
    async def make(self, clock):
        return SqliteInputQueue(self.open(clock))

    reopen = make


class TestSqliteTimers(InOneFile, TimersContract):
    async def make(self, clock):
        database = self.open(clock)
        queue = SqliteInputQueue(database)
        return SqliteTimers(database, queue), queue

    reopen = make


class TestSqliteOutputs(InOneFile, OutputLogContract):
    async def make(self):
        return SqliteOutputs(self.open())

    reopen = make


class TestSqliteBlobStore(InOneFile, BlobStoreContract):
    async def make(self):
        return SqliteBlobStore(self.open())

    reopen = make
