"""Records of tool servers in one DynamoDB table: partition key ``pk``, sort key ``sk``, TTL attribute ``ttl``.

``pk`` is the group, ``sk`` the key, ``record`` the JSON text. TTL deletes late: readers look at the time themselves.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ..aws_clients import AwsClients, AwsRefused
from ..ports.clock import Clock
from ..ports.records import Record

_Item = Mapping[str, Mapping[str, Any]]


class DynamoRecords:
    """A ``RecordTable`` in the table ``table``."""

    def __init__(self, clients: AwsClients, table: str, clock: Clock) -> None:
        self._clients = clients
        self._table = table
        self._clock = clock

    async def put(self, group: str, key: str, record: Record, *, kept: timedelta) -> None:
        """Keep ``record``, in place of what was there."""
        await self._put(group, key, record, kept)

    async def put_new(self, group: str, key: str, record: Record, *, kept: timedelta) -> Record | None:
        """Keep ``record`` unless there is one; return the one that there is."""
        try:
            await self._put(
                group,
                key,
                record,
                kept,
                ConditionExpression="attribute_not_exists(pk) OR #ttl <= :now",
                ExpressionAttributeNames={"#ttl": "ttl"},
                ExpressionAttributeValues={":now": {"N": str(self._now())}},
            )
        except AwsRefused as error:
            if error.code != "ConditionalCheckFailedException":
                raise
            return await self.get(group, key)
        return None

    async def get(self, group: str, key: str) -> Record | None:
        """Return the record, or ``None``."""
        answer = await self._clients.call(
            "dynamodb", "get_item", TableName=self._table, Key=_key(group, key), ConsistentRead=True
        )
        item = answer.get("Item")
        return None if item is None or self._is_over(item) else _read(item)

    async def all(self, group: str) -> Mapping[str, Record]:
        """Return the records of a group, by key."""
        found: dict[str, Record] = {}
        start: Mapping[str, Any] = {}
        while True:
            answer = await self._clients.call(
                "dynamodb",
                "query",
                TableName=self._table,
                ConsistentRead=True,
                KeyConditionExpression="pk = :pk",
                ExpressionAttributeValues={":pk": {"S": group}},
                **start,
            )
            found |= {item["sk"]["S"]: _read(item) for item in answer["Items"] if not self._is_over(item)}
            if "LastEvaluatedKey" not in answer:
                return found
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    async def delete(self, group: str, key: str) -> None:
        """Forget the record, if there is one."""
        await self._clients.call("dynamodb", "delete_item", TableName=self._table, Key=_key(group, key))

    async def _put(self, group: str, key: str, record: Record, kept: timedelta, **condition: Any) -> None:
        item = {**_key(group, key), "record": {"S": json.dumps(record)}}
        item["ttl"] = {"N": str(self._now() + int(kept.total_seconds()))}
        await self._clients.call("dynamodb", "put_item", TableName=self._table, Item=item, **condition)

    def _now(self) -> int:
        return int(self._clock.now().timestamp())

    def _is_over(self, item: _Item) -> bool:
        return int(item["ttl"]["N"]) <= self._now()


def _key(group: str, key: str) -> dict[str, dict[str, str]]:
    return {"pk": {"S": group}, "sk": {"S": key}}


def _read(item: _Item) -> Record:
    record: Record = json.loads(item["record"]["S"])
    return record
