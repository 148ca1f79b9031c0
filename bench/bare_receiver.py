"""A function by hand that queues what is posted to it: the calls of the receiver, and none of its checks."""

import json
import os
from typing import Any

import boto3

_queue = boto3.client("sqs")
_secrets = boto3.client("secretsmanager")


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:  # noqa: ARG001 - Lambda passes it
    """Put the body on the input queue."""
    _secrets.get_secret_value(SecretId=os.environ["CALLBACK_SECRET_ARN"])
    posted = json.loads(event["body"])
    _queue.send_message(
        QueueUrl=os.environ["INPUT_QUEUE_URL"],
        MessageBody=event["body"],
        MessageGroupId=posted["group_id"],
        MessageDeduplicationId=f"bare-{posted['id']}",
    )
    return {"statusCode": 200, "body": "{}"}
