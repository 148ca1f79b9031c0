"""The conversation store keeps its contract on PostgreSQL, and on one that refuses what Aurora DSQL refuses."""

import pytest

from infinity_agents.adapters.dsql import DsqlConversationStore, DsqlDatabase, PostgreSql
from infinity_agents.testing.contracts import ConversationStoreContract
from infinity_agents.testing.doubles import FrozenClock
from infinity_agents.testing.dsql import LikeDsql


class OnPostgres(ConversationStoreContract):
    """Connects anew each time, as a restarted process does; nothing is closed before, as after a crash."""

    server = None

    @pytest.fixture(autouse=True)
    async def database(self, postgres_url):
        self.url = postgres_url
        self.opened = []
        yield
        for database in self.opened:
            await database.close()

    async def make(self):
        self.opened.append(DsqlDatabase(self.server(self.url), FrozenClock()))
        return DsqlConversationStore(self.opened[-1])

    reopen = make


class TestOnPostgres(OnPostgres):
    server = PostgreSql


class TestLikeDsql(OnPostgres):
    server = LikeDsql
