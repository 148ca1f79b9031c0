"""Prepare: fold what is new into history and ledger. Pure, but for the clock that is read once."""

from collections.abc import Sequence
from datetime import datetime

from ..conversation.folding import fold_batch
from ..conversation.lineage import Lineage
from ..conversation.messages import Delivery
from ..conversation.slice import Slice
from ..conversation.threads import Thread, ThreadKind
from .known import Loaded
from .services import Services


def prepare(
    services: Services,
    thread_id: str,
    loaded: Loaded | None,
    deliveries: Sequence[Delivery],
    *,
    now: datetime,
    defers: bool,
) -> Slice | None:
    """Return the slice in which ``deliveries`` are folded; ``None`` where there is no thread and nobody makes one."""
    if loaded is None and not any(delivery.is_personal for delivery in deliveries):
        return None
    slice_ = _known(services, loaded, now, defers) if loaded else _new(services, thread_id, now, defers)
    fold_batch(slice_, deliveries)
    return slice_


def _known(services: Services, loaded: Loaded, now: datetime, defers: bool) -> Slice:
    snapshot = loaded.snapshot
    return Slice(
        thread=snapshot.thread,
        lineage=snapshot.lineage,
        summary=snapshot.summary,
        history=loaded.history,
        history_from=loaded.history_from,
        special=loaded.special,
        calls={call.id: call for call in snapshot.calls},
        choices={choice.id: choice for choice in snapshot.choices},
        children=list(snapshot.children),
        waiting=list(snapshot.deferred),
        waiting_more=snapshot.deferred_more,
        now=now,
        settings=services.settings,
        window=services.model.context_window(snapshot.thread.model),
        root_metadata=snapshot.root_metadata,
        person_heard_at=snapshot.person_heard_at,
        recent_slices=snapshot.recent_slices,
        paused=snapshot.paused,
        defers=defers,
    )


def _new(services: Services, thread_id: str, now: datetime, defers: bool) -> Slice:
    model = services.model.name
    return Slice(
        thread=Thread(id=thread_id, kind=ThreadKind.ROOT, model=model, created_at=now),
        lineage=Lineage(),
        summary=None,
        history=[],
        history_from=0,
        special=[],
        calls={},
        choices={},
        children=[],
        waiting=[],
        now=now,
        settings=services.settings,
        window=services.model.context_window(model),
        is_new=True,
        defers=defers,
    )
