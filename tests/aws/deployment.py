"""An agent deployed on stand-ins, and what feeds its functions: a poller for each queue."""

import json
import time
from dataclasses import dataclass
from typing import Any

import psycopg

from infinity_agents.aws import delay_relay, leader
from infinity_agents.testing.aws import AwsStandIn, Resources
from infinity_agents.wire.keys import Keyring
from tests.aws.lambdas import Context, failures_of

SECRET = "k1:a secret of more than 16 characters"
KEYRING = Keyring.parse(SECRET)


@dataclass
class Deployment:
    """The queues of an agent, as whoever is outside its functions sees them."""

    aws: AwsStandIn
    sqs: Any
    resources: Resources
    database_url: str
    ahead: float = 0.0

    def later(self, seconds):
        """Let time go by, for AWS."""
        self.ahead += seconds
        self.aws.now = lambda: time.time() + self.ahead

    def send(self, thread_id, text):
        body = json.dumps({"content": {"type": "text", "text": text}, "group_id": thread_id})
        self.send_body(thread_id, body)

    def send_body(self, thread_id, body, dedup_id=None):
        self.sqs.send_message(
            QueueUrl=self.resources.input_url,
            MessageBody=body,
            MessageGroupId=thread_id,
            MessageDeduplicationId=dedup_id or f"{thread_id}-{hash(body)}",
        )

    def received(self, queue_url, batch=10):
        """Return the event for the next batch of a queue, ``None`` where there is none."""
        answer = self.sqs.receive_message(
            QueueUrl=queue_url, MaxNumberOfMessages=batch, VisibilityTimeout=1800, MessageSystemAttributeNames=["All"]
        )
        records = [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message["Attributes"],
                "messageAttributes": {},
                "md5OfBody": message["MD5OfBody"],
                "eventSource": "aws:sqs",
                "eventSourceARN": self.aws.arn_of(queue_url),
                "awsRegion": "us-east-1",
            }
            for message in answer.get("Messages", ())
        ]
        return {"Records": records} if records else None

    def invoked(self, handler, queue_url, event):
        """Return what the function reports as failed; what it does not report is deleted."""
        failed = failures_of(handler(event, Context()))
        for record in event["Records"]:
            if record["messageId"] not in failed:
                self.sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=record["receiptHandle"])
        return failed

    def settle(self, batch=10):
        """Feed leader and relay until their queues hold nothing that can be had now."""
        while self.fed(leader.handler, self.resources.input_url, batch) or self.fed(
            delay_relay.handler, self.resources.delay_url, batch
        ):
            pass

    def fed(self, handler, queue_url, batch=10):
        event = self.received(queue_url, batch)
        if event is None:
            return False
        self.invoked(handler, queue_url, event)
        return True

    def told(self):
        """Take what people were told off the output queue: (type, text) of each, repeats dropped as readers do."""
        told = {}
        url = self.resources.output_url
        while messages := self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                fields = json.loads(message["Body"])
                told[fields["output_id"]] = (fields["type"], fields["text"])
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return list(told.values())

    def count(self, queue_url):
        """Return how many messages a queue holds, whatever their state."""
        return len(self.aws.queue(queue_url)._messages)

    def cut_connections(self):
        """Have the database end every connection, as it, or a frozen sandbox, does."""
        with psycopg.connect(self.database_url) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
