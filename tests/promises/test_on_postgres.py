"""P1 and P3 with the conversation store on PostgreSQL, under the limits of Aurora DSQL."""

from functools import partial
from typing import Any

import pytest

from infinity_agents.testing.scenarios import SCENARIOS
from tests.embeddings import in_postgres
from tests.promises.playing import crash_everywhere, overlap_everywhere

NAMES = [scenario.name for scenario in SCENARIOS]


@pytest.mark.parametrize("name", NAMES)
async def test_p1_p3_a_sample_of_crashes_and_overlaps_changes_nothing_on_postgres(
    name: str, postgres_url: str, covered: Any
) -> None:
    scenario, embedding = SCENARIOS[NAMES.index(name)], partial(in_postgres, postgres_url)
    covered("crash points on PostgreSQL (sample)", await crash_everywhere(scenario, embedding, every=40))
    covered("overlaps of two steps on PostgreSQL (sample)", await overlap_everywhere(scenario, embedding, every=50))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
async def test_p1_a_crash_at_every_boundary_changes_nothing_on_postgres(
    name: str, postgres_url: str, covered: Any
) -> None:
    count = await crash_everywhere(SCENARIOS[NAMES.index(name)], partial(in_postgres, postgres_url))
    covered("crash points on PostgreSQL", count)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
async def test_p3_two_steps_that_overlap_at_any_boundary_change_nothing_on_postgres(
    name: str, postgres_url: str, covered: Any
) -> None:
    count = await overlap_everywhere(SCENARIOS[NAMES.index(name)], partial(in_postgres, postgres_url))
    covered("overlaps of two steps on PostgreSQL", count)
