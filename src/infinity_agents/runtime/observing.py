"""Observers that come with the runtime."""

from ..conversation.events import AgentEvent


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
