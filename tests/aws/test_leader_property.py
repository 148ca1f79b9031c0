"""P4 through ``leader.handler``: whatever comes in whatever order, no history is ever broken."""

import asyncio
import time

import pytest
from hypothesis import HealthCheck, given, settings

from tests.aws.lambdas import HandlerWorld
from tests.aws.on_aws import AwsWorld, on_aws
from tests.embeddings import in_memory
from tests.promises.test_p4_history_is_valid import SEQUENCES, TOOLS, an_unruly_model, live


async def lived(world, sequence):
    await live(world, sequence)
    await world.ended()
    await world.adapters.close()


@settings(max_examples=25, deadline=None)
@given(SEQUENCES)
def test_p4_history_stays_valid_through_the_handler(sequence):
    asyncio.run(lived(HandlerWorld(in_memory(), an_unruly_model(), tools=TOOLS), sequence))


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sequence=SEQUENCES)
def test_p4_history_stays_valid_on_aws(sequence, aws, clients, postgres_url):
    world = AwsWorld(on_aws(aws, clients, postgres_url), an_unruly_model(), tools=TOOLS)
    try:
        asyncio.run(lived(world, sequence))
    finally:
        aws.now = time.time
