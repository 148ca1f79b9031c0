"""Commit: everything that the slice decided, in one transaction behind the fence."""

from dataclasses import replace

from ..conversation.effects import PlannedEffect, SendInput
from ..conversation.history import Entry, EventEntry, ToolResultEntry, UserEntry
from ..conversation.slice import Slice
from ..ports.conversations import Commit, SpawnedThread
from ..wire.large_values import LargeValues
from .retry import against_store
from .services import Run


async def commit(run: Run, slice_: Slice, *, performed_through: int) -> bool:
    """Write the slice, or nothing of it; tell whether all its values were small enough to be held in memory.

    Raises:
        FenceLost: another step wrote this version of the thread first.
        StoreUnavailable: the store could not be reached, or does not say whether it wrote.
    """
    large = _without_large_values(slice_, run.services.settings.inline_bytes)
    if large.values:
        run.round_trips["blobs"] += len(large.values)
        await large.keep(run.services.blobs)
    written = Commit(
        thread=replace(slice_.thread, version=slice_.version, length=slice_.thread.length + len(slice_.new_entries)),
        writer=run.services.ids.fresh(),
        at=slice_.now,
        is_new=slice_.is_new,
        first_position=slice_.first_position,
        entries=tuple(slice_.new_entries),
        calls=tuple(slice_.changed_calls.values()),
        heard=tuple(slice_.heard),
        spawned=tuple(SpawnedThread(thread, lineage) for thread, lineage in slice_.spawned),
        summaries=tuple(slice_.summaries),
        deferred=tuple(slice_.deferred),
        undeferred=tuple(slice_.undeferred),
        all_undeferred=slice_.thread.closed,
        effects=tuple(slice_.effects),
        choices_opened=tuple(slice_.choices_opened.values()),
        choices_closed=tuple(slice_.choices_closed),
        forget_effects_to=performed_through,
        spoke=slice_.spoke,
        personal=slice_.personal,
    )
    # The writer's token makes the repeat of a commit whose outcome is unknown harmless.
    await against_store(run, "conversations", lambda: run.services.conversations.commit(written))
    return not large.values


def _without_large_values(slice_: Slice, inline_bytes: int) -> LargeValues:
    """Leave references in the slice in place of what is over ``inline_bytes``, and return that."""
    large = LargeValues(inline_bytes)
    slice_.new_entries = [_out_of_entry(large, entry) for entry in slice_.new_entries]
    slice_.deferred = [
        replace(delivery, message=large.out_of_message(delivery.message)) for delivery in slice_.deferred
    ]
    slice_.effects = [_out_of_effect(large, planned) for planned in slice_.effects]
    return large


def _out_of_effect(large: LargeValues, planned: PlannedEffect) -> PlannedEffect:
    if not isinstance(planned.effect, SendInput):
        return planned
    message = large.out_of_message(planned.effect.message)
    return planned if message is planned.effect.message else replace(planned, effect=SendInput(message))


def _out_of_entry(large: LargeValues, entry: Entry) -> Entry:
    match entry:
        case UserEntry(content=parts):
            taken = large.out_of(parts)
            return entry if taken is parts else replace(entry, content=taken)
        case ToolResultEntry(result=result) | EventEntry(result=result):
            taken = large.out_of(result.content)
            return entry if taken is result.content else replace(entry, result=replace(result, content=taken))
        case _:
            return entry
