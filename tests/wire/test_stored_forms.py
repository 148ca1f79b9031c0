"""The stored forms: what is written comes back, and nothing that cannot be written is left."""

import json
import re
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infinity_agents.conversation.content import Blob, Document, Image, Text
from infinity_agents.conversation.effects import Effect
from infinity_agents.conversation.history import (
    INJECTED_CALL,
    AssistantEntry,
    CallBody,
    Entry,
    EventEntry,
    Reasoning,
    ResultBody,
    SaidText,
    ToolCallEntry,
    ToolResultEntry,
    UserEntry,
)
from infinity_agents.conversation.ledger import Call, CallState
from infinity_agents.conversation.lineage import Lineage, Segment
from infinity_agents.conversation.messages import Content, Delivery, InputMessage, Parts, Synthetic
from infinity_agents.conversation.outputs import Output
from infinity_agents.conversation.threads import Choice, Thread, ThreadKind
from infinity_agents.wire import codecs
from infinity_agents.wire import history as stored

BAD = "\N{REPLACEMENT CHARACTER}"
TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=8)
BROKEN = st.text(st.characters() | st.characters(whitelist_categories=["Cs"]), max_size=8)
MOMENT = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
SPAN = st.timedeltas(timedelta(), timedelta(days=400))


def values(text):
    leaves = (
        st.none()
        | st.booleans()
        | st.integers(-(2**53), 2**53)
        | text
        | st.floats(allow_nan=False, allow_infinity=False)
    )
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=6
    )


def kinds(text):
    """Return strategies for every kind of value that a store keeps, with texts like ``text``."""
    document = st.dictionaries(text, values(text), max_size=3)
    maybe = lambda strategy: st.none() | strategy  # noqa: E731
    part = (
        st.builds(Text, text)
        | st.builds(Image, text, text)
        | st.builds(Document, text, text, text)
        | st.builds(Blob, text, st.integers(0, 10**9), text)
    )
    parts = st.lists(part, max_size=3).map(tuple)
    shown = maybe(st.lists(document, max_size=2).map(tuple))
    body = st.builds(CallBody, text, text, document, maybe(text))
    result = st.builds(ResultBody, text, parts, maybe(text), st.booleans())
    entry = st.one_of(
        st.builds(UserEntry, parts),
        st.builds(
            AssistantEntry,
            st.lists(
                st.builds(SaidText, text) | st.builds(Reasoning, text, maybe(text), maybe(text), maybe(text)),
                max_size=3,
            ).map(tuple),
        ),
        st.builds(ToolCallEntry, body, maybe(text)),
        st.builds(ToolResultEntry, result, shown),
        st.builds(EventEntry, body, result, text, maybe(text), shown),
    )
    call = st.builds(
        Call,
        text,
        text,
        document,
        st.sampled_from(CallState),
        MOMENT,
        maybe(text),
        maybe(text),
        st.booleans(),
        maybe(text),
        maybe(MOMENT),
        maybe(SPAN),
        maybe(MOMENT),
    )
    number = st.integers(0, 10**6)
    thread = st.builds(
        Thread,
        text,
        st.sampled_from(ThreadKind),
        text,
        MOMENT,
        number,
        number,
        number,
        st.lists(text, max_size=3).map(tuple),
        maybe(text),
        st.booleans(),
        maybe(MOMENT),
        maybe(number),
        maybe(MOMENT),
        maybe(document),
    )
    lineage = st.builds(
        Lineage,
        st.lists(st.builds(Segment, text, number, number), max_size=3).map(tuple),
        maybe(st.tuples(text, number)),
    )
    choice = st.builds(Choice, text, text, st.lists(text, max_size=3).map(tuple), number, text, MOMENT, maybe(text))
    inside = {"parts": parts, "content": parts, "choices": st.lists(text, max_size=3).map(tuple)}
    content = st.one_of(*(_built(kind, text, inside) for kind in Content.__args__))
    synthetic = st.one_of(*(_built(kind, text, inside) for kind in Synthetic.__args__))
    message = st.builds(
        InputMessage,
        content,
        text,
        maybe(text),
        maybe(document),
        maybe(synthetic),
        shown,
        st.booleans(),
        maybe(document),
    )
    delivery = st.builds(
        Delivery, message, text, maybe(text), st.booleans(), maybe(MOMENT), maybe(st.tuples(number, number))
    )
    output = st.builds(
        Output,
        st.sampled_from(["message", "error", "status"]),
        text,
        text,
        text,
        text,
        st.tuples(number, number),
        maybe(document),
        maybe(document),
    )
    inside = {"message": message, "output": output, "value": maybe(document)}
    effect = st.one_of(*(_built(kind, text, inside) for kind in Effect.__args__))
    return {
        "entries": entry,
        "calls": call,
        "threads": thread,
        "lineages": lineage,
        "choices": choice,
        "deliveries": delivery,
        "effects": effect,
        "values": values(text),
    }


def _built(kind, text, inside):
    """Return a strategy for a dataclass: texts are like ``text``, other fields as ``inside`` names them."""
    by_type = {str: text, str | None: st.none() | text, bool: st.booleans()}
    chosen = {field.name: inside.get(field.name, by_type.get(field.type)) for field in fields(kind)}
    return st.builds(kind, **{name: strategy for name, strategy in chosen.items() if strategy is not None})


