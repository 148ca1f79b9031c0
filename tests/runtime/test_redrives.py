"""Redrives: a message is the same message however often it went through the dead letters."""

from dataclasses import replace

from infinity_agents.conversation.content import Text
from infinity_agents.conversation.events import Completed, Skipped
from infinity_agents.conversation.messages import Delivery, InputMessage
from infinity_agents.testing.scripted_model import says
from tests.runtime.stepping import a_world, kinds, step

MESSAGE = InputMessage(Text("hello"), "t")


async def test_a_message_without_an_id_of_its_own_is_known_after_two_redrives() -> None:
    world = await a_world([says("Hello.")])
    assert isinstance(await step(world, Delivery(MESSAGE, "q1", dedup_id="of the sender")), Completed)
    # Whoever redrives it writes the first queue id into it, where it has none.
    redriven = replace(MESSAGE, message_id="q1")
    assert await step(world, Delivery(redriven, "q2", dedup_id="q1")) == Skipped()
    assert await step(world, Delivery(redriven, "q3", dedup_id="q2")) == Skipped()
    assert await kinds(world) == ["user", "assistant"]


async def test_a_message_that_was_first_heard_after_a_redrive_is_known_after_the_next() -> None:
    world = await a_world([says("Hello.")])
    redriven = replace(MESSAGE, message_id="q1")
    assert isinstance(await step(world, Delivery(redriven, "q2", dedup_id="q1")), Completed)
    assert await step(world, Delivery(redriven, "q3", dedup_id="q2")) == Skipped()
    assert await kinds(world) == ["user", "assistant"]


async def test_two_people_may_give_their_messages_the_same_id_in_two_threads() -> None:
    world = await a_world(lambda request: says("Hello."))
    for thread_id in ("a", "b"):
        message = InputMessage(Text("hello"), thread_id, message_id="mine")
        assert isinstance(await step(world, Delivery(message, f"queue {thread_id}")), Completed)
