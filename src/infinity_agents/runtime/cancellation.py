"""The way to stop a step that is running."""

from collections.abc import Callable


class Cancellation:
    """Stops the model's stream of the step that it was given to, once ``cancel`` is called; before or during it.

    What the model has said aloud by then is kept, as if it had ended there; where that is nothing, the step fails with
    ``StepCancelled`` and has written nothing.
    """

    def __init__(self) -> None:
        self.is_cancelled = False
        self._wake: Callable[[], None] | None = None

    def cancel(self) -> None:
        """Stop it; doing so twice, or when it is over, is harmless."""
        self.is_cancelled = True
        wake, self._wake = self._wake, None
        if wake is not None:
            wake()

    def attach(self, wake: Callable[[], None] | None) -> None:
        """Call ``wake`` when cancelled, or nothing any more."""
        self._wake = wake
