"""The receiver: what people say and click in Slack, put on the input queue."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from ..conversation import ids
from ..conversation.content import Text
from ..conversation.messages import Control, InputMessage, Parts, UserChoiceResponse, UserContent
from ..errors import InfinityError
from ..ports.blobs import BlobStore
from ..ports.clock import Clock
from ..ports.queues import InputSender
from ..ports.slack import SlackWeb
from ..ports.state import StateStore
from ..settings.slack import SlackAccess
from ..wire.inputs import parse_json
from ..wire.large_values import sendable
from . import signing
from .events import Clicked, Opened, Said, read_click, read_event
from .files import SlackFiles
from .names import SlackNames
from .threads import SlackThread, metadata_of

_log = logging.getLogger(__name__)

THINKING = "is thinking..."
STALE = "This question is no longer open."
NOT_ADMITTED = "I may not talk with you here. Ask whoever runs me to add `{user}`, `{channel}` or `{team}`."
_PROMPTS = [{"title": "What can you do?", "message": "What can you do for me?"}]
_COURTESY_SECONDS = 1.0
"""As long as Slack may take for what only pleases: it wants its own answer within three seconds."""
_VIEW = "slack"
"""The view of a root thread that tells that the agent takes part in the thread in Slack."""

_MENTION = re.compile(r"<@([A-Z0-9]+)>")
_SPEAKER = re.compile(r"([\n\r\v\f\x85\u2028\u2029]\s*)(?=<@[^>]*>\s*:)")
"""What looks like the next speaker, behind a line break."""

Later = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Has an event's payload taken again after Slack was answered."""


@dataclass(frozen=True, slots=True)
class SlackReceiver:
    """Takes events and clicks that are proven to be Slack's.

    What it has taken is on the queue, under an id that makes a repeat harmless. Until then nothing is remembered of
    it, so that Slack's next try is not dropped.
    """

    inputs: InputSender
    state: StateStore
    blobs: BlobStore
    web: SlackWeb
    files: SlackFiles
    access: SlackAccess
    clock: Clock
    inline_bytes: int
    names: SlackNames = field(default_factory=SlackNames)

    async def take_event(self, payload: Mapping[str, Any], *, later: Later | None = None) -> None:
        """Take what an event tells of; what is not for the agent is ignored. Files are fetched ``later``, if given.

        Raises:
            StoreUnavailable: it may or may not be on the queue; taking it again is harmless.
        """
        if payload.get("type") == "app_rate_limited":
            _log.error("Slack delivers no events for a minute, because there were too many; they are lost")
        match read_event(payload):
            case Said() as said:
                await self._take(said, payload, later)
            case Opened(thread=thread, user=user):
                if self.access.admits(user=user.id, channel=thread.channel, team=user.team):
                    await self._please(
                        "assistant.threads.setSuggestedPrompts",
                        channel_id=thread.channel,
                        thread_ts=thread.ts,
                        prompts=_PROMPTS,
                    )
            case None:
                pass

    async def take_interaction(self, payload: Mapping[str, Any]) -> None:
        """Take the answer to a choice; any other interaction is ignored.

        Raises:
            StoreUnavailable: as for ``take_event``.
        """
        click = read_click(payload)
        if click is None:
            return
        user, thread = click.user, click.thread
        if not self.access.admits(user=user.id, channel=thread.channel, team=user.team):
            await self._tell(thread, user.id, _not_admitted(user.id, thread.channel, user.team))
        elif click.asked is not None and click.asked != user.id:
            await self._tell(thread, user.id, f"This question is for <@{click.asked}>.")
        elif click.choice_id not in await self.state.copies(click.thread_id, "choice"):
            await self._tell(thread, user.id, STALE)
        else:
            await self._answer(click)

    async def _take(self, said: Said, payload: Mapping[str, Any], later: Later | None) -> None:
        user, thread = said.user, said.thread
        if not said.is_addressed and _VIEW not in await self.state.views(thread.id):
            return
        if not self.access.admits(user=user.id, channel=thread.channel, team=user.team):
            # A mention comes as a message as well: it is answered once.
            if said.is_direct or payload["event"]["type"] == "app_mention":
                await self._tell(thread, user.id, _not_admitted(user.id, thread.channel, user.team), at=said.ts)
            return
        if said.files and later is not None:
            await later(payload)
            return
        if said.is_addressed and not said.is_direct:
            at = self.clock.now().timestamp()
            await self.state.put_view(thread.id, _VIEW, {"channel": thread.channel, "thread_ts": thread.ts}, at)
        # Both at once: Slack waits for its answer meanwhile.
        content, _ = await asyncio.gather(self._content(said), self._show_status(thread))
        await self._send(said, content)

    async def _content(self, said: Said) -> UserContent | Control:
        if not said.files and said.text.lower() == "stop":
            return Control("stop")
        people = [said.user.id, *_MENTION.findall(said.text)]
        names = await self.names.of(people, self.web, seconds=_COURTESY_SECONDS)
        # Nobody but Slack says who speaks.
        told = _SPEAKER.sub(r"\1> ", said.text) or ("" if said.files else "(a mention without a text)")
        text = Text(_named(f"<@{said.user.id}>: {told}".rstrip(), names))
        return Parts((text, *await self.files.parts(said.files))) if said.files else text

    async def _send(self, said: Said, content: UserContent | Control) -> None:
        message = InputMessage(
            content=content,
            group_id=said.thread.id,
            message_id=said.message_id,
            metadata=metadata_of(said.thread, said.user),
        )
        await self._enqueue(message, said.message_id)

    async def _answer(self, click: Clicked) -> None:
        # Whoever clicks first has answered: the id is the question's.
        message_id = ids.message_id(
            "slack-choice", click.thread_id, click.thread.channel, click.message_ts, click.choice_id
        )
        answer = UserChoiceResponse(click.choice_id, click.selected, click.user.user_id)
        await self._enqueue(InputMessage(answer, click.thread_id, message_id), message_id)
        await self._show_status(click.thread)

    async def _enqueue(self, message: InputMessage, dedup_id: str) -> None:
        body = await sendable(message, keyring=None, blobs=self.blobs, inline_bytes=self.inline_bytes)
        await self.inputs.send(body, group_id=message.group_id, dedup_id=dedup_id)

    async def _show_status(self, thread: SlackThread) -> None:
        await self._please(
            "assistant.threads.setStatus", channel_id=thread.channel, thread_ts=thread.ts, status=THINKING
        )

    async def _tell(self, thread: SlackThread, user: str, text: str, *, at: str | None = None) -> None:
        """Tell ``user`` alone, about the message ``at`` where that is what called for it."""
        # In a thread that has no reply yet, nobody would see it.
        place = {} if at == thread.ts else {"thread_ts": thread.ts}
        await self._please("chat.postEphemeral", channel=thread.channel, user=user, text=text, **place)

    async def _please(self, method: str, **arguments: Any) -> None:
        """Call what only pleases: it failing, or taking long, changes nothing."""
        try:
            async with asyncio.timeout(_COURTESY_SECONDS):
                await self.web.call(method, **arguments)
        except (InfinityError, TimeoutError) as error:
            _log.warning("%s was not to be had: %s", method, str(error) or type(error).__name__)


