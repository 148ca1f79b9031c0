"""The relay: what has waited its time in the delay queue or in a schedule goes on to the input queue."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from ..errors import Unproven
from ..ports.queues import InputSender
from ..wire import inputs, timers
from ..wire.keys import Keyring
from . import wiring
from .sandbox import Sandbox

_log = logging.getLogger(__name__)

sandbox = Sandbox(wiring.relay)


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Return which messages of an SQS event were not forwarded.

    What can never be forwarded is among them: the delay queue's redrive policy parks it, and the keeper tells of it.

    Raises:
        Misconfigured: the environment, or what it names, cannot be used.
        StoreUnavailable: what it names could not be read when the sandbox began.
    """
    return sandbox.run(lambda ports: _forwarded(*ports, event))


async def _forwarded(sender: InputSender, keyring: Keyring, event: Mapping[str, Any]) -> dict[str, Any]:
    await wiring.fresh(keyring)
    records = event["Records"]
    done = await asyncio.gather(*(_forward(sender, keyring, record) for record in records))
    failed = [record["messageId"] for record, is_done in zip(records, done, strict=True) if not is_done]
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}


async def _forward(sender: InputSender, keyring: Keyring, record: Mapping[str, Any]) -> bool:
    """Forward one message, under the ids that its sender chose; tell whether that was done."""
    queue_id = record["messageId"]
    try:
        delayed = timers.decode(record["body"])
        delivery = inputs.decode(delayed.body, keyring=keyring, queue_id=queue_id, group_id=delayed.group_id)
        if not delivery.proven:
            raise Unproven("what waits in the delay queue needs a mac of ours, and it has none that is right")
        await sender.send(delayed.body, group_id=delayed.group_id, dedup_id=delayed.dedup_id)
    except Exception:  # noqa: BLE001 - a message's edge: the others are forwarded
        _log.exception("message %s is not forwarded", queue_id)
        return False
    return True
