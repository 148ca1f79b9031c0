"""Load: what the stores know of the thread, both asked at the same time."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta

from ..conversation.history import Entry, is_plain, readable
from ..conversation.messages import Delivery
from ..errors import StoreUnavailable
from ..ports.conversations import LoadRequest, Snapshot
from .known import Held, HistoryCache, Loaded
from .services import Run

_COUNTED = timedelta(hours=1)


async def load(run: Run, thread_id: str, deliveries: Iterable[Delivery], cache: HistoryCache) -> Loaded | None:
    """Return what the stores know of the thread, in one round trip to each; ``None`` where there is no such thread."""
    held = cache.get(thread_id)
    heard, named = set[str](), set[str]()
    for delivery in deliveries:
        heard.update(delivery.known_as)
        named.update(delivery.calls_named)
    request = LoadRequest(
        thread_id=thread_id,
        message_ids=frozenset(heard),
        call_ids=frozenset(named),
        known_to=held.end if held else None,
        count_since=run.services.clock.now() - _COUNTED,
        deferred_limit=run.services.settings.deliveries_per_slice,
    )
    run.trip("conversations")
    run.trip("state")
    snapshot, performed_through = await asyncio.gather(
        run.services.conversations.load(request), run.services.state.performed_through(thread_id)
    )
    if snapshot is None:
        return None
    history, start, special = _joined(held, snapshot)
    if start + len(history) != snapshot.thread.end:
        cache.forget(thread_id)
        raise StoreUnavailable(
            f"thread {thread_id}: the store gave entries up to {start + len(history)} of {snapshot.thread.end}"
        )
    return Loaded(snapshot, history, start, special, performed_through)


def _joined(held: Held | None, snapshot: Snapshot) -> tuple[list[Entry], int, list[int]]:
    """Return the whole history, its first position, and the positions of what is special: held first, then fresh."""
    fresh = [readable(entry) for entry in snapshot.entries]
    special = [place for place, entry in enumerate(fresh, snapshot.entries_from) if not is_plain(entry)]
    start = snapshot.summary.up_to if snapshot.summary else 0
    if held is None or snapshot.entries_from != held.end or start < held.start:
        return fresh, snapshot.entries_from, special
    kept = [place for place in held.special if place >= start]
    return [*held.entries[start - held.start :], *fresh], start, [*kept, *special]
