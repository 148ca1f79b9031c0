"""Every scenario through ``leader.handler``, and the death of its sandbox at any boundary (P1)."""

from functools import partial

import pytest

from infinity_agents.testing.faults import FaultInjector
from infinity_agents.testing.scenarios import SCENARIOS, THREE_THREADS, TOOL_CALL
from tests.aws.lambdas import HandlerWorld
from tests.aws.playing import played, same_with_crashes
from tests.embeddings import in_memory, in_postgres
from tests.promises.playing import undisturbed

every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
two_scenarios = pytest.mark.parametrize("scenario", [TOOL_CALL, THREE_THREADS], ids=lambda scenario: scenario.name)


@every_scenario
async def test_a_scenario_ends_as_it_does_without_lambda(scenario):
    expected, _ = await undisturbed(scenario, in_memory)
    left = await played(HandlerWorld.of(scenario, in_memory()), scenario, FaultInjector())
    compared = {key for key in expected if key.startswith("history") or key == "outputs"}
    assert {key: left.get(key) for key in compared} == {key: expected[key] for key in compared}


@every_scenario
async def test_p1_a_sandbox_that_dies_changes_nothing(scenario, covered):
    covered(
        "crash points through leader.handler (sample)",
        await same_with_crashes(scenario, in_memory, every=13),
    )


@two_scenarios
async def test_p1_a_sandbox_that_dies_changes_nothing_on_postgres(scenario, postgres_url, covered):
    count = await same_with_crashes(scenario, partial(in_postgres, postgres_url), every=13)
    covered("crash points through leader.handler on PostgreSQL (sample)", count)


@pytest.mark.slow
@every_scenario
async def test_p1_a_sandbox_that_dies_at_any_boundary_changes_nothing(scenario, covered):
    covered("crash points through leader.handler", await same_with_crashes(scenario, in_memory))


@pytest.mark.slow
@every_scenario
async def test_p1_a_sandbox_that_dies_at_any_boundary_changes_nothing_on_postgres(scenario, postgres_url, covered):
    count = await same_with_crashes(scenario, partial(in_postgres, postgres_url))
    covered("crash points through leader.handler on PostgreSQL", count)
