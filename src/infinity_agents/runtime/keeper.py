"""The keeper: sees to what nobody else would notice. One per deployment, every few minutes."""

import logging
from dataclasses import dataclass
from datetime import timedelta

from ..conversation import ids
from ..conversation.content import Text
from ..conversation.messages import CallDeadline, InputMessage, Nudge, ToolResult
from ..errors import Reject
from ..ports.clock import Clock
from ..ports.conversations import ConversationStore
from ..ports.queues import DeadLetter, DeadLetters, InputSender, OutputSender
from ..ports.state import StateStore
from ..wire.inputs import decode, encode
from ..wire.keys import Keyring
from .notices import set_aside

_log = logging.getLogger(__name__)
_AT_ONCE = 500
_LEFT_BEHIND_AFTER = timedelta(minutes=2)
_INBOX_KEPT = timedelta(days=35)


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep saw to."""

    deadlines: int = 0
    nudged: int = 0
    dead_letters: int = 0
    forgotten: int = 0


@dataclass(frozen=True, slots=True)
class Keeper:
    """Turns calls past their deadline into errors, wakes threads whose effects were left, and answers dead results.

    All that it does is send messages under ids that say what they are about: doing it twice is harmless.
    """

    conversations: ConversationStore
    state: StateStore
    inputs: InputSender
    outputs: OutputSender
    dead_letters: DeadLetters
    keyring: Keyring
    clock: Clock

    async def sweep(self) -> Swept:
        """Look once at everything that is overdue."""
        return Swept(
            deadlines=await self._deadlines(),
            nudged=await self._left_behind(),
            dead_letters=await self.see_to(self.dead_letters),
            forgotten=await self.conversations.prune_inbox(self.clock.now() - _INBOX_KEPT),
        )

    async def see_to(self, dead_letters: DeadLetters) -> int:
        """Answer, or tell people of, each dead letter that was not noticed yet; return how many there were."""
        letters = await dead_letters.dead_letters(limit=_AT_ONCE, unnoticed=True)
        for letter in letters:
            await self._notice(letter)
            await dead_letters.mark_noticed(letter.queue_id)
        return len(letters)

    async def _deadlines(self) -> int:
        overdue = await self.conversations.overdue_calls(self.clock.now(), _AT_ONCE)
        for thread_id, call in overdue:
            due = call.deadline_at.isoformat() if call.deadline_at else ""
            await self._send(
                InputMessage(
                    content=Text(""),
                    group_id=thread_id,
                    message_id=ids.message_id("deadline", thread_id, call.id, due),
                    synthetic=CallDeadline(call.id),
                )
            )
        return len(overdue)

    async def _left_behind(self) -> int:
        nudged = 0
        left = await self.conversations.unperformed(self.clock.now() - _LEFT_BEHIND_AFTER, _AT_ONCE)
        for thread_id, version in left.items():
            performed_through = await self.state.performed_through(thread_id)
            if performed_through >= version:
                await self.conversations.forget_effects(thread_id, performed_through)
                continue
            nudged += 1
            await self._send(
                InputMessage(
                    content=Text(""),
                    group_id=thread_id,
                    message_id=ids.message_id("nudge", thread_id, "left", version),
                    synthetic=Nudge(),
                )
            )
        return nudged

    async def _notice(self, letter: DeadLetter) -> None:
        """Give a call whose result is dead an error result; of anything else, tell people."""
        try:
            delivery = decode(letter.body, keyring=self.keyring, queue_id=letter.queue_id, group_id=letter.group_id)
        except Reject as error:
            _log.warning("thread %s: dead letter %s: %s", letter.group_id, letter.queue_id, error)
            delivery = None
        content = delivery.message.content if delivery else None
        if delivery is not None and delivery.proven and isinstance(content, ToolResult):
            await self._send(
                InputMessage(
                    content=ToolResult(
                        id=content.id,
                        call_id=content.call_id,
                        content=(Text("The result came, but it could not be processed and was set aside."),),
                        is_error=True,
                        tool_set=content.tool_set,
                        # The letter may be put back on the queue: the model is still to hear what it says.
                        ambiguous=True,
                    ),
                    group_id=letter.group_id,
                    # By call, not by letter: while the model is out of reach this answer ends among the dead letters
                    # too and is given again, and people are to be told of it once.
                    message_id=ids.message_id("dead", letter.group_id, content.id),
                )
            )
            return
        notice = await set_aside(
            self.conversations,
            letter.group_id,
            letter.reason,
            about=f"dead:{letter.queue_id}",
            metadata=delivery.message.metadata if delivery else None,
        )
        await self.outputs.send(notice)

    async def _send(self, message: InputMessage) -> None:
        await self.inputs.send(
            encode(message, self.keyring),
            group_id=message.group_id,
            dedup_id=message.message_id or ids.digest(message.group_id),
        )
