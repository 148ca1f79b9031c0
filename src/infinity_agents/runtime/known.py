"""What a warm process holds of a thread, and what a step knows of it before anything is heard."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..conversation.content import Part
from ..conversation.history import Entry
from ..ports.conversations import Snapshot


@dataclass(frozen=True, slots=True)
class Held:
    """The history of a thread as a warm process holds it, from the position ``start`` on.

    ``special`` are the positions of the entries that are not plain.
    """

    start: int
    entries: tuple[Entry, ...]
    special: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.start + len(self.entries)


@dataclass(slots=True)
class LargeCache:
    """Keeps the large values last read, ``most`` bytes of them, so that each is fetched and parsed once."""

    most: int = 0
    _held: OrderedDict[str, tuple[int, tuple[Part, ...]]] = field(default_factory=OrderedDict)
    size: int = 0

    def get(self, sha256: str) -> tuple[Part, ...] | None:
        """Return what the value of that hash says, where it is held."""
        if sha256 not in self._held:
            return None
        self._held.move_to_end(sha256)
        return self._held[sha256][1]

    def put(self, sha256: str, size: int, parts: tuple[Part, ...]) -> None:
        """Hold ``parts``, which stand for ``size`` bytes, instead of what has not been read for longest."""
        if size > self.most or sha256 in self._held:
            return
        self._held[sha256] = size, parts
        self.size += size
        while self.size > self.most:
            _, (gone, _) = self._held.popitem(last=False)
            self.size -= gone


@dataclass(slots=True)
class HistoryCache:
    """Keeps the histories of the threads last seen, so that their next slice reads only what is new."""

    most: int
    large: LargeCache = field(default_factory=LargeCache)
    _held: OrderedDict[str, Held] = field(default_factory=OrderedDict)

    def get(self, thread_id: str) -> Held | None:
        return self._held.get(thread_id)

    def put(self, thread_id: str, start: int, entries: Sequence[Entry], special: Sequence[int]) -> None:
        """Remember what the store is known to have."""
        self._held[thread_id] = Held(start, tuple(entries), tuple(special))
        self._held.move_to_end(thread_id)
        while len(self._held) > self.most:
            self._held.popitem(last=False)

    def __len__(self) -> int:
        return len(self._held)

    def forget(self, thread_id: str) -> None:
        self._held.pop(thread_id, None)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is known of a thread before anything is heard. ``history`` is as a model can take it."""

    snapshot: Snapshot
    history: list[Entry]
    history_from: int
    special: list[int]
    performed_through: int
