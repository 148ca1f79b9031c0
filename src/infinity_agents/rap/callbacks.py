"""What tool servers post back: the token that lets them, and the message that it becomes."""

import base64
import binascii
import json
import uuid
from dataclasses import dataclass
from typing import Any, assert_never

from ..conversation.content import Text
from ..conversation.ids import digest, message_id
from ..conversation.messages import (
    InputMessage,
    OauthRequired,
    SubscriptionEvent,
    ToolResult,
    UserChoiceRequired,
)
from ..errors import InfinityError, Undecodable
from ..wire.callbacks import (
    Callback,
    ChoiceCallback,
    EventCallback,
    OauthCallback,
    ResultCallback,
    ViewCallback,
    parse_callback,
)
from ..wire.keys import Keyring

_PURPOSE = "callback"


@dataclass(frozen=True, slots=True)
class CallbackClaims:
    """What a token proves: its bearer is ``tool_set``, and may speak about one call of one thread."""

    thread_id: str
    call_id: str
    tool_set: str


@dataclass(frozen=True, slots=True)
class ViewUpdate:
    """The newest view of its type; ``content`` is any JSON value."""

    thread_id: str
    view_type: str
    content: Any


class BadCallback(InfinityError):
    """The callback is refused: ``status`` is the HTTP status, ``text`` tells the tool's author why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def callback_url(base_url: str, keyring: Keyring, thread_id: str, call_id: str, tool_set: str) -> str:
    """Return the URL for callbacks about one call. It is a secret: whoever has it may answer the call."""
    claims = json.dumps([thread_id, call_id, tool_set], separators=(",", ":")).encode()
    payload = base64.urlsafe_b64encode(claims).rstrip(b"=")
    # Dots, because a colon is percent-encoded by some clients on the way.
    proof = keyring.sign(_PURPOSE, payload).replace(":", ".")
    return f"{base_url.rstrip('/')}/{payload.decode()}.{proof}"


def token_in(path: str) -> str:
    """Return the token in the path (or URL) of a callback: its last segment."""
    return path.partition("?")[0].rpartition("/")[2]


def read_token(keyring: Keyring, token: str) -> CallbackClaims | None:
    """Return what the token proves, or ``None`` where it proves nothing."""
    payload, _, proof = token.partition(".")
    if not token.isascii() or not keyring.proves(_PURPOSE, payload.encode(), proof.replace(".", ":", 1)):
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        thread_id, call_id, tool_set = claims
    except (binascii.Error, ValueError):
        return None
    return CallbackClaims(thread_id, call_id, tool_set)


def receive(body: bytes, claims: CallbackClaims, max_bytes: int) -> InputMessage | ViewUpdate:
    """Return what the body of a callback says, once its token has proved ``claims``.

    The same callback always becomes a message of the same ``message_id``; an event without ``event_id`` is new each
    time.

    Raises:
        BadCallback: 413 over ``max_bytes``; 400 for what is not a callback; 403 for one about another call.
    """
    if len(body) > max_bytes:
        raise BadCallback(413, f"the callback has {len(body)} bytes, and {max_bytes} are allowed; send less")
    try:
        callback = parse_callback(body)
    except Undecodable as error:
        raise BadCallback(400, str(error)) from error
    _check(callback, claims)
    return _message(callback, claims)


def _check(callback: Callback, claims: CallbackClaims) -> None:
    if callback.group_id != claims.thread_id:
        raise BadCallback(403, "group_id is not the thread that this callback_url was made for")
    if isinstance(callback, ViewCallback):
        return
    name, about = (
        ("tool_call_id", callback.tool_call_id) if isinstance(callback, EventCallback) else ("id", callback.id)
    )
    if about != claims.call_id:
        raise BadCallback(403, f"{name} is not the call that this callback_url was made for")


def _message(callback: Callback, claims: CallbackClaims) -> InputMessage | ViewUpdate:
    thread, call, tool_set = claims.thread_id, claims.call_id, claims.tool_set
    match callback:
        case ResultCallback():
            return InputMessage(
                content=ToolResult(call, callback.parts, callback.call_id, callback.is_error, tool_set),
                group_id=thread,
                message_id=message_id("rap-result", thread, call),
                display_as=callback.display_as,
                subscription=callback.subscription,
            )
        case EventCallback():
            return InputMessage(
                content=Text(callback.text),
                group_id=thread,
                message_id=message_id("rap-event", thread, call, callback.event_id or uuid.uuid4().hex),
                synthetic=SubscriptionEvent(call, callback.associative, callback.final, tool_set),
            )
        case OauthCallback():
            return InputMessage(
                content=OauthRequired(call, callback.auth_url, callback.call_id, tool_set),
                group_id=thread,
                message_id=message_id("rap-oauth", thread, call, callback.auth_url),
            )
        case ChoiceCallback():
            return InputMessage(
                content=UserChoiceRequired(
                    id=call,
                    prompt=callback.prompt,
                    choices=callback.choices,
                    default=callback.default,
                    response_url=callback.response_url,
                    call_id=callback.call_id,
                    tool_set=tool_set,
                ),
                group_id=thread,
                # The model's own id of the call is no part of the question.
                message_id=message_id(
                    "rap-choice", thread, call, digest(callback.model_dump_json(exclude={"call_id"}), length=32)
                ),
            )
        case ViewCallback():
            return ViewUpdate(thread, callback.view_type, callback.content)
        case _:
            assert_never(callback)
