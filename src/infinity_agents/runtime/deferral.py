"""Defer queues for embedders who hold events themselves."""

from collections.abc import Sequence

from ..conversation.messages import Delivery


class NoDeferral:
    """Holds nothing: an event that meets a running call detaches it, as a person's text does."""

    holds = False

    def hold(self, thread_id: str, deliveries: Sequence[Delivery]) -> None:
        raise NotImplementedError(f"nothing is held here, and {len(deliveries)} events of {thread_id} were to be")

    def take(self, thread_id: str) -> Sequence[Delivery]:
        return ()


class InMemoryDeferQueue:
    """Holds events in memory: they are lost with the process, unless whoever delivered them waits for the step."""

    holds = True

    def __init__(self) -> None:
        self._held: dict[str, list[Delivery]] = {}

    def hold(self, thread_id: str, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            self._held.setdefault(thread_id, []).extend(deliveries)

    def take(self, thread_id: str) -> Sequence[Delivery]:
        return self._held.pop(thread_id, [])
