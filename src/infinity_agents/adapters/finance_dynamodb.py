"""The store of the finance server in one DynamoDB table: partition key ``pk``, sort key ``sk``.

| pk | sk | holds |
|---|---|---|
| ``account#ID`` | ``account`` | ``owner``, ``cash`` |
| ``account#ID`` | ``shares#SYMBOL`` | ``shares`` |
| ``account#ID`` | ``trade#ID`` | ``symbol``, ``shares``, ``price``, ``cost`` |
| ``watches`` | ``THREAD#CALL``, hashed | the watch |

A trade is one transaction over its three items, each with its condition, so two at once cannot spend the same money.
"""

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from ..aws_clients import AwsClients, AwsRefused
from ..errors import StoreUnavailable
from ..toolsets.finance.store import Account, NoAccount, NotEnough, Trade, Watch

_TRIES = 12
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
_Item = Mapping[str, Mapping[str, Any]]


class DynamoFinanceStore:
    """A ``FinanceStore`` in the table ``table``."""

    def __init__(self, clients: AwsClients, table: str) -> None:
        self._clients = clients
        self._table = table

    async def create_account(self, account: Account) -> None:
        item = {**_key(account.id, "account"), "owner": {"S": account.owner}, "cash": {"N": str(account.cash)}}
        try:
            await self._call("put_item", Item=item, ConditionExpression="attribute_not_exists(pk)")
        except AwsRefused as error:
            if error.code != "ConditionalCheckFailedException":
                raise

    async def account(self, account_id: str, owner: str) -> Account:
        found, shares = None, {}
        # Up to "shares$": the trades, of which there may be many, come behind.
        async for item in self._query(f"account#{account_id}", between=("account", "shares$")):
            if item["sk"]["S"] == "account":
                found = item
            else:
                shares[item["sk"]["S"].removeprefix("shares#")] = Decimal(item["shares"]["N"])
        if found is None or found["owner"]["S"] != owner:
            raise NoAccount(f"there is no account {account_id[:64]!r} of yours; make one with create_trading_account")
        held = {symbol: count for symbol, count in sorted(shares.items()) if count}
        return Account(account_id, owner, Decimal(found["cash"]["N"]), held)

    async def trade(self, trade: Trade, owner: str) -> Trade:
        account = await self.account(trade.account_id, owner)
        pause = _FIRST_PAUSE
        for _ in range(_TRIES):
            try:
                await self._clients.call(
                    "dynamodb", "transact_write_items", TransactItems=_writes(self._table, trade, owner)
                )
                return trade
            except AwsRefused as error:
                if error.code != "TransactionCanceledException":
                    raise
                earlier = await self.traded(account.id, trade.id)
                if earlier is not None:
                    return earlier
                account = await self.account(trade.account_id, owner)
                held = account.shares.get(trade.symbol, Decimal(0))
                if account.cash < trade.cost or held + trade.shares < 0:
                    raise NotEnough(
                        f"the account holds {account.cash} dollars and {held} shares of {trade.symbol}, "
                        "which is not enough"
                    ) from None
            # What is enough now was cancelled by another trade on the same account at the same time.
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, _LONGEST_PAUSE)
        raise StoreUnavailable(
            f"the account {account.id} is traded on so much that this trade found no room; try again"
        )

    async def traded(self, account_id: str, trade_id: str) -> Trade | None:
        answer = await self._call("get_item", Key=_key(account_id, f"trade#{trade_id}"), ConsistentRead=True)
        found = answer.get("Item")
        if found is None:
            return None
        numbers = [Decimal(found[name]["N"]) for name in ("shares", "price", "cost")]
        return Trade(trade_id, account_id, found["symbol"]["S"], *numbers)

    async def watch(self, watch: Watch) -> None:
        limits = {"below": watch.below, "above": watch.above}
        item = {
            **_watch_key(watch.thread_id, watch.call_id),
            "thread_id": {"S": watch.thread_id},
            "call_id": {"S": watch.call_id},
            "handle": {"S": watch.handle},
            "kind": {"S": watch.kind},
            "subject": {"S": watch.subject},
            "seen": {"S": watch.seen},
            **{name: {"N": str(limit)} for name, limit in limits.items() if limit is not None},
        }
        await self._call("put_item", Item=item)

    async def watches(self) -> Sequence[Watch]:
        return [_watch(item) async for item in self._query("watches")]

    async def saw(self, watch: Watch, seen: str) -> None:
        try:
            await self._call(
                "update_item",
                Key=_watch_key(watch.thread_id, watch.call_id),
                UpdateExpression="SET seen = :seen",
                ConditionExpression="attribute_exists(pk)",
                ExpressionAttributeValues={":seen": {"S": seen}},
            )
        except AwsRefused as error:
            if error.code != "ConditionalCheckFailedException":
                raise

    async def unwatch(self, thread_id: str, call_id: str | None = None) -> None:
        if call_id is not None:
            await self._call("delete_item", Key=_watch_key(thread_id, call_id))
            return
        for watch in await self.watches():
            if watch.thread_id == thread_id:
                await self._call("delete_item", Key=_watch_key(thread_id, watch.call_id))

    async def _query(self, pk: str, *, between: tuple[str, str] | None = None) -> AsyncIterator[_Item]:
        condition, values = "pk = :pk", {":pk": {"S": pk}}
        if between is not None:
            condition += " AND sk BETWEEN :from AND :to"
            values |= {":from": {"S": between[0]}, ":to": {"S": between[1]}}
        start: dict[str, Any] = {}
        while True:
            page = await self._call(
                "query",
                KeyConditionExpression=condition,
                ExpressionAttributeValues=values,
                ConsistentRead=True,
                **start,
            )
            for item in page["Items"]:
                yield item
            if "LastEvaluatedKey" not in page:
                return
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    async def _call(self, operation: str, **arguments: Any) -> Mapping[str, Any]:
        return await self._clients.call("dynamodb", operation, TableName=self._table, **arguments)


