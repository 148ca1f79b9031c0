"""The destination for failures of tool servers' functions: a call whose function died is answered with an error."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..adapters.s3 import S3BlobStore
from ..aws_clients import AwsClients
from ..ports.blobs import BlobStore
from ..rap.posting import CallbackSender, Undelivered
from ..rap.results import failed
from ..settings.tool_servers import ToolFailuresEnvironment
from ..wire.traces import following
from .http_events import NoRequest, seen
from .sandbox import Sandbox
from .tool_servers import handed, signed

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Ports:
    sender: CallbackSender
    payloads: BlobStore | None


async def _ports() -> _Ports:
    environment, clients = ToolFailuresEnvironment.read(os.environ), AwsClients()
    bucket = environment.payload_bucket
    return _Ports(CallbackSender(sign=signed(clients)), S3BlobStore(clients, bucket) if bucket else None)


sandbox = Sandbox(_ports)


def handler(event: object, context: object) -> None:
    """Answer the call of which ``event``, the record of a failed asynchronous invocation, tells.

    Raises:
        NoRequest: the event is none, or what failed was no call.
        Misconfigured: the environment, or what it names, cannot be used.
        StoreUnavailable: the call could not be read; the platform tries again.
        Undelivered: the runtime did not take the answer; as above.
    """
    sandbox.run(lambda ports: _answer(ports, event))


async def _answer(ports: _Ports, event: object) -> None:
    if not isinstance(event, Mapping) or "requestPayload" not in event:
        raise NoRequest(
            f"this function is told of failed invocations, and this event {seen(event)}; make it the on-failure "
            "destination of a tool server's function"
        )
    call = await handed(event["requestPayload"], ports.payloads)
    invocation = call.invocation
    text = f"{invocation.operation} {_reason(event)}. It may be done in part; look before you call it again."
    _log.error("call %s in thread %s: %s", invocation.id, invocation.group_id, text)
    try:
        with following(call.trace):
            await ports.sender.post(invocation.callback_url, failed(invocation, text))
    except Undelivered as error:
        if error.status is None or error.status >= 500 or error.status == 429:
            raise
        _log.error("the answer to call %s is lost: %s", invocation.id, error)


def _reason(event: Mapping[str, Any]) -> str:
    context = event.get("requestContext") or {}
    if context.get("condition") == "EventAgeExceeded":
        return "waited too long for a place to run"
    told = event.get("responsePayload") or {}
    message = str(told.get("errorMessage") or told.get("errorType") or "no reason was given")
    return f"failed in its function: {message[:500]}"
