# ruff: noqa: S101 - a contract speaks by assertions, and the name of a test says what it checks
"""What every input queue of the process's own must do, its dead letters included."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ...errors import Reject
from ...ports.queues import MAX_BODY, LocalInputQueue, Received
from ..doubles import FrozenClock
from .samples import after


class InputQueueContract:
    """Inherit it, and say how a queue is made and reopened."""

    @abstractmethod
    async def make(self, clock: FrozenClock) -> LocalInputQueue:
        """Return an empty queue."""

    @abstractmethod
    async def reopen(self, clock: FrozenClock) -> LocalInputQueue:
        """Return a fresh queue over what the one that ``make`` made last has kept."""

    # ------------------------------------------------------------------------------------------ order and groups

    async def test_a_message_is_received_as_it_was_sent(self) -> None:
        clock = FrozenClock()
        queue = await self.make(clock)
        await queue.send('{"text": "\\u0000"}', group_id="g", dedup_id="d")
        clock.advance(5)
        ((received,),) = await queue.receive(groups=1, batch=1, visibility=30)
        assert received.body == '{"text": "\\u0000"}'
        assert (received.group_id, received.dedup_id) == ("g", "d")
        assert (received.receive_count, received.sent_at) == (1, after(0))
        assert received.queue_id
        assert received.receipt

    async def test_messages_of_a_group_come_in_order(self) -> None:
        queue = await self.make(FrozenClock())
        await _send(queue, *(f"g{number}" for number in range(12)))
        assert _bodies(await _receive(queue, batch=10)) == [[f"g{number}" for number in range(10)]]

    async def test_groups_are_apart_and_the_longest_waiting_come_first(self) -> None:
        queue = await self.make(FrozenClock())
        await _send(queue, "z1", "a1", "z2", "m1", "a2")
        assert _bodies(await _receive(queue, groups=2)) == [["z1", "z2"], ["a1", "a2"]]
        assert _bodies(await _receive(queue, groups=2)) == [["m1"]]
        assert await _receive(queue) == []

    async def test_an_invisible_message_blocks_its_group(self) -> None:
        queue = await self.make(FrozenClock())
        await _send(queue, "g1", "g2", "g3", "h1")
        (first,) = await _receive(queue, groups=1, batch=2)
        assert _bodies(await _receive(queue)) == [["h1"]]
        await queue.delete(first[:1])
        assert await _receive(queue) == []
        await queue.delete(first[1:])
        assert _bodies(await _receive(queue)) == [["g3"]]

    async def test_a_message_sent_meanwhile_waits_for_its_group(self) -> None:
        queue = await self.make(FrozenClock())
        await _send(queue, "g1")
        (group,) = await _receive(queue)
        await _send(queue, "g2")
        assert await _receive(queue) == []
        await queue.delete(group)
        assert _bodies(await _receive(queue)) == [["g2"]]

    async def test_a_deleted_message_does_not_come_back(self) -> None:
        clock = FrozenClock()
        queue = await self.make(clock)
        await _send(queue, "g1", "g2")
        (group,) = await _receive(queue)
        await queue.delete(group)
        clock.advance(1000)
        assert await _receive(queue) == []
        assert await _receive(await self.reopen(clock)) == []

    # ------------------------------------------------------------------------------------------------ visibility

    async def test_what_was_not_acknowledged_comes_again_in_order(self) -> None:
        clock = FrozenClock()
        queue = await self.make(clock)
        await _send(queue, "g1", "g2", "g3")
        await _receive(queue, batch=2)
        clock.advance(29.999)
        assert await _receive(queue) == []
        clock.advance(0.001)
        (group,) = await _receive(queue)
        assert _bodies([group]) == [["g1", "g2", "g3"]]
        assert [item.receive_count for item in group] == [2, 2, 1]

    async def test_the_queue_id_stays_and_the_receipt_changes(self) -> None:
        clock = FrozenClock()
        queue = await self.make(clock)
        await _send(queue, "g1", "g2")
        ((first, second),) = await _receive(queue)
        assert first.queue_id != second.queue_id
        clock.advance(30)
        ((again, _),) = await _receive(queue)
        assert again.queue_id == first.queue_id
        assert again.receipt != first.receipt

    async def test_a_stale_receipt_changes_nothing(self) -> None:
        clock = FrozenClock()
        queue = await self.make(clock)
        await _send(queue, "g1")
        (stale,) = await _receive(queue)
        clock.advance(30)
        (valid,) = await _receive(queue)
        await queue.delete(stale)
        await queue.release(stale, delay=0)
        await queue.park(stale[0], "stale")
        assert await _receive(queue) == []
        assert await queue.dead_letters() == []
        await queue.delete(valid)
        await queue.delete(valid)
        clock.advance(1000)
        assert await _receive(queue) == []

    async def test_a_receipt_is_valid_until_somebody_else_receives(self) -> None:
        clock = FrozenClock()
        queue = await self.make(clock)
        await _send(queue, "g1")
        (late,) = await _receive(queue)
        clock.advance(1000)
        await queue.delete(late)
        assert await _receive(queue) == []

    async def test_messages_receipts_and_counts_survive(self) -> None:
        clock = FrozenClock()
        queue = await self.make(clock)
        await _send(queue, "g1", "h1")
        (group,) = await _receive(queue, groups=1)
        queue = await self.reopen(clock)
        assert _bodies(await _receive(queue)) == [["h1"]]
        clock.advance(30)
        assert {item.receive_count for group in await _receive(queue) for item in group} == {2}
        await queue.delete(group)
        clock.advance(30)
        assert sorted(_bodies(await _receive(queue))) == [["g1"], ["h1"]]

    # --------------------------------------------------------------------------------------------------- release

    async def test_released_messages_come_again_in_order(self) -> None:
        queue = await self.make(FrozenClock())
        await _send(queue, "g1", "g2", "g3")
        (group,) = await _receive(queue, batch=2)
        await queue.release(list(reversed(group)), delay=0)
        assert _bodies(await _receive(queue)) == [["g1", "g2", "g3"]]

    async def test_a_released_group_waits_for_its_delay(self) -> None:
        clock = FrozenClock()
        queue = await self.make(clock)
        await _send(queue, "g1", "g2", "h1")
        group, _ = await _receive(queue, batch=1)
        await queue.release(group, delay=10)
        clock.advance(9.5)
        assert await _receive(queue) == []
        clock.advance(0.5)
        assert _bodies(await _receive(queue)) == [["g1", "g2"]]

    async def test_part_of_a_batch_may_be_released(self) -> None:
        queue = await self.make(FrozenClock())
        await _send(queue, "g1", "g2", "g3")
        (group,) = await _receive(queue)
        await queue.delete(group[:1])
        await queue.release(group[1:], delay=0)
        (group,) = await _receive(queue)
        assert _bodies([group]) == [["g2", "g3"]]
        assert [item.receive_count for item in group] == [2, 2]

    async def test_one_knows_when_the_next_message_becomes_visible(self) -> None:
        clock = FrozenClock()
        queue = await self.make(clock)
        assert await queue.next_visible_at() is None
        await _send(queue, "g1", "h1")
        assert await queue.next_visible_at() is None
        group, other = await _receive(queue)
        assert await queue.next_visible_at() == after(30)
        await queue.release(group, delay=12.5)
        assert await queue.next_visible_at() == after(12.5)
        await queue.delete(other)
        clock.advance(13)
        assert await queue.next_visible_at() is None

    async def test_what_a_dead_consumer_held_is_visible_again(self) -> None:
        clock = FrozenClock()
        queue = await self.make(clock)
        await _send(queue, "g1", "g2", "h1")
        group, other = await _receive(queue)
        await queue.release(other, delay=10)
        queue = await self.reopen(clock)
        await queue.reclaim()
        assert _bodies(await _receive(queue)) == [["g1", "g2"], ["h1"]]
        await queue.delete(group)
        assert await queue.next_visible_at() == after(30)

    async def test_one_sees_what_waits_behind_what_is_held(self) -> None:
        queue = await self.make(FrozenClock())
        await _send(queue, "g1", "g2", "h1")
        ((first,), _) = await _receive(queue, batch=1)
        await _send(queue, "g3", "i1")
        assert [received.body for received in await queue.waiting({"g", "h"})] == ["g2", "g3"]
        assert await queue.waiting(set()) == []
        await queue.delete([first])
        assert _bodies(await _receive(queue)) == [["g2", "g3"], ["i1"]]

    async def test_one_knows_how_much_each_group_has(self) -> None:
        queue = await self.make(FrozenClock())
        assert await queue.outstanding() == {}
        await _send(queue, "g1", "g2", "h1", "i1")
        (_, held, (last,)) = await _receive(queue, batch=1)
        await queue.release(held, delay=30)
        await queue.delete([last])
        assert await queue.outstanding() == {"g": 2, "h": 1}

    # --------------------------------------------------------------------------------------------- deduplication

    async def test_a_repeat_within_five_minutes_is_dropped(self) -> None:
        clock = FrozenClock()
        queue = await self.make(clock)
        await queue.send("one", group_id="g", dedup_id="d")
        await queue.send("two", group_id="g", dedup_id="d")
        await queue.send("three", group_id="h", dedup_id="d")
        await queue.send("four", group_id="g", dedup_id="e")
        assert _bodies(await _receive(queue)) == [["one", "four"], ["three"]]

    async def test_a_repeat_is_dropped_after_the_first_was_deleted(self) -> None:
        clock = FrozenClock()
        queue = await self.make(clock)
        await queue.send("one", group_id="g", dedup_id="d")
        (group,) = await _receive(queue)
        await queue.delete(group)
        clock.advance(299)
        queue = await self.reopen(clock)
        await queue.send("two", group_id="g", dedup_id="d")
        assert await _receive(queue) == []
        clock.advance(1)
        await queue.send("three", group_id="g", dedup_id="d")
        assert _bodies(await _receive(queue)) == [["three"]]

    async def test_a_repeat_does_not_prolong_the_window(self) -> None:
        clock = FrozenClock()
        queue = await self.make(clock)
        for body, seconds in (("one", 0), ("two", 200), ("three", 200)):
            clock.advance(seconds)
            await queue.send(body, group_id="g", dedup_id="d")
        assert _bodies(await _receive(queue)) == [["one", "three"]]

    # ---------------------------------------------------------------------------------------------- what is taken

    @pytest.mark.parametrize("wrong", ["", "a b", "ä", "x" * 129, "a\x00", "a\n"], ids=repr)
    async def test_ids_that_sqs_would_not_take_are_refused(self, wrong: str) -> None:
        queue = await self.make(FrozenClock())
        with pytest.raises(Reject, match="group_id"):
            await queue.send("body", group_id=wrong, dedup_id="d")
        with pytest.raises(Reject, match="dedup_id"):
            await queue.send("body", group_id="g", dedup_id=wrong)
        assert await _receive(queue) == []

    async def test_a_body_has_a_limit(self) -> None:
        queue = await self.make(FrozenClock())
        await queue.send("x" * MAX_BODY, group_id="g" * 128, dedup_id="~" * 128)
        with pytest.raises(Reject, match=r"1048577 bytes.*1048576"):
            await queue.send("x" * (MAX_BODY + 1), group_id="g", dedup_id="d")
        with pytest.raises(Reject, match="not ASCII"):
            await queue.send("ä", group_id="g", dedup_id="d")
        ((received,),) = await _receive(queue)
        assert len(received.body) == MAX_BODY

    async def test_whoever_waits_for_messages_is_told(self) -> None:
        queue = await self.make(FrozenClock())
        told: list[str] = []
        queue.on_arrival = lambda: told.append("arrival")
        await _send(queue, "g1")
        assert told == ["arrival"]
        ((received,),) = await _receive(queue)
        await queue.park(received, "wrong")
        assert told == ["arrival"]
        await queue.redrive(received.queue_id)
        assert told == ["arrival", "arrival"]

    async def test_ones_own_messages_are_not_changes_from_elsewhere(self) -> None:
        queue = await self.make(FrozenClock())
        await queue.changed_elsewhere()
        await _send(queue, "g1")
        assert not await queue.changed_elsewhere()

    # ---------------------------------------------------------------------------------------------- dead letters

    async def test_a_parked_message_is_kept_with_its_reason(self) -> None:
        clock = FrozenClock()
        queue = await self.make(clock)
        await _send(queue, "g1", "g2")
        (group,) = await _receive(queue)
        clock.advance(3)
        await queue.park(group[0], "not JSON: ä")
        await queue.delete(group[1:])
        for read in (queue, await self.reopen(clock)):
            (letter,) = await read.dead_letters()
            assert (letter.body, letter.group_id, letter.dedup_id) == ("g1", "g", group[0].dedup_id)
            assert (letter.queue_id, letter.reason, letter.receive_count) == (group[0].queue_id, "not JSON: ä", 1)
            assert (letter.parked_at, letter.noticed) == (after(3), False)
        clock.advance(1000)
        assert await _receive(queue) == []

    async def test_a_parked_message_does_not_hold_up_its_group(self) -> None:
        queue = await self.make(FrozenClock())
        await _send(queue, "g1", "g2")
        ((first,),) = await _receive(queue, batch=1)
        await queue.park(first, "wrong")
        assert _bodies(await _receive(queue)) == [["g2"]]

    async def test_dead_letters_are_listed_oldest_first_until_noticed(self) -> None:
        queue = await self.make(FrozenClock())
        await _send(queue, "z1", "a1", "m1")
        parked = [group[0] for group in await _receive(queue)]
        for received in parked:
            await queue.park(received, "wrong")
        ids = [received.queue_id for received in parked]
        assert [letter.queue_id for letter in await queue.dead_letters()] == ids
        assert [letter.queue_id for letter in await queue.dead_letters(limit=2)] == ids[:2]
        await queue.mark_noticed(ids[0])
        await queue.mark_noticed("never there")
        assert [letter.queue_id for letter in await queue.dead_letters(unnoticed=True)] == ids[1:]
        first, second, _ = await queue.dead_letters()
        assert first.noticed
        assert not second.noticed

    async def test_a_redriven_message_comes_under_a_new_id_and_names_the_old_one(self) -> None:
        clock = FrozenClock()
        queue = await self.make(clock)
        await _send(queue, "g1", "g2")
        (group,) = await _receive(queue)
        await queue.park(group[0], "wrong")
        await queue.delete(group[1:])
        clock.advance(7)
        queue = await self.reopen(clock)
        await queue.redrive(group[0].queue_id)
        assert await queue.dead_letters() == []
        ((again,),) = await _receive(queue)
        assert again.queue_id not in {item.queue_id for item in group}
        assert (again.body, again.group_id, again.dedup_id) == ("g1", "g", group[0].queue_id)
        assert (again.receive_count, again.sent_at) == (1, after(7))

    async def test_a_message_may_be_redriven_again_and_again(self) -> None:
        queue = await self.make(FrozenClock())
        await _send(queue, "g1")
        seen = set()
        for _ in range(3):
            ((received,),) = await _receive(queue)
            seen.add(received.queue_id)
            await queue.park(received, "wrong")
            await queue.redrive(received.queue_id)
        assert len(seen) == 3
        assert _bodies(await _receive(queue)) == [["g1"]]

    async def test_a_dead_letter_may_be_discarded(self) -> None:
        queue = await self.make(FrozenClock())
        await _send(queue, "g1")
        ((received,),) = await _receive(queue)
        await queue.park(received, "wrong")
        await queue.discard(received.queue_id)
        assert await queue.dead_letters() == []
        for act in (queue.discard, queue.redrive):
            with pytest.raises(KeyError):
                await act(received.queue_id)

    async def test_a_receipt_of_another_queue_is_ignored(self) -> None:
        queue = await self.make(FrozenClock())
        await _send(queue, "g1")
        ((received,),) = await _receive(queue)
        await queue.delete([replace(received, receipt="999999:1")])
        await queue.delete([])
        await queue.release([], delay=0)
        await queue.delete([received])


async def _send(queue: LocalInputQueue, *bodies: str) -> None:
    """Send each of ``bodies`` to the group of its first letter."""
    for body in bodies:
        await queue.send(body, group_id=body[0], dedup_id=f"dedup-{body}")


async def _receive(queue: LocalInputQueue, *, groups: int = 10, batch: int = 10) -> Sequence[Sequence[Received]]:
    return await queue.receive(groups=groups, batch=batch, visibility=30)


def _bodies(groups: Sequence[Sequence[Received]]) -> list[list[str]]:
    return [[item.body for item in group] for group in groups]
