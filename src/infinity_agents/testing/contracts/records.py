# ruff: noqa: S101 - a contract speaks by assertions, and the name of a test says what it checks
"""What every table of records must do."""

import asyncio
from abc import abstractmethod
from datetime import timedelta

from ...ports.records import RecordTable

DAY = timedelta(days=1)


class RecordTableContract:
    """Inherit it, and say how a table is made and how time passes for it."""

    @abstractmethod
    async def make(self) -> RecordTable:
        """Return an empty table."""

    @abstractmethod
    def pass_time(self, time: timedelta) -> None:
        """Have the table's clock go on."""

    async def test_a_record_comes_back_until_it_is_deleted(self) -> None:
        table = await self.make()
        record = {"text": "ünï\x00\ud800", "number": 1.5, "list": [None, True]}
        await table.put("group", "key", record, kept=DAY)
        assert await table.get("group", "key") == record
        await table.put("group", "key", {}, kept=DAY)
        assert await table.get("group", "key") == {}
        for _ in range(2):
            await table.delete("group", "key")
        assert await table.get("group", "key") is None

    async def test_a_group_has_its_own_records(self) -> None:
        table = await self.make()
        names = [f"key {number:03d}" for number in range(120)]
        for name in names:
            await table.put("group", name, {"name": name, "filling": "x" * 10_000}, kept=DAY)
        await table.put("other", "key", {}, kept=DAY)
        assert [*await table.all("group")] == names
        assert await table.all("none") == {}

    async def test_of_two_at_once_one_is_kept(self) -> None:
        table = await self.make()
        there = await asyncio.gather(*(table.put_new("g", "k", {"by": number}, kept=DAY) for number in range(8)))
        assert there.count(None) == 1
        winner = {"by": there.index(None)}
        assert all(record in (None, winner) for record in there)
        assert await table.get("g", "k") == winner

    async def test_what_was_kept_long_enough_is_gone(self) -> None:
        table = await self.make()
        await table.put("g", "k", {"old": True}, kept=DAY)
        self.pass_time(2 * DAY)
        assert await table.get("g", "k") is None
        assert await table.all("g") == {}
        assert await table.put_new("g", "k", {"old": False}, kept=DAY) is None
        assert await table.get("g", "k") == {"old": False}
