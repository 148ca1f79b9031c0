"""The receiver: what tool servers post to the function's URL, put on the input queue. It needs no database."""

import base64
import json
import logging
from collections.abc import Mapping
from typing import Any

from ..rap.callbacks import BadCallback
from ..receiving import NOT_QUEUED, CallbackReceiver
from ..wire.traces import trace_of
from . import wiring
from .sandbox import Sandbox

_log = logging.getLogger(__name__)

sandbox = Sandbox(wiring.receiver)


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Return the answer to a request of the function's URL (payload format 2.0).

    Raises:
        Misconfigured: the environment, or what it names, cannot be used.
        StoreUnavailable: what it names could not be read when the sandbox began.
    """
    return sandbox.run(lambda receiver: _answered(receiver, event))


async def _answered(receiver: CallbackReceiver, event: Mapping[str, Any]) -> dict[str, Any]:
    try:
        await wiring.fresh(receiver.keyring)
        claims = receiver.admit(event["requestContext"]["http"]["method"], event["rawPath"])
        await receiver.take(_body_of(event), claims, trace_of(event.get("headers")))
    except BadCallback as error:
        return _answer(error.status, {"error": error.text})
    except Exception:  # noqa: BLE001 - whatever is wrong here, the server may try again
        _log.exception("a callback could not be put on the queue")
        return _answer(500, {"error": NOT_QUEUED})
    return _answer(200, {"ok": True})


def _body_of(event: Mapping[str, Any]) -> bytes:
    body: str = event.get("body") or ""
    return base64.b64decode(body) if event.get("isBase64Encoded") else body.encode()


def _answer(status: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"statusCode": status, "headers": {"content-type": "application/json"}, "body": json.dumps(fields)}
