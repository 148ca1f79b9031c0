"""The callback server: what tool servers post back, put on the input queue."""

import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ..errors import Misconfigured
from ..rap import asgi
from ..rap.asgi import Receive, Scope, Send
from ..rap.callbacks import BadCallback
from ..receiving import NOT_QUEUED, CallbackReceiver

HOST = "127.0.0.1"
PATH = "/callback"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CallbackApplication:
    """An ASGI application that takes callbacks with ``receiver``; no body is read before its token is checked."""

    receiver: CallbackReceiver

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
            await asgi.refuse(send, asgi.Refused(500, NOT_QUEUED))
        else:
            await asgi.answer(send, {"ok": True})

    async def _take(self, scope: Scope, receive: Receive) -> None:
        if not scope["path"].startswith(f"{PATH}/"):
            raise BadCallback(404, f"there is nothing at this path; callbacks go to {PATH}/ and the token")
        claims = self.receiver.admit(scope["method"], scope["path"])
        body = await asgi.body_of(receive, self.receiver.max_bytes)
        await self.receiver.take(body, claims, asgi.trace_in(scope))


@contextlib.asynccontextmanager
async def serving(receiver: CallbackReceiver, port: int) -> AsyncIterator[None]:
    """Take callbacks on loopback while the context is open.

    Raises:
        Misconfigured: uvicorn is not installed, or another program listens on the port.
    """
    try:
        async with asgi.serving(CallbackApplication(receiver), HOST, port):
            yield
    except OSError as error:
        raise Misconfigured(
            f"the callback port {port}, which tool servers know from calls made before, cannot be had "
            f"({error.strerror}); stop the program that listens on it"
        ) from error
