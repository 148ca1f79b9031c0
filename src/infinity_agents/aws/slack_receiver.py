"""The receiver of Slack: events and clicks that come through API Gateway, put on the input queue."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from ..slack.receiver import SlackRequests
from . import wiring
from .sandbox import Sandbox

sandbox = Sandbox(wiring.slack_receiver)


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Return the answer to a request of API Gateway, whichever its payload format; or take what was put off.

    Raises:
        Misconfigured: the environment, or what it names, cannot be used.
        StoreUnavailable: what it names could not be read when the sandbox began; or a message that was put off could
            not be put on the queue, and Lambda tries again.
    """
    return sandbox.run(lambda requests: _handled(requests, event))


async def _handled(requests: SlackRequests, event: Mapping[str, Any]) -> dict[str, Any]:
    if wiring.SLACK_LATER in event:
        await requests.receiver.take_event(event[wiring.SLACK_LATER])
        return {}
    answer = await requests.answer(event.get("headers") or {}, _body_of(event))
    return {
        "statusCode": answer.status,
        "headers": {"content-type": "application/json"},
        "body": "" if answer.body is None else json.dumps(answer.body),
    }


def _body_of(event: Mapping[str, Any]) -> bytes:
    body: str = event.get("body") or ""
    return base64.b64decode(body) if event.get("isBase64Encoded") else body.encode("utf-8", "surrogatepass")