def _writes(table: str, trade: Trade, owner: str) -> list[dict[str, Any]]:
    """Return the trade as writes, each of which has to be possible for any to be done."""
    paid = {
        "TableName": table,
        "Key": _key(trade.account_id, "account"),
        "UpdateExpression": "SET cash = cash - :cost",
        "ConditionExpression": "#owner = :owner AND cash >= :cost",
        "ExpressionAttributeNames": {"#owner": "owner"},
        "ExpressionAttributeValues": {":cost": {"N": str(trade.cost)}, ":owner": {"S": owner}},
    }
    moved: dict[str, Any] = {
        "TableName": table,
        "Key": _key(trade.account_id, f"shares#{trade.symbol}"),
        "UpdateExpression": "ADD shares :shares",
        "ExpressionAttributeValues": {":shares": {"N": str(trade.shares)}},
    }
    if trade.shares < 0:
        moved["ConditionExpression"] = "shares >= :sold"
        moved["ExpressionAttributeValues"] = {**moved["ExpressionAttributeValues"], ":sold": {"N": str(-trade.shares)}}
    noted = {
        "TableName": table,
        "Item": {
            **_key(trade.account_id, f"trade#{trade.id}"),
            "symbol": {"S": trade.symbol},
            "shares": {"N": str(trade.shares)},
            "price": {"N": str(trade.price)},
            "cost": {"N": str(trade.cost)},
        },
        "ConditionExpression": "attribute_not_exists(pk)",
    }
    return [{"Update": paid}, {"Update": moved}, {"Put": noted}]


def _key(account_id: str, sort: str) -> dict[str, dict[str, str]]:
    return {"pk": {"S": f"account#{account_id}"}, "sk": {"S": sort}}


def _watch_key(thread_id: str, call_id: str) -> dict[str, dict[str, str]]:
    name = hashlib.sha256(f"{thread_id}\0{call_id}".encode()).hexdigest()
    return {"pk": {"S": "watches"}, "sk": {"S": name}}


def _watch(item: _Item) -> Watch:
    def limit(name: str) -> Decimal | None:
        return Decimal(item[name]["N"]) if name in item else None

    return Watch(
        item["thread_id"]["S"],
        item["call_id"]["S"],
        item["handle"]["S"],
        "price" if item["kind"]["S"] == "price" else "news",
        item["subject"]["S"],
        limit("below"),
        limit("above"),
        item["seen"]["S"],
    )
