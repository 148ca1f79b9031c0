"""Trying again, by error type, inside the time that is left."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..errors import StoreUnavailable
from .services import Run

T = TypeVar("T")
_log = logging.getLogger(__name__)
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 8.0
_STORE_TRIES = 4


def pause_before(attempt: int) -> float:
    """Return the seconds to wait before the try number ``attempt`` (the first repeat is 2)."""
    return float(min(_FIRST_PAUSE * 2 ** (attempt - 2), _LONGEST_PAUSE))


async def is_worth_trying(run: Run, attempt: int, most: int) -> bool:
    """Wait as long as the try number ``attempt`` asks for; tell whether there is time and patience for it."""
    if attempt > most:
        return False
    pause = pause_before(attempt)
    left = run.time_left()
    if left is not None and pause >= left:
        return False
    await run.services.clock.sleep(pause)
    return True


async def against_store(run: Run, port: str, act: Callable[[], Awaitable[T]]) -> T:
    """Do ``act``, again while the store is unavailable. Only for what is harmless to repeat."""
    attempt = 1
    while True:
        run.trip(port)
        try:
            return await act()
        except StoreUnavailable as error:
            attempt += 1
            if not await is_worth_trying(run, attempt, _STORE_TRIES):
                raise
            _log.warning("%s: try %d after: %s", port, attempt, error)
