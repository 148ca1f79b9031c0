"""The memory adapters keep the contracts of their ports."""

from infinity_agents.adapters.memory import (
    MemoryBlobStore,
    MemoryConversationStore,
    MemoryInputQueue,
    MemoryOutputs,
    MemoryStateStore,
    MemoryTimers,
)
from infinity_agents.adapters.memory_records import MemoryRecords
from infinity_agents.conversation.outputs import Output
from infinity_agents.testing.contracts import (
    BlobStoreContract,
    ConversationStoreContract,
    InputQueueContract,
    OutputLogContract,
    RecordTableContract,
    StateStoreContract,
    TimersContract,
)
from infinity_agents.testing.doubles import FrozenClock


class TestMemoryConversationStore(ConversationStoreContract):
    async def make(self):
        self.store = MemoryConversationStore()
        return self.store

    async def reopen(self):
        return MemoryConversationStore(self.store.data)


class TestMemoryStateStore(StateStoreContract):
    async def make(self):
        self.store = MemoryStateStore()
        return self.store

    async def reopen(self):
        return MemoryStateStore(self.store.data)


class TestMemoryInputQueue(InputQueueContract):
    async def make(self, clock):
        self.queue = MemoryInputQueue(clock)
        return self.queue

    async def reopen(self, clock):
        return MemoryInputQueue(clock, self.queue.data)


class TestMemoryTimers(TimersContract):
    async def make(self, clock):
        self.queue = MemoryInputQueue(clock)
        self.timers = MemoryTimers(self.queue)
        return self.timers, self.queue

    async def reopen(self, clock):
        queue = MemoryInputQueue(clock, self.queue.data)
        return MemoryTimers(queue, self.timers.data), queue


class TestMemoryOutputs(OutputLogContract):
    async def make(self):
        self.outputs = MemoryOutputs()
        return self.outputs

    async def reopen(self):
        return MemoryOutputs(self.outputs.data)

    async def test_repeats_can_be_seen(self):
        outputs = MemoryOutputs()
        for text, output_id in (("first", "o1"), ("second", "o2"), ("again", "o1")):
            await outputs.send(Output("message", text, "g", "g", output_id, (1, 0)))
        assert [output.text for output in outputs.sent] == ["first", "second", "again"]
        assert [(key, output.text) for key, output in outputs.distinct.items()] == [("o1", "first"), ("o2", "second")]


class TestMemoryBlobStore(BlobStoreContract):
    async def make(self):
        self.store = MemoryBlobStore()
        return self.store

    async def reopen(self):
        return MemoryBlobStore(self.store.data)


class TestMemoryRecords(RecordTableContract):
    async def make(self):
        self.clock = FrozenClock()
        return MemoryRecords(self.clock)

    def pass_time(self, time):
        self.clock.advance(time.total_seconds())
