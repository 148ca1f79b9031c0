"""The queues in SQS: a FIFO queue of input, a standard queue of outputs, a FIFO queue of dead letters.

By a message's size SQS means that of its body and of its attributes' names, types and values.
"""

import asyncio
import json
import logging
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from typing import Any, Literal

from ..aws_clients import AwsClients
from ..conversation import ids
from ..conversation.content import without_surrogates
from ..conversation.outputs import Output
from ..errors import Reject, StoreUnavailable, Undecodable
from ..ports.clock import Clock
from ..ports.queues import MAX_BODY, DeadLetter, Received, refuse_unsendable
from ..wire import outputs as wire_outputs
from ..wire import timers as wire_timers
from ..wire.inputs import redriven

_BATCH = 10
_TRIES = 3
_LONGEST_INVISIBLE = 43_200
_HELD_SECONDS = 120
_SHOWN_SECONDS = 30
_LONGEST_REASON = 4_000
_SHORT_DETAIL = 1_000

# XML 1.0 has no other control characters, and SQS takes none that XML has not.
_UNSENDABLE = re.compile(r"[^\t\n\r -\x7f]")

_log = logging.getLogger(__name__)


class SqsInputSender:
    """An ``InputSender`` over the FIFO queue ``queue_url``."""

    def __init__(self, clients: AwsClients, queue_url: str) -> None:
        self._clients = clients
        self._queue_url = queue_url

    async def send(self, body: str, *, group_id: str, dedup_id: str) -> None:
        """Put a message behind all others of its group, unless its deduplication id was used within 5 minutes.

        Raises:
            Reject: the queue can never take it; the text names the value and the limit.
            StoreUnavailable: it may or may not be there; sending it again under the same id is harmless.
        """
        refuse_unsendable(body, group_id=group_id, dedup_id=dedup_id)
        unsendable = _UNSENDABLE.search(body)
        if unsendable is not None or not body:
            found = f"holds {unsendable[0]!r}" if unsendable else "is empty"
            raise Reject(f"the body for group {group_id!r} {found}, which SQS does not take; send JSON, escaped")
        await self._clients.call(
            "sqs",
            "send_message",
            QueueUrl=self._queue_url,
            MessageBody=body,
            MessageGroupId=group_id,
            MessageDeduplicationId=dedup_id,
        )


class SqsOutputSender:
    """An ``OutputSender`` over the standard queue ``queue_url``."""

    def __init__(self, clients: AwsClients, queue_url: str) -> None:
        self._clients = clients
        self._queue_url = queue_url

    async def send(self, output: Output) -> None:
        """Tell people. What no message can hold is cut, and says so: the history has the whole.

        Raises:
            StoreUnavailable: it may or may not be sent; sending it again is harmless.
        """
        await self._clients.call(
            "sqs", "send_message", QueueUrl=self._queue_url, MessageBody=wire_outputs.encode(_fitted(output))
        )


def _fitted(output: Output) -> Output:
    """Return ``output`` without what makes it too long: the end of its text first, its metadata last."""
    details = {key: value for key, value in (output.details or {}).items() if _length(value) <= _SHORT_DETAIL}
    for shorter in (output, replace(output, details=details), replace(output, details=details, metadata=None)):
        excess = len(wire_outputs.encode(shorter)) - MAX_BODY
        if excess <= 0:
            return shorter
        room = _length(output.text) - excess - 100
        if room > 0:
            kept = bisect_right(range(len(output.text)), room, key=lambda end: _length(output.text[:end])) - 1
            left_out = len(output.text) - kept
            return replace(shorter, text=f"{output.text[:kept]}\n[{left_out} more characters are in the history]")
    return replace(output, details=None, metadata=None, text="[too long to be shown: it is in the history]")


