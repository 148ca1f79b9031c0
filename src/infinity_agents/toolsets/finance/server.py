"""The tools of the finance server."""

import hashlib
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from typing import Annotated, Any

from pydantic import Field

from ...rap.server import ToolContext, ToolServer
from .market import Market, NoQuote, checked_symbol
from .polling import side_of
from .store import Account, FinanceStore, NotEnough, Trade, Watch

_CENT = Decimal("0.01")
_MOST_MONEY = Decimal(1_000_000_000)

_Symbol = Annotated[str, Field(description="What the shares are traded under, such as AAPL or BRK.B")]
_Shares = Annotated[Decimal, Field(gt=0, le=1_000_000_000, max_digits=18, decimal_places=6)]
_Price = Annotated[Decimal | None, Field(gt=0, max_digits=18, decimal_places=6)]


def finance_server(market: Market, store: FinanceStore) -> ToolServer:
    """Return the server over a market and a store; what watches wait for is told by ``polling.poll``."""
    server = ToolServer(name="finance", description="Prices, news, and trading with paper money. No real money moves.")
    tools = _Tools(market, store)
    server.tool(read_only=True, idempotent=True, display_script='"Price of " + args.symbol')(tools.get_stock_price)
    server.subscription(display_script='"Watch the price of " + args.symbol')(tools.notify_price_change)
    server.subscription(display_script='"Watch the news about " + args.query')(tools.notify_news)
    server.tool(idempotent=True, display_script='"New trading account"')(tools.create_trading_account)
    server.tool(idempotent=True, display_script='"Buy " + args.shares + " " + args.symbol')(tools.buy_shares)
    server.tool(idempotent=True, display_script='"Sell " + args.shares + " " + args.symbol')(tools.sell_shares)
    server.tool(read_only=True, idempotent=True, display_script='"Portfolio"')(tools.get_portfolio)

    @server.on_cancel
    async def unwatch(thread_id: str, call_id: str) -> None:
        await store.unwatch(thread_id, call_id)

    @server.on_close
    async def unwatch_all(thread_id: str) -> None:
        await store.unwatch(thread_id)

    return server


