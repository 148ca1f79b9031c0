"""Questions that tools ask people, and authorizations: asked of one person, answered once, moot with their call."""

from dataclasses import replace

import pytest

from infinity_agents.conversation.messages import Control, OauthRequired, UserChoiceRequired, UserChoiceResponse
from infinity_agents.conversation.outputs import Output
from infinity_agents.testing.scripted_model import calls, says
from infinity_agents.testing.world import TOOL_SET, World
from tests.runtime.stepping import a_world, ours, person, result, sent, step

ANN = {"user_id": "ann"}


async def asking(question: str = "Which?", choices: tuple[str, ...] = ("this", "that"), default: int = 1) -> World:
    """Return a world in which a running call has asked Ann."""
    world = await a_world({"find": calls("search", {"q": "x"}), "hello": says("Hello.")}, "search")
    await step(world, person("find it", metadata=ANN))
    await step(world, asked(world, question, choices, default))
    return world


def asked(world: World, question: str, choices: tuple[str, ...] = ("this", "that"), default: int = 1) -> object:
    call_id = world.server.last("search")
    return ours(UserChoiceRequired(call_id, question, choices, default, "http://127.0.0.1/choice", tool_set=TOOL_SET))


def chosen(world: World, selected: int | None, *, user_id: str | None = "ann") -> object:
    return sent(UserChoiceResponse(world.server.last("search"), selected, user_id))


async def told(world: World, kind: str) -> list[Output]:
    return [output for output in (await world.outputs()).values() if output.type == kind]


async def open_choices(world: World) -> dict[str, object]:
    return dict(await world.adapters.state.copies("t", "choice"))


async def test_a_question_reaches_the_person_who_asked_and_waits() -> None:
    world = await asking()
    (question,) = await told(world, "user_choice_required")
    call_id = world.server.last("search")
    assert question.details == {
        "id": call_id,
        "prompt": "Which?",
        "choices": ["this", "that"],
        "default": 1,
        "user_id": "ann",
    }
    assert question.metadata == ANN
    assert list(await open_choices(world)) == [call_id]
    assert len(world.model.requests) == 1


async def test_an_answer_goes_to_the_tool_and_closes_the_question() -> None:
    world = await asking()
    await step(world, chosen(world, 0))
    assert world.server.answers == [(world.server.last("search"), 0)]
    (complete,) = await told(world, "user_choice_complete")
    assert (complete.details or {})["choice_id"] == world.server.last("search")
    assert await open_choices(world) == {}
    assert len(world.model.requests) == 1


async def test_a_dismissed_question_is_answered_by_its_default() -> None:
    world = await asking(default=1)
    await step(world, chosen(world, None))
    assert world.server.answers == [(world.server.last("search"), 1)]


@pytest.mark.parametrize("selected", [-1, 2, 999])
async def test_an_answer_that_is_no_choice_leaves_the_question_open(selected: int) -> None:
    world = await asking()
    await step(world, chosen(world, selected))
    assert world.server.answers == []
    assert len(await told(world, "error")) == 1
    assert len(await open_choices(world)) == 1
    await step(world, chosen(world, 1))
    assert world.server.answers == [(world.server.last("search"), 1)]


async def test_a_second_answer_is_absorbed_and_said_to_be_late() -> None:
    world = await asking()
    await step(world, chosen(world, 0))
    await step(world, chosen(world, 1))
    assert world.server.answers == [(world.server.last("search"), 0)]
    assert len(await told(world, "user_choice_complete")) == 2


async def test_two_answers_in_one_batch_are_one_answer() -> None:
    world = await asking()
    await step(world, chosen(world, 1), chosen(world, 0))
    assert world.server.answers == [(world.server.last("search"), 1)]


async def test_a_second_question_of_one_call_replaces_the_first() -> None:
    world = await asking("Which?", ("a", "b", "c"))
    await step(world, asked(world, "And which now?", ("x", "y"), 0))
    (copy,) = (await open_choices(world)).values()
    assert copy == {"prompt": "And which now?", "choices": ["x", "y"], "default": 0}
    await step(world, chosen(world, 2))
    assert world.server.answers == []
    await step(world, chosen(world, 1))
    assert world.server.answers == [(world.server.last("search"), 1)]


