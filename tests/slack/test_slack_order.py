"""The order of ``seq``: whatever order the queue hands outputs over in, and however many responders post them at once.

The output queue is a standard queue: it hands over any message at any time, more than once, and to two at once.
"""

import asyncio
from itertools import permutations
from random import Random

import pytest

from infinity_agents.slack.responder import SlackResponder
from infinity_agents.testing.faults import Crash, FaultInjector
from infinity_agents.testing.slack import SlackFault
from tests.slack.conftest import output_in

LONG = "word " * 3000
"""Two posts."""


def numbered(root, number, **more):
    return output_in(root, text=f"number {number}", seq=(number, 0), **more)


def answers(front, root):
    return front.slack.answers("C1", root["ts"])


def in_order(*numbers):
    return [f"number {number}" for number in numbers]


@pytest.mark.parametrize("order", list(permutations((1, 2, 3, 4))))
async def test_batches_in_any_order_end_in_order(front, order):
    root = await front.mention()
    for number in order:
        assert await front.show(numbered(root, number)) == {}
    assert answers(front, root) == in_order(1, 2, 3, 4)
    assert [await front.show(numbered(root, number)) for number in order] == [{}] * 4
    assert answers(front, root) == in_order(1, 2, 3, 4)


async def test_a_later_batch_that_overtakes_a_failed_one_ends_below_it(front):
    root = await front.mention()
    front.slack.faults.append(SlackFault(503, "chat.postMessage"))
    middle = [numbered(root, 2), numbered(root, 3)]
    assert await front.show(numbered(root, 1)) == {"0": 5.0}
    assert await front.show(*middle) == {}
    assert answers(front, root) == in_order(2, 3)
    assert await front.show(numbered(root, 1), attempt=2) == {}
    assert answers(front, root) == in_order(1, 2, 3)


async def test_the_rest_of_a_long_answer_that_was_overtaken_stays_whole(front):
    root = await front.mention()
    front.slack.limits_posts = True
    first = output_in(root, text=LONG, seq=(1, 0))
    # There is time for one of its two posts.
    assert await front.show(first, seconds=2) == {"0": 1.0}
    front.clock.advance(1)
    assert await front.show(numbered(root, 2)) == {}
    assert await front.show(first, attempt=2) == {}
    *parts, last = answers(front, root)
    assert " ".join(parts).split() == LONG.split()
    assert last == "number 2"


@pytest.mark.parametrize("late", [1, 2])
async def test_a_responder_that_dies_anywhere_leaves_what_the_next_one_puts_in_order(front, late):
    boundaries = 0
    while True:
        boundaries += 1
        root = await front.mention()
        for number in {1, 2, 3} - {late}:
            assert await front.show(numbered(root, number)) == {}
        faults, whole = FaultInjector(crash_at=boundaries), front.responder
        front.responder = SlackResponder(faults.wrap(whole.web, "slack"), front.clock)
        try:
            assert await front.show(numbered(root, late)) == {}
        except Crash:
            assert {f"number {number}" for number in {1, 2, 3} - {late}} <= set(answers(front, root))
        front.responder = whole
        assert await front.show(numbered(root, late), attempt=2) == {}
        assert answers(front, root) == in_order(1, 2, 3), faults.names
        if not faults.is_dead:
            break
    assert boundaries > 12


@pytest.mark.parametrize(
    ("slow", "fast", "before"),
    [
        ((1,), (2,), ()),
        ((2,), (1,), ()),
        ((1, 3), (2,), ()),
        ((1,), (1,), ()),
        ((2,), (1, 2), ()),
        ((1,), (2,), (3,)),
        ((2,), (1,), (3,)),
        ((1,), (1,), (3,)),
    ],
)
async def test_two_responders_at_once_end_in_order_and_post_once(front, slow, fast, before):
    boundaries = 0
    other = SlackResponder(front.responder.web, front.clock)
    while True:
        boundaries += 1
        root = await front.mention()
        for number in before:
            assert await front.show(numbered(root, number)) == {}
        faults = FaultInjector(pause_at=boundaries)
        front.responder = SlackResponder(faults.wrap(other.web, "slack"), front.clock)
        first = asyncio.create_task(front.show(*(numbered(root, number) for number in slow)))
        paused = asyncio.create_task(faults.paused.wait())
        await asyncio.wait({first, paused}, return_when=asyncio.FIRST_COMPLETED)
        paused.cancel()
        front.responder = other
        assert await front.show(*(numbered(root, number) for number in fast)) == {}
        faults.resume()
        assert await first == {}
        assert answers(front, root) == in_order(*sorted({*slow, *fast, *before})), faults.names
        if not faults.paused.is_set():
            break
    assert boundaries > 6


FAULTS = [503, 429, "hang up", "internal_error"]
METHODS = ["chat.postMessage", "conversations.replies", "chat.delete"]


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_the_queue_and_slack_do_each_output_stands_once_and_in_order(front, seed):
    chance = Random(seed)
    root = await front.mention()
    queue = [numbered(root, number) for number in range(1, 5)]
    for round_ in range(40):
        batch = chance.sample(queue, chance.randint(1, len(queue)))
        is_bad = round_ < 8
        if is_bad:
            front.slack.faults += [
                SlackFault(chance.choice(FAULTS), chance.choice(METHODS), after=chance.random() < 0.5)
                for _ in range(chance.randint(0, 2))
            ]
        left = await front.show(*batch, seconds=5)
        front.slack.faults.clear()
        # A message may be delivered again although it was handled.
        if not (is_bad and chance.random() < 0.3):
            handled = [output for number, output in enumerate(batch) if str(number) not in left]
            queue = [output for output in queue if output not in handled]
        if not queue:
            break
    assert not queue
    assert answers(front, root) == in_order(1, 2, 3, 4)


