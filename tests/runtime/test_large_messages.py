"""Large values stay out of the rows and the queue, and still reach the model whole, or as a note."""

from infinity_agents.conversation.content import Document, Image, Text
from infinity_agents.conversation.events import Completed
from infinity_agents.conversation.messages import Parts
from infinity_agents.settings import AgentSettings
from infinity_agents.testing.scenarios import spawns
from infinity_agents.testing.scripted_model import Rule, calls, heard, says, text_of
from infinity_agents.testing.world import World
from tests.runtime.stepping import a_world, event, person, result, sent, step, texts

MEGABYTE = 1024 * 1024
BIG_TEXT = "word " * MEGABYTE
PICTURE = Image("A" * 4 * MEGABYTE, "image/png")
RULES: dict[str, Rule] = {
    "find": calls("search", {"q": "x"}),
    "watch": calls("subscribe", {}),
    "busy": calls("search", {}),
    "ask one": spawns("y" * MEGABYTE),
    "Started the child": says("It is at work."),
}


async def living(**more: object) -> World:
    return await a_world(RULES, "search", "subscribe", window=10_000_000, **more)


def row_bytes(world: World) -> dict[str, int]:
    """Return the size of the longest row of each table of the conversation store."""
    longest: dict[str, int] = {}
    for rows in world.adapters.conversations.data.threads.values():
        for table in ("entries", "calls", "effects", "deferred"):
            sizes = [len(text) for text in getattr(rows, table).values()]
            longest[table] = max([*sizes, longest.get(table, 0)])
    return longest


def last(world: World) -> object:
    return world.model.requests[-1]


async def test_five_megabytes_from_a_person_are_read_whole_and_kept_beside_the_row() -> None:
    world = await living()
    assert isinstance(await step(world, person(BIG_TEXT)), Completed)
    assert heard(last(world)) == BIG_TEXT
    assert max(row_bytes(world).values()) < 2000
    assert len(world.adapters.blobs.data.values) == 1
    await world.crashed()
    await step(world, person("and now?"))
    assert text_of(last(world).entries[0]) == BIG_TEXT
    await step(world, person("and now?"))
    assert text_of(last(world).entries[0]) == BIG_TEXT


async def test_a_picture_of_four_megabytes_in_a_result_is_seen_and_kept_beside_the_row() -> None:
    world = await living()
    await step(world, person("find it"))
    await step(world, result(world.server.last("search"), "this is it", PICTURE))
    assert last(world).entries[-1].result.content == (Text("this is it"), PICTURE)
    assert max(row_bytes(world).values()) < 2000
    await world.crashed()
    await step(world, person("and now?"))
    assert last(world).entries[2].result.content == (Text("this is it"), PICTURE)


async def test_the_same_value_twice_is_kept_once() -> None:
    world = await living()
    for _ in range(3):
        await step(world, sent(PICTURE))
    assert len(world.adapters.blobs.data.values) == 1


async def test_several_parts_keep_their_order() -> None:
    world = await living()
    parts = (Text("look:"), PICTURE, Text("and read:"), Text(BIG_TEXT), Document("B" * MEGABYTE, "text/csv", "all.csv"))
    await step(world, sent(Parts(parts)))
    await world.crashed()
    await step(world, person("well?"))
    assert last(world).entries[0].content == parts


async def test_large_messages_that_must_wait_are_kept_beside_the_row_too() -> None:
    world = await living()
    await step(world, person("watch it"))
    subscribe = world.server.last("subscribe")
    await step(world, result(subscribe, "subscribed", subscription=True))
    await step(world, person("be busy"))
    await step(world, event(subscribe, BIG_TEXT, associative=True))
    assert max(row_bytes(world).values()) < 2000
    await world.crashed()
    await step(world, result(world.server.last("search"), "found"))
    assert heard(last(world)) == BIG_TEXT
    assert max(row_bytes(world).values()) < 2000


async def test_a_plain_event_of_five_megabytes_reaches_its_thread() -> None:
    world = await living()
    await step(world, person("watch it"))
    subscribe = world.server.last("subscribe")
    await step(world, result(subscribe, "subscribed", subscription=True))
    await step(world, event(subscribe, BIG_TEXT))
    await world.settle()
    (request,) = [request for request in world.model.requests if len(request.thread_stack) == 2]
    assert BIG_TEXT in heard(request)
    assert max(row_bytes(world).values()) < 3000
    assert await world.adapters.inputs.dead_letters() == []


async def test_a_child_with_huge_instructions_reads_them_whole() -> None:
    world = await living()
    await world.say("t", "ask one")
    await world.settle()
    (request,) = [request for request in world.model.requests if len(request.thread_stack) == 2]
    assert heard(request) == "y" * MEGABYTE
    assert await world.adapters.inputs.dead_letters() == []
    assert await texts(world, "error") == []


async def test_a_model_that_reads_no_pictures_reads_a_note() -> None:
    world = await living(images=False)
    small = Image("QUJD", "image/png")
    await step(world, sent(Parts((Text("look:"), small, PICTURE))))
    first = last(world).entries[0]
    assert all(isinstance(part, Text) for part in first.content)
    assert "image" in first.content[1].text
    assert "image" in first.content[2].text
    await step(world, person("find it"))
    await step(world, result(world.server.last("search"), small))
    (part,) = last(world).entries[-1].result.content
    assert isinstance(part, Text)
    assert "image" in part.text


async def test_a_value_that_is_lost_leaves_a_note_and_the_thread_goes_on() -> None:
    world = await living()
    await step(world, person(BIG_TEXT))
    world.adapters.blobs.data.values.clear()
    await world.crashed()
    assert isinstance(await step(world, person("and now?")), Completed)
    assert "no longer kept" in text_of(last(world).entries[0])


async def test_a_text_longer_than_the_window_is_shortened_for_the_model_alone() -> None:
    world = await a_world(RULES, window=100_000)
    await step(world, person("begin" + BIG_TEXT + "end"))
    read = heard(last(world))
    assert read.startswith("begin")
    assert read.endswith("end")
    assert "left out" in read
    assert len(read) < 100_000 * 3
    (kept,) = world.adapters.blobs.data.values.values()
    assert len(kept) > len(BIG_TEXT)


async def test_what_a_warm_process_holds_of_large_values_is_bounded() -> None:
    settings = AgentSettings(inline_bytes=1000, cached_bytes=20_000)
    world = await living(settings=settings)
    for number in range(12):
        await step(world, person(f"{number}" + "x" * 5000))
    assert isinstance(await step(world, person("and now?")), Completed)
    assert 0 < world.system.cached_bytes <= settings.cached_bytes
    assert text_of(last(world).entries[0]) == "0" + "x" * 5000
