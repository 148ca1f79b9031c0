"""The responder: what people are told, posted in the threads in Slack where they asked."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, assert_never

from ..conversation.outputs import Output
from ..errors import InfinityError
from ..ports.clock import Clock
from ..ports.slack import SlackLimited, SlackRefused, SlackUnavailable, SlackWeb
from .posts import EVENT_TYPE, Post, authorization, notification, posts_of, settled
from .threads import SlackThread, SlackUser

_log = logging.getLogger(__name__)

_LOOK_BACK = timedelta(days=14)
"""As long as a queue can hold an output: no redelivery comes later."""
_PAGE = 200
_FIRST_DELAY = 5.0
_LONGEST_DELAY = 300.0
_MARGIN = timedelta(seconds=2)

_NOT_SHOWABLE = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long"})
_NO_TOKEN = frozenset(
    {"account_inactive", "invalid_auth", "missing_scope", "not_authed", "token_expired", "token_revoked"}
)
"""Refusals that the operator mends: the posts wait for that."""


@dataclass(frozen=True, slots=True)
class ToShow:
    """An output as a queue handed it over; ``key`` names the delivery, ``attempt`` is 1 the first time."""

    key: str
    output: Output
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class SlackResponder:
    """Posts outputs: those of one conversation in order, and each once, however often it is delivered."""

    web: SlackWeb
    clock: Clock
    _identity: list[str] = field(default_factory=list)

    async def show(self, batch: Sequence[ToShow], *, deadline: datetime) -> Mapping[str, float]:
        """Show the batch before ``deadline``; return which to deliver again, each with the seconds until then."""
        conversations: dict[str, list[ToShow]] = {}
        for item in batch:
            conversations.setdefault(item.output.group_id, []).append(item)
        left = await asyncio.gather(
            *(self._conversation(root_id, items, deadline) for root_id, items in conversations.items())
        )
        return {key: delay for each in left for key, delay in each.items()}

    async def _conversation(self, root_id: str, items: Sequence[ToShow], deadline: datetime) -> Mapping[str, float]:
        thread = SlackThread.of(root_id)
        if thread is None:
            _log.warning("conversation %s is not in Slack: %d outputs are left out", root_id[:140], len(items))
            return {}
        speaker = _Speaker(self.web, self.clock, thread, deadline)
        waiting = _in_order(items)
        try:
            await self._recall(speaker)
            while waiting:
                await self._show(waiting[0].output, speaker)
                del waiting[0]
            await speaker.settle_status()
        except (SlackLimited, SlackUnavailable, SlackRefused) as error:
            # What comes behind it waits too: people read it in order.
            _log.warning("conversation %s: %d outputs wait: %s", root_id, len(waiting), error)
            delay = _delay(error, max((item.attempt for item in waiting), default=1))
            return {item.key: delay for item in waiting}
        except Exception:  # noqa: BLE001 - a conversation's edge
            _log.exception("conversation %s: %d outputs wait", root_id, len(waiting))
            return {item.key: _LONGEST_DELAY for item in waiting}
        return {}

    async def _recall(self, speaker: "_Speaker") -> None:
        """Find out what stands in the thread already."""
        if not self._identity:
            self._identity.append(str((await speaker.call("auth.test")).get("bot_id", "")))
        try:
            await speaker.recall(self._identity[0])
        except SlackRefused as error:
            if error.code in _NO_TOKEN:
                raise
            # Posting will meet the same, and reports it.
            _log.warning("thread %s cannot be read: %s", speaker.thread.id, error)

    async def _show(self, output: Output, speaker: "_Speaker") -> None:
        try:
            await _shown(output, speaker)
        except SlackRefused as error:
            if error.code in _NO_TOKEN:
                raise
            _log.error("output %s cannot be shown in %s: %s", output.output_id, speaker.thread.id, error)


async def _shown(output: Output, speaker: "_Speaker") -> None:
    match output.type:
        case "message" | "error" | "limit_reached" | "user_choice_required":
            for post in posts_of(output):
                await speaker.post(post)
        case "tool_call":
            await speaker.set_status(f"is working: {output.text}"[:100])
        case "oauth_required":
            await _authorize(output, speaker)
        case "user_choice_complete":
            await speaker.settle(str((output.details or {}).get("choice_id")), output)
        case "status":
            pass
        case _:
            assert_never(output.type)


async def _authorize(output: Output, speaker: "_Speaker") -> None:
    """Show the link to the person concerned and to nobody else."""
    details = output.details or {}
    person = SlackUser.of(details.get("user_id") or (output.metadata or {}).get("user_id"))
    if person is None:
        text = output.text.replace(str(details.get("auth_url", "")), "").rstrip(": ")
        await speaker.post(posts_of(Output("error", f"{text}, and it is not known whose.", *_place(output)))[0])
        return
    text, blocks = authorization(output)
    try:
        await speaker.whisper(person.id, text, blocks)
    except SlackRefused as error:
        if error.code in _NO_TOKEN:
            raise
        # Whoever is not in the channel can be reached directly.
        await speaker.call("chat.postMessage", channel=person.id, text=text, blocks=blocks)


def _place(output: Output) -> tuple[str, str, str, tuple[int, int]]:
    return output.group_id, output.thread_id, output.output_id, output.seq


def _in_order(items: Sequence[ToShow]) -> list[ToShow]:
    """Return what each thread says in its order; the queue keeps none."""
    threads: dict[str, list[ToShow]] = {}
    for item in items:
        threads.setdefault(item.output.thread_id, []).append(item)
    return [item for each in threads.values() for item in sorted(each, key=lambda item: item.output.seq)]


def _delay(error: InfinityError, attempt: int) -> float:
    if isinstance(error, SlackLimited):
        return error.retry_after
    return _LONGEST_DELAY if isinstance(error, SlackRefused) else min(_FIRST_DELAY * 3 ** (attempt - 1), _LONGEST_DELAY)


class _Speaker:
    """Speaks in one thread; knows what stands there already, and whether the status is still to be cleared."""

    def __init__(self, web: SlackWeb, clock: Clock, thread: SlackThread, deadline: datetime) -> None:
        self.thread = thread
        self._web = web
        self._clock = clock
        self._deadline = deadline
        self._posted: set[tuple[str, int]] = set()
        self._questions: dict[str, list[Mapping[str, Any]]] = {}
        self._is_status_left = True

    async def call(self, method: str, /, **arguments: Any) -> Mapping[str, Any]:
        """Call Slack; wait as long as it asks for, if there is time for that."""
        while True:
            try:
                return await self._web.call(method, **arguments)
            except SlackLimited as limited:
                if self._clock.now() + timedelta(seconds=limited.retry_after) + _MARGIN > self._deadline:
                    raise
                await self._clock.sleep(limited.retry_after)

    async def recall(self, bot_id: str) -> None:
        """Read the thread's posts that are ours."""
        cursor = ""
        oldest = f"{(self._clock.now() - _LOOK_BACK).timestamp():.6f}"
        while True:
            page = await self.call(
                "conversations.replies",
                channel=self.thread.channel,
                ts=self.thread.ts,
                oldest=oldest,
                limit=_PAGE,
                include_all_metadata=True,
                **({"cursor": cursor} if cursor else {}),
            )
            for message in page.get("messages", ()):
                # Any app may write such metadata, about its own posts.
                if message.get("bot_id") == bot_id:
                    self._remember(message)
            cursor = (page.get("response_metadata") or {}).get("next_cursor") or ""
            if not cursor:
                return

    def _remember(self, message: Mapping[str, Any]) -> None:
        metadata = message.get("metadata") or {}
        told = metadata.get("event_payload") or {}
        if metadata.get("event_type") != EVENT_TYPE or "output_id" not in told:
            return
        self._posted.add((told["output_id"], int(told.get("part", 0))))
        if "choice_id" in told:
            self._questions.setdefault(told["choice_id"], []).append(message)

    async def post(self, post: Post) -> None:
        """Post, unless it stands there already."""
        if post.key in self._posted:
            return
        metadata = {"event_type": EVENT_TYPE, "event_payload": post.metadata}
        place = {"channel": self.thread.channel, "thread_ts": self.thread.ts, "metadata": metadata}
        try:
            answer = await self.call(
                "chat.postMessage", **place, text=post.text, blocks=post.blocks, unfurl_links=False, unfurl_media=False
            )
        except SlackRefused as error:
            if error.code not in _NOT_SHOWABLE:
                raise
            _log.error("output %s is shown in short: %s", post.metadata["output_id"], error)
            text = f"{post.text}\n[Slack does not take the rest of this message: it is in the history]"
            answer = await self.call("chat.postMessage", **place, text=text)
        self._is_status_left = False
        self._remember({"metadata": metadata, "ts": answer.get("ts"), "blocks": post.blocks})

    async def whisper(self, user: str, text: str, blocks: Sequence[Mapping[str, Any]]) -> None:
        """Show something in the thread to one person only."""
        place = {"channel": self.thread.channel, "thread_ts": self.thread.ts}
        await self.call("chat.postEphemeral", **place, user=user, text=text, blocks=blocks)

    async def settle(self, choice_id: str, output: Output) -> None:
        """Replace the buttons of a question that is over; a question that was settled stays as it is."""
        for question in self._questions.get(choice_id, ()):
            if not any(block.get("type") == "actions" for block in question.get("blocks", ())):
                continue
            text, blocks = settled(output)
            await self.call(
                "chat.update",
                channel=self.thread.channel,
                ts=question["ts"],
                text=notification(text),
                blocks=blocks,
                metadata=question["metadata"],
            )

    async def set_status(self, status: str) -> None:
        """Show what the agent is at; a status that cannot be shown is left out."""
        self._is_status_left = False
        try:
            await self.call(
                "assistant.threads.setStatus", channel_id=self.thread.channel, thread_ts=self.thread.ts, status=status
            )
        except InfinityError as error:
            _log.warning("the status of %s was not to be had: %s", self.thread.id, error)

    async def settle_status(self) -> None:
        """Take the status away, unless a post has done so, or the agent is still at work."""
        if self._is_status_left:
            await self.set_status("")
