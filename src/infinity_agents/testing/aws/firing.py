"""What fires on AWS and not in moto: schedules at their time, and the relay of the delay queue."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from ...adapters.sqs import SqsInputSender, SqsReceipts
from ...aws_clients import AwsClients
from ...ports.queues import Received
from ...wire import timers as wire_timers
from ..doubles import FrozenClock
from .server import AwsStandIn, Resources

_AT = re.compile(r"at\((.+)\)")


class SqsPoller(SqsInputSender):
    """Receives from the input queue, as Lambda's event source mapping does, and tells of what is sent through it."""

    def __init__(self, clients: AwsClients, queue_url: str, *, on_arrival: Callable[[], None] = lambda: None) -> None:
        super().__init__(clients, queue_url)
        self._polled = (clients, queue_url)
        self.on_arrival = on_arrival

    async def send(self, body: str, *, group_id: str, dedup_id: str) -> None:
        """Send as a sender does, and tell."""
        await super().send(body, group_id=group_id, dedup_id=dedup_id)
        self.on_arrival()

    async def receive(self, *, groups: int = 10, batch: int = 10, visibility: float) -> Sequence[Sequence[Received]]:
        """Take one batch, of at most ten messages, by group; a group's messages are in order."""
        clients, queue_url = self._polled
        answer = await clients.call(
            "sqs",
            "receive_message",
            QueueUrl=queue_url,
            MaxNumberOfMessages=min(batch, 10),
            VisibilityTimeout=int(visibility),
            MessageSystemAttributeNames=["All"],
        )
        by_group: dict[str, list[Received]] = {}
        for message in answer.get("Messages", ()):
            attributes = message["Attributes"]
            received = Received(
                body=message["Body"],
                group_id=attributes["MessageGroupId"],
                queue_id=message["MessageId"],
                dedup_id=attributes["MessageDeduplicationId"],
                receipt=message["ReceiptHandle"],
                receive_count=int(attributes["ApproximateReceiveCount"]),
                sent_at=datetime.fromtimestamp(int(attributes["SentTimestamp"]) / 1000, UTC),
            )
            by_group.setdefault(received.group_id, []).append(received)
        return list(by_group.values())


class Firing:
    """Fires schedules and relays the delay queue to ``inputs``, at their times, on ``clock``."""

    def __init__(self, clients: AwsClients, resources: Resources, clock: FrozenClock, inputs: SqsInputSender) -> None:
        self._clients = clients
        self._resources = resources
        self._clock = clock
        self._inputs = inputs
        self._receipts = SqsReceipts(clients, resources.delay_url)

    async def next_due_at(self) -> datetime | None:
        """Return when the earliest timer is due, be it past; ``None`` where there is none."""
        scheduled = [due for due, _ in await self._schedules()]
        delayed = [
            datetime.fromtimestamp(round(max(message.delayed_until, message.sent_timestamp)) / 1000, UTC)
            for message in AwsStandIn.queue(self._resources.delay_url)._messages
        ]
        return min([*scheduled, *delayed], default=None)

    async def fire_due(self, now: datetime) -> int:
        """Let the clock go on to ``now``, and have everything that is due on the way put on the input queue."""
        fired = 0
        while (due := await self.next_due_at()) is not None and due <= now:
            if due > self._clock.now():
                self._clock.move_to(due)
            await self.fire_schedules()
            fired += await self.relay()
        if now > self._clock.now():
            self._clock.move_to(now)
        return fired

    async def fire_schedules(self) -> None:
        """Send what is due by now to its target, once, as Scheduler does."""
        for due, name in await self._schedules():
            if due > self._clock.now():
                continue
            schedule = await self._clients.call(
                "scheduler", "get_schedule", GroupName=self._resources.schedule_group, Name=name
            )
            target = schedule["Target"]
            url = self._resources.delay_url
            if target["Arn"] != self._resources.delay_arn:
                raise AssertionError(f"the schedule {name} has the target {target['Arn']}, not the delay queue")
            await self._clients.call("sqs", "send_message", QueueUrl=url, MessageBody=target["Input"])
            if schedule["ActionAfterCompletion"] != "DELETE":
                raise AssertionError(f"the schedule {name} is left behind: ActionAfterCompletion is not DELETE")
            await self._clients.call(
                "scheduler", "delete_schedule", GroupName=self._resources.schedule_group, Name=name
            )

    async def relay(self) -> int:
        """Forward what is visible in the delay queue; return how many messages there were."""
        forwarded = 0
        while True:
            answer = await self._clients.call(
                "sqs", "receive_message", QueueUrl=self._resources.delay_url, MaxNumberOfMessages=10
            )
            for message in answer.get("Messages", ()):
                delayed = wire_timers.decode(message["Body"])
                await self._inputs.send(delayed.body, group_id=delayed.group_id, dedup_id=delayed.dedup_id)
                await self._receipts.delete([message["ReceiptHandle"]])
                forwarded += 1
            if not answer.get("Messages"):
                return forwarded

    async def _schedules(self) -> list[tuple[datetime, str]]:
        answer = await self._clients.call("scheduler", "list_schedules", GroupName=self._resources.schedule_group)
        found = []
        for listed in answer["Schedules"]:
            schedule = await self._clients.call(
                "scheduler", "get_schedule", GroupName=self._resources.schedule_group, Name=listed["Name"]
            )
            due = _AT.fullmatch(schedule["ScheduleExpression"])
            if due is not None:
                found.append((datetime.fromisoformat(due[1]).replace(tzinfo=UTC), listed["Name"]))
        return sorted(found)
