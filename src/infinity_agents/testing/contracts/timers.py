# ruff: noqa: S101 - a contract speaks by assertions, and the name of a test says what it checks
"""What timers that the process fires itself must do."""

from abc import abstractmethod

import pytest

from ...errors import Reject
from ...ports.queues import LocalInputQueue
from ...ports.timer import LocalTimers
from ..doubles import FrozenClock
from .samples import after


class TimersContract:
    """Inherit it, and say how timers and the queue that they put their messages on are made and reopened."""

    @abstractmethod
    async def make(self, clock: FrozenClock) -> tuple[LocalTimers, LocalInputQueue]:
        """Return timers of which none is set, and their empty queue."""

    @abstractmethod
    async def reopen(self, clock: FrozenClock) -> tuple[LocalTimers, LocalInputQueue]:
        """Return fresh ones over what those that ``make`` made last have kept."""

    async def test_a_timer_fires_once_when_it_is_due(self) -> None:
        clock = FrozenClock()
        timers, queue = await self.make(clock)
        await timers.set("t1", after(60), "ding", group_id="g", dedup_id="d")
        assert await timers.next_due_at() == after(60)
        assert await timers.fire_due(after(59.999999)) == 0
        assert await _received(queue) == []
        clock.move_to(after(61))
        assert await timers.fire_due(clock.now()) == 1
        assert await timers.next_due_at() is None
        assert await timers.fire_due(clock.now()) == 0
        (group,) = await queue.receive(groups=10, batch=10, visibility=30)
        assert [(item.body, item.group_id, item.dedup_id, item.sent_at) for item in group] == [
            ("ding", "g", "d", after(61))
        ]

    async def test_the_earliest_timer_fires_first(self) -> None:
        timers, queue = await self.make(FrozenClock())
        for seconds in (30, 10, 20, 40):
            await timers.set(f"t{seconds}", after(seconds), f"{seconds}", group_id="g", dedup_id=f"d{seconds}")
        assert await timers.next_due_at() == after(10)
        assert await timers.fire_due(after(30)) == 3
        assert await _received(queue) == ["10", "20", "30"]
        assert await timers.next_due_at() == after(40)

    async def test_a_timer_that_exists_is_left_alone(self) -> None:
        timers, queue = await self.make(FrozenClock())
        await timers.set("t1", after(10), "first", group_id="g", dedup_id="d")
        await timers.set("t1", after(5), "second", group_id="g", dedup_id="e")
        assert await timers.next_due_at() == after(10)
        assert await timers.fire_due(after(10)) == 1
        assert await _received(queue) == ["first"]

    async def test_a_cancelled_timer_does_not_fire(self) -> None:
        timers, queue = await self.make(FrozenClock())
        await timers.set("t1", after(10), "one", group_id="g", dedup_id="d1")
        await timers.set("t2", after(10), "two", group_id="g", dedup_id="d2")
        await timers.cancel("t1")
        await timers.cancel("t1")
        await timers.cancel("never there")
        assert await timers.fire_due(after(10)) == 1
        assert await _received(queue) == ["two"]

    async def test_timers_survive(self) -> None:
        clock = FrozenClock()
        timers, _ = await self.make(clock)
        await timers.set("t1", after(10), "one", group_id="g", dedup_id="d1")
        await timers.set("t2", after(86_400 * 30), "two", group_id="g", dedup_id="d2")
        await timers.fire_due(after(10))
        timers, queue = await self.reopen(clock)
        assert await timers.next_due_at() == after(86_400 * 30)
        assert await _received(queue) == ["one"]

    async def test_a_timer_set_again_after_it_fired_is_one_message_within_the_window(self) -> None:
        timers, queue = await self.make(FrozenClock())
        for _ in range(2):
            await timers.set("t1", after(10), "one", group_id="g", dedup_id="d1")
            assert await timers.fire_due(after(10)) == 1
        assert await _received(queue) == ["one"]

    async def test_whoever_waits_for_messages_is_told(self) -> None:
        timers, queue = await self.make(FrozenClock())
        told: list[int] = []
        queue.on_arrival = lambda: told.append(1)
        await timers.set("t1", after(10), "one", group_id="g", dedup_id="d1")
        assert not told
        await timers.fire_due(after(10))
        assert told

    async def test_what_the_queue_would_refuse_cannot_be_set(self) -> None:
        timers, _ = await self.make(FrozenClock())
        with pytest.raises(Reject, match="group_id 'a b'"):
            await timers.set("t1", after(10), "one", group_id="a b", dedup_id="d1")
        assert await timers.next_due_at() is None


async def _received(queue: LocalInputQueue) -> list[str]:
    groups = await queue.receive(groups=10, batch=10, visibility=0)
    return [item.body for group in groups for item in group]
