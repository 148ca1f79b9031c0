"""The AWS adapters keep the contracts of their ports, as far as the services go."""

import pytest

from infinity_agents.adapters.dynamo_records import DynamoRecords
from infinity_agents.adapters.dynamodb import DynamoStateStore
from infinity_agents.adapters.s3 import S3BlobStore
from infinity_agents.adapters.scheduler import AwsTimers
from infinity_agents.testing.aws import Firing, SqsPoller
from infinity_agents.testing.contracts import (
    BlobStoreContract,
    RecordTableContract,
    StateStoreContract,
    TimersContract,
)
from infinity_agents.testing.doubles import FrozenClock


class OnAws:
    @pytest.fixture(autouse=True)
    def account(self, aws, clients, deployed):
        self.aws, self.clients, self.deployed = aws, clients, deployed


class TestDynamoStateStore(OnAws, StateStoreContract):
    async def make(self):
        return DynamoStateStore(self.clients, self.deployed.table, FrozenClock())

    reopen = make


class TestS3BlobStore(OnAws, BlobStoreContract):
    async def make(self):
        return S3BlobStore(self.clients, self.deployed.bucket)

    reopen = make


class TestDynamoRecords(OnAws, RecordTableContract):
    async def make(self):
        self.clock = FrozenClock()
        return DynamoRecords(self.clients, self.deployed.table, self.clock)

    def pass_time(self, time):
        self.clock.advance(time.total_seconds())


class FiringAwsTimers:
    """``AwsTimers`` and what fires them."""

    def __init__(self, timers, firing):
        self.set, self.cancel = timers.set, timers.cancel
        self.next_due_at, self.fire_due = firing.next_due_at, firing.fire_due


class TestAwsTimers(OnAws, TimersContract):
    async def make(self, clock):
        self.aws.now = lambda: clock.now().timestamp()
        queue = SqsPoller(self.clients, self.deployed.input_url)
        timers = aws_timers(self.clients, self.deployed, clock)
        return FiringAwsTimers(timers, Firing(self.clients, self.deployed, clock, queue)), queue

    reopen = make

    # The contract's timers are due within seconds: these go through the delay queue, which forgets and replaces
    # nothing. What it promises instead, and that schedules keep these two, is said in test_scheduler.py.
    test_a_timer_that_exists_is_left_alone = None
    test_a_cancelled_timer_does_not_fire = None


def aws_timers(clients, deployed, clock):
    return AwsTimers(
        clients,
        clock,
        delay_queue_url=deployed.delay_url,
        delay_queue_arn=deployed.delay_arn,
        dead_letter_queue_arn=deployed.delay_dead_letter_arn,
        role_arn=deployed.role_arn,
        group_name=deployed.schedule_group,
    )
