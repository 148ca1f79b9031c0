"""The queues: input to threads, output to people, dead letters."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from ..conversation import ids
from ..conversation.messages import Delivery
from ..conversation.outputs import Output
from ..errors import Reject

MAX_BODY = 1024 * 1024
"""The longest body that an input queue takes, in bytes."""

DEDUP_WINDOW = timedelta(minutes=5)
"""How long an input queue remembers a deduplication id, be the message deleted or not."""


def refuse_unsendable(body: str, *, group_id: str, dedup_id: str) -> None:
    """Return if an input queue takes such a message.

    Raises:
        Reject: no queue ever will; the text names the value, the limit and the remedy.
    """
    for name, value in (("group_id", group_id), ("dedup_id", dedup_id)):
        if not ids.is_sendable(value):
            raise Reject(f"{name} {value[:140]!r} must be 1 to {ids.MAX_ID} letters, digits and ASCII punctuation")
    if not body.isascii():
        raise Reject(f"the body for group {group_id!r} is not ASCII; write other characters as JSON escapes")
    if len(body) > MAX_BODY:
        raise Reject(
            f"the body for group {group_id!r} has {len(body)} bytes, and an input queue takes {MAX_BODY}; "
            "keep large values in the blob store"
        )


class InputSender(Protocol):
    """Puts messages on the input queue."""

    async def send(self, body: str, *, group_id: str, dedup_id: str) -> None:
        """Put a message on the input queue, behind all others of its group.

        ``body`` is ASCII. A second message with the same ``dedup_id`` in one group within 5 minutes is dropped.

        Raises:
            Reject: it can never be sent, by ``refuse_unsendable``.
            StoreUnavailable: it may or may not be there; sending it again under the same id is harmless.
        """
        ...


class OutputSender(Protocol):
    """Tells people."""

    async def send(self, output: Output) -> None:
        """Tell people. May be repeated with the same ``output_id``.

        Raises:
            StoreUnavailable: as for input.
        """
        ...


@dataclass(frozen=True, slots=True)
class Received:
    """A message in the hands of one consumer. ``receive_count`` is 1 the first time; ``receipt`` gives it back."""

    body: str
    group_id: str
    queue_id: str
    dedup_id: str
    receipt: str
    receive_count: int
    sent_at: datetime


class InputQueue(InputSender, Protocol):
    """An input queue that can also be consumed: FIFO within a group, groups independent of one another."""

    async def receive(self, *, groups: int, batch: int, visibility: float) -> Sequence[Sequence[Received]]:
        """Take up to ``batch`` messages from each of up to ``groups`` groups that nobody else holds.

        They stay invisible, and their groups blocked, for ``visibility`` seconds unless deleted or released.
        """
        ...

    async def delete(self, received: Sequence[Received]) -> None:
        """Acknowledge. A receipt that is no longer valid (somebody else received the message since) is ignored."""
        ...

    async def release(self, received: Sequence[Received], *, delay: float, is_counted: bool = True) -> None:
        """Give back unprocessed: visible again, in the same order, after ``delay`` seconds.

        Where it is not counted, ``receive_count`` is as if the messages had not been received; whoever gives them back
        so must not use the receipts again.
        """
        ...

    async def park(self, received: Received, reason: str) -> None:
        """Move to the dead letters, with the reason."""
        ...

    async def next_visible_at(self) -> datetime | None:
        """Return when the earliest message that waits for its time becomes visible; ``None`` where there is none."""
        ...


class Receipts(Protocol):
    """Acknowledges and hides what somebody else received for us, by its receipts; those no longer valid are ignored."""

    async def delete(self, receipts: Sequence[str]) -> None:
        """Acknowledge.

        Raises:
            StoreUnavailable: some may be left; doing it again is harmless.
        """
        ...

    async def hide(self, receipts: Sequence[str], *, seconds: float) -> None:
        """Make the messages visible ``seconds`` from now; 0 gives them back at once.

        Raises:
            StoreUnavailable: as for ``delete``.
        """
        ...


class Parking(Protocol):
    """Puts messages among the dead letters."""

    async def park(self, received: Received, reason: str, *, noticed: bool = False) -> None:
        """Keep the message with the reason. Whoever holds it still has to acknowledge it.

        ``noticed`` tells the keeper that people know of it already.

        Raises:
            StoreUnavailable: it may or may not be kept; doing it again is harmless.
        """
        ...


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A parked message. ``noticed`` tells that the keeper has seen to what was waiting for it."""

    queue_id: str
    group_id: str
    dedup_id: str
    body: str
    reason: str
    parked_at: datetime
    receive_count: int
    noticed: bool = False


class DeadLetters(Protocol):
    """Keeps the messages that nobody could handle."""

    async def dead_letters(self, *, limit: int = 100, unnoticed: bool = False) -> Sequence[DeadLetter]:
        """Return parked messages, oldest first."""
        ...

    async def mark_noticed(self, queue_id: str) -> None:
        """Remember that the keeper has seen to it."""
        ...

    async def redrive(self, queue_id: str) -> None:
        """Put it back on the input queue under a new queue id; its deduplication id is the old queue id.

        A message without an id of its own is given the old queue id as its ``message_id``.

        Raises:
            KeyError: there is no such dead letter.
        """
        ...

    async def discard(self, queue_id: str) -> None:
        """Forget it.

        Raises:
            KeyError: there is no such dead letter.
        """
        ...


class DeferQueue(Protocol):
    """For embedders who hold events themselves while a call is running. Without one, deferral is in the commit."""

    @property
    def holds(self) -> bool:
        """Whether anything is held at all; where not, an event detaches the running call, as a person's text does."""
        ...

    def hold(self, thread_id: str, deliveries: Sequence[Delivery]) -> None:
        """Keep ``deliveries`` behind those that are held already."""
        ...

    def take(self, thread_id: str) -> Sequence[Delivery]:
        """Give back all that is held for the thread, oldest first."""
        ...


class LocalInputQueue(InputQueue, DeadLetters, Protocol):
    """An input queue of the process's own: whoever consumes it is told when to look."""

    on_arrival: Callable[[], None]
    """Called whenever this process put a message on the queue: by a sender, a timer or a redrive."""

    async def reclaim(self) -> None:
        """Make visible at once what is invisible, whoever holds it: for the only consumer, before it begins."""
        ...

    async def waiting(self, group_ids: Collection[str]) -> Sequence[Received]:
        """Return the visible messages of these groups in order, without taking them: those behind what is held."""
        ...

    async def outstanding(self) -> Mapping[str, int]:
        """Return how many messages each group has: those that are held, and those that wait for their time, too."""
        ...

    async def changed_elsewhere(self) -> bool:
        """Tell whether another process may have put messages there since the last time that this was asked."""
        ...


class OutputLog(OutputSender, Protocol):
    """Outputs that the process keeps itself, for readers to follow."""

    async def outputs(
        self, *, after: int = 0, group_id: str | None = None, limit: int = 1000
    ) -> Sequence[tuple[int, Output]]:
        """Return outputs with their places in the log, oldest first, from behind the place ``after``; no repeats."""
        ...

    async def last_place(self) -> int:
        """Return the place of the newest output; 0 where there is none."""
        ...
