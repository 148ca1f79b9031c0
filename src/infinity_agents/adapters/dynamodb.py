"""The state store in one DynamoDB table: partition key ``pk``, sort key ``sk``, TTL attribute ``ttl``.

| pk | sk | holds |
|---|---|---|
| ``thread#ID`` | ``performed`` | ``version`` |
| ``thread#ID`` | ``copy#ITEM#KEY`` | ``version``; ``key`` and ``value``, or neither where it was taken away |
| ``thread#ID`` | ``view#TYPE`` | ``at``, ``key``, ``value`` |
| ``session#ID`` | ``manifests`` | ``value`` |
| ``toolset#ID`` | ``manifest`` | ``value`` |
| as configured | ``config`` | ``config``, written by whoever deploys |

A value is JSON text, compressed where it is long.
"""

import zlib
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..aws_clients import AwsClients, AwsRefused
from ..conversation import ids
from ..conversation.content import without_surrogates
from ..errors import Misconfigured, Reject
from ..ports.clock import Clock
from ..ports.state import StateItem
from ..wire import codecs

if TYPE_CHECKING:
    from ..rap.toolsets import ToolSetConfig

MAX_VALUE = 390 * 1024
"""The longest value in bytes, compressed: an item takes 400 KB, its keys and names included."""

_COMPRESSED_FROM = 16 * 1024
_LONGEST_KEY = 800
_SESSION_KEPT = timedelta(days=90)
_GRAVE_KEPT = timedelta(days=35)
"""As long as the inbox remembers: no write is older."""

_Fields = dict[str, dict[str, Any]]


