"""The keeper: every few minutes, sees to what nobody else would notice."""

from dataclasses import asdict, replace
from typing import Any

from ..ports.queues import DeadLetters
from ..runtime.keeper import Keeper
from . import wiring
from .sandbox import Sandbox

sandbox = Sandbox(wiring.keeper)


def handler(event: object, context: object) -> dict[str, Any]:
    """Sweep once, whatever ``event`` says; return how much was seen to, by kind.

    Raises:
        Misconfigured: the environment, or what it names, cannot be used.
        StoreUnavailable: a store or a queue could not be reached; the next sweep does what is left.
    """
    return sandbox.run(lambda ports: _swept(*ports))


async def _swept(keeper: Keeper, delay_dead_letters: DeadLetters) -> dict[str, Any]:
    await wiring.fresh(keeper.keyring)
    swept = await keeper.sweep()
    timers = await keeper.see_to(delay_dead_letters)
    return asdict(replace(swept, dead_letters=swept.dead_letters + timers))
