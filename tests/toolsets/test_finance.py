"""The finance server, on both of its stores, and what happens when many trade at once."""

import asyncio
import hashlib
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import httpx
import pytest

from infinity_agents.adapters.finance_dynamodb import DynamoFinanceStore
from infinity_agents.rap.server import Undelivered
from infinity_agents.toolsets.finance.local_store import LocalFinanceStore
from infinity_agents.toolsets.finance.market import Article, BundledMarket, Finnhub, NoQuote, Quote, checked_symbol
from infinity_agents.toolsets.finance.polling import poll
from infinity_agents.toolsets.finance.server import finance_server
from infinity_agents.toolsets.finance.store import Account, NoAccount, NotEnough, Trade, Watch
from tests.aws_adapters.conftest import aws, clients, deployed, running_aws
from tests.toolsets.test_sandbox import Agent
from tests.toolsets.waiting import conforms

__all__ = ["aws", "clients", "deployed", "running_aws"]

NOW = datetime(2026, 11, 27, 21, tzinfo=UTC)


@pytest.fixture(params=["local", "dynamodb"])
def store(request, tmp_path):
    if request.param == "local":
        return LocalFinanceStore(tmp_path / "finance.db")
    return DynamoFinanceStore(request.getfixturevalue("clients"), request.getfixturevalue("deployed").table)


def bought(trade_id, shares="1", price="10", symbol="ACME"):
    return Trade(trade_id, "a", symbol, Decimal(shares), Decimal(price), Decimal(shares) * Decimal(price))


class TestStore:
    async def test_money_is_exact(self, store):
        await store.create_account(Account("a", "me", Decimal("0.30"), {}))
        for number in range(3):
            await store.trade(bought(f"t{number}", price="0.10"), "me")
        account = await store.account("a", "me")
        assert (account.cash, account.shares) == (0, {"ACME": 3})

    async def test_fifty_at_once_cannot_overdraw(self, store):
        await store.create_account(Account("a", "me", Decimal(100), {}))
        outcomes = await asyncio.gather(
            *(store.trade(bought(f"t{number}"), "me") for number in range(50)), return_exceptions=True
        )
        refused = [outcome for outcome in outcomes if isinstance(outcome, NotEnough)]
        assert (len(outcomes) - len(refused), len(refused)) == (10, 40)
        account = await store.account("a", "me")
        assert (account.cash, account.shares) == (0, {"ACME": 10})

    async def test_a_repeat_is_carried_out_once(self, store):
        await store.create_account(Account("a", "me", Decimal(100), {}))
        first = await store.trade(bought("t"), "me")
        again = await store.trade(replace(bought("t", price="12"), symbol="ACME"), "me")
        assert again == first
        assert (await store.account("a", "me")).cash == 90

    async def test_a_repeat_is_carried_out_once_though_the_money_is_gone(self, store):
        await store.create_account(Account("a", "me", Decimal(10), {}))
        first = await store.trade(bought("t"), "me")
        assert await store.trade(bought("t"), "me") == first

    async def test_no_more_is_sold_than_is_held(self, store):
        await store.create_account(Account("a", "me", Decimal(100), {}))
        await store.trade(bought("buy", "2"), "me")
        with pytest.raises(NotEnough, match="2 shares of ACME"):
            await store.trade(bought("sell", "-3"), "me")
        await store.trade(bought("all", "-2"), "me")
        account = await store.account("a", "me")
        assert (account.cash, account.shares) == (100, {})

    async def test_an_account_is_its_owners(self, store):
        await store.create_account(Account("a", "me", Decimal(100), {}))
        await store.create_account(Account("a", "you", Decimal(1_000), {}))
        with pytest.raises(NoAccount, match="create_trading_account"):
            await store.account("a", "you")
        with pytest.raises(NoAccount):
            await store.trade(bought("t"), "you")
        assert (await store.account("a", "me")).cash == 100

    async def test_watches(self, store):
        price = Watch("t1", "c1", "handle-1", "price", "BRK.B", below=Decimal("0.1"))
        news = Watch("t1", "c2", "handle-2", "news", "two words", seen="n1")
        other = replace(price, thread_id="t2", above=Decimal(2), below=None)
        for watch in (price, news, other, price):
            await store.watch(watch)
        assert {watch.call_id + watch.thread_id: watch for watch in await store.watches()} == {
            "c1t1": price,
            "c2t1": news,
            "c1t2": other,
        }
        await store.saw(price, "below")
        await store.unwatch("t1", "c2")
        await store.saw(news, "n2")
        assert sorted((watch.thread_id, watch.seen) for watch in await store.watches()) == [("t1", "below"), ("t2", "")]
        await store.unwatch("t1")
        assert await store.watches() == [other]


