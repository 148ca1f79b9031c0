"""A thread as a step needs it, put together from the rows of one statement."""

from collections import defaultdict
from dataclasses import replace
from operator import itemgetter
from typing import Any, Final

from ...conversation.effects import PlannedEffect
from ...conversation.history import Summary
from ...conversation.lineage import Lineage
from ...ports.conversations import LoadRequest, Snapshot
from ...wire import codecs
from ...wire import history as stored
from .database import Parameters, micros, moment
from .statements import key, named_statements

LOAD: Final = named_statements("load.sql")["load"]

# The kinds of its rows.
_THREAD, _ROOT, _SUMMARY, _ENTRY, _CALL, _HEARD, _EFFECT, _DEFERRED, _CHOICE, _CHILD, _PAUSED = range(11)
_PLACE = itemgetter(0, 1)
_ID = itemgetter(2)


def parameters(request: LoadRequest) -> Parameters:
    """Return the parameters with which ``LOAD`` reads what ``request`` asks for."""
    return {
        "thread_id": request.thread_id,
        "message_ids": [key(message_id) for message_id in request.message_ids],
        "call_ids": [key(call_id) for call_id in request.call_ids],
        "known_to": request.known_to or 0,
        "count_since": micros(request.count_since) if request.count_since else 0,
        "deferred_limit": request.deferred_limit,
    }


def snapshot_of(rows: list[tuple[Any, ...]], request: LoadRequest) -> Snapshot | None:
    """Return the thread that ``rows`` tell of; ``None`` where there is none."""
    by_kind = defaultdict(list)
    for kind, *row in rows:
        by_kind[kind].append(row)
    if not by_kind[_THREAD]:
        return None
    for kind in (_ENTRY, _CALL, _EFFECT, _DEFERRED, _CHOICE):
        by_kind[kind].sort(key=_PLACE)
    for kind in (_CHILD, _PAUSED):
        by_kind[kind].sort(key=_ID)

    ((recent_slices, person_heard_at, inherited, record),) = by_kind[_THREAD]
    thread = stored.threads.decode(record)
    roots = [stored.threads.decode(body) for *_, body in by_kind[_ROOT]]
    summaries = [Summary(author, up_to, codecs.values.decode(body)) for up_to, _, author, body in by_kind[_SUMMARY]]
    summary = summaries[0] if summaries else None
    deferred = tuple(
        replace(stored.deliveries.decode(body), deferred_as=(version, ordinal))
        for version, ordinal, _, body in by_kind[_DEFERRED]
    )
    asked = {key(message_id): message_id for message_id in request.message_ids}
    return Snapshot(
        thread=thread,
        lineage=stored.lineages.decode(inherited) if inherited else Lineage(),
        summary=summary,
        entries=tuple(stored.decode_entries([body for *_, body in by_kind[_ENTRY]])),
        entries_from=max(summary.up_to if summary else 0, request.known_to or 0),
        calls=tuple(stored.calls.decode(body) for *_, body in by_kind[_CALL]),
        heard=frozenset(asked[found] for _, _, found, _ in by_kind[_HEARD]),
        effects=tuple(
            PlannedEffect(version, ordinal, stored.effects.decode(body))
            for version, ordinal, _, body in by_kind[_EFFECT]
        ),
        deferred=deferred[: request.deferred_limit],
        deferred_more=len(deferred) > request.deferred_limit,
        choices=tuple(stored.choices.decode(body) for *_, body in by_kind[_CHOICE]),
        children=tuple(map(_ID, by_kind[_CHILD])),
        root_metadata=thread.metadata if thread.parent_id is None else roots[0].metadata if roots else None,
        recent_slices=recent_slices,
        person_heard_at=None if person_heard_at is None else moment(person_heard_at),
        paused=tuple(map(_ID, by_kind[_PAUSED])),
    )
