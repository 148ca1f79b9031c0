"""The W3C trace context of what is being done: it comes in with a message or a header, and goes out the same way."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from ..conversation.content import JsonObject
from ..conversation.messages import Delivery, InputMessage

_TRACEPARENT = re.compile("00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE = re.compile("[!-~]([ -~]{0,510}[!-~])?")  # no blank at its ends: HTTP has none there

_current: ContextVar[Mapping[str, str] | None] = ContextVar("trace", default=None)


def trace_of(fields: JsonObject | Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return the ``traceparent`` and ``tracestate`` among ``fields``; ``None`` where that is no trace context.

    What is malformed is ignored: a trace is never a reason to refuse a message.
    """
    traceparent, tracestate = (fields or {}).get("traceparent"), (fields or {}).get("tracestate")
    if not isinstance(traceparent, str) or not _TRACEPARENT.fullmatch(traceparent):
        return None
    if not isinstance(tracestate, str) or not _TRACESTATE.fullmatch(tracestate):
        return {"traceparent": traceparent}
    return {"traceparent": traceparent, "tracestate": tracestate}


def trace_among(deliveries: Sequence[Delivery]) -> Mapping[str, str] | None:
    """Return the trace context of the last of the messages that has one."""
    traces = (trace_of(delivery.message.trace) for delivery in reversed(deliveries))
    return next((trace for trace in traces if trace), None)


@contextmanager
def following(trace: Mapping[str, str] | None) -> Iterator[None]:
    """Have what is done while the context is open, and the tasks begun in it, belong to ``trace``, or to none."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


def current_trace() -> Mapping[str, str] | None:
    """Return the trace context of what is being done: also the headers that say so."""
    return _current.get()


def current_trace_id() -> str | None:
    """Return the 32 hex digits that name the trace."""
    trace = _current.get()
    return trace["traceparent"].split("-")[1] if trace else None


def traced(message: InputMessage) -> InputMessage:
    """Return ``message`` with the trace context of what is being done; one of its own stays."""
    trace = _current.get()
    return message if trace is None or message.trace is not None else replace(message, trace=dict(trace))
