"""What an agent can be told: every number and word that changes how the runtime behaves, and every variable."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How one agent behaves.

    ``interrupt`` is what a person's message does to a running call: ``detach`` lets it run on and reports its result
    later, ``cancel`` cancels it. ``compact_at`` is the share of the model's window from which on the oldest entries
    are summarised. ``inline_bytes`` is the size from which on a value goes to the blob store. A warm process holds the
    histories of ``cached_threads`` threads, and ``cached_bytes`` of such values.
    """

    system_prompt: str = ""
    interrupt: Literal["detach", "cancel"] = "detach"
    rounds_per_slice: int = 16
    slices_per_hour: int = 200
    deliveries_per_slice: int = 50
    events_per_thread: int = 25
    compact_at: float = 0.75
    inline_bytes: int = 256 * 1024
    model_tries: int = 5
    cached_threads: int = 64
    cached_bytes: int = 32 * 1024 * 1024
