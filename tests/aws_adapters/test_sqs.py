"""Queues in SQS: what is refused before it is sent, batches that fail in part, and dead letters."""

import json
from dataclasses import replace

import pytest

from infinity_agents.adapters.sqs import (
    SqsDeadLetters,
    SqsDelayDeadLetters,
    SqsInputSender,
    SqsOutputSender,
    SqsReceipts,
)
from infinity_agents.conversation.outputs import Output
from infinity_agents.errors import Reject, StoreUnavailable
from infinity_agents.ports.queues import MAX_BODY
from infinity_agents.testing.aws import Fault, SqsPoller
from infinity_agents.testing.doubles import FrozenClock
from infinity_agents.wire import outputs as wire_outputs
from infinity_agents.wire import timers as wire_timers
from infinity_agents.wire.timers import DelayedMessage


@pytest.fixture
def clock(aws):
    clock = FrozenClock()
    aws.now = lambda: clock.now().timestamp()
    return clock


@pytest.fixture
def queue(clients, deployed, clock):
    return SqsPoller(clients, deployed.input_url)


@pytest.fixture
def receipts(clients, deployed):
    return SqsReceipts(clients, deployed.input_url)


@pytest.fixture
def dead(clients, deployed, clock):
    return dead_letters(clients, deployed, clock)


def dead_letters(clients, deployed, clock):
    return SqsDeadLetters(
        clients, dead_letter_url=deployed.dead_letter_url, input_url=deployed.input_url, clock=clock, wait=0
    )


async def bodies(queue, visibility=30):
    return [[received.body for received in group] for group in await queue.receive(visibility=visibility)]


def body_of(text, **more):
    return json.dumps({"content": {"type": "text", "text": text}, "group_id": "g", **more})


# ---------------------------------------------------------------------------------------------------------- sending


async def test_a_message_goes_to_its_group_once(queue):
    for _ in range(2):
        await queue.send("one", group_id="g", dedup_id="d")
    await queue.send("one", group_id="h", dedup_id="d")
    ((first,), (other,)) = await queue.receive(visibility=30)
    assert (first.body, first.group_id, first.dedup_id, first.receive_count) == ("one", "g", "d", 1)
    assert (other.body, other.group_id) == ("one", "h")


async def test_a_deleted_message_is_still_known_for_five_minutes(queue, receipts, clock):
    await queue.send("one", group_id="g", dedup_id="d")
    ((received,),) = await queue.receive(visibility=30)
    await receipts.delete([received.receipt])
    clock.advance(299)
    await queue.send("one", group_id="g", dedup_id="d")
    assert await bodies(queue) == []
    clock.advance(1)
    await queue.send("again", group_id="g", dedup_id="d")
    assert await bodies(queue) == [["again"]]


@pytest.mark.parametrize(
    ("body", "ids", "said"),
    [
        ("x", {"group_id": "a b"}, "group_id 'a b'"),
        ("x", {"group_id": "ä"}, "group_id 'ä'"),
        ("x", {"group_id": ""}, "group_id ''"),
        ("x", {"dedup_id": "d" * 129}, "dedup_id 'ddd"),
        ("x", {"dedup_id": "\U0001f600"}, "dedup_id"),
        ("ä", {}, "not ASCII"),
        ("\ud83d", {}, "not ASCII"),
        ("a\x00b", {}, r"holds '\\x00'"),
        ("\x1b[31m", {}, r"holds '\\x1b'"),
        ("", {}, "is empty"),
        ("x" * (MAX_BODY + 1), {}, "1048577 bytes"),
    ],
)
async def test_what_sqs_would_refuse_is_refused_before_the_call(aws, queue, body, ids, said):
    with pytest.raises(Reject, match=said):
        await queue.send(body, **{"group_id": "g", "dedup_id": "d", **ids})
    assert not aws.calls


async def test_the_longest_body_and_the_oddest_ids_are_sent(queue):
    odd = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    await queue.send("x" * MAX_BODY, group_id=odd, dedup_id=odd)
    ((received,),) = await queue.receive(visibility=30)
    assert (len(received.body), received.group_id, received.dedup_id) == (MAX_BODY, odd, odd)


