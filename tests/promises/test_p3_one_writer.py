"""P3: two steps on one thread at once; one commits, and a stalled performer undoes nothing of what came later."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from infinity_agents.conversation.content import Text
from infinity_agents.conversation.events import Completed, Failed
from infinity_agents.conversation.messages import Delivery, InputMessage
from infinity_agents.errors import FenceLost
from infinity_agents.testing.faults import FaultInjector
from infinity_agents.testing.scenarios import PLAIN_REPLY, SCENARIOS
from infinity_agents.testing.world import OpenAdapters
from tests.embeddings import in_memory
from tests.promises.playing import overlap_everywhere

NAMES = [scenario.name for scenario in SCENARIOS]


@pytest.mark.parametrize("name", NAMES)
async def test_p3_two_steps_that_overlap_at_any_boundary_change_nothing(name: str, covered: Any) -> None:
    count = await overlap_everywhere(SCENARIOS[NAMES.index(name)], in_memory)
    covered("overlaps of two steps on memory", count)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
async def test_p3_two_steps_that_overlap_at_any_boundary_change_nothing_in_a_file(
    name: str, in_files: Callable[[], OpenAdapters], covered: Any
) -> None:
    count = await overlap_everywhere(SCENARIOS[NAMES.index(name)], in_files)
    covered("overlaps of two steps in a file", count)


async def test_p3_a_step_that_loaded_before_another_committed_writes_nothing_and_fails() -> None:
    world = await PLAIN_REPLY.world(in_memory())
    await world.boot()
    injector = FaultInjector(pause_at=5)
    slow = world.system_with(injector)
    going = asyncio.ensure_future(slow.step([Delivery(InputMessage(Text("hello"), "t"), "q1")]))
    await injector.paused.wait()
    assert injector.names[-1].endswith("model.stream")
    (quick_outcome,) = (await world.system.step([Delivery(InputMessage(Text("hello again"), "t"), "q2")])).values()
    assert isinstance(quick_outcome, Completed)
    before = await world.state()
    injector.resume()
    (slow_outcome,) = (await going).values()
    assert isinstance(slow_outcome, Failed)
    assert isinstance(slow_outcome.error, FenceLost)
    assert await world.state() == before


async def test_p3_a_stalled_performer_does_not_move_performed_through_back() -> None:
    world = await PLAIN_REPLY.world(in_memory())
    await world.boot()
    state = world.adapters.state
    await state.set_performed_through("t", 7)
    await state.set_performed_through("t", 5)
    assert await state.performed_through("t") == 7
