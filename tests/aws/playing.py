"""Playing scenarios through ``leader.handler`` with a sandbox that dies, or two that overlap."""

import asyncio

from infinity_agents.testing.faults import FaultInjector
from tests.aws.lambdas import HandlerWorld
from tests.promises.playing import end, play


async def same_with_crashes(scenario, embedding, *, every=1, kind=HandlerWorld):
    """Play the scenario once for each boundary, with the death of the sandbox there; return how many there were."""
    return await _same(scenario, embedding, every, kind, _dying)


async def same_with_overlaps(scenario, embedding, *, every=1, kind=HandlerWorld):
    """Play the scenario once for each boundary, where one sandbox stands still until a second has gone through."""
    return await _same(scenario, embedding, every, kind, _standing_still)


async def played(world, scenario, injector):
    """Play the scenario to its end; return what is left."""
    left = await play(world, scenario, injector)
    await world.ended()
    return left


async def _same(scenario, embedding, every, kind, disturbed):
    injector = FaultInjector()
    expected = await played(kind.of(scenario, embedding()), scenario, injector)
    numbers = range(1, len(injector.names) + 1, every)
    for number in numbers:
        where = f"boundary {number}, {injector.names[number - 1]}"
        try:
            left = await disturbed(kind.of(scenario, embedding()), scenario, number)
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from error
        for key in expected.keys() | left.keys():
            assert left.get(key) == expected.get(key), f"{where}: {key}"
    return len(numbers)


async def _dying(world, scenario, at):
    return await played(world, scenario, FaultInjector(crash_at=at))


async def _standing_still(world, scenario, at):
    injector, stood_still = FaultInjector(pause_at=at), False
    await world.boot(injector)
    for stage in scenario.stages:
        await stage(world)
        stood_still |= await settled_with_a_second(world, injector)
    assert stood_still, "the first leader never came there"
    left = await end(world, scenario)
    await world.ended()
    return left


async def settled_with_a_second(world, injector, meanwhile=None):
    """Settle; where the leader stands still, let ``meanwhile`` happen and a second leader handle all there is.

    Tell whether it stood still. What the first has in hand has become visible to the second.
    """
    going = asyncio.ensure_future(world.settle())
    # The sandbox has a loop and a thread of its own.
    while not going.done() and not injector.paused.is_set():  # noqa: ASYNC110 - an event would not wake us
        await asyncio.sleep(0.001)
    stood_still = not going.done()
    if stood_still:
        if meanwhile is not None:
            await meanwhile()
        await _second_leader(world)
        world.sandbox._loop.call_soon_threadsafe(injector.resume)
        await going
        injector.paused.clear()
    await going
    await world.settle()
    return stood_still


async def _second_leader(first):
    second = type(first)(first.open_adapters, first.model, settings=first.settings)
    second.server, second.tools, second.clock = first.server, first.tools, first.clock
    second.loses_acknowledgements = first.loses_acknowledgements
    await second.boot()
    await second.adapters.inputs.release(first.in_hand, delay=0)
    await second.settle()
    await second.ended()
    await second.adapters.close()
