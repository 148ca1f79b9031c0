"""The responder: a batch of the output queue, posted to Slack."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ..errors import StoreUnavailable, Undecodable
from ..ports.queues import Receipts
from ..slack.responder import SlackResponder, ToShow
from ..wire import outputs
from . import wiring
from .sandbox import Sandbox

_log = logging.getLogger(__name__)

_LAST_SECONDS = 5.0
"""Seconds before the invocation's end at which nothing is waited for any more."""

sandbox = Sandbox(wiring.slack_responder)


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Return which messages of an SQS event Lambda must not delete. They come again at the time that Slack asks for.

    What is no output is among them: the queue's redrive policy parks it.

    Raises:
        Misconfigured: the environment, or what it names, cannot be used.
        StoreUnavailable: what it names could not be read when the sandbox began.
    """
    seconds = context.get_remaining_time_in_millis() / 1000 - _LAST_SECONDS
    return sandbox.run(lambda ports: _handled(*ports, event, seconds))


async def _handled(
    responder: SlackResponder, receipts: Receipts, event: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    batch, unread = [], []
    for record in event["Records"]:
        attempt = int(record["attributes"]["ApproximateReceiveCount"])
        try:
            batch.append(ToShow(record["messageId"], outputs.decode(record["body"]), attempt))
        except Undecodable as error:
            _log.error("message %s of the output queue is left to be parked: %s", record["messageId"], error)
            unread.append(record["messageId"])
    deadline = responder.clock.now() + timedelta(seconds=max(seconds, 0.0))
    left = await responder.show(batch, deadline=deadline)
    receipt_of = {record["messageId"]: record["receiptHandle"] for record in event["Records"]}
    await asyncio.gather(*(_hide(receipts, receipt_of[key], delay) for key, delay in left.items()))
    return {"batchItemFailures": [{"itemIdentifier": key} for key in (*left, *unread)]}


async def _hide(receipts: Receipts, receipt: str, seconds: float) -> None:
    try:
        await receipts.hide([receipt], seconds=seconds)
    except StoreUnavailable as error:
        _log.warning("a message keeps the visibility timeout that it has: %s", error)