async def test_escaped_nul_and_surrogates_come_as_they_were_sent(queue):
    body = body_of("\x00 \ud83d ä \U0001f600 \x7f")
    await queue.send(body, group_id="g", dedup_id="d")
    assert await bodies(queue) == [[body]]


async def test_a_send_that_took_effect_and_was_not_answered_is_one_message(aws, queue):
    aws.faults = [Fault("sqs", "SendMessage", "hang up", after=True), Fault("sqs", "SendMessage", 503, after=True)]
    await queue.send("one", group_id="g", dedup_id="d")
    assert await bodies(queue) == [["one"]]
    assert aws.calls.count(("sqs", "SendMessage")) == 3


async def test_outputs_are_sent_as_the_wire_format_says(clients, deployed):
    output = Output("message", "NUL \x00, half \ud83d", "g", "t", "o", (1, 2), {"channel": None}, {"usage": {"n": 1}})
    await SqsOutputSender(clients, deployed.output_url).send(output)
    (body,) = await sent(clients, deployed)
    assert body.isascii()
    assert wire_outputs.decode(body) == replace(output, text="NUL \x00, half \ufffd")


@pytest.mark.parametrize("letter", ["x", "ä", "\U0001f600", "\x00"], ids=["ascii", "accent", "emoji", "NUL"])
async def test_a_text_too_long_for_a_message_is_cut_and_says_so(clients, deployed, letter):
    output = Output("message", letter * MAX_BODY, "g", "t", "o", (1, 2), {"channel": "c"}, {"usage": 1})
    await SqsOutputSender(clients, deployed.output_url).send(output)
    (body,) = await sent(clients, deployed)
    assert MAX_BODY - 300 < len(body) <= MAX_BODY
    told = wire_outputs.decode(body)
    assert (told.metadata, told.details) == ({"channel": "c"}, {"usage": 1})
    kept, _, note = told.text.partition("\n")
    assert kept == letter * len(kept)
    assert note == f"[{MAX_BODY - len(kept)} more characters are in the history]"


@pytest.mark.parametrize(
    ("output", "kept"),
    [
        (
            Output("tool_call", "look", "g", "t", "o", (1, 2), {"c": 1}, {"id": "c", "arguments": "x" * MAX_BODY}),
            "look",
        ),
        (Output("message", "hello", "g", "t", "o", (1, 2), {"c": "x" * MAX_BODY}), "hello"),
    ],
)
async def test_what_is_not_text_goes_when_it_is_too_long(clients, deployed, output, kept):
    await SqsOutputSender(clients, deployed.output_url).send(output)
    (body,) = await sent(clients, deployed)
    told = wire_outputs.decode(body)
    assert told.text == kept
    assert (told.output_id, told.group_id) == ("o", "g")


async def sent(clients, deployed):
    answer = await clients.call("sqs", "receive_message", QueueUrl=deployed.output_url)
    return [message["Body"] for message in answer.get("Messages", ())]


# --------------------------------------------------------------------------------------------------------- receipts


async def test_any_number_of_receipts_is_acknowledged(aws, queue, receipts):
    for number in range(23):
        await queue.send(f"{number}", group_id=f"g{number}", dedup_id="d")
    received = []
    while groups := await queue.receive(visibility=30):
        received += [item.receipt for group in groups for item in group]
    assert len(received) == 23
    aws.calls.clear()
    await receipts.delete([*received, *received, "never there"])
    assert aws.calls == [("sqs", "DeleteMessageBatch")] * 3
    await receipts.delete(received)
    await receipts.delete([])


async def test_hidden_messages_come_again_in_order(queue, receipts, clock):
    for text in ("1", "2", "3"):
        await queue.send(text, group_id="g", dedup_id=text)
    (group,) = await queue.receive(visibility=30)
    await receipts.hide([item.receipt for item in reversed(group)], seconds=9.2)
    clock.advance(9.9)
    assert await bodies(queue) == []
    clock.advance(0.1)
    assert await bodies(queue) == [["1", "2", "3"]]


