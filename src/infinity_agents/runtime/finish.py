"""Finish: remember that the effects are performed, so that no later step performs them again."""

from .retry import against_store
from .services import Run


async def finish(run: Run, thread_id: str, version: int) -> None:
    """Move ``performed_through`` forward to ``version``; it never goes back."""
    await against_store(run, "state", lambda: run.services.state.set_performed_through(thread_id, version))
