"""P1: die at any I/O call of a step, before or after it took effect; the end is the same as without the crash."""

from collections.abc import Callable
from typing import Any

import pytest

from infinity_agents.testing.scenarios import SCENARIOS
from infinity_agents.testing.world import OpenAdapters
from tests.embeddings import in_memory
from tests.promises.playing import crash_everywhere

NAMES = [scenario.name for scenario in SCENARIOS]


@pytest.mark.parametrize("name", NAMES)
async def test_p1_a_crash_at_every_boundary_changes_nothing(name: str, covered: Any) -> None:
    count = await crash_everywhere(SCENARIOS[NAMES.index(name)], in_memory)
    assert count >= 10
    covered("crash points on memory", count)


@pytest.mark.parametrize("name", NAMES)
async def test_p1_a_crash_at_a_sample_of_boundaries_changes_nothing_in_a_file(
    name: str, in_files: Callable[[], OpenAdapters], covered: Any
) -> None:
    count = await crash_everywhere(SCENARIOS[NAMES.index(name)], in_files, every=9)
    covered("crash points in a file (sample)", count)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
async def test_p1_a_crash_at_every_boundary_changes_nothing_in_a_file(
    name: str, in_files: Callable[[], OpenAdapters], covered: Any
) -> None:
    count = await crash_everywhere(SCENARIOS[NAMES.index(name)], in_files)
    covered("crash points in a file", count)
