"""The agent system: what a batch of messages is given to."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from ..conversation import ids
from ..conversation.events import StepOutcome
from ..conversation.messages import Delivery
from ..ports.observer import Observer
from ..ports.queues import DeferQueue
from .known import HistoryCache, LargeCache
from .notices import set_aside
from .services import Services
from .thread import ThreadHandle


class AgentSystem:
    """Takes every message of every thread through one step. Lives as long as its process; holds no thread."""

    def __init__(self, services: Services) -> None:
        self.services = services
        settings = services.settings
        self._cache = HistoryCache(settings.cached_threads, LargeCache(settings.cached_bytes))

    @property
    def cached_threads(self) -> int:
        """How many threads' histories are held in memory now: never more than the setting of that name."""
        return len(self._cache)

    @property
    def cached_bytes(self) -> int:
        """How many bytes of large values are held in memory now: never more than the setting of that name."""
        return self._cache.large.size

    async def thread(self, thread_id: str) -> ThreadHandle:
        """Return a handle to step one thread by itself."""
        return ThreadHandle(thread_id, self.services, self._cache)

    async def step(
        self,
        inputs: Sequence[Delivery],
        observer: Observer | None = None,
        defer: DeferQueue | None = None,
        *,
        deadline: datetime | None = None,
    ) -> Mapping[str, StepOutcome]:
        """Handle a batch of messages of any threads; return each thread's outcome.

        The threads run side by side, and what happens to one is no other's concern. Each outcome is told to the
        ``observer`` (``StepFinished``) as soon as its thread is done. ``deadline`` is when the step must be over.
        """
        by_thread: dict[str, list[Delivery]] = {}
        for delivery in inputs:
            by_thread.setdefault(delivery.thread_id, []).append(delivery)

        async def one(thread_id: str, batch: list[Delivery]) -> StepOutcome:
            handle = await self.thread(thread_id)
            return await handle.step(batch, observer, defer, deadline=deadline)

        if len(by_thread) == 1:
            ((thread_id, batch),) = by_thread.items()
            return {thread_id: await one(thread_id, batch)}
        outcomes = await asyncio.gather(*(one(thread_id, batch) for thread_id, batch in by_thread.items()))
        return dict(zip(by_thread, outcomes, strict=True))

    async def tell_failure(
        self, thread_id: str, deliveries: Sequence[Delivery], error: Exception, *, is_final: bool = True
    ) -> None:
        """Tell the people in the conversation that these messages could not be handled, and why.

        For whoever gives up delivering them, or, where it is not final, has tried for a while and goes on trying. The
        same deliveries make the same ``output_id``.
        """
        said = next((delivery.message.metadata for delivery in deliveries if delivery.message.metadata), None)
        digest = ids.digest(*(delivery.identity for delivery in deliveries))
        notice = await set_aside(
            self.services.conversations,
            thread_id,
            str(error).strip() or type(error).__name__,
            about=f"{thread_id}:{'failed' if is_final else 'waits'}:{digest}",
            metadata=said,
            is_final=is_final,
        )
        await self.services.outputs.send(notice)
