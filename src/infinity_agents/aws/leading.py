"""The leader's work: a batch of the input queue, as Lambda hands it over, taken through one step."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ..conversation.events import Failed, StepOutcome
from ..conversation.messages import Delivery, ToolResult
from ..errors import DeadlineReached, Reject, StoreUnavailable
from ..ports.conversations import NO_ENTRIES, LoadRequest
from ..ports.queues import Parking, Receipts, Received
from ..runtime import AgentSystem
from ..wire.inputs import decode
from ..wire.traces import following, trace_among
from .telemetry import Telemetry

_log = logging.getLogger(__name__)

_VISIBILITY_MARGIN = 10.0
"""Seconds for which messages stay in hand beyond the invocation, should it die: then nobody gives them back."""
_LAST_SECONDS = 5.0
"""Seconds before the invocation's end at which a slice must be over."""
_GIVING_BACK = 2.0
"""Seconds before the invocation's end at which a slice that is not over is broken off, as by a crash."""
_FIRST_DELAY = 5.0
_LONGEST_DELAY = 300.0


@dataclass(frozen=True, slots=True)
class Leader:
    """Handles batches of the input queue. Each group is a thread's, and what becomes of it is no other group's concern.

    A group's messages are acknowledged as soon as its slice is done. Those of a slice that failed come again, sooner
    at first than later; what has failed ``max_receive_count`` times is parked, and people are told. What can never be
    read is parked at once.
    """

    system: AgentSystem
    receipts: Receipts
    parking: Parking
    max_receive_count: int
    telemetry: Telemetry

    async def handle(self, event: Mapping[str, Any], *, seconds: float) -> dict[str, Any]:
        """Return which messages of the SQS event must be delivered again; ``seconds`` are left of the invocation."""
        groups: dict[str, list[Received]] = {}
        for record in event["Records"]:
            received = _received(record)
            groups.setdefault(received.group_id, []).append(received)
        everything = [received for group in groups.values() for received in group]
        # Until then nobody else steps these threads; should this process die, they wait no longer than that.
        await self._hide(everything, seconds + _VISIBILITY_MARGIN)
        left = await asyncio.gather(*(self._group(thread_id, group, seconds) for thread_id, group in groups.items()))
        return {"batchItemFailures": [{"itemIdentifier": received.queue_id} for group in left for received in group]}

    async def _group(self, thread_id: str, group: Sequence[Received], seconds: float) -> Sequence[Received]:
        """Take one thread's messages through one slice; return those to be delivered again, in order."""
        try:
            taken = await self._taken(thread_id, group)
            if not taken:
                return ()
            with following(trace_among([delivery for _, delivery in taken])):
                outcome = await self._step(thread_id, [delivery for _, delivery in taken], seconds)
                if isinstance(outcome, Failed):
                    return await self._given_back(thread_id, taken, outcome.error)
                await self._delete([received for received, _ in taken])
        except Exception:  # noqa: BLE001 - a thread's edge
            _log.exception("thread %s: its messages are given back", thread_id)
            await self._hide(group, _delay(group))
            return group
        return ()

    async def _taken(self, thread_id: str, group: Sequence[Received]) -> Sequence[tuple[Received, Delivery]]:
        """Return what can be read of the group; what never can be is parked and acknowledged."""
        taken = []
        for received in group:
            try:
                taken.append((received, self._decoded(received)))
            except Reject as error:
                _log.warning("thread %s: message %s is parked: %s", thread_id, received.queue_id, error)
                await self._park(received, error.reason)
        return taken

    def _decoded(self, received: Received) -> Delivery:
        return decode(
            received.body,
            keyring=self.system.services.keyring,
            queue_id=received.queue_id,
            group_id=received.group_id,
            dedup_id=received.dedup_id,
            sent_at=received.sent_at,
        )

    async def _step(self, thread_id: str, deliveries: Sequence[Delivery], seconds: float) -> StepOutcome:
        deadline = self.system.services.clock.now() + timedelta(seconds=max(seconds - _LAST_SECONDS, 0.0))
        try:
            async with asyncio.timeout(max(seconds - _GIVING_BACK, 0.0)):
                outcomes = await self.system.step(deliveries, self.telemetry, deadline=deadline)
        except TimeoutError:
            return Failed(DeadlineReached(f"thread {thread_id}: the invocation's time was over before the slice was"))
        return outcomes[thread_id]

    async def _given_back(
        self, thread_id: str, taken: Sequence[tuple[Received, Delivery]], error: Exception
    ) -> Sequence[Received]:
        """Have the messages delivered again; those that have failed too often are parked, and people are told."""
        taken = await self._unheard(thread_id, taken)
        failed = [item for item in taken if item[0].receive_count >= self.max_receive_count]
        if failed:
            await self.system.tell_failure(thread_id, [delivery for _, delivery in failed], error)
        for received, delivery in failed:
            # A result that is dead is still the keeper's to answer; of anything else, people know now.
            is_told = not isinstance(delivery.message.content, ToolResult)
            await self._park(received, f"{type(error).__name__}: {error}", noticed=is_told)
        alive = [received for received, _ in taken if received.receive_count < self.max_receive_count]
        await self._hide(alive, _delay(alive))
        return alive

    async def _unheard(
        self, thread_id: str, taken: Sequence[tuple[Received, Delivery]]
    ) -> Sequence[tuple[Received, Delivery]]:
        """Return the messages from the first one that the inbox does not know; all, where it knows them all.

        Those before it are done. Where it knows all of them, what failed is an effect, which a redelivery performs.
        """
        names = frozenset(name for _, delivery in taken for name in delivery.known_as)
        try:
            snapshot = await self.system.services.conversations.load(
                LoadRequest(thread_id, message_ids=names, known_to=NO_ENTRIES)
            )
        except StoreUnavailable:
            return taken
        heard = snapshot.heard if snapshot else frozenset()
        first = next((place for place, (_, new) in enumerate(taken) if heard.isdisjoint(new.known_as)), 0)
        return taken[first:]

    async def _park(self, received: Received, reason: str, *, noticed: bool = False) -> None:
        await self.parking.park(received, reason, noticed=noticed)
        self.telemetry.count("Parked")
        await self._delete([received])

    async def _delete(self, done: Sequence[Received]) -> None:
        try:
            await self.receipts.delete([received.receipt for received in done])
        except StoreUnavailable as error:
            # Lambda deletes what is not reported as failed, only later.
            _log.warning("%d messages are left for Lambda to delete: %s", len(done), error)

    async def _hide(self, group: Sequence[Received], seconds: float) -> None:
        if not group:
            return
        try:
            await self.receipts.hide([received.receipt for received in group], seconds=seconds)
        except StoreUnavailable as error:
            _log.warning("%d messages keep the visibility timeout that they have: %s", len(group), error)


def _delay(group: Sequence[Received]) -> float:
    """Return the seconds after which the group comes again: three times as long each time."""
    count = max((received.receive_count for received in group), default=1)
    return float(min(_FIRST_DELAY * 3 ** (count - 1), _LONGEST_DELAY))


def _received(record: Mapping[str, Any]) -> Received:
    attributes = record["attributes"]
    return Received(
        body=record["body"],
        group_id=attributes["MessageGroupId"],
        queue_id=record["messageId"],
        dedup_id=attributes["MessageDeduplicationId"],
        receipt=record["receiptHandle"],
        receive_count=int(attributes["ApproximateReceiveCount"]),
        sent_at=datetime.fromtimestamp(int(attributes["SentTimestamp"]) / 1000, UTC),
    )
