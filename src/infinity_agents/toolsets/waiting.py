"""Calls that wait for something to happen in the world, found by what they wait for and by their thread.

| group | key | holds |
|---|---|---|
| what is waited for | thread and call | what its tool needs to tell the call |
| ``waiting#THREAD`` | call | ``about``: what is waited for |
"""

from dataclasses import dataclass
from datetime import timedelta

from ..ports.records import Record, RecordTable
from ..rap.server import ToolServer

KEPT = timedelta(days=90)
"""How long a call is waited for, and a subscription lasts."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that waits for ``about``, which is a group of records."""

    about: str
    thread_id: str
    call_id: str

    @classmethod
    def named(cls, about: str, key: str) -> "Waiting":
        """Return the call whose record in the group ``about`` has that key."""
        thread_id, call_id = key.split(" ", 1)
        return cls(about, thread_id, call_id)

    async def put(self, records: RecordTable, record: Record) -> None:
        """Have it found, with ``record``."""
        # The call first: what is found by what it waits for can be cancelled.
        await records.put(_of_thread(self.thread_id), self.call_id, {"about": self.about}, kept=KEPT)
        await records.put(self.about, f"{self.thread_id} {self.call_id}", record, kept=KEPT)

    async def lasts(self, records: RecordTable) -> bool:
        """Return whether it is found still: that ends when the call is answered, or when nobody wants it any more."""
        return await records.get(self.about, f"{self.thread_id} {self.call_id}") is not None

    async def delete(self, records: RecordTable) -> None:
        """Have it found no more."""
        await records.delete(self.about, f"{self.thread_id} {self.call_id}")
        await records.delete(_of_thread(self.thread_id), self.call_id)


def forget_when_over(server: ToolServer, records: RecordTable) -> None:
    """Delete what waits for a call that is cancelled, and for all calls of a thread that is closed."""

    @server.on_cancel
    async def cancelled(thread_id: str, call_id: str) -> None:
        waiting = await records.get(_of_thread(thread_id), call_id)
        if waiting is not None:
            await Waiting(waiting["about"], thread_id, call_id).delete(records)

    @server.on_close
    async def closed(thread_id: str) -> None:
        for call_id, waiting in (await records.all(_of_thread(thread_id))).items():
            await Waiting(waiting["about"], thread_id, call_id).delete(records)


def _of_thread(thread_id: str) -> str:
    return f"waiting#{thread_id}"
