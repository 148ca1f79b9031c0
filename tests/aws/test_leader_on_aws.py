"""The scenarios through ``leader.handler`` on PostgreSQL, SQS, DynamoDB, Scheduler and S3: crashes and overlaps."""

import time

import pytest

from infinity_agents.testing.faults import FaultInjector
from infinity_agents.testing.scenarios import SCENARIOS, THREE_THREADS, TOOL_CALL
from tests.aws.on_aws import AwsWorld, on_aws
from tests.aws.playing import played, same_with_crashes, same_with_overlaps

QUICK = [TOOL_CALL, THREE_THREADS]


def by_name(scenario):
    return scenario.name


@pytest.fixture
def embedding(aws, clients, postgres_url):
    yield lambda: on_aws(aws, clients, postgres_url)
    aws.now = time.time


@pytest.mark.parametrize("scenario", QUICK, ids=by_name)
async def test_p1_a_sandbox_that_dies_changes_nothing_on_aws(scenario, embedding, covered):
    count = await same_with_crashes(scenario, embedding, every=23, kind=AwsWorld)
    covered("crash points through leader.handler on AWS's stand-ins (sample)", count)


async def test_p2_killed_between_commit_and_perform_the_turn_is_not_paid_for_again(embedding):
    scenario = TOOL_CALL
    undisturbed = AwsWorld.of(scenario, embedding())
    expected = await played(undisturbed, scenario, FaultInjector())
    killed = AwsWorld.of(scenario, embedding())
    assert await played(killed, scenario, FaultInjector(crash_at="after conversations.commit")) == expected
    assert len(killed.model.requests) == len(undisturbed.model.requests)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=by_name)
async def test_p1_a_sandbox_that_dies_anywhere_changes_nothing_on_aws(scenario, embedding, covered):
    count = await same_with_crashes(scenario, embedding, kind=AwsWorld)
    covered("crash points through leader.handler on AWS's stand-ins", count)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=by_name)
async def test_p3_two_leaders_that_overlap_change_nothing_on_aws(scenario, embedding, covered):
    count = await same_with_overlaps(scenario, embedding, every=11, kind=AwsWorld)
    covered("overlaps of two leaders on AWS's stand-ins", count)
