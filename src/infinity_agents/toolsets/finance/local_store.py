"""A ``FinanceStore`` in one SQLite file."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

from .store import Account, NoAccount, NotEnough, Trade, Watch

_SCHEMA = """
CREATE TABLE IF NOT EXISTS accounts (id TEXT PRIMARY KEY, owner TEXT NOT NULL, cash TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS shares (
  account_id TEXT NOT NULL, symbol TEXT NOT NULL, shares TEXT NOT NULL, PRIMARY KEY (account_id, symbol)) STRICT;
CREATE TABLE IF NOT EXISTS trades (
  id TEXT PRIMARY KEY, account_id TEXT NOT NULL, symbol TEXT NOT NULL, shares TEXT NOT NULL, price TEXT NOT NULL,
  cost TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS watches (
  thread_id TEXT NOT NULL, call_id TEXT NOT NULL, handle TEXT NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL,
  below TEXT, above TEXT, seen TEXT NOT NULL, PRIMARY KEY (thread_id, call_id)) STRICT;
"""

T = TypeVar("T")


class LocalFinanceStore:
    """Keeps everything in the file ``path``; several processes may use it at once.

    Money is text there, as decimal numbers are written: SQLite's own numbers would round it.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = str(path)
        with self._connected() as connection:
            connection.executescript(_SCHEMA)
        connection.close()

    async def create_account(self, account: Account) -> None:
        row = (account.id, account.owner, str(account.cash))
        await self._done(lambda db: db.execute("INSERT INTO accounts VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row))

    async def account(self, account_id: str, owner: str) -> Account:
        return await self._done(lambda db: _account(db, account_id, owner))

    async def trade(self, trade: Trade, owner: str) -> Trade:
        return await self._done(lambda db: _traded(db, trade, owner))

    async def traded(self, account_id: str, trade_id: str) -> Trade | None:
        return await self._done(lambda db: _earlier(db, account_id, trade_id))

    async def watch(self, watch: Watch) -> None:
        below, above = (str(limit) if limit is not None else None for limit in (watch.below, watch.above))
        row = (watch.thread_id, watch.call_id, watch.handle, watch.kind, watch.subject, below, above, watch.seen)
        await self._done(lambda db: db.execute("INSERT OR REPLACE INTO watches VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row))

    async def watches(self) -> Sequence[Watch]:
        rows = await self._done(lambda db: db.execute("SELECT * FROM watches ORDER BY thread_id, call_id").fetchall())
        return [_watch(row) for row in rows]

    async def saw(self, watch: Watch, seen: str) -> None:
        row = (seen, watch.thread_id, watch.call_id)
        await self._done(lambda db: db.execute("UPDATE watches SET seen = ? WHERE thread_id = ? AND call_id = ?", row))

    async def unwatch(self, thread_id: str, call_id: str | None = None) -> None:
        row = (thread_id, call_id, call_id)
        sql = "DELETE FROM watches WHERE thread_id = ? AND (call_id = ? OR ? IS NULL)"
        await self._done(lambda db: db.execute(sql, row))

    async def _done(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.to_thread(self._transaction, work)

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connected()
        try:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                return work(connection)
        finally:
            connection.close()

    def _connected(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30.0, isolation_level=None)


def _account(db: sqlite3.Connection, account_id: str, owner: str) -> Account:
    found = db.execute("SELECT cash FROM accounts WHERE id = ? AND owner = ?", (account_id, owner)).fetchone()
    if found is None:
        raise NoAccount(f"there is no account {account_id[:64]!r} of yours; make one with create_trading_account")
    rows = db.execute("SELECT symbol, shares FROM shares WHERE account_id = ? ORDER BY symbol", (account_id,))
    return Account(account_id, owner, Decimal(found[0]), {symbol: Decimal(shares) for symbol, shares in rows})


def _traded(db: sqlite3.Connection, trade: Trade, owner: str) -> Trade:
    account = _account(db, trade.account_id, owner)
    earlier = _earlier(db, account.id, trade.id)
    if earlier is not None:
        return earlier
    cash, shares = account.cash - trade.cost, account.shares.get(trade.symbol, Decimal(0)) + trade.shares
    if cash < 0 or shares < 0:
        raise NotEnough(
            f"the account holds {account.cash} dollars and {account.shares.get(trade.symbol, 0)} shares of "
            f"{trade.symbol}, which is not enough"
        )
    db.execute("UPDATE accounts SET cash = ? WHERE id = ?", (str(cash), account.id))
    if shares:
        row = (account.id, trade.symbol, str(shares))
        db.execute("INSERT OR REPLACE INTO shares VALUES (?, ?, ?)", row)
    else:
        db.execute("DELETE FROM shares WHERE account_id = ? AND symbol = ?", (account.id, trade.symbol))
    numbers = [str(number) for number in (trade.shares, trade.price, trade.cost)]
    db.execute("INSERT INTO trades VALUES (?, ?, ?, ?, ?, ?)", (trade.id, account.id, trade.symbol, *numbers))
    return trade


def _earlier(db: sqlite3.Connection, account_id: str, trade_id: str) -> Trade | None:
    sql = "SELECT symbol, shares, price, cost FROM trades WHERE id = ? AND account_id = ?"
    found = db.execute(sql, (trade_id, account_id)).fetchone()
    if found is None:
        return None
    symbol, *numbers = found
    return Trade(trade_id, account_id, symbol, *map(Decimal, numbers))


def _watch(row: Sequence[str | None]) -> Watch:
    thread_id, call_id, handle, kind, subject, below, above, seen = row
    return Watch(
        thread_id or "",
        call_id or "",
        handle or "",
        "price" if kind == "price" else "news",
        subject or "",
        Decimal(below) if below else None,
        Decimal(above) if above else None,
        seen or "",
    )