async def test_a_stale_receipt_changes_nothing(queue, receipts, clock):
    await queue.send("1", group_id="g", dedup_id="1")
    ((stale,),) = await queue.receive(visibility=30)
    clock.advance(30)
    ((valid,),) = await queue.receive(visibility=30)
    await receipts.delete([stale.receipt])
    await receipts.hide([stale.receipt], seconds=0)
    assert await bodies(queue) == []
    await receipts.delete([valid.receipt])
    clock.advance(30)
    assert await bodies(queue) == []


async def test_the_part_of_a_batch_that_failed_is_tried_again(monkeypatch, clients):
    asked = []

    async def call(_, operation, **arguments):
        asked.append([entry["ReceiptHandle"] for entry in arguments["Entries"]])
        failed = [
            {"Id": entry["Id"], "SenderFault": False, "Code": "InternalError"}
            for entry in arguments["Entries"]
            if entry["ReceiptHandle"] in {"b", "c"} and len(asked) < failures
        ]
        return {"Failed": failed}

    monkeypatch.setattr(clients, "call", call)
    failures = 3
    await SqsReceipts(clients, "url").delete(["a", "b", "c", "d"])
    assert asked == [["a", "b", "c", "d"], ["b", "c"], ["b", "c"]]
    asked.clear()
    failures = 99
    with pytest.raises(StoreUnavailable, match="2 of 4 failed: InternalError"):
        await SqsReceipts(clients, "url").hide(["a", "b", "c", "d"], seconds=1)


# ----------------------------------------------------------------------------------------------------- dead letters


async def parked(queue, receipts, dead, *texts, reason="wrong"):
    for text in texts:
        await queue.send(text, group_id=text[0], dedup_id=text)
    received = [item for group in await queue.receive(visibility=30) for item in group]
    for item in received:
        await dead.park(item, reason)
    await receipts.delete([item.receipt for item in received])
    return [item.queue_id for item in received]


async def test_a_parked_message_is_kept_with_its_reason(queue, receipts, dead, clock, clients, deployed):
    (queue_id,) = await parked(queue, receipts, dead, "g1", reason="not JSON: ä \ud83d \x00 \x1b")
    for reader in (dead, dead_letters(clients, deployed, clock)):
        (letter,) = await reader.dead_letters()
        assert (letter.queue_id, letter.group_id, letter.dedup_id, letter.body) == (queue_id, "g", "g1", "g1")
        assert (letter.reason, letter.receive_count, letter.noticed) == ("not JSON: ä \ufffd    ", 1, False)
        assert letter.parked_at == clock.now()
    clock.advance(1000)
    assert await bodies(queue) == []


async def test_a_letter_is_parked_once(queue, dead):
    await queue.send("g1", group_id="g", dedup_id="g1")
    ((received,),) = await queue.receive(visibility=30)
    await dead.park(received, "wrong")
    await dead.park(received, "wrong")
    assert len(await dead.dead_letters()) == 1


async def test_the_longest_message_is_parked_without_its_reason(queue, receipts, dead):
    await queue.send("g" * MAX_BODY, group_id="g", dedup_id="d")
    ((received,),) = await queue.receive(visibility=30)
    await dead.park(received, "wrong")
    await receipts.delete([received.receipt])
    queue_id = received.queue_id
    (letter,) = await dead.dead_letters()
    assert (letter.queue_id, len(letter.body)) == (queue_id, MAX_BODY)
    await dead.mark_noticed(queue_id)
    (letter,) = await dead.dead_letters()
    assert letter.noticed
    assert await dead.dead_letters(unnoticed=True) == []


async def test_what_sqs_moves_itself_is_known_by_its_queue_id(queue, dead, clock):
    await queue.send("g1", group_id="g", dedup_id="d")
    for _ in range(5):
        ((received,),) = await queue.receive(visibility=30)
        clock.advance(30)
    assert await bodies(queue) == []
    (letter,) = await dead.dead_letters()
    assert (letter.queue_id, letter.group_id, letter.body) == (received.queue_id, "g", "g1")
    assert "never acknowledged" in letter.reason
    await dead.redrive(letter.queue_id)
    ((again,),) = await queue.receive(visibility=30)
    assert (again.body, again.dedup_id) == ("g1", received.queue_id)
    assert again.queue_id != received.queue_id


