"""A warm process reads only what is new; what a slice costs does not grow with the conversation."""

import asyncio
from itertools import pairwise

import pytest

from infinity_agents.conversation.content import Text
from infinity_agents.conversation.events import Completed, Failed
from infinity_agents.conversation.folding import COMPACTION_PROMPT
from infinity_agents.conversation.history import Entry
from infinity_agents.conversation.messages import Compaction
from infinity_agents.errors import FenceLost
from infinity_agents.settings import AgentSettings
from infinity_agents.testing.faults import FaultInjector
from infinity_agents.testing.scripted_model import Rule, ScriptedModel, calls, says, text_of
from infinity_agents.testing.world import World
from infinity_agents.wire import history as stored
from tests.embeddings import in_memory
from tests.runtime.stepping import Trips, a_world, ours, person, result, step

RULES: dict[str, Rule] = {COMPACTION_PROMPT: says("In short."), "find": calls("search", {"q": "x"})}


async def counted(**more: object) -> tuple[World, Trips]:
    trips = Trips()
    opening = trips.open_adapters(in_memory())
    return await a_world(RULES, "search", opening=opening, **more), trips


def fresh(trips: Trips) -> int:
    """Return how many entries the last load of the conversation gave."""
    snapshot = trips.loads[-1][1]
    return len(snapshot.entries) if snapshot else 0


def read(world: World) -> list[str]:
    """Return what the model read last, by text."""
    model = world.model
    assert isinstance(model, ScriptedModel)
    return [text_of(entry) for entry in model.requests[-1].entries]


async def test_a_warm_process_names_what_it_knows_and_reads_nothing_twice() -> None:
    world, trips = await counted()
    for number in range(5):
        await step(world, person(f"hello {number}"))
        assert fresh(trips) == 0
    assert trips.loads[-1][0].known_to == 8
    assert read(world)[::2] == [f"hello {number}" for number in range(5)]


async def test_a_cold_process_reads_all_and_sees_the_same() -> None:
    world, trips = await counted()
    for number in range(3):
        await step(world, person(f"hello {number}"))
    await world.crashed()
    await step(world, person("hello 3"))
    assert fresh(trips) == 6
    assert read(world)[::2] == [f"hello {number}" for number in range(4)]


async def test_what_another_process_wrote_in_between_is_read_and_nothing_else() -> None:
    world, trips = await counted()
    await step(world, person("one"))
    other = world.system_with(FaultInjector())
    await other.step([person("two")])
    await step(world, person("three"))
    assert fresh(trips) == 2
    assert read(world) == ["one", "Understood.", "two", "Understood.", "three"]
    await other.step([person("four")])
    assert fresh(trips) == 2
    assert read(world)[-3:] == ["three", "Understood.", "four"]


async def test_after_a_summary_only_newer_entries_are_read() -> None:
    world, trips = await counted()
    for number in range(3):
        await step(world, person(f"hello {number}"))
    await step(world, ours(synthetic=Compaction()))
    await world.settle()
    trips.forget()
    await step(world, person("go on"))
    assert (trips.loads[-1][0].known_to, fresh(trips)) == (6, 0)
    assert read(world) == ["go on"]
    assert world.model.requests[-1].summary == "In short."
    await step(world, person("and on"))
    assert fresh(trips) == 0
    assert read(world) == ["go on", "Understood.", "and on"]


async def test_a_summary_that_another_process_wrote_shortens_what_a_warm_one_holds() -> None:
    world, _ = await counted()
    for number in range(3):
        await step(world, person(f"hello {number}"))
    warm = world.system
    await step(world, ours(synthetic=Compaction()))
    await world.crashed()
    await world.settle()
    await warm.step([person("go on")])
    assert read(world) == ["go on"]
    assert world.model.requests[-1].summary == "In short."


async def test_a_step_that_lost_the_fence_knows_better_on_its_next_try() -> None:
    world, _ = await counted()
    await step(world, person("one"))
    injector = FaultInjector(crash_at=None, pause_at=5)
    slow = world.system_with(injector)
    mine = person("mine")
    going = asyncio.ensure_future(slow.step([mine]))
    await injector.paused.wait()
    await step(world, person("yours"))
    injector.resume()
    (outcome,) = (await going).values()
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, FenceLost)
    (outcome,) = (await slow.step([mine])).values()
    assert isinstance(outcome, Completed)
    assert read(world) == ["one", "Understood.", "yours", "Understood.", "mine"]


async def test_a_step_that_failed_leaves_no_trace_in_what_is_held() -> None:
    world, _ = await counted()
    await step(world, person("one"))
    broken = world.system
    good, world.model = world.model, ScriptedModel(lambda request: 1 / 0)
    broken.services = world.services(FaultInjector())
    assert isinstance(await step(world, person("two")), Failed)
    world.model = good
    broken.services = world.services(FaultInjector())
    await step(world, person("three"))
    assert read(world) == ["one", "Understood.", "three"]


async def test_the_entries_decoded_do_not_grow_with_the_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    world, _ = await counted()
    decoded = 0
    codec = stored.entries

    class Counted:
        encode = codec.encode

        @staticmethod
        def decode(text: str) -> Entry:
            nonlocal decoded
            decoded += 1
            return codec.decode(text)

    monkeypatch.setattr(stored, "entries", Counted)
    costs = []
    for turn in range(200):
        before = decoded
        await step(world, person(f"find it {turn}"))
        await step(world, result(world.server.last("search"), f"number {turn}"))
        costs.append(decoded - before)
    assert len(await world.history("t")) == 800
    assert max(costs) <= 4
    assert costs[-1] <= costs[1]


async def test_what_is_written_per_slice_does_not_grow_with_the_conversation() -> None:
    world, _ = await counted()
    store = world.adapters.conversations
    sizes = []
    for turn in range(200):
        await step(world, person(f"hello {turn:03}"))
        rows = store.data.threads["t"]
        sizes.append(sum(map(len, rows.entries.values())) + len(rows.record) + sum(map(len, rows.effects.values())))
    written = [later - earlier for earlier, later in pairwise(sizes)]
    assert max(written[10:]) <= max(written[:10]) + 16


async def test_a_process_forgets_the_thread_that_it_has_not_seen_for_longest() -> None:
    world, trips = await counted(settings=AgentSettings(cached_threads=2))
    for thread_id in ("a", "b"):
        await step(world, person("one", thread_id))
    await step(world, person("two", "a"))
    await step(world, person("one", "c"))
    trips.forget()
    await step(world, person("three", "a"))
    assert fresh(trips) == 0
    await step(world, person("two", "b"))
    assert fresh(trips) == 2
    assert [text_of(entry) for entry in world.model.requests[-1].entries] == ["one", "Understood.", "two"]
    assert isinstance(world.model.requests[-1].entries[0].content[0], Text)
