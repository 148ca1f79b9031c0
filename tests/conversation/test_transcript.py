"""A history as turns: they alternate, results come first, and nothing is in them that services refuse."""

import re

import pytest

from infinity_agents.conversation.content import Document, Image, Text
from infinity_agents.conversation.history import (
    INJECTED_CALL,
    AssistantEntry,
    CallBody,
    EventEntry,
    Reasoning,
    ResultBody,
    SaidText,
    ToolCallEntry,
    ToolResultEntry,
    UserEntry,
)
from infinity_agents.conversation.transcript import (
    SUMMARY_HEADING,
    ModelTurn,
    UserTurn,
    fitted_name,
    is_pdf,
    object_of,
    picture_type,
    transcript,
)

CALL = CallBody("c1", "search", {"q": 1})
RESULT = ResultBody("c1", (Text("found"),))
EVENT_CALL = CallBody("e1", INJECTED_CALL, {})
EVENT_RESULT = ResultBody("e1", (Text("at last"),))
EVENT = EventEntry(EVENT_CALL, EVENT_RESULT, tool_call_id="c1")


def person(*texts):
    return UserEntry(tuple(Text(text) for text in texts))


def said(*blocks):
    return AssistantEntry(tuple(SaidText(block) if isinstance(block, str) else block for block in blocks))


def turns(*entries, summary=None, replays=lambda _: True):
    return transcript(entries, summary=summary, replays=replays)


def test_an_exchange():
    assert turns(person("look"), said("Well."), ToolCallEntry(CALL), ToolResultEntry(RESULT), said("Here.")) == (
        UserTurn((Text("look"),)),
        ModelTurn((SaidText("Well."), CALL)),
        UserTurn((RESULT,)),
        ModelTurn((SaidText("Here."),)),
    )


def test_what_one_side_said_in_several_entries_is_one_turn():
    assert turns(person("a", "b"), person("c"), said("d"), said("e")) == (
        UserTurn((Text("a"), Text("b"), Text("c"))),
        ModelTurn((SaidText("d"), SaidText("e"))),
    )


def test_results_come_before_what_people_say():
    detached = (ToolCallEntry(CALL), ToolResultEntry(RESULT), person("lunch?"))
    assert turns(person("build"), *detached)[-1] == UserTurn((RESULT, Text("lunch?")))


def test_an_event_is_a_call_and_its_result():
    assert turns(person("a"), said("b"), EVENT, EVENT) == (
        UserTurn((Text("a"),)),
        ModelTurn((SaidText("b"), EVENT_CALL)),
        UserTurn((EVENT_RESULT,)),
        ModelTurn((EVENT_CALL,)),
        UserTurn((EVENT_RESULT,)),
    )


@pytest.mark.parametrize("nothing", [said(), said(" \n"), said(Reasoning("hm"))])
def test_who_says_nothing_has_no_turn(nothing):
    assert turns(person("a"), nothing, person("b")) == (UserTurn((Text("a"), Text("b"))),)
    assert turns(person("a"), nothing) == (UserTurn((Text("a"),)),)


def test_reasoning_stays_where_something_follows_it():
    first, second, last = Reasoning("1"), Reasoning("2"), Reasoning("3")
    assert turns(person("a"), said(first, "b", second), ToolCallEntry(CALL), ToolResultEntry(RESULT))[1] == ModelTurn(
        (first, SaidText("b"), second, CALL)
    )
    assert turns(person("a"), said(first, "b", second, last))[1] == ModelTurn((first, SaidText("b")))


def test_reasoning_that_is_not_replayed_is_left_out():
    mine, other = Reasoning("1", model="mine"), Reasoning("2", model="other")
    replayed = turns(person("a"), said(mine, other, "b"), replays=lambda block: block.model == "mine")
    assert replayed[1] == ModelTurn((mine, SaidText("b")))


def test_the_summary_is_the_first_that_people_say():
    assert turns(person("go on"), summary="Much.") == (UserTurn((Text(f"{SUMMARY_HEADING}Much."), Text("go on"))),)
    assert turns(EVENT, summary="Much.")[0] == UserTurn((Text(f"{SUMMARY_HEADING}Much."),))


def test_people_begin():
    assert [type(turn) for turn in turns(said("a"), person("b"))] == [UserTurn, ModelTurn, UserTurn]
    assert turns() == ()


@pytest.mark.parametrize("name", ["search", "a" * 64, "get_the-Time2"])
def test_a_name_that_fits_is_kept(name):
    assert fitted_name(name, 64) == name


@pytest.mark.parametrize("name", ["", "a" * 65, "a b", "größe", "a.b", "a\n"])
def test_a_name_that_does_not_fit_is_made_to_and_stays_one_of_its_own(name):
    fitted = fitted_name(name, 64)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", fitted)
    assert fitted_name(f"{name}!", 64) != fitted
    assert fitted_name(name, 64) == fitted


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({}, {"type": "object", "properties": {}}),
        ({"anyOf": [{}], "properties": {"a": {"anyOf": []}}}, {"type": "object", "properties": {"a": {"anyOf": []}}}),
        ({"type": ["object", "null"], "required": ["a"]}, {"type": "object", "properties": {}, "required": ["a"]}),
    ],
)
def test_a_schema_is_an_object_at_its_top(schema, sent):
    assert object_of(schema) == sent


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        ("iVBORw0KGgoAAAANSUhEUg==", "image/png"),
        ("/9j/4AAQSkZJRgABAQ==", "image/jpeg"),
        ("R0lGODlhAQABAIAAAAUE", "image/gif"),
        ("UklGRiQAAABXRUJQVlA4", "image/webp"),
        ("UklGRiQAAABXQVZFZm10", None),
        ("Qk0eAAAA", None),
        ("iVBORw0KGgoAAAANSUhEUg==!", None),
        ("iVBORw0KGgoAAAANSUhEUg", None),
        ("!", None),
        ("ü", None),
        ("", None),
    ],
)
def test_a_picture_is_known_by_its_bytes(data, media_type):
    assert picture_type(Image(data, "image/png")) == media_type


def test_a_pdf_is_known_by_its_bytes():
    assert is_pdf(Document("JVBERi0xLjcK", "text/plain", "a"))
    assert not is_pdf(Document("aGVsbG8=", "application/pdf", "a.pdf"))
    assert not is_pdf(Document("JVBERi0xLjcK!", "application/pdf", "a.pdf"))
