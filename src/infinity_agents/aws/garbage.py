"""The garbage collector, kept out of a cold start."""

import gc

_USUAL = gc.get_threshold()
_OBJECTS_OF_COLD_START = 200_000


def spare_cold_start() -> None:
    """Have the collector wait. What a cold start makes stays, and to look at it again and again is a sixth of it."""
    gc.set_threshold(_OBJECTS_OF_COLD_START)


def end_cold_start() -> None:
    """Have the collector work as usual, and leave alone what is there now; do nothing where it was not kept out."""
    if gc.get_threshold()[0] == _OBJECTS_OF_COLD_START:
        gc.freeze()
        gc.set_threshold(*_USUAL)