async def test_the_end_of_the_call_dismisses_its_question() -> None:
    world = await asking()
    await step(world, result(world.server.last("search"), "found it myself"))
    assert await open_choices(world) == {}
    assert len(await told(world, "user_choice_complete")) == 1
    await step(world, chosen(world, 0))
    assert world.server.answers == []


async def test_stop_dismisses_the_question() -> None:
    world = await asking()
    await step(world, sent(Control("stop")))
    assert await open_choices(world) == {}
    assert len(await told(world, "user_choice_complete")) == 1


async def test_a_question_of_a_detached_call_stays_open() -> None:
    world = await asking()
    await step(world, person("hello", metadata=ANN))
    assert len(await open_choices(world)) == 1
    await step(world, chosen(world, 0))
    assert world.server.answers == [(world.server.last("search"), 0)]


async def test_a_question_for_a_call_that_is_over_is_absorbed() -> None:
    world = await asking()
    await step(world, result(world.server.last("search"), "found"))
    await step(world, asked(world, "And now?"))
    assert len(await told(world, "user_choice_required")) == 1
    assert await open_choices(world) == {}


@pytest.mark.parametrize(("choices", "default"), [((), 0), (("a",), 1), (("a",), -1)])
async def test_a_question_without_an_answer_is_dropped(choices: tuple[str, ...], default: int) -> None:
    world = await asking()
    await step(world, chosen(world, 0))
    await step(world, asked(world, "Which?", choices, default))
    assert len(await told(world, "user_choice_required")) == 1


async def test_nobody_else_may_answer() -> None:
    world = await asking()
    await step(world, chosen(world, 0, user_id="bob"))
    await step(world, chosen(world, 0, user_id=None))
    assert world.server.answers == []
    assert len(await open_choices(world)) == 1


async def test_questions_survive_a_restart() -> None:
    world = await asking()
    await world.crashed()
    await step(world, chosen(world, 0))
    assert world.server.answers == [(world.server.last("search"), 0)]


async def test_what_a_tool_asks_is_shown_without_control_characters() -> None:
    world = await asking("\x1b[31mWhich?\x07", ("\x1b[1mthis", "that\x00"))
    (question,) = await told(world, "user_choice_required")
    assert (question.details or {})["prompt"] == "Which?"
    assert (question.details or {})["choices"] == ["this", "that"]
    assert "\x1b" not in question.text


# Authorizations.


async def test_an_authorization_link_goes_to_the_person_concerned_and_wakes_no_model() -> None:
    world = await asking()
    await step(world, ours(OauthRequired(world.server.last("search"), "https://a.example/x", tool_set=TOOL_SET)))
    (link,) = await told(world, "oauth_required")
    assert link.details == {"auth_url": "https://a.example/x", "user_id": "ann"}
    assert len(world.model.requests) == 1


async def test_the_clock_of_a_call_stands_still_while_an_authorization_is_open() -> None:
    world = await a_world({"find": calls("search", {"q": "x"})}, "search")
    await step(world, person("find it", metadata=ANN))
    await step(world, ours(OauthRequired(world.server.last("search"), "https://a.example/x", tool_set=TOOL_SET)))
    world.clock.advance(30 * 24 * 3600)
    assert (await world.sweep()).deadlines == 0
    await step(world, result(world.server.last("search"), "found"))
    assert (await world.adapters.conversations.calls("t"))[0].state == "answered"


async def test_a_deadline_that_was_sent_before_the_question_changes_nothing() -> None:
    world = await a_world({"find": calls("search", {"q": "x"})}, "search")
    await world.say("t", "find it")
    await world.settle()
    world.clock.advance(6 * 3600 + 1)
    await world.sweep()
    call_id = world.server.last("search")
    world.server.calls[call_id] = ("t", replace(world.server.calls[call_id][1]))
    question = asked(world, "Which?")
    await step(world, question)
    await world.settle()
    (call,) = await world.adapters.conversations.calls("t")
    assert call.state == "open"
