"""Playing scenarios with a process that dies, or two that overlap."""

import asyncio
from collections.abc import Callable
from typing import Any

from infinity_agents.conversation.history import faults
from infinity_agents.testing.faults import Crash, FaultInjector
from infinity_agents.testing.scenarios import Scenario
from infinity_agents.testing.world import OpenAdapters, World

Embedding = Callable[[], OpenAdapters]


async def play(world: World, scenario: Scenario, injector: FaultInjector) -> dict[str, Any]:
    """Play ``scenario``; where the process dies, start a fresh one over what it left. Return what is left."""
    await world.boot(injector)
    for stage in scenario.stages:
        await stage(world)
        try:
            await world.settle()
        except Crash:
            await world.crashed()
            await world.settle()
    return await end(world, scenario)


async def end(world: World, scenario: Scenario) -> dict[str, Any]:
    await scenario.finish(world)
    for request in world.model.requests:  # type: ignore[attr-defined] - scenarios are played with a ScriptedModel
        assert not list(faults(request.entries)), f"the model was sent an invalid history: {request.entries}"
    left = await world.state()
    await world.adapters.close()
    return left


async def undisturbed(scenario: Scenario, embedding: Embedding) -> tuple[dict[str, Any], list[str]]:
    """Return what is left in the end, and the name of every boundary that was passed."""
    injector = FaultInjector()
    world = await scenario.world(embedding())
    left = await play(world, scenario, injector)
    return left, injector.names


async def crash_everywhere(scenario: Scenario, embedding: Embedding, *, every: int = 1) -> int:
    """Play ``scenario`` once for each boundary, with the death of the process there; return how many there were."""
    expected, names = await undisturbed(scenario, embedding)
    numbers = range(1, len(names) + 1, every)
    for number in numbers:
        world = await scenario.world(embedding())
        where = f"{scenario.name}, boundary {number}: {names[number - 1]}"
        await _same(expected, play(world, scenario, FaultInjector(crash_at=number)), where)
    return len(numbers)


async def overlap_everywhere(scenario: Scenario, embedding: Embedding, *, every: int = 1) -> int:
    """Play ``scenario`` once for each boundary, at which one step stands still until a second one has gone through."""
    expected, names = await undisturbed(scenario, embedding)
    numbers = range(1, len(names) + 1, every)
    for number in numbers:
        where = f"{scenario.name}, standing still at boundary {number}: {names[number - 1]}"
        await _same(expected, _overlap(scenario, embedding(), FaultInjector(pause_at=number)), where)
    return len(numbers)


async def _same(expected: dict[str, Any], playing: Any, where: str) -> None:
    try:
        left = await playing
    except AssertionError as error:
        raise AssertionError(f"{where}: {error}") from error
    for key in expected.keys() | left.keys():
        assert left.get(key) == expected.get(key), f"{where}: {key}"


async def _overlap(scenario: Scenario, open_adapters: OpenAdapters, injector: FaultInjector) -> dict[str, Any]:
    slow = await scenario.world(open_adapters)
    await slow.boot(injector)
    for stage in scenario.stages:
        await stage(slow)
        going = asyncio.ensure_future(slow.settle())
        standing = asyncio.ensure_future(injector.paused.wait())
        await asyncio.wait({going, standing}, return_when=asyncio.FIRST_COMPLETED)
        standing.cancel()
        if not going.done():
            quick = await _second_process(slow, scenario)
            await quick.settle()
            injector.resume()
            await going
            await quick.adapters.close()
            injector.paused.clear()
        await going
        await slow.settle()
    return await end(slow, scenario)


async def _second_process(slow: World, scenario: Scenario) -> World:
    """Return a world of a second process, to which the messages that the first has in hand became visible again."""
    quick = await scenario.world(slow.open_adapters)
    quick.server, quick.tools, quick.clock, quick.model = slow.server, slow.tools, slow.clock, slow.model
    quick.loses_acknowledgements = slow.loses_acknowledgements
    await quick.boot()
    await quick.adapters.inputs.release(slow.in_hand, delay=0)
    return quick
