"""P1: die at any I/O call of a step, before or after it took effect; the end is the same as without the crash."""

from typing import Any

import pytest

from infinity_agents.testing.scenarios import SCENARIOS
from tests.embeddings import in_memory
from tests.promises.playing import crash_everywhere

NAMES = [scenario.name for scenario in SCENARIOS]


@pytest.mark.parametrize("name", NAMES)
async def test_p1_a_crash_at_every_boundary_changes_nothing(name: str, covered: Any) -> None:
    count = await crash_everywhere(SCENARIOS[NAMES.index(name)], in_memory)
    assert count >= 10
    covered("crash points on memory", count)