async def test_letters_are_listed_oldest_first_until_noticed(queue, receipts, dead, clock, clients, deployed):
    queue_ids = []
    for text in ("z1", "a1", "m1"):
        queue_ids += await parked(queue, receipts, dead, text)
        clock.advance(1)
    assert [letter.queue_id for letter in await dead.dead_letters()] == queue_ids
    assert len(await dead.dead_letters(limit=2)) == 2
    unnoticed = await dead.dead_letters(unnoticed=True)
    assert [letter.queue_id for letter in unnoticed] == queue_ids
    assert await dead_letters(clients, deployed, clock).dead_letters() == []
    await dead.mark_noticed(queue_ids[0])
    await dead.mark_noticed("never there")
    clock.advance(120)
    assert [letter.queue_id for letter in await dead.dead_letters(unnoticed=True)] == queue_ids[1:]
    clock.advance(120)
    letters = await dead_letters(clients, deployed, clock).dead_letters()
    assert [(letter.queue_id, letter.noticed) for letter in letters] == [
        (queue_id, queue_id == queue_ids[0]) for queue_id in queue_ids
    ]
    assert (letters[0].reason, letters[0].dedup_id) == ("wrong", "z1")


async def test_behind_ten_letters_of_a_group_more_come_once_these_are_noticed(queue, receipts, dead, clock):
    for number in range(12):
        await queue.send(f"g{number}", group_id="g", dedup_id=f"{number}")
        ((received,),) = await queue.receive(visibility=30)
        await dead.park(received, "wrong")
        await receipts.delete([received.receipt])
    seen = []
    while letters := await dead.dead_letters(unnoticed=True):
        for letter in letters:
            seen.append(letter.body)
            await dead.mark_noticed(letter.queue_id)
        clock.advance(120)
    assert seen == [f"g{number}" for number in range(12)]


async def test_letters_that_were_noticed_do_not_hide_new_ones(queue, receipts, dead, clock):
    for number in range(12):
        await queue.send("old", group_id=f"g{number}", dedup_id="d")
    for _ in range(2):
        for group in await queue.receive(visibility=30):
            await dead.park(group[0], "wrong", noticed=True)
            await receipts.delete([group[0].receipt])
    (queue_id,) = await parked(queue, receipts, dead, "new")
    assert [letter.queue_id for letter in await dead.dead_letters(limit=1, unnoticed=True)] == [queue_id]


async def test_a_noticed_letter_can_be_redriven_and_discarded(queue, receipts, dead):
    first, second = await parked(queue, receipts, dead, "g1", "h1")
    await dead.mark_noticed(first)
    await dead.mark_noticed(second)
    await dead.discard(second)
    await dead.redrive(first)
    assert await dead.dead_letters() == []
    ((again,),) = await queue.receive(visibility=30)
    assert (again.body, again.dedup_id) == ("g1", first)
    for act in (dead.redrive, dead.discard):
        with pytest.raises(KeyError):
            await act(first)


async def test_a_message_may_be_redriven_again_and_again(queue, receipts, dead):
    await queue.send("g1", group_id="g", dedup_id="d")
    seen = set()
    for _ in range(3):
        ((received,),) = await queue.receive(visibility=30)
        seen.add(received.queue_id)
        await dead.park(received, "wrong")
        await receipts.delete([received.receipt])
        await dead.redrive(received.queue_id)
    assert len(seen) == 3
    assert await bodies(queue) == [["g1"]]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (body_of("hi"), True),
        (body_of("hi", message_id=None), True),
        (body_of("hi", message_id="mine"), False),
        (body_of("hi", mac="k:1"), False),
        ("[1]", False),
        ("not JSON", False),
        ("[" * 100_000, False),
    ],
)
async def test_a_redriven_message_names_its_old_queue_id_where_it_had_no_name(queue, receipts, dead, body, named):
    await queue.send(body, group_id="g", dedup_id="d")
    ((received,),) = await queue.receive(visibility=30)
    await dead.park(received, "wrong")
    await receipts.delete([received.receipt])
    await dead.redrive(received.queue_id)
    ((again,),) = await queue.receive(visibility=30)
    if named:
        assert json.loads(again.body) == {**json.loads(body), "message_id": received.queue_id}
    else:
        assert again.body == body


