"""The agent system: what a batch of messages is given to."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from ..conversation import ids
from ..conversation.content import shown
from ..conversation.events import StepOutcome
from ..conversation.messages import Delivery
from ..conversation.outputs import Output
from ..ports.conversations import LoadRequest
from ..ports.observer import Observer
from ..ports.queues import DeferQueue
from .known import HistoryCache, LargeCache
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

    async def tell_failure(self, thread_id: str, deliveries: Sequence[Delivery], error: Exception) -> None:
        """Tell the people in the conversation that these messages could not be handled, and why.

        For whoever gives up delivering them: the same deliveries make the same ``output_id``.
        """
        snapshot = await self.services.conversations.load(LoadRequest(thread_id, known_to=_NOTHING))
        said = next((delivery.message.metadata for delivery in deliveries if delivery.message.metadata), None)
        root = snapshot.thread.root_id if snapshot else thread_id
        version = snapshot.thread.version if snapshot else 0
        digest = ids.digest(*(delivery.identity for delivery in deliveries))
        await self.services.outputs.send(
            Output(
                type="error",
                text=f"A message could not be handled and was set aside: {shown(str(error)) or type(error).__name__}",
                group_id=root,
                thread_id=thread_id,
                output_id=ids.fitted(f"{thread_id}:failed:{digest}"),
                seq=(version, 0),
                metadata=(snapshot.root_metadata if snapshot else None) or said,
            )
        )


_NOTHING = 2**31 - 1
"""Beyond the end of any history: no entries are read."""
