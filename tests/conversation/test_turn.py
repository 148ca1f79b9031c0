"""A turn is collected from the model's stream, and kept or dropped whole."""

import pytest

from infinity_agents.conversation.history import Reasoning, SaidText
from infinity_agents.conversation.turn import (
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ReasoningDelta,
    RequestedCall,
    Stopped,
    TextDelta,
    TurnBuffer,
    Usage,
    Used,
)


def heard(*events):
    buffer = TurnBuffer("model-1")
    for event in events:
        buffer.hear(event)
    return buffer


CALL = (
    CallStarted("get_weather", "toolu_1"),
    ArgumentsDelta('{"location"'),
    ArgumentsDelta(': "Rome"}'),
    CallFinished(),
)


class TestWhole:
    def test_text(self):
        turn = heard(TextDelta("Hel"), TextDelta("lo"), Used(Usage(3, 1)), Stopped("end_turn")).whole()
        assert turn.said == (SaidText("Hello"),)
        assert turn.text == "Hello"
        assert turn.call is None
        assert turn.usage == Usage(3, 1)
        assert turn.reason == "end_turn"

    def test_the_first_call_ends_the_turn(self):
        turn = heard(
            TextDelta("Let me see."),
            *CALL,
            TextDelta("dropped"),
            ReasoningDelta("dropped", "signature"),
            CallStarted("dropped"),
            ArgumentsDelta("{}"),
            CallFinished(),
            Used(Usage(1, 2)),
            Stopped("tool_use"),
        ).whole()
        assert turn.said == (SaidText("Let me see."),)
        assert turn.call == RequestedCall("get_weather", '{"location": "Rome"}', "toolu_1")
        assert turn.usage == Usage(1, 2)
        assert turn.reason == "tool_use"

    def test_a_second_call_that_starts_means_that_the_first_is_whole(self):
        turn = heard(*CALL[:-1], CallStarted("other"), ArgumentsDelta('{"x": 1}'), CallFinished()).whole()
        assert turn.call == RequestedCall("get_weather", '{"location": "Rome"}', "toolu_1")

    def test_a_call_without_arguments(self):
        assert heard(CallStarted("now"), CallFinished()).whole().call == RequestedCall("now", "", None)

    def test_a_half_call_is_none(self):
        assert heard(TextDelta("a"), *CALL[:-1]).whole().call is None

    def test_an_end_without_a_call_is_none(self):
        assert heard(CallFinished(), ArgumentsDelta("{}"), TextDelta("a")).whole().call is None

    def test_nothing_at_all(self):
        turn = heard(Stopped()).whole()
        assert (turn.said, turn.call, turn.text) == ((), None, "")


class TestReasoning:
    def test_blocks_keep_their_signatures_apart_and_in_order(self):
        turn = heard(
            ReasoningDelta("one "),
            ReasoningDelta("more"),
            ReasoningDelta(signature="sig-1"),
            ReasoningDelta("two"),
            ReasoningDelta(signature="sig-2"),
            TextDelta("aloud"),
            ReasoningDelta("three"),
            ReasoningDelta(signature="sig-3"),
            *CALL,
        ).whole()
        assert turn.said == (
            Reasoning("one more", "sig-1", None, "model-1"),
            Reasoning("two", "sig-2", None, "model-1"),
            SaidText("aloud"),
            Reasoning("three", "sig-3", None, "model-1"),
        )

    def test_redacted_blocks_stand_for_themselves(self):
        turn = heard(
            ReasoningDelta("open"),
            ReasoningDelta(redacted="eHh4"),
            ReasoningDelta(redacted="eXl5"),
            ReasoningDelta("end"),
        ).whole()
        assert turn.said == (
            Reasoning("open", None, None, "model-1"),
            Reasoning("", None, "eHh4", "model-1"),
            Reasoning("", None, "eXl5", "model-1"),
            Reasoning("end", None, None, "model-1"),
        )

    def test_it_is_not_said_aloud(self):
        assert heard(ReasoningDelta("hm"), TextDelta("hi")).whole().text == "hi"


class TestCutShort:
    def test_visible_text_stays(self):
        turn = heard(TextDelta("half a sen")).cut_short("cancelled")
        assert turn.said == (SaidText("half a sen"),)
        assert turn.reason == "cancelled"

    def test_trailing_reasoning_goes(self):
        turn = heard(
            ReasoningDelta("a", "sig"), TextDelta("hi"), ReasoningDelta("b", "sig"), ReasoningDelta("c")
        ).cut_short("deadline")
        assert turn.said == (Reasoning("a", "sig", None, "model-1"), SaidText("hi"))

    def test_half_a_call_goes(self):
        turn = heard(TextDelta("hi"), *CALL[:-1]).cut_short("deadline")
        assert turn.call is None
        assert turn.said == (SaidText("hi"),)

    def test_reasoning_alone_leaves_nothing(self):
        assert heard(ReasoningDelta("a", "sig"), *CALL[:2]).cut_short("cancelled").said == ()

    def test_what_was_used_is_told(self):
        assert heard(Used(Usage(5)), TextDelta("a")).cut_short("cancelled").usage == Usage(5)


@pytest.mark.parametrize(
    ("events", "has"),
    [
        ([], False),
        ([TextDelta(" \n")], False),
        ([ReasoningDelta("hm")], False),
        ([TextDelta("hi")], True),
        ([TextDelta("hi"), ReasoningDelta("hm")], True),
        ([TextDelta(" "), ReasoningDelta("hm"), TextDelta("\t")], False),
        (list(CALL), False),
    ],
)
def test_whether_a_person_could_use_it(events, has):
    assert heard(*events).has_text is has


def test_cached_tokens_count_for_the_window():
    usage = Usage(input=1, output=2, cache_read=30, cache_write=400)
    assert usage.context == 433
    assert usage + Usage(1, 1, 1, 1) == Usage(2, 3, 31, 401)
