"""Taking callbacks: what every receiver of them does, whichever way they come in."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .conversation import ids
from .conversation.messages import InputMessage
from .errors import Reject
from .ports.blobs import BlobStore
from .ports.clock import Clock
from .ports.queues import InputSender
from .ports.state import StateStore
from .rap.callbacks import BadCallback, CallbackClaims, ViewUpdate, read_token, receive, token_in
from .wire.keys import Keyring
from .wire.large_values import sendable

MAX_CALLBACK = 8 * 1024 * 1024
"""The largest callback that is taken, in bytes."""

NOT_QUEUED = "the callback could not be put on the queue; post it again"
"""What a server is told with the status 500."""


@dataclass(frozen=True, slots=True)
class CallbackReceiver:
    """Takes callbacks: the token is checked first, then the size, then what they say.

    What it has taken is on the queue, under an id that makes a repeat harmless. It reads no conversation: whether a
    call still wants an answer is the ledger's to say.
    """

    keyring: Keyring
    inputs: InputSender
    state: StateStore
    blobs: BlobStore
    clock: Clock
    inline_bytes: int
    max_bytes: int = MAX_CALLBACK

    def admit(self, method: str, path: str) -> CallbackClaims:
        """Return what the token in ``path`` proves; nothing of the body is needed for that.

        Raises:
            BadCallback: 401 for a token that proves nothing, 405 for what is not posted.
        """
        claims = read_token(self.keyring, token_in(path))
        if claims is None:
            raise BadCallback(401, "the token of the callback_url is missing or wrong")
        if method != "POST":
            raise BadCallback(405, f"callbacks are posted, and this was {method}")
        return claims

    async def take(self, body: bytes, claims: CallbackClaims, trace: Mapping[str, str] | None = None) -> None:
        """Put what ``body`` says on the queue, or a view into the state store; ``trace`` goes with the message.

        Raises:
            BadCallback: it is refused, with the status and the reason.
            StoreUnavailable: it may or may not be there; taking it again is harmless.
        """
        said = receive(body, claims, self.max_bytes)
        if isinstance(said, ViewUpdate):
            await self._show(said)
        else:
            await self._enqueue(replace(said, trace=dict(trace)) if trace else said)

    async def _show(self, view: ViewUpdate) -> None:
        at = self.clock.now().timestamp()
        try:
            await self.state.put_view(view.thread_id, view.view_type, view.content, at)
        except Reject as error:
            raise BadCallback(413, f"no store takes this view: {error}") from error

    async def _enqueue(self, message: InputMessage) -> None:
        body = await sendable(message, keyring=self.keyring, blobs=self.blobs, inline_bytes=self.inline_bytes)
        dedup_id = message.message_id or ids.digest(body, length=32)
        try:
            await self.inputs.send(body, group_id=message.group_id, dedup_id=dedup_id)
        except Reject as error:
            raise BadCallback(413, f"no queue takes this callback: {error}") from error
