"""P1: die at any I/O call of a step, before or after it took effect; the end is the same as without the crash."""

from collections.abc import Callable
from typing import Any

import pytest

from infinity_agents.testing.faults import Crash, FaultInjector
from infinity_agents.testing.scenarios import SCENARIOS, Scenario
from infinity_agents.testing.world import OpenAdapters, World
from tests.embeddings import in_memory

NAMES = [scenario.name for scenario in SCENARIOS]


async def play(world: World, scenario: Scenario, faults: FaultInjector) -> dict[str, Any]:
    """Play ``scenario``; where the process dies, start a fresh one over what it left. Return what is left in the end."""
    await world.boot(faults)
    for stage in scenario.stages:
        await stage(world)
        try:
            await world.settle()
        except Crash:
            await world.crashed()
            await world.settle()
    await scenario.finish(world)
    left = await world.state()
    await world.adapters.close()
    return left


async def undisturbed(scenario: Scenario, embedding: OpenAdapters) -> tuple[dict[str, Any], list[str]]:
    faults = FaultInjector()
    world = await scenario.world(embedding)
    left = await play(world, scenario, faults)
    return left, faults.names


async def crash_everywhere(scenario: Scenario, embedding: Callable[[], OpenAdapters], every: int = 1) -> int:
    """Play ``scenario`` once for each boundary, with the death of the process there; return how many there were."""
    expected, names = await undisturbed(scenario, embedding())
    for number in range(1, len(names) + 1, every):
        world = await scenario.world(embedding())
        died_at = f"{scenario.name}, boundary {number}: {names[number - 1]}"
        try:
            left = await play(world, scenario, FaultInjector(crash_at=number))
        except AssertionError as error:
            raise AssertionError(f"{died_at}: {error}") from error
        for key in expected.keys() | left.keys():
            assert left.get(key) == expected.get(key), f"{died_at}: {key}"
    return len(names)


@pytest.mark.parametrize("name", NAMES)
async def test_p1_a_crash_at_every_boundary_changes_nothing_on_memory(name: str, record_property: Any) -> None:
    scenario = SCENARIOS[NAMES.index(name)]
    covered = await crash_everywhere(scenario, in_memory)
    record_property("crash points", covered)
    assert covered >= 10
