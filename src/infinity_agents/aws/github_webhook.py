"""The receiver of GitHub's deliveries, behind API Gateway: a REST API, or payload format 2.0."""

import logging
import os
from typing import Any

from ..adapters.dynamo_records import DynamoRecords
from ..adapters.s3 import S3BlobStore
from ..adapters.system import SystemClock
from ..aws_clients import AwsClients
from ..errors import Misconfigured
from ..rap.posting import CallbackSender
from ..settings.tool_servers import GitHubWebhookEnvironment
from ..toolsets.github_events import BadDelivery, Webhook
from .http_events import BadBody, answer, request_of
from .sandbox import Sandbox
from .tool_servers import signed

_log = logging.getLogger(__name__)


async def _webhook() -> Webhook:
    environment, clients = GitHubWebhookEnvironment.read(os.environ), AwsClients()
    secret = environment.github_webhook_secret
    if environment.github_webhook_secret_arn is not None:
        arn = environment.github_webhook_secret_arn
        answer = await clients.call("secretsmanager", "get_secret_value", SecretId=arn)
        secret = answer.get("SecretString")
    if not secret:
        raise Misconfigured("the webhook's secret is empty, or no text; store the one that GitHub was given")
    return Webhook(
        secret.encode(),
        DynamoRecords(clients, environment.github_table_name, SystemClock()),
        S3BlobStore(clients, environment.blob_bucket),
        CallbackSender(sign=signed(clients)),
        environment.github_agent_login,
    )


sandbox = Sandbox(_webhook)


def handler(event: object, context: object) -> dict[str, Any]:
    """Return the answer to a delivery; one that failed here is answered 500, and GitHub's list offers it again.

    Raises:
        NoRequest: the event is no request.
        Misconfigured: the environment, or what it names, cannot be used.
        StoreUnavailable: the secret could not be read when the sandbox began.
    """
    return sandbox.run(lambda webhook: _answered(webhook, event))


async def _answered(webhook: Webhook, event: object) -> dict[str, Any]:
    request = request_of(event)
    if request.method != "POST":
        return answer(405, {"error": f"deliveries are posted, and this was {request.method}"})
    try:
        done = await webhook.take(request.headers, request.body)
    except BadBody as error:
        return answer(400, {"error": str(error)})
    except BadDelivery as error:
        return answer(error.status, {"error": str(error)})
    except Exception:  # noqa: BLE001 - whatever is wrong here, GitHub may deliver again
        _log.exception("delivery %s was not told", request.headers.get("x-github-delivery"))
        return answer(500, {"error": "the delivery could not be told; deliver it again"})
    return answer(200, {"ok": True, "done": done})
