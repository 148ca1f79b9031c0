"""The host: takes messages from the queue and runs their threads side by side, for as long as it is open."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Self

from ..conversation.events import Failed
from ..conversation.messages import Control, Delivery, ToolResult
from ..errors import Deadly, Redeliver, Reject, StoreUnavailable
from ..ports.observer import Observer
from ..ports.queues import LocalInputQueue, Received
from ..ports.timer import LocalTimers
from ..runtime import AgentSystem, Cancellation
from ..runtime.keeper import Keeper
from ..runtime.observing import Silent
from ..runtime.retry import against_store
from ..runtime.services import Run
from ..wire.inputs import decode

_log = logging.getLogger(__name__)

_VISIBILITY_MARGIN = 60.0
"""Seconds for which a group stays in hand beyond its slice's time: effects may be performed after the deadline."""
_PAUSE_AFTER_FAILURE = 1.0
_LAST_SECONDS = 5.0
"""Seconds that slices have to commit what was said, once their models were stopped at the end of ``grace``."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """How the host works the queue. Times are in seconds.

    ``slices_at_once`` bounds the threads that run side by side. A message that fails is delivered again after
    ``first_delay``, then three times as long each time, up to ``longest_delay``; with the ``max_receive_count``-th
    failure it is parked, and people are told. What passes by itself (a model or a store that is down) is no failure of
    the message: people are told as soon, and it is tried for ``patience``. A message in whose slice the host has died
    ``suspect_after`` times runs with nothing beside it, and is parked where that kills the host as well.
    ``look_every`` is how often the host asks whether another process has sent something. ``grace`` is what running
    slices get at the end.
    """

    slices_at_once: int = 16
    slice_seconds: float = 300.0
    max_receive_count: int = 5
    suspect_after: int = 2
    patience: float = 24 * 3600.0
    first_delay: float = 0.5
    longest_delay: float = 60.0
    look_every: float = 0.3
    sweep_every: float = 300.0
    grace: float = 20.0


class Host:
    """Runs an agent's threads while it is open. Whatever stops it, the next host goes on where it was.

    ``lock`` is held, and ``callbacks`` are taken, while it is open. A thread that waits costs nothing: all that waits
    is one loop, for the queue, the next timer and the end::

        async with agent.host() as host:
            await host.wait()
    """

    def __init__(
        self,
        system: AgentSystem,
        *,
        queue: LocalInputQueue,
        timers: LocalTimers,
        keeper: Keeper,
        lock: Callable[[], AbstractContextManager[object]],
        callbacks: AbstractAsyncContextManager[object],
        observer: Observer | None = None,
        settings: HostSettings | None = None,
    ) -> None:
        self._system = system
        self._clock = system.services.clock
        self._queue = queue
        self._timers = timers
        self._keeper = keeper
        self._lock = lock
        self._callbacks = callbacks
        self._observer = observer or Silent()
        self._settings = settings or HostSettings()
        self._wake = asyncio.Event()
        self._stopping = False
        self._sweep_at = self._clock.now()
        self._slices: dict[asyncio.Task[None], _Slice] = {}
        self._waits: Counter[str] = Counter()
        """How often in a row the messages of a thread met what passes by itself; only threads that did."""
        self._open = AsyncExitStack()
        self._working: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Become the host of the file, and begin.

        Raises:
            Misconfigured: there is another host, or the callback port cannot be had.
        """
        async with AsyncExitStack() as opening:
            opening.enter_context(self._lock())
            await opening.enter_async_context(self._callbacks)
            # Whoever had messages in hand is dead: there is one host at a time.
            await self._queue.reclaim()
            self._queue.on_arrival = self._wake.set
            self._open = opening.pop_all()
        self._working = asyncio.create_task(self._work())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        async with self._open:
            await self.wait()

    def stop(self) -> None:
        """Take no more messages; what runs is finished, within ``grace``."""
        self._stopping = True
        self._wake.set()

    async def wait(self) -> None:
        """Return once the host has stopped and nothing runs any more; raise what made it fail."""
        if self._working is not None:
            await asyncio.shield(self._working)

    # The loop.

    async def _work(self) -> None:
        try:
            while not self._stopping:
                self._wake.clear()
                try:
                    await self._look()
                    await self._pause()
                except StoreUnavailable as error:
                    _log.warning("the host tries again: %s", error)
                    await self._clock.sleep(_PAUSE_AFTER_FAILURE)
        except Exception:
            _log.exception("the host stops")
            raise
        finally:
            await self._wind_down()

    async def _look(self) -> None:
        now = self._clock.now()
        due_at = await self._timers.next_due_at()
        if due_at is not None and due_at <= now:
            await self._timers.fire_due(now)
        if now >= self._sweep_at:
            self._sweep_at = now + timedelta(seconds=self._settings.sweep_every)
            await self._sweep()
        await self._heed_stops()
        room = self._settings.slices_at_once - len(self._slices)
        if room > 0 and not any(slice_.is_alone for slice_ in self._slices.values()):
            await self._take(room)

    async def _sweep(self) -> None:
        try:
            await self._keeper.sweep()
        except Exception:  # noqa: BLE001 - what the keeper cannot do must not keep threads from running
            _log.exception("the keeper's sweep failed; the next one is in %g seconds", self._settings.sweep_every)

    async def _take(self, room: int) -> None:
        groups = await self._queue.receive(
            groups=room,
            batch=self._system.services.settings.deliveries_per_slice,
            visibility=self._settings.slice_seconds + _VISIBILITY_MARGIN,
        )
        suspects = [group for group in groups if group[0].receive_count > self._settings.suspect_after]
        if suspects:
            groups = await self._single_out(suspects[0][0], groups)
        for group in groups:
            cancellation = Cancellation()
            task = asyncio.create_task(self._run(group, cancellation))
            self._slices[task] = _Slice(group[0].group_id, cancellation, is_alone=bool(suspects))
            task.add_done_callback(self._done)

    async def _single_out(
        self, suspect: Received, groups: Sequence[Sequence[Received]]
    ) -> Sequence[Sequence[Received]]:
        """Return ``suspect`` as all that runs, once nothing else does: whatever died with it would be suspected too."""
        is_free = not self._slices
        others = [received for group in groups for received in group if received is not suspect or not is_free]
        await self._queue.release(others, delay=0 if is_free else _PAUSE_AFTER_FAILURE, is_counted=False)
        return [[suspect]] if is_free else []

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._slices[task]
        self._wake.set()

    async def _pause(self) -> None:
        """Return when there may be something to do: a message, a timer, a free slot, the end."""
        moments = (await self._timers.next_due_at(), await self._queue.next_visible_at(), self._sweep_at)
        until = min(moment for moment in moments if moment is not None)
        while not self._wake.is_set():
            left = (until - self._clock.now()).total_seconds()
            if left <= 0:
                return
            try:
                async with asyncio.timeout(min(left, self._settings.look_every)):
                    await self._wake.wait()
            except TimeoutError:
                if await self._queue.changed_elsewhere():
                    return

    async def _wind_down(self) -> None:
        if self._slices:
            await asyncio.wait(self._slices, timeout=self._settings.grace)
        for slice_ in self._slices.values():
            slice_.cancellation.cancel()
        if self._slices:
            await asyncio.wait(self._slices, timeout=_LAST_SECONDS)
        for task in self._slices:
            task.cancel()
        await asyncio.gather(*self._slices, return_exceptions=True)

    async def _heed_stops(self) -> None:
        """Stop the model of every running thread whose next message is ``stop``: that must not wait for it."""
        if not self._slices:
            return
        waiting = await self._queue.waiting({slice_.thread_id for slice_ in self._slices.values()})
        stopped = {received.group_id for received in waiting if self._is_stop(received)}
        for slice_ in self._slices.values():
            if slice_.thread_id in stopped:
                slice_.cancellation.cancel()

    def _is_stop(self, received: Received) -> bool:
        if "control" not in received.body:
            return False
        try:
            return isinstance(self._decoded(received).message.content, Control)
        except Reject:
            return False

    # One slice.

    async def _run(self, group: Sequence[Received], cancellation: Cancellation) -> None:
        """Take one thread's messages through one step. What goes wrong here is no other thread's concern."""
        thread_id = group[0].group_id
        try:
            await self._step(thread_id, group, cancellation)
        except Exception:  # noqa: BLE001 - a thread's edge
            # The messages stay in hand, and come again when their time is over.
            _log.exception("thread %s: its messages could not be given back or taken off the queue", thread_id)

    async def _step(self, thread_id: str, group: Sequence[Received], cancellation: Cancellation) -> None:
        deadline = self._clock.now() + timedelta(seconds=self._settings.slice_seconds)
        run = Run(self._system.services, self._observer, deadline)
        taken: list[tuple[Received, Delivery]] = []
        for received in group:
            try:
                taken.append((received, self._decoded(received)))
            except Reject as error:
                _log.warning("thread %s: message %s is parked: %s", thread_id, received.queue_id, error)
                await against_store(run, "queue", partial(self._queue.park, received, error.reason))
        worn_out = [item for item in taken if item[0].receive_count > self._settings.max_receive_count]
        if worn_out:
            times = self._settings.max_receive_count
            deadly = Deadly(f"the host died each of the {times} times that it handled this message")
            await against_store(run, "queue", partial(self._set_aside, thread_id, worn_out, deadly))
            taken = [item for item in taken if item not in worn_out]
        if not taken:
            return
        thread = await self._system.thread(thread_id)
        deliveries = [delivery for _, delivery in taken]
        outcome = await thread.step(deliveries, self._observer, None, cancellation, deadline=deadline)
        if isinstance(outcome, Failed):
            await against_store(run, "queue", partial(self._give_back, thread_id, taken, outcome.error))
        else:
            self._waits.pop(thread_id, None)
            await against_store(run, "queue", partial(self._queue.delete, [received for received, _ in taken]))

    def _decoded(self, received: Received) -> Delivery:
        return decode(
            received.body,
            keyring=self._system.services.keyring,
            queue_id=received.queue_id,
            group_id=received.group_id,
            dedup_id=received.dedup_id,
            sent_at=received.sent_at,
        )

    async def _give_back(self, thread_id: str, taken: Sequence[tuple[Received, Delivery]], error: Exception) -> None:
        """Have the messages delivered again; those that have failed too often are parked, and people are told."""
        if isinstance(error, Redeliver) and error.is_passing and not self._is_impatient(taken):
            await self._wait_out(thread_id, taken, error)
            return
        most = self._settings.max_receive_count
        failed = [item for item in taken if item[0].receive_count >= most or self._is_impatient([item])]
        await self._set_aside(thread_id, failed, error)
        alive = [received for received, _ in taken if (received, _) not in failed]
        if alive:
            await self._queue.release(alive, delay=self._delay(max(received.receive_count for received in alive)))

    async def _wait_out(self, thread_id: str, taken: Sequence[tuple[Received, Delivery]], error: Exception) -> None:
        """Have the messages delivered again, however often; people are told once that it takes time."""
        self._waits[thread_id] += 1
        waits = self._waits[thread_id]
        if waits == self._settings.max_receive_count:
            await self._system.tell_failure(thread_id, [delivery for _, delivery in taken], error, is_final=False)
        await self._queue.release([received for received, _ in taken], delay=self._delay(waits), is_counted=False)

    async def _set_aside(self, thread_id: str, failed: Sequence[tuple[Received, Delivery]], error: Exception) -> None:
        """Park the messages, and tell people."""
        self._waits.pop(thread_id, None)
        if failed:
            await self._system.tell_failure(thread_id, [delivery for _, delivery in failed], error)
        for received, delivery in failed:
            await self._queue.park(received, f"{type(error).__name__}: {error}")
            # A result that is dead is still the keeper's to answer; of anything else, people know already.
            if not isinstance(delivery.message.content, ToolResult):
                await self._queue.mark_noticed(received.queue_id)

    def _is_impatient(self, taken: Sequence[tuple[Received, Delivery]]) -> bool:
        patience = timedelta(seconds=self._settings.patience)
        return any(self._clock.now() - received.sent_at > patience for received, _ in taken)

    def _delay(self, count: int) -> float:
        """Return the seconds before the next try, after ``count`` that failed."""
        return min(self._settings.first_delay * 3.0 ** min(count - 1, 20), self._settings.longest_delay)


@dataclass(frozen=True, slots=True)
class _Slice:
    """A thread that is being stepped, and the way to stop its model."""

    thread_id: str
    cancellation: Cancellation
    is_alone: bool = False