def _named(text: str, names: Mapping[str, str]) -> str:
    """Return ``text`` with the name of each person whom it mentions, where it is known."""
    return _MENTION.sub(lambda told: f"<@{told[1]}|{names[told[1]]}>" if told[1] in names else told[0], text)


def _not_admitted(user: str, channel: str, team: str) -> str:
    return NOT_ADMITTED.format(user=user, channel=channel, team=team)


@dataclass(frozen=True, slots=True)
class SlackAnswer:
    """What Slack is answered."""

    status: int
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SlackRequests:
    """Answers the requests of the Events API and of interactivity: the signature comes first, always."""

    receiver: SlackReceiver
    signing_secret: str
    later: Later | None = None

    def __post_init__(self) -> None:
        signing.checked_secret(self.signing_secret)

    async def answer(self, headers: Mapping[str, str], body: bytes) -> SlackAnswer:
        """Return the answer to a request; 500 has Slack try again."""
        now = self.receiver.clock.now().timestamp()
        if not signing.is_signed(self.signing_secret, headers, body, now=now):
            return SlackAnswer(401, {"error": "the signature is missing, wrong or older than 5 minutes"})
        try:
            is_form, payload = _read(headers, body)
        except (ValueError, RecursionError) as error:
            return SlackAnswer(400, {"error": f"the body cannot be read: {error}"[:200]})
        if payload.get("type") == "url_verification":
            return SlackAnswer(200, {"challenge": payload.get("challenge")})
        try:
            if is_form:
                await self.receiver.take_interaction(payload)
            else:
                await self.receiver.take_event(payload, later=self.later)
        except Exception:  # noqa: BLE001 - whatever is wrong here, Slack tries again
            _log.exception("a request of Slack could not be taken")
            return SlackAnswer(500, {"error": "it could not be put on the queue; send it again"})
        return SlackAnswer(200)


def _read(headers: Mapping[str, str], body: bytes) -> tuple[bool, Mapping[str, Any]]:
    kind = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
    text, is_form = body.decode(), kind.startswith("application/x-www-form-urlencoded")
    if is_form:
        text = parse_qs(text, max_num_fields=20).get("payload", ["{}"])[0]
    payload = parse_json(text)
    if not isinstance(payload, dict):
        raise ValueError(f"a JSON object was expected, and this is {type(payload).__name__}")
    return is_form, payload
