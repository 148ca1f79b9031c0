"""A function by hand that answers one message: the calls of the leader, and none of its promises."""

import json
import os
from typing import Any

import botocore.session
import psycopg

_session = botocore.session.get_session()
_clients = {name: _session.create_client(name) for name in ("secretsmanager", "sqs", "dynamodb")}


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:  # noqa: ARG001 - Lambda passes it
    """Answer each message with its own text, and keep both."""
    secrets, queue, table = _clients["secretsmanager"], _clients["sqs"], _clients["dynamodb"]
    secrets.get_secret_value(SecretId=os.environ["CALLBACK_SECRET_ARN"])
    url = os.environ["INPUT_QUEUE_URL"]
    receipts = (record["receiptHandle"] for record in event["Records"])
    entries = [{"Id": str(number), "ReceiptHandle": receipt} for number, receipt in enumerate(receipts)]
    held = [{**entry, "VisibilityTimeout": 60} for entry in entries]
    queue.change_message_visibility_batch(QueueUrl=url, Entries=held)
    for record in event["Records"]:
        said = json.loads(record["body"])
        key = {"pk": {"S": f"bare-{said['group_id']}"}, "sk": {"S": "state"}}
        table.get_item(TableName=os.environ["DYNAMODB_TABLE_NAME"], Key=key, ConsistentRead=True)
        with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
            connection.execute("SELECT body FROM bare WHERE thread = %s ORDER BY place", [said["group_id"]]).fetchall()
            with connection.cursor() as cursor:
                rows = [(said["group_id"], place, record["body"]) for place in range(2)]
                cursor.executemany("INSERT INTO bare VALUES (%s, %s, %s)", rows)
        answer = json.dumps({"type": "message", "text": said["content"]["text"]})
        queue.send_message(QueueUrl=os.environ["OUTPUT_QUEUE_URL"], MessageBody=answer)
        table.put_item(TableName=os.environ["DYNAMODB_TABLE_NAME"], Item={**key, "performed": {"N": "1"}})
    queue.delete_message_batch(QueueUrl=url, Entries=entries)
    return {"batchItemFailures": []}