def _length(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")))


@dataclass(frozen=True, slots=True)
class SqsReceipts:
    """Acknowledges and hides messages of ``queue_url``, by the receipts under which they were received."""

    clients: AwsClients
    queue_url: str

    async def delete(self, receipts: Sequence[str]) -> None:
        """Acknowledge. Receipts that are no longer valid are ignored.

        Raises:
            StoreUnavailable: some may be left; doing it again is harmless.
        """
        await self._batches("delete_message_batch", receipts, {})

    async def hide(self, receipts: Sequence[str], *, seconds: float) -> None:
        """Make the messages visible ``seconds`` from now, at most 12 hours; 0 gives them back at once.

        Raises:
            StoreUnavailable: as for ``delete``.
        """
        timeout = min(max(ceil(seconds), 0), _LONGEST_INVISIBLE)
        await self._batches("change_message_visibility_batch", receipts, {"VisibilityTimeout": timeout})

    async def _batches(
        self,
        operation: Literal["delete_message_batch", "change_message_visibility_batch"],
        receipts: Sequence[str],
        more: Mapping[str, Any],
    ) -> None:
        distinct = list(dict.fromkeys(receipts))
        batches = [distinct[start : start + _BATCH] for start in range(0, len(distinct), _BATCH)]
        await asyncio.gather(*(self._batch(operation, batch, more) for batch in batches))

    async def _batch(self, operation: str, receipts: Sequence[str], more: Mapping[str, Any]) -> None:
        left = {str(number): receipt for number, receipt in enumerate(receipts)}
        told: Sequence[Mapping[str, Any]] = ()
        for _ in range(_TRIES):
            entries = [{"Id": name, "ReceiptHandle": receipt, **more} for name, receipt in left.items()]
            answer = await self.clients.call("sqs", operation, QueueUrl=self.queue_url, Entries=entries)
            told = answer.get("Failed", ())
            for failed in told:
                if failed["SenderFault"]:
                    _log.info("%s: a receipt is no longer valid: %s", operation, failed["Code"])
            left = {failed["Id"]: left[failed["Id"]] for failed in told if not failed["SenderFault"]}
            if not left:
                return
        raise StoreUnavailable(f"sqs {operation}: {len(left)} of {len(receipts)} failed: {told[0]['Code']}")


class SqsOutputReader:
    """Takes what people are told off the standard queue ``queue_url``; what is taken, no other reader sees."""

    def __init__(self, clients: AwsClients, queue_url: str) -> None:
        self._clients = clients
        self._queue_url = queue_url
        self._receipts = SqsReceipts(clients, queue_url)

    async def receive(self, *, wait: int) -> Sequence[tuple[str, Output]]:
        """Return up to ten outputs, each with its receipt, waiting ``wait`` seconds for the first.

        They come again after 30 seconds unless they are taken. What is no output is left where it is.

        Raises:
            StoreUnavailable: the queue could not be reached.
        """
        answer = await self._clients.call(
            "sqs",
            "receive_message",
            QueueUrl=self._queue_url,
            MaxNumberOfMessages=_BATCH,
            VisibilityTimeout=_SHOWN_SECONDS,
            WaitTimeSeconds=wait,
        )
        received = []
        for message in answer.get("Messages", ()):
            try:
                received.append((message["ReceiptHandle"], wire_outputs.decode(message["Body"])))
            except Undecodable as error:
                _log.warning("message %s of the output queue is left where it is: %s", message["MessageId"], error)
        return received

    async def take(self, receipts: Sequence[str]) -> None:
        """Take these off the queue, now that somebody has seen them."""
        if receipts:
            await self._receipts.delete(receipts)

    async def leave(self, receipts: Sequence[str]) -> None:
        """Leave these to other readers, at once."""
        if receipts:
            await self._receipts.hide(receipts, seconds=0)


@dataclass(frozen=True, slots=True)
class _Held:
    """A dead letter in our hands, and what gives it back."""

    letter: DeadLetter
    receipt: str


class SqsDeadLetters:
    """``DeadLetters`` in the FIFO queue ``dead_letter_url``, for messages of the FIFO queue ``input_url``.

    A letter is known by the queue id that its message had on the input queue, which SQS, and ``park``, keep as its
    deduplication id. Of each group, SQS shows the first ten; the others are seen once these are gone or noticed.
    ``wait`` is how many seconds SQS may look for letters: less than one, and it may miss some.
    """

    # SQS has no place for a mark, so a letter that was noticed is a copy that carries one. It stands behind all others
    # of its group, so that these are seen too.

    def __init__(
        self, clients: AwsClients, *, dead_letter_url: str, input_url: str, clock: Clock, wait: int = 1
    ) -> None:
        self._clients = clients
        self._url = dead_letter_url
        self._receipts = SqsReceipts(clients, dead_letter_url)
        self._inputs = SqsInputSender(clients, input_url)
        self._clock = clock
        self._wait = wait
        self._held: dict[str, list[_Held]] = {}
        self._unmarkable: set[str] = set()

    async def park(self, received: Received, reason: str, *, noticed: bool = False) -> None:
        """Keep the message with the reason. Whoever holds it still has to acknowledge it.

        ``noticed`` tells the keeper that people know of it already.

        Raises:
            StoreUnavailable: it may or may not be kept; doing it again within 5 minutes is harmless.
        """
        letter = DeadLetter(
            queue_id=received.queue_id,
            group_id=received.group_id,
            dedup_id=received.dedup_id,
            body=received.body,
            reason=reason,
            parked_at=self._clock.now(),
            receive_count=received.receive_count,
            noticed=noticed,
        )
        await self._put(letter, received.queue_id, _attributes(letter))

    async def dead_letters(self, *, limit: int = 100, unnoticed: bool = False) -> Sequence[DeadLetter]:
        """Return parked messages, oldest first.

        Those that are ``unnoticed`` stay with the caller for two minutes, to be marked; nobody else sees them then.

        Raises:
            StoreUnavailable: the queue could not be reached.
        """
        found: list[_Held] = []
        while sum(not (unnoticed and held.letter.noticed) for held in found) < limit and (page := await self._page()):
            found += page
        letters = {held.letter.queue_id: self._shown(held.letter) for held in found}
        if unnoticed:
            letters = {queue_id: letter for queue_id, letter in letters.items() if not letter.noticed}
            self._held = {}
            for held in found:
                self._held.setdefault(held.letter.queue_id, []).append(held)
            await self._give_back([held for held in found if held.letter.queue_id not in letters])
        else:
            await self._give_back(found)
        return sorted(letters.values(), key=lambda letter: letter.parked_at)[:limit]

    async def mark_noticed(self, queue_id: str) -> None:
        """Remember that the keeper has seen to it.

        Raises:
            StoreUnavailable: it may or may not be marked; marking it again is harmless.
        """
        for held in await self._taken(queue_id):
            if held.letter.noticed:
                await self._give_back([held])
                continue
            marked = replace(held.letter, noticed=True)
            attributes = _attributes(marked)
            if _size(marked.body, attributes) > MAX_BODY:
                # No room for a mark: this process remembers, and another tells of it once more.
                self._unmarkable.add(queue_id)
                await self._give_back([held])
            else:
                await self._put(marked, f"noticed:{queue_id}"[-ids.MAX_ID :], attributes)
                await self._receipts.delete([held.receipt])

    async def redrive(self, queue_id: str) -> None:
        """Put it back on the input queue; its deduplication id, and its ``message_id`` if it had none, name it.

        Raises:
            KeyError: there is no such dead letter.
            Reject: the input queue does not take it.
            StoreUnavailable: it may be in both places; doing it again is harmless.
        """
        taken = await self._taken(queue_id)
        if not taken:
            raise KeyError(queue_id)
        letter = self._shown(taken[0].letter)
        named = redriven(letter.body, queue_id)
        body = named if len(named) <= MAX_BODY else letter.body
        try:
            await self._inputs.send(body, group_id=letter.group_id, dedup_id=queue_id)
        except Reject:
            await self._give_back(taken)
            raise
        await self._receipts.delete([held.receipt for held in taken])

    async def discard(self, queue_id: str) -> None:
        """Forget it.

        Raises:
            KeyError: there is no such dead letter.
            StoreUnavailable: it may or may not be gone; doing it again is harmless.
        """
        taken = await self._taken(queue_id)
        if not taken:
            raise KeyError(queue_id)
        await self._receipts.delete([held.receipt for held in taken])

    async def _taken(self, queue_id: str) -> Sequence[_Held]:
        """Return the letter, in our hands, as often as it is there; all others are given back."""
        if queue_id in self._held:
            return self._held.pop(queue_id)
        taken: list[_Held] = []
        # Of the others, only the receipts are kept: together they may be large.
        others: list[str] = []
        while page := await self._page():
            taken += [held for held in page if held.letter.queue_id == queue_id]
            others += [held.receipt for held in page if held.letter.queue_id != queue_id]
        await self._receipts.hide(others, seconds=0)
        return taken

    async def _page(self) -> list[_Held]:
        answer = await self._clients.call(
            "sqs",
            "receive_message",
            QueueUrl=self._url,
            MaxNumberOfMessages=_BATCH,
            VisibilityTimeout=_HELD_SECONDS,
            WaitTimeSeconds=self._wait,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return [_Held(self._letter(message), message["ReceiptHandle"]) for message in answer.get("Messages", ())]

    async def _give_back(self, held: Sequence[_Held]) -> None:
        await self._receipts.hide([one.receipt for one in held], seconds=0)

    def _letter(self, message: Mapping[str, Any]) -> DeadLetter:
        letter = _letter(message)
        return replace(letter, noticed=True) if letter.queue_id in self._unmarkable else letter

    async def _put(self, letter: DeadLetter, dedup_id: str, attributes: Mapping[str, Any]) -> None:
        if _size(letter.body, attributes) > MAX_BODY:
            _log.warning("thread %s: message %s is parked without its reason", letter.group_id, letter.queue_id)
            attributes = {}
        await self._clients.call(
            "sqs",
            "send_message",
            QueueUrl=self._url,
            MessageBody=letter.body,
            MessageAttributes=attributes,
            **self._place(letter.group_id, dedup_id),
        )

    def _shown(self, letter: DeadLetter) -> DeadLetter:
        """Return the letter as a message of the input queue."""
        return letter

    def _place(self, group_id: str, dedup_id: str) -> Mapping[str, str]:
        """Return where in the queue a letter goes, in SQS's words."""
        return {"MessageGroupId": group_id, "MessageDeduplicationId": dedup_id}


class SqsDelayDeadLetters(SqsDeadLetters):
    """The dead letters of the delay queue, in a standard queue, each as the message of the input queue in it.

    One that holds no such message is shown as it is, for no group.
    """

    def _shown(self, letter: DeadLetter) -> DeadLetter:
        try:
            delayed = wire_timers.decode(letter.body)
        except Undecodable:
            return letter
        return replace(letter, body=delayed.body, group_id=delayed.group_id, dedup_id=delayed.dedup_id)

    def _place(self, group_id: str, dedup_id: str) -> Mapping[str, str]:
        return {}


def _attributes(letter: DeadLetter) -> dict[str, Any]:
    reason = "".join(c if c >= " " or c in "\t\n" else " " for c in without_surrogates(letter.reason))
    values = {
        "reason": reason[:_LONGEST_REASON] or "no reason was given",
        "queue_id": letter.queue_id,
        "dedup_id": letter.dedup_id,
        "parked_at": letter.parked_at.isoformat(),
        "receive_count": str(letter.receive_count),
        "noticed": "yes" if letter.noticed else "no",
    }
    return {name: {"DataType": "String", "StringValue": value} for name, value in values.items() if value}


def _size(body: str, attributes: Mapping[str, Any]) -> int:
    return len(body.encode()) + sum(
        len((name + value["DataType"] + value["StringValue"]).encode()) for name, value in attributes.items()
    )


def _letter(message: Mapping[str, Any]) -> DeadLetter:
    system = message.get("Attributes", {})
    ours = {name: value["StringValue"] for name, value in message.get("MessageAttributes", {}).items()}
    queue_id = ours.get("queue_id") or system.get("MessageDeduplicationId") or message["MessageId"]
    received = ours.get("receive_count") or system.get("ApproximateReceiveCount", "1")
    sent_at = datetime.fromtimestamp(int(system["SentTimestamp"]) / 1000, UTC)
    return DeadLetter(
        queue_id=queue_id,
        group_id=system.get("MessageGroupId", ""),
        dedup_id=ours.get("dedup_id", queue_id),
        body=message["Body"],
        # The second is Scheduler's.
        reason=ours.get("reason") or ours.get("ERROR_MESSAGE") or "it was received again and again, never acknowledged",
        parked_at=datetime.fromisoformat(ours["parked_at"]) if "parked_at" in ours else sent_at,
        receive_count=int(received),
        noticed=ours.get("noticed") == "yes",
    )
