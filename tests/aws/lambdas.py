"""Lambda as the tests have it: events as the service writes them, and a world whose steps run through the handler."""

import asyncio
import json
from dataclasses import dataclass

from infinity_agents.aws import leader
from infinity_agents.aws.leading import Leader
from infinity_agents.aws.sandbox import Sandbox
from infinity_agents.aws.telemetry import Telemetry
from infinity_agents.testing.faults import FaultInjector
from infinity_agents.testing.scripted_model import ScriptedModel
from infinity_agents.testing.world import World

QUEUE_ARN = "arn:aws:sqs:us-east-1:123456789012:input.fifo"


@dataclass(frozen=True)
class Context:
    """What Lambda passes besides the event."""

    seconds: float = 300.0

    def get_remaining_time_in_millis(self):
        return int(self.seconds * 1000)


def record_of(received):
    """Return the record of an SQS event for a message that was received."""
    return {
        "messageId": received.queue_id,
        "receiptHandle": received.receipt,
        "body": received.body,
        "attributes": {
            "ApproximateReceiveCount": str(received.receive_count),
            "SentTimestamp": str(int(received.sent_at.timestamp() * 1000)),
            "SequenceNumber": "18850000000000000000",
            "MessageGroupId": received.group_id,
            "SenderId": "AIDAEXAMPLE",
            "MessageDeduplicationId": received.dedup_id,
            "ApproximateFirstReceiveTimestamp": str(int(received.sent_at.timestamp() * 1000)),
        },
        "messageAttributes": {},
        "md5OfBody": "0" * 32,
        "eventSource": "aws:sqs",
        "eventSourceARN": QUEUE_ARN,
        "awsRegion": "us-east-1",
    }


def event_of(received):
    return {"Records": [record_of(message) for message in received]}


def failures_of(reply):
    assert set(reply) == {"batchItemFailures"}
    json.dumps(reply)
    return [failure["itemIdentifier"] for failure in reply["batchItemFailures"]]


class QueueReceipts:
    """``Receipts`` and ``Parking`` over a queue of the process's own."""

    def __init__(self, queue):
        self.queue = queue
        self.held = {}
        self.hidden = []
        """(queue ids, seconds) of each change of visibility."""
        self.deleted = []
        """The queue ids of each deletion, those that the service does itself not among them."""

    async def delete(self, receipts):
        taken = [self.held[receipt] for receipt in receipts]
        self.deleted.append([message.queue_id for message in taken])
        await self.queue.delete(taken)

    async def hide(self, receipts, *, seconds):
        taken = [self.held[receipt] for receipt in receipts]
        self.hidden.append(([message.queue_id for message in taken], seconds))
        await self.queue.release(taken, delay=seconds)

    async def park(self, received, reason, *, noticed=False):
        await self.queue.park(received, reason)
        if noticed:
            await self.queue.mark_noticed(received.queue_id)


class HandlerWorld(World):
    """A world whose batches go through ``leader.handler``, and whose queue behaves as the event source mapping does."""

    most = 3
    context = Context()

    @classmethod
    def of(cls, scenario, open_adapters):
        model = ScriptedModel(scenario.script, window=scenario.window)
        return cls(open_adapters, model, tools=scenario.tools, settings=scenario.settings)

    async def boot(self, faults=None):
        self.inside = []
        await super().boot(faults)
        self.receipts = QueueReceipts(self.adapters.inputs)
        self.sandbox = self.another_sandbox(self.faults)

    def another_sandbox(self, faults=None):
        """Return a sandbox with a leader of its own over the same data."""

        async def build():
            # What a client has opened belongs to the loop of its sandbox, and the world looks from a loop of its own.
            outside, self.adapters = self.adapters, await self.open_adapters(self.clock)
            self.inside.append((sandbox, self.adapters))
            system = self.system_with(faults or FaultInjector())
            self.adapters = outside
            wrapped = (faults or FaultInjector()).wrap(self.receipts, "queue")
            return Leader(system, wrapped, wrapped, self.most, Telemetry("leader"))

        sandbox = Sandbox(build)
        return sandbox

    async def crashed(self):
        await self.ended()
        await super().crashed()

    async def ended(self):
        """End the sandboxes, as Lambda does: whatever they were at is over."""
        for sandbox, adapters in self.inside:
            await asyncio.to_thread(_end, sandbox._loop, adapters)

    async def received(self, *, groups=10):
        """Receive a batch, as the event source mapping does: several groups, each in order."""
        by_group = await self.adapters.inputs.receive(groups=groups, batch=10, visibility=1800)
        received = [message for group in by_group for message in group]
        self.receipts.held.update({message.receipt: message for message in received})
        return received

    async def invoked(self, received, sandbox=None):
        """Return the queue ids that the handler reports as failed; what it does not report is deleted."""
        failed = failures_of(await asyncio.to_thread(self._handled, event_of(received), sandbox or self.sandbox))
        await self.adapters.inputs.delete([message for message in received if message.queue_id not in failed])
        return failed

    def _handled(self, event, sandbox):
        before, leader.sandbox = leader.sandbox, sandbox
        try:
            return leader.handler(event, self.context)
        finally:
            leader.sandbox = before

    async def turn(self):
        await self.adapters.timers.fire_due(self.clock.now())
        received = await self.received()
        if not received:
            visible_at = await self.adapters.inputs.next_visible_at()
            if visible_at is not None:
                self.clock.move_to(visible_at)
            return visible_at is not None
        self.in_hand = received
        await self.invoked(received)
        self.in_hand = []
        self.clock.advance(0.001)
        return True


def _end(loop, adapters):
    loop.run_until_complete(_wound_up(adapters))
    loop.close()


async def _wound_up(adapters):
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await adapters.close()
