"""P6: no task, no memory, no poll per idle thread."""

import asyncio

from infinity_agents.settings import AgentSettings
from infinity_agents.testing.scenarios import by_last_words
from infinity_agents.testing.scripted_model import ScriptedModel, calls
from infinity_agents.testing.world import World
from tests.embeddings import in_memory


async def test_p6_a_system_holds_no_more_than_its_bounded_cache() -> None:
    model = ScriptedModel(by_last_words({"wait": calls("sleep_until_event_or_input")}))
    world = World(in_memory(), model, settings=AgentSettings(cached_threads=10))
    await world.boot()
    for number in range(300):
        await world.say(f"t{number}", "wait")
    await world.settle()
    assert len(await world.adapters.conversations.threads(limit=1000)) == 300
    assert world.system.cached_threads == 10
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_p6_a_thread_that_waits_is_touched_by_nothing() -> None:
    model = ScriptedModel(by_last_words({"wait": calls("sleep_until_event_or_input")}))
    world = World(in_memory(), model)
    await world.boot()
    await world.say("t", "wait")
    await world.settle()
    before = (world.faults.passed, len(model.requests))
    for _ in range(100):
        world.clock.advance(24 * 3600)
        await world.sweep()
        await world.settle()
    assert (world.faults.passed, len(model.requests)) == before