async def test_a_crash_between_the_two_halves_of_a_redrive_is_one_message(aws, queue, receipts, dead, clock):
    (queue_id,) = await parked(queue, receipts, dead, "g1")
    aws.faults = [Fault("sqs", "DeleteMessageBatch")] * 3
    with pytest.raises(StoreUnavailable):
        await dead.redrive(queue_id)
    clock.advance(120)
    await dead.redrive(queue_id)
    assert await dead.dead_letters() == []
    assert await bodies(queue) == [["g1"]]


async def test_a_crash_between_the_two_halves_of_a_mark_leaves_one_letter(aws, queue, receipts, dead, clock):
    (queue_id,) = await parked(queue, receipts, dead, "g1")
    aws.faults = [Fault("sqs", "DeleteMessageBatch")] * 3
    with pytest.raises(StoreUnavailable):
        await dead.mark_noticed(queue_id)
    clock.advance(120)
    (letter,) = await dead.dead_letters()
    assert letter.noticed
    await dead.redrive(queue_id)
    assert await dead.dead_letters() == []
    assert await bodies(queue) == [["g1"]]


async def test_people_may_know_of_a_letter_from_the_beginning(queue, dead):
    await queue.send("g1", group_id="g", dedup_id="g1")
    ((received,),) = await queue.receive(visibility=30)
    await dead.park(received, "wrong", noticed=True)
    assert await dead.dead_letters(unnoticed=True) == []
    (letter,) = await dead.dead_letters()
    assert (letter.noticed, letter.reason) == (True, "wrong")


# ------------------------------------------------------------------------------------------- dead letters of timers


@pytest.fixture
def late(clients, deployed, clock):
    return SqsDelayDeadLetters(
        clients, dead_letter_url=deployed.delay_dead_letter_url, input_url=deployed.input_url, clock=clock, wait=0
    )


async def die(clients, deployed, body, **attributes):
    await clients.call(
        "sqs",
        "send_message",
        QueueUrl=deployed.delay_dead_letter_url,
        MessageBody=body,
        MessageAttributes={name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()},
    )


async def test_a_timer_that_nobody_delivered_is_a_letter_to_its_thread(clients, deployed, late, queue, clock):
    waited = body_of("ding", mac="k:1")
    await die(clients, deployed, wire_timers.encode(DelayedMessage(waited, "g", "d")), ERROR_MESSAGE="no such queue")
    (letter,) = await late.dead_letters(unnoticed=True)
    assert (letter.body, letter.group_id, letter.dedup_id, letter.reason) == (waited, "g", "d", "no such queue")
    await late.mark_noticed(letter.queue_id)
    assert await late.dead_letters(unnoticed=True) == []
    clock.advance(120)
    (noticed,) = await late.dead_letters()
    assert noticed == replace(letter, noticed=True)
    await late.redrive(letter.queue_id)
    assert await late.dead_letters() == []
    assert await bodies(queue) == [[waited]]


async def test_a_letter_that_is_no_timer_can_only_be_discarded(clients, deployed, late, clock):
    await die(clients, deployed, "garbage")
    (letter,) = await late.dead_letters()
    assert (letter.body, letter.group_id) == ("garbage", "")
    await late.mark_noticed(letter.queue_id)
    with pytest.raises(Reject, match="group_id ''"):
        await late.redrive(letter.queue_id)
    await late.discard(letter.queue_id)
    clock.advance(120)
    assert await late.dead_letters() == []


async def test_a_sender_needs_nothing_but_clients_and_a_url(clients, deployed):
    await SqsInputSender(clients, deployed.input_url).send("x", group_id="g", dedup_id="d")
