"""Trace contexts: what is one, which of several counts, and what belongs to it."""

import asyncio

import pytest

from infinity_agents.conversation.content import Text
from infinity_agents.conversation.messages import Delivery, InputMessage
from infinity_agents.wire.traces import current_trace, current_trace_id, following, trace_among, trace_of, traced

ONE = "00-" + "1" * 32 + "-" + "a" * 16 + "-01"
TWO = "00-" + "2" * 32 + "-" + "b" * 16 + "-00"


def said(trace):
    return Delivery(InputMessage(Text("hello"), "t", trace=trace), "q")


@pytest.mark.parametrize(
    "malformed",
    [
        None,
        {},
        {"traceparent": None},
        {"traceparent": 1},
        {"traceparent": ""},
        {"traceparent": "00-1"},
        {"traceparent": ONE.replace("a", "A")},
        {"traceparent": ONE + "\n"},
        {"traceparent": ONE + "-more"},
        {"traceparent": "01" + ONE[2:]},
        {"traceparent": ONE.replace("1" * 32, "0" * 32)},
        {"traceparent": ONE.replace("a" * 16, "0" * 16)},
        {"tracestate": "a=1"},
    ],
)
def test_what_is_malformed_is_no_trace(malformed):
    assert trace_of(malformed) is None


@pytest.mark.parametrize(
    ("state", "kept"),
    [("a=1,b=2", True), ("x" * 512, True), ("", False), (" a=1", False), ("a=1 ", False), ("a=1\r\nb: c", False),
     ("é", False), ("x" * 513, False), (["a"], False)],
)  # fmt: skip
def test_a_state_that_is_no_header_is_left_out_and_the_trace_stays(state, kept):
    trace = trace_of({"traceparent": ONE, "tracestate": state, "more": 1})
    assert trace == ({"traceparent": ONE, "tracestate": state} if kept else {"traceparent": ONE})


def test_of_several_messages_the_last_that_has_a_trace_counts():
    deliveries = [said({"traceparent": ONE}), said({"traceparent": TWO}), said({"traceparent": "00-1"}), said(None)]
    assert trace_among(deliveries) == {"traceparent": TWO}
    assert trace_among([said(None)]) is None
    assert trace_among([]) is None


async def test_what_is_done_belongs_to_the_trace_and_so_do_the_tasks_it_begins():
    async def named():
        return current_trace_id()

    assert current_trace() is None
    with following({"traceparent": ONE}):
        task = asyncio.create_task(named())
        with following(None):
            assert current_trace() is None
            assert current_trace_id() is None
        assert current_trace() == {"traceparent": ONE}
    assert current_trace() is None
    assert await task == "1" * 32


def test_a_message_of_its_own_trace_keeps_it():
    own, none = said({"traceparent": TWO}).message, said(None).message
    assert traced(none) is none
    with following({"traceparent": ONE}):
        assert traced(own) is own
        assert traced(none).trace == {"traceparent": ONE}
