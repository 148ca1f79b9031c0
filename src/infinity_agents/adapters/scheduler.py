"""Durable timers on AWS: the delay queue for what is near, EventBridge Scheduler for what is far."""

import re
from datetime import UTC, datetime, timedelta
from math import ceil

from ..aws_clients import AwsClients, AwsRefused
from ..conversation import ids
from ..errors import Reject
from ..ports.clock import Clock
from ..ports.queues import MAX_BODY, refuse_unsendable
from ..wire.timers import DelayedMessage, encode

LONGEST_DELAY = 900
"""Seconds that SQS holds a message back."""

MAX_INPUT = 256 * 1024
"""The longest message of a schedule, in bytes."""

_NAME = re.compile(r"[0-9a-zA-Z\-_.]{1,64}")


class AwsTimers:
    """``Timers`` whose messages go through the standard queue ``delay_queue_url`` to a relay.

    One that is due within 900 seconds cannot be cancelled any more, and is set again where it is set twice: its
    message comes under the same ids, and the thread hears it once or absorbs it. One that is due later fires in the
    minute that begins with or after its time.
    """

    def __init__(
        self,
        clients: AwsClients,
        clock: Clock,
        *,
        delay_queue_url: str,
        delay_queue_arn: str,
        dead_letter_queue_arn: str,
        role_arn: str,
        group_name: str,
    ) -> None:
        self._clients = clients
        self._clock = clock
        self._delay_queue_url = delay_queue_url
        self._delay_queue_arn = delay_queue_arn
        self._dead_letter_queue_arn = dead_letter_queue_arn
        self._role_arn = role_arn
        self._group_name = group_name

    async def set(self, timer_id: str, due_at: datetime, body: str, *, group_id: str, dedup_id: str) -> None:
        """Have ``body`` put on the input queue at ``due_at``; what is past, at once.

        Raises:
            Reject: the message is too long, or no input queue takes it; the text names the value and the limit.
            StoreUnavailable: it may or may not be set; setting it again is harmless.
        """
        refuse_unsendable(body, group_id=group_id, dedup_id=dedup_id)
        message = encode(DelayedMessage(body, group_id, dedup_id))
        seconds = ceil((due_at - self._clock.now()).total_seconds())
        limit = MAX_BODY if seconds <= LONGEST_DELAY else MAX_INPUT
        if len(message) > limit:
            raise Reject(f"the message of the timer {timer_id!r} has {len(message)} bytes, at most {limit} can wait")
        if seconds <= LONGEST_DELAY:
            await self._clients.call(
                "sqs",
                "send_message",
                QueueUrl=self._delay_queue_url,
                MessageBody=message,
                DelaySeconds=max(seconds, 0),
            )
        else:
            await self._schedule(schedule_name(timer_id), due_at, message)

    async def cancel(self, timer_id: str) -> None:
        """Delete the timer's schedule, where there is one.

        Raises:
            StoreUnavailable: it may or may not be cancelled; cancelling it again is harmless.
        """
        try:
            await self._clients.call(
                "scheduler", "delete_schedule", GroupName=self._group_name, Name=schedule_name(timer_id)
            )
        except AwsRefused as error:
            if error.code != "ResourceNotFoundException":
                raise

    async def _schedule(self, name: str, due_at: datetime, message: str) -> None:
        try:
            await self._clients.call(
                "scheduler",
                "create_schedule",
                GroupName=self._group_name,
                Name=name,
                ScheduleExpression=f"at({_minute(due_at):%Y-%m-%dT%H:%M:%S})",
                ScheduleExpressionTimezone="UTC",
                FlexibleTimeWindow={"Mode": "OFF"},
                ActionAfterCompletion="DELETE",
                Target={
                    "Arn": self._delay_queue_arn,
                    "RoleArn": self._role_arn,
                    "Input": message,
                    "DeadLetterConfig": {"Arn": self._dead_letter_queue_arn},
                },
            )
        except AwsRefused as error:
            # The name says what the timer is about: a schedule that has it is this one.
            if error.code != "ConflictException":
                raise


def schedule_name(timer_id: str) -> str:
    """Return the name of the timer's schedule: the id itself where Scheduler takes it."""
    return timer_id if _NAME.fullmatch(timer_id) else f"timer-{ids.digest(timer_id, length=48)}"


def _minute(moment: datetime) -> datetime:
    """Return the first full minute that is not before ``moment``, in UTC."""
    moment = moment.astimezone(UTC)
    minute = moment.replace(second=0, microsecond=0)
    return minute if minute == moment else minute + timedelta(minutes=1)
