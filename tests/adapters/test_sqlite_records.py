import stat

import pytest

from infinity_agents.adapters.sqlite_records import SqliteRecords
from infinity_agents.errors import StoreUnavailable
from infinity_agents.testing.contracts.records import DAY, RecordTableContract
from infinity_agents.testing.doubles import FrozenClock


class TestSqliteRecords(RecordTableContract):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path):
        self.path = tmp_path / "records.db"

    async def make(self):
        self.clock = FrozenClock()
        return SqliteRecords(self.path, self.clock)

    def pass_time(self, time):
        self.clock.advance(time.total_seconds())

    async def test_another_process_finds_them_and_another_user_does_not(self):
        await (await self.make()).put("group", "key", {"a": 1}, kept=DAY)
        assert await SqliteRecords(self.path, self.clock).get("group", "key") == {"a": 1}
        assert stat.S_IMODE(self.path.stat().st_mode) == 0o600

    async def test_a_file_that_is_none_is_said(self):
        self.path.write_text("no database, and long enough to be looked at as one")
        with pytest.raises(StoreUnavailable, match=r"records\.db"):
            await (await self.make()).get("group", "key")
