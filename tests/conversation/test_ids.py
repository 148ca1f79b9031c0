"""Every id that the runtime makes fits its place and names one thing."""

import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from infinity_agents.conversation import ids

SENDABLE = st.text(string.ascii_letters + string.digits + string.punctuation, min_size=1, max_size=128)
ANYTHING = st.text(max_size=200)


@pytest.mark.parametrize("group_id", ["a", "a" * 128, string.punctuation, "my-conversation", "slack:C1/2.3"])
def test_what_sqs_takes(group_id):
    assert ids.is_sendable(group_id)


@pytest.mark.parametrize(
    "group_id", ["", "a" * 129, "a b", "a\n", "ümlaut", "\N{GRINNING FACE}", "a\x00", "\ud800", "\t"]
)
def test_what_sqs_does_not_take(group_id):
    assert not ids.is_sendable(group_id)


@given(root=SENDABLE, parent=SENDABLE, about=ANYTHING)
@example(root="r" * 128, parent="p", about="c")
@example(root="r" * 114, parent="p", about="c")
@example(root="r" * 115, parent="p", about="c")
def test_ids_of_threads_are_sendable_and_begin_with_their_roots(root, parent, about):
    for make in (ids.child_id, ids.event_thread_id, ids.compaction_thread_id):
        made = make(root, parent, about)
        assert ids.is_sendable(made)
        assert made != root
        assert made == make(root, parent, about)
        assert made.startswith(root if len(root) <= 114 else root[:100])
        # A child's own children begin with the root's id too, and grow no longer.
        assert ids.is_sendable(make(root, made, about))
        assert make(root, made, about) != made


def test_roots_that_begin_alike_have_different_children():
    first, second = (ids.child_id("r" * 127 + end, "r" * 127 + end, "c") for end in "ab")
    assert first != second
    assert ids.child_id("r" * 127 + "a", "p", "c") != ids.child_id("r" * 127 + "b", "p", "c")


def test_kinds_of_threads_never_meet():
    assert len({make("r", "p", "m") for make in (ids.child_id, ids.event_thread_id, ids.compaction_thread_id)}) == 3


@given(thread=SENDABLE, version=st.integers(1, 10**9), ordinal=st.integers(1, 10**6))
def test_ids_of_calls_are_short_and_plain(thread, version, ordinal):
    made = ids.call_id(thread, version, ordinal)
    assert re.fullmatch(r"[a-zA-Z0-9_.:-]{1,64}", made)
    assert made == ids.call_id(thread, version, ordinal)


@given(
    first=st.tuples(SENDABLE, st.integers(1, 99), st.integers(1, 99)),
    second=st.tuples(SENDABLE, st.integers(1, 99), st.integers(1, 99)),
)
def test_different_calls_have_different_ids(first, second):
    assert (ids.call_id(*first) == ids.call_id(*second)) is (first == second)


@given(
    kind=st.sampled_from(["report", "timer", "nudge"]),
    thread=SENDABLE,
    about=st.lists(ANYTHING | st.integers(), max_size=3),
)
def test_ids_of_messages_are_sendable(kind, thread, about):
    made = ids.message_id(kind, thread, *about)
    assert ids.is_sendable(made)
    assert made == ids.message_id(kind, thread, *about)


def test_a_message_is_named_by_thread_and_kind_and_what_it_is_about():
    made = {
        ids.message_id("report", "t", "c"),
        ids.message_id("timer", "t", "c"),
        ids.message_id("report", "u", "c"),
        ids.message_id("report", "t", "d"),
        ids.message_id("report", "t", "c", 1),
        ids.message_id("report", "t", "c", 2),
        ids.message_id("report", "t"),
    }
    assert len(made) == 7


@given(thread=SENDABLE)
def test_ids_of_outputs_fit(thread):
    made = {ids.output_id(thread, version, ordinal) for version in range(1, 4) for ordinal in range(3)}
    assert len(made) == 9
    assert all(len(output_id) <= 128 for output_id in made)


def test_only_what_is_too_long_is_shortened():
    assert ids.fitted("a" * 128) == "a" * 128
    long = ids.fitted("a" * 129)
    assert len(long) == 128
    assert long != ids.fitted("a" * 130)


@pytest.mark.parametrize("length", [1, 12, 16, 32, 64])
def test_a_digest_is_hex(length):
    assert re.fullmatch(f"[0-9a-f]{{{length}}}", ids.digest("a", 1, "\ud800", length=length))