class _Tools:
    def __init__(self, market: Market, store: FinanceStore) -> None:
        self._market = market
        self._store = store

    async def get_stock_price(self, symbol: _Symbol) -> str:
        """Tell the last price of a share."""
        quote = await self._market.quote(checked_symbol(symbol))
        return f"{quote.symbol} costs {quote.price} dollars, as of {quote.at:%Y-%m-%d %H:%M} UTC"

    async def notify_price_change(
        self, symbol: _Symbol, ctx: ToolContext, below: _Price = None, above: _Price = None
    ) -> str:
        """Tell whenever the price of a share falls below or rises above what you name, and when it comes back.

        Args:
            symbol: Which share.
            below: Tell when it costs less.
            above: Tell when it costs more.
        """
        if below is None and above is None:
            raise ValueError("give below, above, or both")
        if below is not None and above is not None and below >= above:
            raise ValueError(f"below must be less than above, and {below} is not less than {above}")
        quote = await self._market.quote(checked_symbol(symbol))
        watch = Watch(ctx.thread_id, ctx.call_id, ctx.handle, "price", quote.symbol, below, above)
        await self._store.watch(replace(watch, seen=side_of(watch, quote.price)))
        return f"{quote.symbol} costs {quote.price} dollars now. You will be told when that changes as you asked."

    async def notify_news(self, query: Annotated[str, Field(min_length=1, max_length=200)], ctx: ToolContext) -> str:
        """Tell whenever there is something new in the news.

        Args:
            query: A symbol, or words that must stand in the headline.
        """
        articles = await self._market.news(query)
        seen = ",".join(article.id for article in articles)
        await self._store.watch(Watch(ctx.thread_id, ctx.call_id, ctx.handle, "news", query, seen=seen))
        told = "\n".join(f"- {article.headline} {article.url}" for article in articles[:10])
        return f"You will be told of what is new about {query}. So far:\n{told or 'nothing'}"

    async def create_trading_account(
        self,
        ctx: ToolContext,
        cash: Annotated[Decimal, Field(gt=0, le=_MOST_MONEY, decimal_places=2)] = Decimal(100_000),
    ) -> str:
        """Open an account with paper money.

        Args:
            cash: How many dollars it holds.
        """
        account = Account(f"acct-{_name_of(ctx)}", _owner(ctx), cash, {})
        await self._store.create_account(account)
        return f"The account {account.id} holds {cash} dollars of paper money."

    async def buy_shares(self, account_id: str, symbol: _Symbol, shares: _Shares, ctx: ToolContext) -> str:
        """Buy shares at the last price.

        Args:
            account_id: The account that pays.
            symbol: Which share.
            shares: How many; parts of shares can be bought.
        """
        return await self._traded(account_id, symbol, shares, ctx)

    async def sell_shares(self, account_id: str, symbol: _Symbol, shares: _Shares, ctx: ToolContext) -> str:
        """Sell shares at the last price.

        Args:
            account_id: The account that holds them.
            symbol: Which share.
            shares: How many.
        """
        return await self._traded(account_id, symbol, -shares, ctx)

    async def get_portfolio(self, account_id: str, ctx: ToolContext) -> dict[str, Any]:
        """Tell what an account holds, and what that is worth."""
        account = await self._store.account(account_id, _owner(ctx))
        holdings, worth, unknown = [], account.cash, []
        for symbol, shares in account.shares.items():
            try:
                price = (await self._market.quote(symbol)).price
            except NoQuote:
                unknown.append(symbol)
                holdings.append({"symbol": symbol, "shares": str(shares)})
                continue
            value = _money(shares * price)
            worth += value
            holdings.append({"symbol": symbol, "shares": str(shares), "price": str(price), "value": str(value)})
        told = {"cash": str(account.cash), "holdings": holdings, "worth": str(worth)}
        return told if not unknown else told | {"not counted, for want of a price": unknown}

    async def _traded(self, account_id: str, symbol: str, shares: Decimal, ctx: ToolContext) -> str:
        owner = _owner(ctx)
        await self._store.account(account_id, owner)
        earlier = await self._store.traded(account_id, _name_of(ctx))
        if earlier is not None:
            return _receipt(earlier)
        quote = await self._market.quote(checked_symbol(symbol))
        cost = _money(shares * quote.price)
        wanted = Trade(_name_of(ctx), account_id, quote.symbol, shares, quote.price, cost)
        try:
            done = await self._store.trade(wanted, owner)
        except NotEnough as error:
            verb = "buy" if shares > 0 else "sell"
            raise NotEnough(f"cannot {verb} {abs(shares)} {symbol} for {abs(cost)} dollars: {error}") from None
        return _receipt(done)


def _receipt(done: Trade) -> str:
    verb = "Bought" if done.shares > 0 else "Sold"
    return f"{verb} {abs(done.shares)} {done.symbol} at {done.price}, for {abs(done.cost)} dollars in all."


def _owner(ctx: ToolContext) -> str:
    """Return whose accounts a call may use: the person's, else the conversation's."""
    return ctx.user_id or (ctx.thread_ancestors[0] if ctx.thread_ancestors else ctx.thread_id)


def _name_of(ctx: ToolContext) -> str:
    """Return a name for what a call makes: the same on every repeat of it, and no other call's."""
    return hashlib.sha256(f"{ctx.thread_id}\0{ctx.call_id}".encode()).hexdigest()[:24]


def _money(amount: Decimal) -> Decimal:
    # Up: who buys pays a part of a cent more, and who sells gets it less, so that nobody makes money by rounding.
    return amount.quantize(_CENT, ROUND_CEILING)
