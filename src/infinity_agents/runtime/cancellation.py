"""The way to stop a step that is running."""

from collections.abc import Callable


class Cancellation:
    """Stops the model's stream of the step that it was given to, once ``cancel`` is called; before or during it.

    What the model has said aloud by then is kept, as if it had ended there.
    """

    def __init__(self) -> None:
        self.is_cancelled = False
        self._wake: Callable[[], None] | None = None

    def cancel(self) -> None:
        self.is_cancelled = True
        if self._wake is not None:
            self._wake()

    def attach(self, wake: Callable[[], None] | None) -> None:
        """Call ``wake`` when cancelled, or nothing any more."""
        self._wake = wake
