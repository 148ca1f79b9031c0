"""One thread's part of a step: the seven phases in their order, and nothing else knows it."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ..conversation.events import Completed, Failed, Skipped, StepFinished, StepOutcome
from ..conversation.folding import must_wait
from ..conversation.messages import Delivery
from ..conversation.slice import Slice
from ..errors import FenceLost, InfinityError, Reject
from ..ports.observer import Observer
from ..ports.queues import DeferQueue
from ..wire.traces import following, trace_among
from .admit import admit, unheard
from .cancellation import Cancellation
from .commit import commit
from .complete import complete
from .finish import finish
from .known import HistoryCache, Loaded
from .load import load
from .observing import Silent, report
from .perform import perform
from .prepare import prepare
from .services import Run, Services

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ThreadHandle:
    """One thread, to be stepped. Nothing of the thread is held between steps but a bounded cache of histories."""

    id: str
    services: Services
    cache: HistoryCache

    async def step(
        self,
        inputs: Sequence[Delivery],
        observer: Observer | None = None,
        defer: DeferQueue | None = None,
        cancel: Cancellation | None = None,
        *,
        deadline: datetime | None = None,
    ) -> StepOutcome:
        """Handle ``inputs`` in one slice; what goes wrong is told by ``Failed``, never raised.

        Without ``defer``, events that meet a running call are deferred durably, inside the commit.
        """
        if defer is None:
            return await self.step_no_defer(inputs, observer, cancel, deadline=deadline, defers=True)
        run = Run(self.services, observer or Silent())
        try:
            batch = await self.filter_deferrable(inputs, defer)
        except Exception as error:  # noqa: BLE001 - a thread's edge: its failure is its outcome
            return self._failed(error, run)
        if not batch:
            run.observe(StepFinished(self.id, Skipped()))
            return Skipped()
        outcome = await self.step_no_defer(batch, observer, cancel, deadline=deadline)
        if isinstance(outcome, Failed) and defer.holds:
            # Whoever delivers ``inputs`` again does not know of what was held.
            held = [delivery for delivery in batch if delivery not in inputs]
            defer.hold(self.id, [*held, *defer.take(self.id)])
        return outcome

    async def filter_deferrable(self, inputs: Sequence[Delivery], defer: DeferQueue) -> Sequence[Delivery]:
        """Return the batch to run now: ``defer`` keeps what may not come before the pending call's result.

        What it held before comes back as soon as nothing stands in its way any more, ahead of the rest.
        """
        if not defer.holds:
            return inputs
        held = defer.take(self.id)
        together = [*held, *inputs]
        run = Run(self.services, Silent())
        try:
            loaded = await load(run, self.id, together, self.cache)
        except BaseException:
            defer.hold(self.id, held)
            raise
        if loaded is None:
            return together
        new = unheard(together, loaded.snapshot.heard)
        slice_ = prepare(self.services, self.id, loaded, new, now=self.services.clock.now(), defers=True)
        # What only the slice's limit keeps back is deferred by the step itself, which then wakes the thread again.
        waiting = [delivery for delivery in slice_.deferred if must_wait(slice_, delivery)] if slice_ else []
        kept = {delivery.identity for delivery in waiting}
        defer.hold(self.id, [delivery for delivery in new if delivery.identity in kept])
        return [delivery for delivery in together if delivery.identity not in kept]

    async def step_no_defer(
        self,
        batch: Sequence[Delivery],
        observer: Observer | None = None,
        cancel: Cancellation | None = None,
        *,
        deadline: datetime | None = None,
        defers: bool = False,
    ) -> StepOutcome:
        """Handle ``batch`` in one slice. With ``defers`` off, an event that meets a running call detaches it."""
        run = Run(self.services, observer or Silent(), deadline, cancel, self.cache.large)
        slice_: Slice | None = None
        try:
            with following(trace_among(batch)):
                slice_, outcome = await self._phases(run, batch, defers)
        except Exception as error:  # noqa: BLE001 - a thread's edge: its failure is its outcome
            return self._failed(error, run)
        run.observe(
            StepFinished(
                self.id,
                outcome,
                heard=tuple(kind_of(delivery) for delivery in batch) if slice_ else (),
                did=tuple(slice_.did) if slice_ else (),
                deferred=len(slice_.deferred) if slice_ else 0,
                round_trips=dict(run.round_trips),
            )
        )
        return outcome

    async def _phases(self, run: Run, batch: Sequence[Delivery], defers: bool) -> tuple[Slice | None, StepOutcome]:
        services = self.services
        strangers = {delivery.thread_id for delivery in batch} - {self.id}
        if strangers:
            raise Reject(f"thread {self.id} was given messages for {', '.join(sorted(strangers))}; step those threads")
        loaded = await load(run, self.id, batch, self.cache)
        new, performed = unheard(batch, frozenset()), False
        if loaded is not None:
            snapshot = loaded.snapshot
            calls = {call.id: call for call in snapshot.calls}
            new, performed = await admit(
                loaded,
                batch,
                lambda effects: perform(run, snapshot.thread, effects, calls, snapshot.root_metadata),
            )
        slice_ = prepare(services, self.id, loaded, new, now=services.clock.now(), defers=defers) if new else None
        if slice_ is None or not slice_.has_news:
            if performed and loaded is not None:
                await finish(run, self.id, loaded.snapshot.thread.version)
            return None, Skipped()
        # A message that was deferred comes after the others, and what is done for it belongs to its own trace.
        deferred = loaded.snapshot.deferred if loaded else ()
        freed = [delivery for delivery in deferred if delivery.deferred_as in slice_.undeferred]
        with following(trace_among([*batch, *freed])):
            return slice_, await self._write(run, slice_, loaded, performed=performed)

    async def _write(self, run: Run, slice_: Slice, loaded: Loaded | None, *, performed: bool) -> StepOutcome:
        report(run, slice_)
        if slice_.respond:
            await complete(run, slice_)
            report(run, slice_)
        try:
            all_small = await commit(run, slice_, performed_through=loaded.performed_through if loaded else 0)
        except BaseException:
            self.cache.forget(self.id)
            raise
        if all_small:
            self.cache.put(self.id, slice_.history_from, slice_.history, slice_.special)
        else:
            self.cache.forget(self.id)
        if slice_.effects:
            thread = replace(slice_.thread, version=slice_.version)
            await perform(run, thread, slice_.effects, slice_.calls, slice_.root_metadata)
        if slice_.effects or performed:
            await finish(run, self.id, slice_.version)
        if not slice_.respond and not slice_.spoke:
            return Skipped()
        return Completed(slice_.usage, slice_.window)

    def _failed(self, error: Exception, run: Run) -> Failed:
        if isinstance(error, FenceLost):
            self.cache.forget(self.id)
        unexpected = None if isinstance(error, InfinityError) else error
        _log.warning("thread %s: step failed: %s: %s", self.id, type(error).__name__, error, exc_info=unexpected)
        outcome = Failed(error)
        run.observe(StepFinished(self.id, outcome, round_trips=dict(run.round_trips)))
        return outcome


def kind_of(delivery: Delivery) -> str:
    """Return the kind of the message, as logs and progress lines name it."""
    message = delivery.message
    return message.synthetic.type if message.synthetic else message.content.type
