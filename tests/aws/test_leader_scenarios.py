"""Every scenario through ``leader.handler``, and the death of its sandbox at a sample of the boundaries (P1)."""

import pytest

from infinity_agents.testing.faults import FaultInjector
from infinity_agents.testing.scenarios import SCENARIOS
from tests.aws.lambdas import HandlerWorld
from tests.embeddings import in_memory
from tests.promises.playing import play, undisturbed

NAMES = [scenario.name for scenario in SCENARIOS]


async def same_with_crashes(scenario, covered, *, every):
    injector = FaultInjector()
    expected = await play(HandlerWorld.of(scenario, in_memory()), scenario, injector)
    numbers = range(1, len(injector.names) + 1, every)
    for number in numbers:
        left = await play(HandlerWorld.of(scenario, in_memory()), scenario, FaultInjector(crash_at=number))
        for key in expected.keys() | left.keys():
            assert left.get(key) == expected.get(key), f"boundary {number}, {injector.names[number - 1]}: {key}"
    covered("crash points through leader.handler", len(numbers))


@pytest.mark.parametrize("name", NAMES)
async def test_a_scenario_ends_as_it_does_without_lambda(name):
    scenario = SCENARIOS[NAMES.index(name)]
    expected, _ = await undisturbed(scenario, in_memory)
    left = await play(HandlerWorld.of(scenario, in_memory()), scenario, FaultInjector())
    assert {key: left[key] for key in left if key.startswith("history")} == {
        key: expected[key] for key in expected if key.startswith("history")
    }
    assert left["outputs"] == expected["outputs"]


@pytest.mark.parametrize("name", NAMES)
async def test_p1_a_sandbox_that_dies_changes_nothing(name, covered):
    await same_with_crashes(SCENARIOS[NAMES.index(name)], covered, every=11)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
async def test_p1_a_sandbox_that_dies_at_any_boundary_changes_nothing(name, covered):
    await same_with_crashes(SCENARIOS[NAMES.index(name)], covered, every=1)
