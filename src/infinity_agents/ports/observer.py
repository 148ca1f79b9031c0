"""Whoever watches a step."""

from typing import Protocol

from ..conversation.events import AgentEvent


class Observer(Protocol):
    """Watches a step."""

    def observe(self, event: AgentEvent) -> None:
        """Take note of ``event``. Called on the event loop: it must return at once, and must not raise."""
        ...
