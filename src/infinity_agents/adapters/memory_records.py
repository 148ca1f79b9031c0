"""Records in memory: for a tool server that is one process, and for tests."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta

from ..ports.clock import Clock
from ..ports.records import Record


class MemoryRecords:
    """A ``RecordTable`` that lives as long as the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[str, tuple[datetime, str]]] = {}

    async def put(self, group: str, key: str, record: Record, *, kept: timedelta) -> None:
        """Keep ``record``, in place of what was there."""
        self._groups.setdefault(group, {})[key] = (self._clock.now() + kept, json.dumps(record))

    async def put_new(self, group: str, key: str, record: Record, *, kept: timedelta) -> Record | None:
        """Keep ``record`` unless there is one; return the one that there is."""
        there = await self.get(group, key)
        if there is None:
            await self.put(group, key, record, kept=kept)
        return there

    async def get(self, group: str, key: str) -> Record | None:
        """Return the record, or ``None``."""
        return (await self.all(group)).get(key)

    async def all(self, group: str) -> Mapping[str, Record]:
        """Return the records of a group, by key."""
        now = self._clock.now()
        kept = self._groups.get(group, {}).items()
        return {key: json.loads(text) for key, (until, text) in sorted(kept) if now < until}

    async def delete(self, group: str, key: str) -> None:
        """Forget the record, if there is one."""
        self._groups.get(group, {}).pop(key, None)
