"""Admit: only what the thread has not heard yet, and only once everything that it decided before is done."""

from collections.abc import Awaitable, Callable, Sequence

from ..conversation.effects import PlannedEffect
from ..conversation.messages import Delivery
from .known import Loaded


async def admit(
    loaded: Loaded, deliveries: Sequence[Delivery], perform: Callable[[Sequence[PlannedEffect]], Awaitable[None]]
) -> tuple[list[Delivery], bool]:
    """Return the deliveries that are new, and whether effects that an earlier crash left were performed."""
    left = [effect for effect in loaded.snapshot.effects if effect.version > loaded.performed_through]
    if left:
        await perform(left)
    return unheard(deliveries, loaded.snapshot.heard), bool(left)


def unheard(deliveries: Sequence[Delivery], heard: frozenset[str]) -> list[Delivery]:
    """Return the deliveries that the inbox does not know, each once."""
    seen = set(heard)
    new = []
    for delivery in deliveries:
        if seen.isdisjoint(delivery.known_as):
            new.append(delivery)
        seen.add(delivery.identity)
    return new