async def test_each_thread_has_an_order_of_its_own_and_a_notice_stands_where_it_came(front):
    root = await front.mention()
    notice = output_in(root, "error", "It failed.", seq=(0, 0))
    for output in (numbered(root, 5), numbered(root, 1, thread=".tabc"), notice):
        assert await front.show(output) == {}
    own, child, failed = answers(front, root)
    assert (own, failed) == ("number 5", ":warning: It failed.")
    assert child.endswith("number 1")
    assert "chat.delete" not in front.slack.calls


async def test_what_is_late_by_much_moves_nothing(front, caplog):
    root = await front.mention()
    for number in range(2, 13):
        assert await front.show(numbered(root, number)) == {}
    assert await front.show(numbered(root, 1)) == {}
    assert answers(front, root) == in_order(*range(2, 13), 1)
    assert "11 posts are out of order" in caplog.text


@pytest.mark.parametrize("code", ["invalid_blocks", "cant_delete_message"])
async def test_what_slack_does_not_let_move_stays_and_is_said_once(front, caplog, code):
    root = await front.mention()
    assert await front.show(numbered(root, 2)) == {}
    method = "chat.delete" if code == "cant_delete_message" else "chat.postMessage"
    post = front.slack._called

    def refusing(called, *rest):
        # The late one itself is taken.
        is_moved = called == method and (method == "chat.delete" or "number 2" in str(rest))
        return (200, {}, {"ok": False, "error": code}) if is_moved else post(called, *rest)

    front.slack._called = refusing
    assert await front.show(numbered(root, 1)) == {}
    del front.slack.__dict__["_called"]
    assert answers(front, root)[:2] == in_order(2, 1)
    assert code in caplog.text


async def test_a_status_that_is_late_hides_nothing(front):
    root = await front.mention()
    assert await front.show(output_in(root, "tool_call", "later()", seq=(3, 0))) == {}
    assert await front.show(output_in(root, "tool_call", "early()", seq=(1, 0)), numbered(root, 2)) == {}
    front.slack.statuses["C1", root["ts"]] = "is at work"
    for type in ("tool_call", "status"):
        assert await front.show(output_in(root, type, "earliest()", seq=(1, 1))) == {}
    assert front.slack.statuses == {("C1", root["ts"]): "is at work"}


async def test_a_question_that_is_moved_keeps_its_buttons(front):
    root = await front.mention()
    asked = {"id": "call-1", "prompt": "Where to?", "choices": ["Rome", "Oslo"], "default": 0}
    assert await front.show(output_in(root, "user_choice_required", "Where to?", seq=(2, 0), **asked)) == {}
    assert await front.show(numbered(root, 1)) == {}
    assert answers(front, root) == ["number 1", "Where to?\n[Rome] [Oslo]"]
    complete = output_in(root, "user_choice_complete", "Where to?: Oslo", seq=(3, 0), choice_id="call-1")
    assert await front.show(complete) == {}
    assert answers(front, root) == ["number 1", "Where to?: Oslo"]


async def test_a_question_that_is_answered_and_moved_stays_answered(front):
    root = await front.mention()
    asked = {"id": "call-1", "prompt": "Where to?", "choices": ["Rome", "Oslo"], "default": 0}
    assert await front.show(output_in(root, "user_choice_required", "Where to?", seq=(2, 0), **asked)) == {}
    # The responder dies when it has posted what is earlier.
    faults, whole = FaultInjector(crash_at=6), front.responder
    front.responder = SlackResponder(faults.wrap(whole.web, "slack"), front.clock)
    with pytest.raises(Crash):
        await front.show(numbered(root, 1))
    front.responder = whole
    complete = output_in(root, "user_choice_complete", "Where to?: Oslo", seq=(3, 0), choice_id="call-1")
    assert await front.show(numbered(root, 1), complete) == {}
    assert answers(front, root) == ["number 1", "Where to?: Oslo"]


async def test_what_slack_made_of_a_post_is_what_is_moved(front):
    root = await front.mention()
    assert await front.show(numbered(root, 2)) == {}
    # Slack gives a markdown block back as rich text.
    rich = [{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [{"type": "text"}]}]}]
    front.slack.thread("C1", root["ts"])[-1]["blocks"] = rich
    assert await front.show(numbered(root, 1)) == {}
    *_, first, second = front.slack.thread("C1", root["ts"])
    assert first["metadata"]["event_payload"]["seq"] == "1.0"
    assert (second["blocks"], second["metadata"]["event_payload"]["seq"]) == (rich, "2.0")
    assert len(front.slack.thread("C1", root["ts"])) == 3


async def test_a_thread_that_cannot_be_read_again_is_left_as_it_is(front):
    root = await front.mention()
    looks = []
    call = front.slack._called

    def refusing(method, *rest):
        looks.append(method)
        again = method == "conversations.replies" and looks.count(method) > 1
        return (200, {}, {"ok": False, "error": "not_in_channel"}) if again else call(method, *rest)

    front.slack._called = refusing
    assert await front.show(numbered(root, 1)) == {}
    del front.slack.__dict__["_called"]
    assert answers(front, root) == in_order(1)
