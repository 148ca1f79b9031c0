"""Observers that come with the runtime, and how they are told."""

from ..conversation.events import AgentEvent
from ..conversation.slice import Slice
from .services import Run


class EventCollector:
    """Keeps every event of a step, to be looked at afterwards."""

    def __init__(self) -> None:
        self.events: list[AgentEvent] = []

    def observe(self, event: AgentEvent) -> None:
        self.events.append(event)


class Silent:
    """Takes note of nothing."""

    def observe(self, event: AgentEvent) -> None:
        """Do nothing: nobody watches this step."""


def report(run: Run, slice_: Slice) -> None:
    """Tell the observer what the slice has folded and answered since this was done last."""
    for event in slice_.events:
        run.observe(event)
    slice_.events.clear()
