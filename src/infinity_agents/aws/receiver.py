"""The receiver: what tool servers post to the function's URL, put on the input queue. It needs no database."""

import logging
from typing import Any

from ..rap.callbacks import BadCallback
from ..receiving import NOT_QUEUED, CallbackReceiver
from ..wire.traces import trace_of
from . import wiring
from .http_events import BadBody, answer, request_of
from .sandbox import Sandbox

_log = logging.getLogger(__name__)

sandbox = Sandbox(wiring.receiver)


def handler(event: object, context: object) -> dict[str, Any]:
    """Return the answer to a request of the function's URL.

    Raises:
        NoRequest: the event is none.
        Misconfigured: the environment, or what it names, cannot be used.
        StoreUnavailable: what it names could not be read when the sandbox began.
    """
    return sandbox.run(lambda receiver: _answered(receiver, event))


async def _answered(receiver: CallbackReceiver, event: object) -> dict[str, Any]:
    request = request_of(event)
    try:
        await wiring.fresh(receiver.keyring)
        claims = receiver.admit(request.method, request.path)
        await receiver.take(request.body, claims, trace_of(request.headers))
    except BadCallback as error:
        return answer(error.status, {"error": error.text})
    except BadBody as error:
        return answer(400, {"error": str(error)})
    except Exception:  # noqa: BLE001 - whatever is wrong here, the server may try again
        _log.exception("a callback could not be put on the queue")
        return answer(500, {"error": NOT_QUEUED})
    return answer(200, {"ok": True})