class Pushed:
    def __init__(self):
        self.events = []
        self.refusing = set()

    async def __call__(self, handle, text, *, event_id=None):
        if handle in self.refusing:
            raise Undelivered("gone", 403)
        self.events.append((handle, text, event_id))


class ScriptedMarket:
    """A market whose prices a test sets, and which counts what is fetched."""

    def __init__(self, **prices):
        self.prices = {name: Decimal(price) for name, price in prices.items()}
        self.articles = {}
        self.fetched = []

    async def quote(self, symbol):
        self.fetched.append(symbol)
        if symbol not in self.prices:
            raise NoQuote(f"no price of {symbol}")
        return Quote(symbol, self.prices[symbol], NOW)

    async def news(self, query):
        self.fetched.append(query)
        return self.articles.get(query, [])


class TestPolling:
    @pytest.fixture
    def store(self, tmp_path):
        return LocalFinanceStore(tmp_path / "finance.db")

    async def test_one_fetch_per_symbol_and_only_what_changed(self, store):
        market, pushed = ScriptedMarket(ACME="100", GLOBEX="5"), Pushed()
        for number, limit in enumerate((90, 110)):
            await store.watch(
                Watch(
                    "t",
                    f"c{number}",
                    f"h{number}",
                    "price",
                    "ACME",
                    below=Decimal(limit),
                    seen=["inside", "below"][number],
                )
            )
        await store.watch(Watch("t", "c9", "h9", "price", "GLOBEX", above=Decimal(4), seen="inside"))
        polled = await poll(market, store, pushed)
        assert (polled.fetched, polled.told, polled.failed) == (2, 1, ())
        assert sorted(market.fetched) == ["ACME", "GLOBEX"]
        [(handle, text, event_id)] = pushed.events
        assert handle == "h9"
        assert "GLOBEX rose above 4: it costs 5 dollars" in text
        assert event_id == f"above-{NOW.timestamp():.0f}"
        assert (await poll(market, store, pushed)).told == 0
        market.prices["ACME"] = Decimal(80)
        assert (await poll(market, store, pushed)).told == 1
        market.prices["ACME"] = Decimal(95)
        await poll(market, store, pushed)
        assert "is back" in pushed.events[-1][1]

    async def test_what_fails_concerns_itself_alone(self, store):
        market, pushed = ScriptedMarket(ACME="100"), Pushed()
        await store.watch(Watch("t", "c1", "h1", "price", "NOWHERE", below=Decimal(1), seen="inside"))
        await store.watch(Watch("t", "c2", "h2", "price", "ACME", below=Decimal(200), seen="inside"))
        await store.watch(Watch("t", "c3", "h3", "price", "ACME", below=Decimal(300), seen="inside"))
        pushed.refusing = {"h2"}
        polled = await poll(market, store, pushed)
        assert (polled.told, polled.failed) == (1, ("NOWHERE",))
        assert [handle for handle, _, _ in pushed.events] == ["h3"]
        pushed.refusing = set()
        assert (await poll(market, store, pushed)).told == 1

    async def test_news_are_told_once_and_oldest_first(self, store):
        market, pushed = ScriptedMarket(), Pushed()
        old, new, newest = (Article(name, f"headline {name}", "https://example.com", NOW) for name in ("a", "b", "c"))
        market.articles["two words"] = [newest, new, old]
        await store.watch(Watch("t", "c", "h", "news", "two words", seen="a"))
        assert (await poll(market, store, pushed)).told == 2
        assert [event_id for _, _, event_id in pushed.events] == ["news-b", "news-c"]
        assert (await poll(market, store, pushed)).told == 0

    async def test_however_many_articles_there_are_each_is_told_once(self, store):
        market, pushed = ScriptedMarket(), Pushed()
        market.articles["q"] = [Article(f"n{number}", "headline", "https://example.com", NOW) for number in range(250)]
        await store.watch(Watch("t", "c", "h", "news", "q", seen=",".join(f"n{number}" for number in range(1, 250))))
        assert [(await poll(market, store, pushed)).told for _ in range(3)] == [1, 0, 0]


