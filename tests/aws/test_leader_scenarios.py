"""Every scenario through ``leader.handler``, and the death of its sandbox at any boundary (P1)."""

from functools import partial

import pytest

from infinity_agents.testing.faults import FaultInjector
from infinity_agents.testing.scenarios import SCENARIOS
from tests.aws.lambdas import HandlerWorld
from tests.embeddings import in_memory, in_postgres
from tests.promises.playing import play, undisturbed

NAMES = [scenario.name for scenario in SCENARIOS]
SAMPLE = ["tool call", "batch of three threads"]


async def played(scenario, embedding, injector):
    world = HandlerWorld.of(scenario, embedding())
    left = await play(world, scenario, injector)
    await world.ended()
    return left


async def same_with_crashes(name, embedding, *, every=1):
    """Play the scenario once for each boundary, with the death of the sandbox there; return how many there were."""
    scenario, injector = SCENARIOS[NAMES.index(name)], FaultInjector()
    expected = await played(scenario, embedding, injector)
    numbers = range(1, len(injector.names) + 1, every)
    for number in numbers:
        left = await played(scenario, embedding, FaultInjector(crash_at=number))
        for key in expected.keys() | left.keys():
            assert left.get(key) == expected.get(key), f"boundary {number}, {injector.names[number - 1]}: {key}"
    return len(numbers)


@pytest.mark.parametrize("name", NAMES)
async def test_a_scenario_ends_as_it_does_without_lambda(name):
    scenario = SCENARIOS[NAMES.index(name)]
    expected, _ = await undisturbed(scenario, in_memory)
    left = await played(scenario, in_memory, FaultInjector())
    compared = {key for key in expected if key.startswith("history") or key == "outputs"}
    assert {key: left.get(key) for key in compared} == {key: expected[key] for key in compared}


@pytest.mark.parametrize("name", NAMES)
async def test_p1_a_sandbox_that_dies_changes_nothing(name, covered):
    covered("crash points through leader.handler (sample)", await same_with_crashes(name, in_memory, every=13))


@pytest.mark.parametrize("name", SAMPLE)
async def test_p1_a_sandbox_that_dies_changes_nothing_on_postgres(name, postgres_url, covered):
    count = await same_with_crashes(name, partial(in_postgres, postgres_url), every=13)
    covered("crash points through leader.handler on PostgreSQL (sample)", count)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
async def test_p1_a_sandbox_that_dies_at_any_boundary_changes_nothing(name, covered):
    covered("crash points through leader.handler", await same_with_crashes(name, in_memory))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
async def test_p1_a_sandbox_that_dies_at_any_boundary_changes_nothing_on_postgres(name, postgres_url, covered):
    count = await same_with_crashes(name, partial(in_postgres, postgres_url))
    covered("crash points through leader.handler on PostgreSQL", count)
