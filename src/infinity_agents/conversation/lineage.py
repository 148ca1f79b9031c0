"""What a thread inherits, and which part of a history a summary may stand for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .history import Entry, Summary, ToolCallEntry, ToolResultEntry


@dataclass(frozen=True, slots=True)
class Segment:
    """The entries of ``thread_id`` at the positions from ``start`` up to, not including, ``stop``."""

    thread_id: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a thread inherits, frozen when it was spawned: a summary by its key, and segments in order."""

    segments: tuple[Segment, ...] = ()
    summary: tuple[str, int] | None = None
    """(thread, up_to) of the summary that stands before the first segment."""


def inherit(parent: Lineage, parent_id: str, parent_base: int, stop: int, summary: Summary | None) -> Lineage:
    """Return the lineage of a child of ``parent_id`` that sees its parent's history up to ``stop``.

    ``summary`` is the one that stands at the beginning of the parent's history now. ``stop`` is never before it.
    """
    start = summary.up_to if summary else 0
    whole = (*parent.segments, Segment(parent_id, parent_base, stop))
    kept = (
        Segment(segment.thread_id, max(segment.start, start), min(segment.stop, stop))
        for segment in whole
        if segment.stop > start and segment.start < stop
    )
    return Lineage(
        segments=tuple(segment for segment in kept if segment.start < segment.stop),
        summary=(summary.thread_id, summary.up_to) if summary else None,
    )


def clipped(lineage: Lineage, start: int) -> tuple[Segment, ...]:
    """Return the segments that are left when everything before ``start`` is summarised."""
    return tuple(
        Segment(segment.thread_id, max(segment.start, start), segment.stop)
        for segment in lineage.segments
        if segment.stop > start
    )


def is_safe_point(entries: Sequence[Entry], index: int) -> bool:
    """Tell whether a history may be cut before ``entries[index]``: never between a call and its result."""
    before_result = index < len(entries) and isinstance(entries[index], ToolResultEntry)
    after_call = index > 0 and isinstance(entries[index - 1], ToolCallEntry)
    return not before_result and not after_call


def last_safe_point(entries: Sequence[Entry]) -> int:
    """Return the largest index at which the history may be cut."""
    index = len(entries)
    while not is_safe_point(entries, index):
        index -= 1
    return index


def compaction_range(entries: Sequence[Entry], room: int, size_of: Callable[[Entry], int]) -> int:
    """Return how many of the oldest ``entries`` a summary should stand for: those that fit ``room``.

    The cut is at a safe point and never takes all entries from a thread that still has a pending call. At least one
    whole exchange is taken even where it is larger than ``room``, so that a compaction always makes progress; 0 means
    that there is nothing to take.
    """
    limit = last_safe_point(entries)
    best, used = 0, 0
    for index in range(1, limit + 1):
        used += size_of(entries[index - 1])
        if best and used > room:
            break
        if is_safe_point(entries, index):
            best = index
    return best
