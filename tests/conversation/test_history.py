"""What makes a history valid, and how a model reads it."""

import pytest

from infinity_agents.conversation.content import Blob, Image, Text
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
    faults,
    pending_call,
    readable,
)
from tests.conversation.building import called, event, result, said, user

BAD = "\N{REPLACEMENT CHARACTER}"


class TestFaults:
    @pytest.mark.parametrize(
        "entries",
        [
            [],
            [user()],
            [user(), said("hi"), user(), user(), said("a"), said("b")],
            [user(), called("a")],
            [user(), called("a"), result("a"), called("b"), result("b")],
            [user(), said("let me see"), called("a"), result("a"), event("e1"), event("e2"), user()],
        ],
    )
    def test_valid(self, entries):
        assert list(faults(entries)) == []

    @pytest.mark.parametrize(
        ("entries", "said_of_it"),
        [
            ([result("a")], "entry 0: result a follows no call"),
            ([called("a"), result("a"), result("a")], "entry 2: result a follows no call"),
            ([called("a"), result("b")], "entry 1: result b follows the call a"),
            ([called("a"), user(), result("a")], "entry 1: user stands between the call a and its result"),
            ([called("a"), said("x")], "entry 1: assistant stands between the call a and its result"),
            ([called("a"), event("e")], "entry 1: event stands between the call a and its result"),
            ([called("a"), called("b")], "entry 1: tool_call stands between the call a and its result"),
            ([called("a"), result("a"), called("a")], "entry 2: the id a is used twice"),
            ([event("a"), called("a")], "entry 1: the id a is used twice"),
        ],
    )
    def test_invalid(self, entries, said_of_it):
        assert said_of_it in list(faults(entries))

    def test_an_event_whose_result_is_of_another_call(self):
        entry = EventEntry(CallBody("e", INJECTED_CALL, {}), ResultBody("f", ()), "c")
        assert list(faults([entry])) == ["entry 0: the event's result f is not of its call e"]


def test_the_pending_call_is_the_last_entry_when_it_is_a_call():
    assert pending_call([]) is None
    assert pending_call([called("a"), result("a")]) is None
    assert pending_call([user(), called("a")]).call.id == "a"


class TestReadable:
    @pytest.mark.parametrize(
        "entry",
        [
            user("tab\tand\nnewline"),
            said("hi"),
            called("a", arguments={"x": [1, None, {"y": "z"}]}),
            result("a"),
            event("e"),
            UserEntry((Image("aGk=", "image/png"), Blob("0" * 64, 9, "text"))),
            AssistantEntry((Reasoning("hm", "signed"), SaidText("hi"))),
        ],
    )
    def test_what_can_be_read_is_unchanged(self, entry):
        assert readable(entry) == entry

    def test_nul_and_lone_surrogates_are_replaced(self):
        assert readable(user("a\x00b\ud800c")) == user(f"a{BAD}b{BAD}c")
        assert readable(said("a\x00")) == said(f"a{BAD}")
        assert readable(result("a", "a\udfff")) == result("a", f"a{BAD}")
        assert readable(event("e", text="a\x00")) == event("e", text=f"a{BAD}")

    def test_pairs_of_surrogates_are_characters(self):
        assert readable(user("\N{GRINNING FACE}")) == user("\N{GRINNING FACE}")

    def test_in_arguments_they_are_replaced_at_every_depth(self):
        entry = called("a", "to\x00ol", {"a\x00": ["\ud800", {"b": "c\x00", "n": 1.5}], "t": None})
        assert readable(entry) == called("a", f"to{BAD}ol", {f"a{BAD}": [BAD, {"b": f"c{BAD}", "n": 1.5}], "t": None})

    @pytest.mark.parametrize("parts", [(), (Text(""),), (Text(" \n"), Text("\t"))])
    def test_an_empty_message_says_so(self, parts):
        (part,) = readable(UserEntry(parts)).content
        assert part.text.strip()
        (part,) = readable(ToolResultEntry(ResultBody("a", parts))).result.content
        assert part.text.strip()

    def test_blank_text_beside_something_else_goes(self):
        image = Image("aGk=", "image/png")
        assert readable(UserEntry((Text(""), image, Text("look")))) == UserEntry((image, Text("look")))
        entry = AssistantEntry((SaidText(" "), Reasoning("hm"), SaidText("hi")))
        assert readable(entry) == AssistantEntry((Reasoning("hm"), SaidText("hi")))

    @pytest.mark.parametrize(
        "entry",
        [
            user("a\x00\ud800"),
            UserEntry(()),
            said("  "),
            called("a", arguments={"x": ("\x00",)}),
            ToolResultEntry(ResultBody("a", (Text(""),))),
            event("e", text=""),
        ],
    )
    def test_mending_twice_changes_nothing(self, entry):
        assert readable(readable(entry)) == readable(entry)

    def test_signed_reasoning_is_never_touched(self):
        entry = AssistantEntry((Reasoning(" hm ", "signature"), Reasoning("", None, "redacted")))
        assert readable(entry) == entry


def test_the_text_of_an_assistant_is_what_was_said_aloud():
    assert AssistantEntry((Reasoning("hm"), SaidText("a"), SaidText("b"))).text == "ab"


def test_what_is_written_is_kept_as_it_came():
    from tests.conversation.building import a_slice

    slice_ = a_slice()
    slice_.append(user("a\x00"))
    assert slice_.new_entries == [user("a\x00")]
    assert slice_.history[-1] == user(f"a{BAD}")


def test_a_tool_call_entry_shows_what_it_says():
    assert ToolCallEntry(CallBody("a", "t", {}), "t()").display_as == "t()"