async def a_key():
    return "a-key"


class TestMarkets:
    @pytest.mark.parametrize(("given", "meant"), [("brk.b", "BRK.B"), (" aapl ", "AAPL"), ("^gspc", "^GSPC")])
    def test_symbols(self, given, meant):
        assert checked_symbol(given) == meant

    @pytest.mark.parametrize("given", ["", "A B", "../x", "a\0", "x" * 40, "\ud800"])
    def test_what_is_no_symbol(self, given):
        with pytest.raises(ValueError, match="no symbol"):
            checked_symbol(given)

    async def test_the_bundled_market(self):
        market = BundledMarket()
        assert (await market.quote("BRK.B")).price == Decimal("501.25")
        assert [article.id for article in await market.news("acme talks")] == ["n2"]
        with pytest.raises(NoQuote, match="there are ACME"):
            await market.quote("AAPL")

    @pytest.mark.parametrize(
        ("answer", "told"),
        [
            (httpx.Response(200, json={"c": 501.25, "t": 1_790_000_000}), None),
            (httpx.Response(200, json={"c": 0, "t": 0}), "knows no price"),
            (httpx.Response(200, json={"c": None}), "holds no price"),
            (httpx.Response(200, json=[]), "holds no price"),
            (httpx.Response(200, json={"c": "NaN", "t": 1}), "knows no price"),
            (httpx.Response(200, text="<html>"), "does not answer"),
            (httpx.Response(429), "answers 429"),
        ],
    )
    async def test_finnhub(self, answer, told):
        asked = []

        def respond(request):
            asked.append(request)
            return answer

        market = Finnhub(a_key, httpx.AsyncClient(transport=httpx.MockTransport(respond)))
        if told is None:
            assert (await market.quote("BRK.B")).price == Decimal("501.25")
        else:
            with pytest.raises(NoQuote, match=told):
                await market.quote("BRK.B")
        assert asked[0].url.params["symbol"] == "BRK.B"
        assert asked[0].headers["X-Finnhub-Token"] == "a-key"
        assert "a-key" not in str(asked[0].url)

    async def test_finnhubs_news(self):
        items = [{"id": 1, "headline": "Interest rates", "url": "https://example.com", "datetime": 1_790_000_000}, "x"]
        market = Finnhub(
            a_key, httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200, json=items)))
        )
        assert [article.id for article in await market.news("interest RATES")] == ["1"]


