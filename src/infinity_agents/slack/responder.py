"""The responder: what people are told, posted in the threads in Slack where they asked."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, assert_never

from ..conversation.outputs import Output
from ..errors import InfinityError
from ..ports.clock import Clock
from ..ports.slack import SlackLimited, SlackRefused, SlackUnavailable, SlackWeb
from .posts import EVENT_TYPE, Post, asked_for, authorization, notification, posts_of, settled, unlinked
from .threads import SlackThread, SlackUser

_log = logging.getLogger(__name__)

_LOOK_BACK = timedelta(days=14)
"""As long as a queue can hold an output: no redelivery comes later."""
_PAGE = 200
_MOST_MOVED = 10
"""How many posts are moved for one that is late: nobody looks for it where so much stands below."""
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
        try:
            await self._look(speaker)
            for item in _in_order(items):
                await self._show(item.output, speaker)
            await self._put_in_order({item.output.output_id for item in items}, speaker)
            await speaker.settle_status()
        except (SlackLimited, SlackUnavailable, SlackRefused) as error:
            # All of them: what comes behind waits too, and what stands there may be out of its place.
            _log.warning("conversation %s: %d outputs wait: %s", root_id, len(items), error)
            delay = _delay(error, max(item.attempt for item in items))
            return {item.key: delay for item in items}
        except Exception:  # noqa: BLE001 - a conversation's edge
            _log.exception("conversation %s: %d outputs wait", root_id, len(items))
            return {item.key: _LONGEST_DELAY for item in items}
        return {}

    async def _look(self, speaker: "_Speaker") -> None:
        """Find out what stands in the thread."""
        if not self._identity:
            self._identity.append(str((await speaker.call("auth.test")).get("bot_id", "")))
        try:
            await speaker.look(self._identity[0])
        except SlackRefused as error:
            if error.code in _NO_TOKEN:
                raise
            # Posting will meet the same, and reports it.
            _log.warning("thread %s cannot be read: %s", speaker.thread.id, error)

    async def _put_in_order(self, output_ids: Collection[str], speaker: "_Speaker") -> None:
        """See to it that nothing which is later stands above these outputs, and nothing twice."""
        is_in_order = False
        while not is_in_order:
            if speaker.has_changed_it:
                # The queue keeps no order: another responder may have posted or moved something meanwhile.
                await self._look(speaker)
            is_in_order = not await speaker.put_in_order(output_ids)

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
        case "tool_call" | "status" if speaker.is_past(output):
            speaker.leave_status()
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
    """Show the link to the person concerned and to nobody else, and in the thread that they are asked.

    What is shown to one person leaves no trace: the post in the thread is marked when the link was shown.
    """
    details = output.details or {}
    concerned = details.get("user_id") or (output.metadata or {}).get("user_id")
    person = SlackUser.of(concerned)
    if person is None:
        text = unlinked(output.text, str(details.get("auth_url", "")))
        await speaker.post(posts_of(Output("error", f"{text}, and it is not known whose.", *_place(output)))[0])
        return
    link = authorization(output)
    if speaker.thread.channel.startswith("D") and concerned == (output.metadata or {}).get("user_id"):
        # Nobody else reads what the two of them say.
        await speaker.post(link)
        return
    asked = await _asked(output, person, speaker)
    if asked is not None and asked.is_shown:
        return
    try:
        await speaker.whisper(person.id, link)
    except SlackRefused as error:
        if error.code in _NO_TOKEN:
            raise
        # Whoever is not in the channel can be reached directly.
        await speaker.call("chat.postMessage", channel=person.id, text=link.text, blocks=link.blocks)
    if asked is not None:
        await speaker.mark_shown(asked)


async def _asked(output: Output, person: SlackUser, speaker: "_Speaker") -> "_Standing | None":
    try:
        return await speaker.post(asked_for(output, person))
    except SlackRefused as error:
        if error.code in _NO_TOKEN:
            raise
        _log.warning("output %s: only %s hears of it: %s", output.output_id, person.id, error)
        return None


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
    """Speaks in one thread; knows what stands there, and whether the status is still to be cleared."""

    def __init__(self, web: SlackWeb, clock: Clock, thread: SlackThread, deadline: datetime) -> None:
        self.thread = thread
        self._web = web
        self._clock = clock
        self._deadline = deadline
        self._standing: list[_Standing] = []
        self._is_status_left = True
        self.has_changed_it = False

    async def call(self, method: str, /, **arguments: Any) -> Mapping[str, Any]:
        """Call Slack; wait as long as it asks for, if there is time for that."""
        while True:
            try:
                return await self._web.call(method, **arguments)
            except SlackLimited as limited:
                if self._clock.now() + timedelta(seconds=limited.retry_after) + _MARGIN > self._deadline:
                    raise
                await self._clock.sleep(limited.retry_after)

    async def look(self, bot_id: str) -> None:
        """Read the thread's posts that are ours."""
        cursor = ""
        oldest = f"{(self._clock.now() - _LOOK_BACK).timestamp():.6f}"
        self._standing = []
        self.has_changed_it = False
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
            # Any app may write such metadata, about its own posts.
            ours = (message for message in page.get("messages", ()) if message.get("bot_id") == bot_id)
            self._standing += filter(None, map(_Standing.of, ours))
            cursor = (page.get("response_metadata") or {}).get("next_cursor") or ""
            if not cursor:
                return

    async def post(self, post: Post) -> "_Standing":
        """Post, unless it stands there already; return what stands there."""
        for standing in self._standing:
            if standing.key == post.key:
                return standing
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
        self.has_changed_it = True
        posted = _Standing.of({"metadata": metadata, "ts": answer.get("ts"), "text": post.text, "blocks": post.blocks})
        assert posted is not None, metadata  # noqa: S101 - the metadata are our own
        self._standing.append(posted)
        return posted

    async def whisper(self, user: str, post: Post) -> None:
        """Show something in the thread to one person only."""
        place = {"channel": self.thread.channel, "thread_ts": self.thread.ts}
        await self.call("chat.postEphemeral", **place, user=user, text=post.text, blocks=post.blocks)

    async def mark_shown(self, standing: "_Standing") -> None:
        """Have the post tell that what belongs to it was shown."""
        message = standing.message
        metadata = message["metadata"]
        shown = {**metadata, "event_payload": {**metadata["event_payload"], "is_shown": True}}
        told = {name: message[name] for name in ("text", "blocks") if message.get(name)}
        self.has_changed_it = True
        await self.call("chat.update", channel=self.thread.channel, ts=message["ts"], **told, metadata=shown)

    async def settle(self, choice_id: str, output: Output) -> None:
        """Replace the buttons of a question that is over; a question that was settled stays as it is."""
        for question in [each.message for each in self._standing if each.choice_id == choice_id]:
            if not any(block.get("type") == "actions" for block in question.get("blocks", ())):
                continue
            text, blocks = settled(output)
            self.has_changed_it = True
            await self.call(
                "chat.update",
                channel=self.thread.channel,
                ts=question["ts"],
                text=notification(text),
                blocks=blocks,
                metadata=question["metadata"],
            )

    async def put_in_order(self, output_ids: Collection[str]) -> bool:
        """Move what stands above these outputs and belongs below, and take away what stands twice.

        Return whether anything was moved or taken away. What is moved is posted below before it is taken away above:
        nothing is lost, whenever this ends.
        """
        last = {each.key: each for each in self._standing}
        late = [each for each in last.values() if each.output_id in output_ids]
        above = [each for each in last.values() if any(each.belongs_below(other) for other in late)]
        # What comes after one that is moved has to move behind it.
        early = [each for each in last.values() if any(each.comes_after(other) or each is other for other in above)]
        if len(early) > _MOST_MOVED:
            _log.warning("thread %s: %d posts are out of order and stay so", self.thread.id, len(early))
            early = []
        gone = [each for each in self._standing if last[each.key] is not each]
        in_order = sorted(early, key=lambda each: (each.thread_id, each.place))
        gone += [each for each in in_order if await self._posted_again(each)]
        for each in gone:
            await self._take_away(each)
        return self.has_changed_it

    async def _posted_again(self, standing: "_Standing") -> bool:
        message = standing.message
        place = {"channel": self.thread.channel, "thread_ts": self.thread.ts}
        told = {name: message[name] for name in ("metadata", "text", "blocks") if message.get(name)}
        try:
            await self.call("chat.postMessage", **place, **told, unfurl_links=False, unfurl_media=False)
        except SlackRefused as error:
            if error.code in _NO_TOKEN:
                raise
            _log.warning("output %s stays out of order: %s", standing.output_id, error)
            return False
        self.has_changed_it = True
        return True

    async def _take_away(self, standing: "_Standing") -> None:
        try:
            await self.call("chat.delete", channel=self.thread.channel, ts=standing.message["ts"])
            self.has_changed_it = True
        except SlackRefused as error:
            if error.code in _NO_TOKEN:
                raise
            # Another responder was faster, or Slack keeps what was said.
            _log.warning("a post of output %s was not taken away: %s", standing.output_id, error)

    def is_past(self, output: Output) -> bool:
        """Tell whether something later of the same thread stands already."""
        return any(each.thread_id == output.thread_id and each.place[:2] > output.seq for each in self._standing)

    def leave_status(self) -> None:
        """Leave the status as it is: a later output has seen to it."""
        self._is_status_left = False

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


