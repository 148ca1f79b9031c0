"""The leader: a batch of the input queue becomes one slice of each of its threads."""

from collections.abc import Mapping
from typing import Any

from . import wiring
from .leading import Leader
from .sandbox import Sandbox

sandbox = Sandbox(wiring.leader)


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Return which messages of an SQS event Lambda must not delete.

    Raises:
        Misconfigured: the environment, or what it names, cannot be used.
        StoreUnavailable: what it names could not be read when the sandbox began.
    """
    seconds = context.get_remaining_time_in_millis() / 1000

    async def handle(leader: Leader) -> dict[str, Any]:
        try:
            await wiring.fresh(leader.system.services.keyring)
            return await leader.handle(event, seconds=seconds)
        finally:
            leader.telemetry.flush()

    return sandbox.run(handle)
