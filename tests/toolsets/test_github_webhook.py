"""The function that takes GitHub's deliveries: what it answers, and that it reads its secret."""

import base64
import hashlib
import hmac
import json

import pytest

from infinity_agents.aws import github_webhook
from infinity_agents.aws.sandbox import Sandbox
from infinity_agents.testing.aws import Fault
from infinity_agents.testing.aws.lambda_runtime import request_event
from tests.aws_adapters.conftest import aws, clients, deployed, pauses, running_aws

__all__ = ["aws", "clients", "deployed", "pauses", "running_aws"]

SECRET = b"It's a Secret to Everybody"


@pytest.fixture
def deliver(aws, clients, deployed, monkeypatch):
    secret = clients.client("secretsmanager").create_secret(Name=deployed.table, SecretString=SECRET.decode())
    monkeypatch.setenv("GITHUB_TABLE_NAME", deployed.table)
    monkeypatch.setenv("BLOB_BUCKET", deployed.bucket)
    monkeypatch.setenv("GITHUB_WEBHOOK_SECRET_ARN", secret["ARN"])
    monkeypatch.setattr(github_webhook, "sandbox", Sandbox(github_webhook.sandbox._build))

    def delivered(payload, *, kind="push", delivery_id="d-1", rest=True, method="POST", key=SECRET, is_base64=False):
        body = json.dumps(payload, ensure_ascii=False).encode()
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": kind,
            "X-GitHub-Delivery": delivery_id,
            "X-Hub-Signature-256": "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest(),
        }
        text = base64.b64encode(body).decode() if is_base64 else body.decode()
        event = request_event(method, "/github", headers, body) | {"body": text, "isBase64Encoded": is_base64}
        if rest:
            event = {"httpMethod": method, "path": "/github", "headers": headers, "body": text}
            event["isBase64Encoded"] = is_base64
        answer = github_webhook.handler(event, None)
        return answer["statusCode"], json.loads(answer["body"])

    return delivered


PUSH = {"repository": {"full_name": "octocat/Hello-World"}, "ref": "refs/heads/ünder"}


@pytest.mark.parametrize("rest", [True, False])
@pytest.mark.parametrize("is_base64", [True, False])
def test_a_delivery_is_taken(deliver, rest, is_base64):
    assert deliver(PUSH, rest=rest, is_base64=is_base64) == (200, {"ok": True, "done": "told"})
    assert deliver(PUSH, rest=rest, is_base64=is_base64) == (200, {"ok": True, "done": "told before"})


def test_what_is_refused(deliver):
    assert deliver(PUSH, key=b"another")[0] == 401
    assert deliver([])[0] == 400
    assert deliver(PUSH, method="GET")[0] == 405


def test_what_fails_here_may_be_delivered_again(deliver, aws):
    assert deliver(PUSH, key=b"another")[0] == 401  # the sandbox is warm
    aws.faults[:] = [Fault("dynamodb", "Query")] * 3
    assert deliver(PUSH)[0] == 500
    assert deliver(PUSH) == (200, {"ok": True, "done": "told"})
