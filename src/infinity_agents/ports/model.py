"""The model: one completion, as a stream."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..conversation.history import Entry
from ..conversation.turn import ModelEvent
from .tool import ToolSpec


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What the model reads.

    ``summary`` stands for all that came before ``entries``. Entries are valid history (promise P4), without blobs,
    without images where the model reads none, and without texts that are blank or hold NUL or lone surrogates. An
    assistant entry may be empty; it then says nothing.
    """

    model: str
    system: str
    entries: Sequence[Entry]
    tools: Sequence[ToolSpec]
    thread_stack: tuple[str, ...]
    summary: str | None = None


class Model(Protocol):
    """Speaks: one completion per request."""

    @property
    def name(self) -> str:
        """The model that new threads are given."""
        ...

    def context_window(self, model: str) -> int:
        """Return the window of ``model`` in tokens."""
        ...

    def reads_images(self, model: str) -> bool:
        """Tell whether ``model`` takes images; others get a text note in place of each."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield what the model says until ``Stopped``.

        Raises:
            ModelError: by kind; ``ContextTooLong`` where the history must be compacted first.
        """
        ...