@dataclass(frozen=True, slots=True)
class _Standing:
    """A post of ours that stands in Slack. ``thread_id`` is ``None`` where it stands wherever it came."""

    message: Mapping[str, Any]
    output_id: str
    part: int
    thread_id: str | None
    place: tuple[int, ...]
    choice_id: str | None
    is_shown: bool

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> "_Standing | None":
        metadata = message.get("metadata") or {}
        told = metadata.get("event_payload") or {}
        if metadata.get("event_type") != EVENT_TYPE or "output_id" not in told:
            return None
        part, seq = int(told.get("part", 0)), str(told.get("seq", "0.0"))
        place = (*map(int, seq.split(".")), part)
        return cls(
            message,
            told["output_id"],
            part,
            told.get("thread_id"),
            place,
            told.get("choice_id"),
            bool(told.get("is_shown")),
        )

    @property
    def key(self) -> tuple[str, int]:
        return self.output_id, self.part

    def comes_after(self, other: "_Standing") -> bool:
        """Tell whether it is later than ``other`` of the same thread, wherever they stand."""
        return self.thread_id is not None and self.thread_id == other.thread_id and self.place > other.place

    def belongs_below(self, other: "_Standing") -> bool:
        """Tell whether it stands above ``other`` and comes after it."""
        return self.comes_after(other) and float(self.message["ts"]) < float(other.message["ts"])
