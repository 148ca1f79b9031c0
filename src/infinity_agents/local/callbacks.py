"""The callback server: what tool servers post back, put on the input queue."""

import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ..conversation import ids
from ..conversation.messages import InputMessage
from ..errors import Misconfigured, Reject
from ..ports.blobs import BlobStore
from ..ports.clock import Clock
from ..ports.queues import InputSender
from ..ports.state import StateStore
from ..rap import asgi
from ..rap.asgi import Receive, Scope, Send
from ..rap.callbacks import BadCallback, ViewUpdate, read_token, receive, token_in
from ..runtime.large_values import sendable
from ..wire.keys import Keyring

HOST = "127.0.0.1"
PATH = "/callback"
MAX_CALLBACK = 8 * 1024 * 1024
"""The largest callback that is taken, in bytes."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CallbackReceiver:
    """An ASGI application that takes callbacks: the token is checked first, then the size, then what they say.

    What it has answered with 200 is on the queue, under an id that makes a repeat harmless. It reads no conversation:
    whether a call still wants an answer is the ledger's to say.
    """

    keyring: Keyring
    inputs: InputSender
    state: StateStore
    blobs: BlobStore
    clock: Clock
    inline_bytes: int
    max_bytes: int = MAX_CALLBACK

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] != "http":
            return
        try:
            await self._take(scope, receive)
        except BadCallback as error:
            await asgi.refuse(send, asgi.Refused(error.status, error.text))
        except asgi.Refused as refusal:
            await asgi.refuse(send, refusal)
        except Exception:  # noqa: BLE001 - whatever is wrong here, the server may try again
            _log.exception("a callback could not be put on the queue")
            await asgi.refuse(send, asgi.Refused(500, "the callback could not be put on the queue; post it again"))
        else:
            await asgi.answer(send, {"ok": True})

    async def _take(self, scope: Scope, receive_body: Receive) -> None:
        if not scope["path"].startswith(f"{PATH}/"):
            raise BadCallback(404, f"there is nothing at this path; callbacks go to {PATH}/ and the token")
        claims = read_token(self.keyring, token_in(scope["path"]))
        if claims is None:
            raise BadCallback(401, "the token of the callback_url is missing or wrong")
        if scope["method"] != "POST":
            raise BadCallback(405, f"callbacks are posted, and this was {scope['method']}")
        said = receive(await asgi.body_of(receive_body, self.max_bytes), claims, self.max_bytes)
        if isinstance(said, ViewUpdate):
            await self.state.put_view(said.thread_id, said.view_type, said.content, self.clock.now().timestamp())
        else:
            await self._enqueue(said)

    async def _enqueue(self, message: InputMessage) -> None:
        body = await sendable(message, keyring=self.keyring, blobs=self.blobs, inline_bytes=self.inline_bytes)
        dedup_id = message.message_id or ids.digest(body, length=32)
        try:
            await self.inputs.send(body, group_id=message.group_id, dedup_id=dedup_id)
        except Reject as error:
            raise BadCallback(413, f"no queue takes this callback: {error}") from error


@contextlib.asynccontextmanager
async def serving(receiver: CallbackReceiver, port: int) -> AsyncIterator[None]:
    """Take callbacks on loopback while the context is open.

    Raises:
        Misconfigured: uvicorn is not installed, or another program listens on the port.
    """
    try:
        async with asgi.serving(receiver, HOST, port):
            yield
    except OSError as error:
        raise Misconfigured(
            f"the callback port {port}, which tool servers know from calls made before, cannot be had "
            f"({error.strerror}); stop the program that listens on it"
        ) from error
