"""Tells of the tool that blocks the event loop, while it does."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator

LOOK_EVERY = 1.0
"""Seconds between two looks at the loop."""
BLOCKED_AFTER = 1.0
"""Seconds without a sign of life after which a loop counts as blocked."""

_log = logging.getLogger(__name__)


class LoopWatch:
    """Logs a warning that names the task which has blocked the loop for a second; a thread looks, while tools run."""

    def __init__(self) -> None:
        self._watched = 0
        self._done = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the running loop while the context is open."""
        if self._watched == 0:
            self._done = threading.Event()
            looking = (asyncio.get_running_loop(), self._done)
            threading.Thread(target=_look, args=looking, name="loop-watch", daemon=True).start()
        self._watched += 1
        try:
            yield
        finally:
            self._watched -= 1
            if self._watched == 0:
                self._done.set()


def _look(loop: asyncio.AbstractEventLoop, done: threading.Event) -> None:
    while not done.wait(LOOK_EVERY):
        alive = threading.Event()
        try:
            loop.call_soon_threadsafe(alive.set)
        except RuntimeError:  # the loop is closed
            return
        if not alive.wait(BLOCKED_AFTER) and not loop.is_closed():
            task = asyncio.current_task(loop)
            _log.warning(
                "%s blocks the event loop: no other call goes on meanwhile. Make its function a plain def, which gets "
                "a thread of its own, or await asyncio.to_thread(...) around what blocks",
                task.get_name() if task else "a callback",
            )
            while not (alive.wait(LOOK_EVERY) or loop.is_closed()):
                pass
