"""The runtime over the adapters of AWS, each on its stand-in, for the tests that let a sandbox die."""

from dataclasses import dataclass
from datetime import UTC, datetime

from infinity_agents.adapters.dsql import DsqlConversationStore, DsqlDatabase
from infinity_agents.adapters.dynamodb import DynamoStateStore
from infinity_agents.adapters.s3 import S3BlobStore
from infinity_agents.adapters.scheduler import AwsTimers
from infinity_agents.adapters.sqs import SqsDeadLetters, SqsOutputSender, SqsReceipts
from infinity_agents.testing.aws import AwsStandIn, Firing, SqsPoller
from infinity_agents.testing.dsql import LikeDsql
from infinity_agents.testing.world import Adapters
from infinity_agents.wire import outputs as wire_outputs
from tests.aws.lambdas import HandlerWorld
from tests.databases import emptied


def on_aws(aws, clients, database_url):
    """Return the way to open the adapters over queues, a table, a bucket and a database that are empty at first."""
    emptied(database_url)
    resources = aws.deploy(clients)

    async def open_adapters(clock):
        aws.now = lambda: clock.now().timestamp()
        database = DsqlDatabase(LikeDsql(database_url), clock)
        inputs = Inputs(clients, resources, clock)
        return Adapters(
            conversations=DsqlConversationStore(database),
            state=DynamoStateStore(clients, resources.table, clock),
            inputs=inputs,
            outputs=Outputs(clients, resources.output_url),
            timers=Timers(clients, resources, clock, inputs),
            blobs=S3BlobStore(clients, resources.bucket),
            close=database.close,
        )

    return open_adapters


class AwsWorld(HandlerWorld):
    """A world whose leader acknowledges, hides and parks in SQS."""

    async def boot(self, faults=None):
        await super().boot(faults)
        self.receipts = Receipts(self.adapters.inputs.receipts, self.adapters.inputs.letters)


class Inputs(SqsPoller):
    """The input queue and its dead letters, as the world looks at them."""

    def __init__(self, clients, resources, clock):
        super().__init__(clients, resources.input_url)
        self._url, self._clock = resources.input_url, clock
        self.receipts = SqsReceipts(clients, resources.input_url)
        self.letters = SqsDeadLetters(
            clients, dead_letter_url=resources.dead_letter_url, input_url=resources.input_url, clock=clock, wait=0
        )
        self.dead_letters, self.mark_noticed = self.letters.dead_letters, self.letters.mark_noticed

    async def release(self, messages, *, delay):
        await self.receipts.hide([message.receipt for message in messages], seconds=delay)

    async def delete(self, messages):
        await self.receipts.delete([message.receipt for message in messages])

    async def next_visible_at(self):
        """Return when the next message that is hidden comes to light."""
        now = self._clock.now().timestamp() * 1000
        hidden = [message.visible_at for message in AwsStandIn.queue(self._url)._messages if message.visible_at > now]
        return datetime.fromtimestamp(min(hidden) / 1000, UTC) if hidden else None


@dataclass
class Receipts:
    """``Receipts`` and ``Parking`` of the leader."""

    receipts: SqsReceipts
    letters: SqsDeadLetters

    def __post_init__(self):
        self.held = {}
        self.delete, self.hide, self.park = self.receipts.delete, self.receipts.hide, self.letters.park


class Outputs(SqsOutputSender):
    """The output queue, and what waits there, repeats dropped as readers do."""

    def __init__(self, clients, url):
        super().__init__(clients, url)
        self._url = url

    async def outputs(self, *, limit):
        told = [wire_outputs.decode(message.body) for message in AwsStandIn.queue(self._url)._messages]
        distinct = {output.output_id: output for output in reversed(told)}
        return list(enumerate(reversed(distinct.values()), 1))[:limit]


class Timers(AwsTimers):
    """Scheduler and the delay queue, and what fires them."""

    def __init__(self, clients, resources, clock, inputs):
        super().__init__(
            clients,
            clock,
            delay_queue_url=resources.delay_url,
            delay_queue_arn=resources.delay_arn,
            dead_letter_queue_arn=resources.delay_dead_letter_arn,
            role_arn=resources.role_arn,
            group_name=resources.schedule_group,
        )
        firing = Firing(clients, resources, clock, inputs)
        self.next_due_at, self.fire_due = firing.next_due_at, firing.fire_due
