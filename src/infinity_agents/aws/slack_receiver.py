"""The receiver of Slack: events and clicks that come through API Gateway, put on the input queue."""

from collections.abc import Mapping
from typing import Any

from ..slack.receiver import SlackRequests
from . import wiring
from .http_events import BadBody, answer, request_of
from .sandbox import Sandbox

sandbox = Sandbox(wiring.slack_receiver)


def handler(event: object, context: object) -> dict[str, Any]:
    """Return the answer to a request of API Gateway, whichever its payload format; or take what was put off.

    Raises:
        NoRequest: the event is neither.
        Misconfigured: the environment, or what it names, cannot be used.
        StoreUnavailable: what it names could not be read when the sandbox began; or a message that was put off could
            not be put on the queue, and Lambda tries again.
    """
    return sandbox.run(lambda requests: _handled(requests, event))


async def _handled(requests: SlackRequests, event: object) -> dict[str, Any]:
    if isinstance(event, Mapping) and wiring.SLACK_LATER in event:
        await requests.receiver.take_event(event[wiring.SLACK_LATER])
        return {}
    request = request_of(event)
    try:
        answered = await requests.answer(request.headers, request.body)
    except BadBody as error:
        return answer(400, {"error": str(error)})
    return answer(answered.status, answered.body)