WHOLE = kinds(TEXT)
KINDS = sorted(WHOLE)


def codec_of(kind):
    return codecs.values if kind == "values" else getattr(stored, kind)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_written_comes_back(kind, data):
    codec, value = codec_of(kind), data.draw(WHOLE[kind])
    text = codec.encode(value)
    assert codec.decode(text) == value
    assert codec.decode(text.encode()) == value
    assert codec.encode(codec.decode(text)) == text


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_lone_surrogates_are_mended_on_the_way_in(kind, data):
    codec, value = codec_of(kind), data.draw(kinds(BROKEN)[kind])
    text = codec.encode(value)
    text.encode()
    assert mended(codec.decode(text)) == mended(value)


def mended(value):
    """Return the value with each run of lone surrogates replaced, field by field: how often is nobody's concern."""
    if isinstance(value, StrEnum):
        return value
    if isinstance(value, str):
        return re.sub(f"[\ud800-\udfff{BAD}]+", BAD, value)
    if isinstance(value, dict):
        return {mended(key): mended(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(mended(item) for item in value)
    if is_dataclass(value):
        return replace(value, **{field.name: mended(getattr(value, field.name)) for field in fields(value)})
    return value


class TestSpelling:
    """The history items of the wire format, field by field."""

    def spelling(self, entry: Entry):
        return json.loads(stored.entries.encode(entry))

    def test_user(self):
        entry = UserEntry((Text("hi"), Image("aGk=", "image/png"), Document("aGk=", "a/b", "n")))
        assert self.spelling(entry) == {
            "kind": "user",
            "content": [
                {"type": "text", "text": "hi"},
                {"type": "image", "data": "aGk=", "media_type": "image/png"},
                {"type": "document", "data": "aGk=", "media_type": "a/b", "name": "n"},
            ],
        }

    def test_assistant(self):
        entry = AssistantEntry(
            (Reasoning("hm", "sig", None, "model-1"), Reasoning("", None, "eHh4", "m"), SaidText("hi"))
        )
        assert self.spelling(entry) == {
            "kind": "assistant",
            "content": [
                {"type": "reasoning", "text": "hm", "signature": "sig", "model": "model-1"},
                {"type": "reasoning", "text": "", "redacted": "eHh4", "model": "m"},
                {"type": "text", "text": "hi"},
            ],
        }

    def test_tool_call(self):
        entry = ToolCallEntry(CallBody("c", "get_weather", {"location": None}, "toolu_1"), "Weather")
        assert self.spelling(entry) == {
            "kind": "tool_call",
            "call": {"id": "c", "call_id": "toolu_1", "name": "get_weather", "arguments": {"location": None}},
            "display_as": "Weather",
        }

    def test_tool_result(self):
        entry = ToolResultEntry(ResultBody("c", (Text("a"),), "toolu_1", True), ({"type": "text", "content": "b"},))
        assert self.spelling(entry) == {
            "kind": "tool_result",
            "result": {"id": "c", "call_id": "toolu_1", "content": [{"type": "text", "text": "a"}], "is_error": True},
            "display_segments": [{"type": "text", "content": "b"}],
        }

    def test_event(self):
        arguments = {"original_tool_name": "t", "original_tool_call_id": "c", "original_args": {}}
        entry = EventEntry(CallBody("e", INJECTED_CALL, arguments), ResultBody("e", (Text("a"),)), "c", "g.t1")
        assert self.spelling(entry) == {
            "kind": "event",
            "invocation": {"id": "e", "name": "receive_event__injected", "arguments": arguments},
            "result": {"id": "e", "content": [{"type": "text", "text": "a"}], "is_error": False},
            "tool_call_id": "c",
            "child_thread_id": "g.t1",
        }


def test_a_field_of_a_later_version_is_ignored():
    fields_ = json.loads(stored.entries.encode(UserEntry((Text("hi"),))))
    assert stored.entries.decode(json.dumps({**fields_, "mood": "good"})) == UserEntry((Text("hi"),))


def test_nothing_that_is_null_in_a_document_gets_lost():
    call = Call("c", "t", {"a": None, "b": [None, {"c": None}]}, CallState.OPEN, datetime(2026, 1, 1, tzinfo=UTC))
    assert stored.calls.decode(stored.calls.encode(call)) == call
    broken = replace(call, arguments={"a": None, "b": "\ud800"})
    assert stored.calls.decode(stored.calls.encode(broken)).arguments == {"a": None, "b": BAD}


@pytest.mark.parametrize("span", [timedelta(days=14), timedelta(days=1, hours=2, microseconds=3), timedelta()])
def test_times_survive_text_that_must_be_mended(span):
    call = Call("c\ud800", "t", {}, CallState.OPEN, datetime(2026, 1, 1, 0, 0, 0, 7, tzinfo=UTC), time_left=span)
    assert stored.calls.decode(stored.calls.encode(call)) == replace(call, id=f"c{BAD}")


def test_large_text():
    entry = UserEntry((Text("\N{GRINNING FACE}a" * 1_000_000),))
    assert stored.entries.decode(stored.entries.encode(entry)) == entry


def test_parts_of_one_are_not_the_one():
    message = InputMessage(Parts((Text("a"),)), "g")
    delivery = Delivery(message, "q")
    assert stored.deliveries.decode(stored.deliveries.encode(delivery)) == delivery