class DynamoStateStore:
    """A ``StateStore`` in the table ``table``, and where the tools configuration is read."""

    def __init__(self, clients: AwsClients, table: str, clock: Clock) -> None:
        self._clients = clients
        self._table = table
        self._clock = clock

    async def performed_through(self, thread_id: str) -> int:
        """Return the highest version whose effects are all performed; 0 where nothing is known."""
        item = await self._get(_thread(thread_id), "performed")
        return int(item["version"]["N"]) if item else 0

    async def set_performed_through(self, thread_id: str, version: int) -> None:
        """Move it forward, never back."""
        await self._put(_thread(thread_id), "performed", {"version": {"N": str(version)}}, newest="version")

    async def copy(
        self, thread_id: str, item: StateItem, key: str, value: Mapping[str, Any] | None, version: int
    ) -> None:
        """Keep a copy or take it away, unless a newer version of the thread has written it.

        Raises:
            Reject: no item takes so long a value; the text says how long it is.
        """
        fields: _Fields = {"version": {"N": str(version)}}
        # What was taken away leaves its version behind, so that an older write cannot bring it back.
        if value is None:
            fields["ttl"] = self._ttl(_GRAVE_KEPT)
        else:
            fields |= {"key": {"S": without_surrogates(key)}, "value": _packed(value, f"the {item} {key!r}")}
        await self._put(_thread(thread_id), _sort(f"copy#{item}#", key), fields, newest="version")

    async def copies(self, thread_id: str, item: StateItem) -> Mapping[str, Mapping[str, Any]]:
        """Return the copies of one thread, by key."""
        return await self._values(_thread(thread_id), f"copy#{item}#")

    async def put_view(self, thread_id: str, view_type: str, content: Any, at: float) -> None:
        """Keep the newest view of its type.

        Raises:
            Reject: no item takes so long a view; the text says how long it is.
        """
        fields: _Fields = {
            "at": {"N": repr(float(at))},
            "key": {"S": without_surrogates(view_type)},
            "value": _packed(content, f"the view {view_type!r}"),
        }
        await self._put(_thread(thread_id), _sort("view#", view_type), fields, newest="at")

    async def views(self, thread_id: str) -> Mapping[str, Any]:
        """Return the newest views, by type."""
        return await self._values(_thread(thread_id), "view#")

    async def put_manifests(self, session_id: str, manifests: Mapping[str, Any]) -> None:
        """Cache what discovery found for a session; it is forgotten after 90 days and found anew.

        Raises:
            Reject: no item takes so much; the text says how much it is.
        """
        fields: _Fields = {
            "value": _packed(manifests, f"the tool sets of the session {session_id!r}"),
            "ttl": self._ttl(_SESSION_KEPT),
        }
        await self._put(_sort("session#", session_id), "manifests", fields)

    async def manifests(self, session_id: str) -> Mapping[str, Any] | None:
        """Return the cached discovery of the session, or ``None``."""
        item = await self._get(_sort("session#", session_id), "manifests")
        # DynamoDB deletes what has expired days later.
        if item is None or int(item["ttl"]["N"]) <= self._clock.now().timestamp():
            return None
        manifests: Mapping[str, Any] = _unpacked(item["value"])
        return manifests

    async def put_latest_manifest(self, tool_set: str, manifest: Mapping[str, Any]) -> None:
        """Keep the newest manifest of a tool set.

        Raises:
            Reject: no item takes so much; the text says how much it is.
        """
        fields: _Fields = {"value": _packed(manifest, f"the manifest of the tool set {tool_set!r}")}
        await self._put(_sort("toolset#", tool_set), "manifest", fields)

    async def latest_manifest(self, tool_set: str) -> Mapping[str, Any] | None:
        """Return the newest manifest that was ever fetched from the tool set, or ``None``."""
        item = await self._get(_sort("toolset#", tool_set), "manifest")
        return None if item is None else _unpacked(item["value"])

    async def tools_config(self, key: str) -> "tuple[ToolSetConfig, ...]":
        """Return the tool sets that the item with ``pk`` = ``key`` and ``sk`` = ``config`` configures.

        Raises:
            Misconfigured: it is not there, or cannot be read; the text names the place and what is wrong.
            StoreUnavailable: the table cannot be reached.
        """
        from ..rap.toolsets import parse_tools_config

        place = f"the table {self._table}, item pk={key!r} sk='config'"
        item = await self._get(key, "config")
        if item is None:
            raise Misconfigured(f"the tools configuration in {place} is not there; put it there, or unset the key")
        if "S" not in item.get("config", {}):
            raise Misconfigured(f"the tools configuration in {place} has no attribute 'config' that is a string")
        return parse_tools_config(item["config"]["S"], place)

    # ------------------------------------------------------------------ the table

    def _ttl(self, kept: timedelta) -> dict[str, str]:
        return {"N": str(int((self._clock.now() + kept).timestamp()))}

    async def _get(self, pk: str, sk: str) -> _Fields | None:
        answer = await self._clients.call(
            "dynamodb",
            "get_item",
            TableName=self._table,
            Key={"pk": {"S": pk}, "sk": {"S": sk}},
            ConsistentRead=True,
        )
        item: _Fields | None = answer.get("Item")
        return item

    async def _put(self, pk: str, sk: str, fields: _Fields, *, newest: str | None = None) -> None:
        """Write the item; where it holds a higher number in the field ``newest``, it stays as it is."""
        condition = {}
        if newest is not None:
            condition = {
                "ConditionExpression": "attribute_not_exists(#newest) OR #newest <= :newest",
                "ExpressionAttributeNames": {"#newest": newest},
                "ExpressionAttributeValues": {":newest": fields[newest]},
            }
        item = {"pk": {"S": pk}, "sk": {"S": sk}, **fields}
        try:
            await self._clients.call("dynamodb", "put_item", TableName=self._table, Item=item, **condition)
        except AwsRefused as error:
            if error.code != "ConditionalCheckFailedException":
                raise

    async def _values(self, pk: str, prefix: str) -> dict[str, Any]:
        return {item["key"]["S"]: _unpacked(item["value"]) async for item in self._query(pk, prefix) if "value" in item}

    async def _query(self, pk: str, prefix: str) -> AsyncIterator[_Fields]:
        start: Mapping[str, Any] = {}
        while True:
            answer = await self._clients.call(
                "dynamodb",
                "query",
                TableName=self._table,
                ConsistentRead=True,
                KeyConditionExpression="pk = :pk AND begins_with(sk, :prefix)",
                ExpressionAttributeValues={":pk": {"S": pk}, ":prefix": {"S": prefix}},
                **start,
            )
            for item in answer["Items"]:
                yield item
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}


def _thread(thread_id: str) -> str:
    return _sort("thread#", thread_id)


def _sort(prefix: str, name: str) -> str:
    """Return ``name`` as part of a key, by its hash where no key takes it as it is."""
    name = without_surrogates(name)
    return prefix + (name if len(name.encode()) <= _LONGEST_KEY else f"~{ids.digest(name, length=64)}")


def _packed(value: Any, what: str) -> dict[str, Any]:
    text = codecs.values.encode(value)
    encoded = text.encode()
    if len(encoded) < _COMPRESSED_FROM:
        return {"S": text}
    compressed = zlib.compress(encoded)
    if len(compressed) > MAX_VALUE:
        raise Reject(
            f"{what} has {len(encoded)} bytes, {len(compressed)} compressed, and the state store takes {MAX_VALUE}; "
            "keep large values elsewhere and name the place"
        )
    return {"B": compressed}


def _unpacked(packed: Mapping[str, Any]) -> Any:
    return codecs.values.decode(packed["S"] if "S" in packed else zlib.decompress(packed["B"]))