class TestTools:
    @pytest.fixture
    async def agent(self, tmp_path, serve, receiver):
        store = LocalFinanceStore(tmp_path / "finance.db")
        agent = Agent(await serve(finance_server(BundledMarket(), store)), receiver)
        agent.store = store
        return agent

    async def test_a_day_of_trading(self, agent):
        opened = await agent.call("create_trading_account", cash="1000.00")
        account = opened.split()[2]
        assert "98.40" in await agent.call("get_stock_price", symbol="acme")
        assert "Bought 2 ACME at 98.40, for 196.80" in await agent.call(
            "buy_shares", account_id=account, symbol="ACME", shares="2"
        )
        assert "Sold 0.5 ACME" in await agent.call("sell_shares", account_id=account, symbol="ACME", shares="0.5")
        assert '"cash": "852.40"' in (portfolio := await agent.call("get_portfolio", account_id=account))
        assert '"worth": "1000.00"' in portfolio
        assert "not enough" in await agent.refused("buy_shares", account_id=account, symbol="GLOBEX", shares="3")
        assert "of yours" in await agent.refused("get_portfolio", thread="other", account_id=account)

    async def test_nobody_makes_money_by_rounding(self, agent):
        account = (await agent.call("create_trading_account", cash="1.00")).split()[2]
        assert "for 0.01" in await agent.call("buy_shares", account_id=account, symbol="ACME", shares="0.00005")
        assert "for 0.00" in await agent.call("sell_shares", account_id=account, symbol="ACME", shares="0.00005")

    async def test_a_repeat_needs_no_market(self, agent, monkeypatch):
        account = (await agent.call("create_trading_account")).split()[2]
        agent.calls = 100
        first = await agent.call("buy_shares", account_id=account, symbol="ACME", shares="1")

        async def down(market, symbol):
            raise NoQuote("down")

        monkeypatch.setattr(BundledMarket, "quote", down)
        done = await agent.store.traded(account, hashlib.sha256(b"root\0call-101").hexdigest()[:24])
        assert done.symbol in first
        assert await agent.store.traded(account, "another") is None

    @pytest.mark.parametrize("shares", ["0", "-1", "NaN", "Infinity", "1e400", "0.0000001", "many"])
    async def test_odd_numbers_of_shares(self, agent, shares):
        account = (await agent.call("create_trading_account")).split()[2]
        assert "shares" in await agent.refused("buy_shares", account_id=account, symbol="ACME", shares=shares)

    async def test_a_watch_ends_when_it_is_cancelled(self, agent):
        call = await agent.start("notify_price_change", symbol="ACME", below="90")
        assert (await agent.answer(call))["subscription"] is True
        await agent.call("notify_news", query="interest rates")
        assert [watch.seen for watch in await agent.store.watches() if watch.kind == "price"] == ["inside"]
        await agent.cancel(call)
        while len(await agent.store.watches()) > 1:  # noqa: ASYNC110 - the server answers before it has done it
            await asyncio.sleep(0.01)

    async def test_a_watch_needs_a_limit(self, agent):
        assert "below, above" in await agent.refused("notify_price_change", symbol="ACME")
        assert "less than" in await agent.refused("notify_price_change", symbol="ACME", below="9", above="8")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--every", "0"], "1 to 86400"),
        (["--every", "nan"], "1 to 86400"),
        (["--file", "/nowhere/x.db"], "another --file"),
    ],
)
def test_what_the_server_cannot_be_told(flags, said):
    command = [sys.executable, "-m", "infinity_agents.toolsets.finance", "--port", "0", *flags]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


EXAMPLES = {
    "get_stock_price": {"symbol": "ACME"},
    "notify_price_change": {"symbol": "ACME", "above": "200"},
    "notify_news": {"query": "ACME"},
    "create_trading_account": {"cash": "1000.00"},
    "buy_shares": {"account_id": "acct-of-another", "symbol": "ACME", "shares": "1"},
    "sell_shares": {"account_id": "acct-of-another", "symbol": "ACME", "shares": "1"},
    "get_portfolio": {"account_id": "acct-of-another"},
}
NOT_OWNED = {"buy_shares", "sell_shares", "get_portfolio"}
"""Each call of the checks is of another conversation, and an account belongs to one."""


async def test_the_server_keeps_the_protocol(store):
    await conforms(finance_server(BundledMarket(), store), EXAMPLES, failing=NOT_OWNED)
