"""What feeds a function from a queue, as Lambda's event source mapping does."""

import threading
from typing import Any

from .lambda_runtime import LambdaFunction
from .server import REGION, AwsStandIn


class SqsEventSource:
    """Polls ``queue_url`` and invokes ``function`` with what is there: at most ten messages, of whatever groups.

    What the function does not report as failed is deleted, and nothing is after an invocation that failed: then the
    messages come again when their visibility timeout is over. Up to ``concurrency`` batches are at work at once; of one
    group there is never more than one. Like the service, it polls until it is closed.
    """

    def __init__(
        self, sqs: Any, queue_url: str, function: LambdaFunction, *, batch_size: int = 10, concurrency: int = 1
    ) -> None:
        self._sqs = sqs
        self._queue_url = queue_url
        self._function = function
        self._batch_size = batch_size
        self._closing = threading.Event()
        self._polling = [threading.Thread(target=self._poll, daemon=True) for _ in range(concurrency)]
        for polling in self._polling:
            polling.start()

    def close(self) -> None:
        """Stop polling once what is at work is done."""
        self._closing.set()
        for polling in self._polling:
            polling.join()

    def _poll(self) -> None:
        while not self._closing.is_set():
            messages = self._sqs.receive_message(
                QueueUrl=self._queue_url,
                MaxNumberOfMessages=self._batch_size,
                WaitTimeSeconds=0,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            ).get("Messages")
            if messages:
                self._handle(messages)
            else:
                self._closing.wait(0.05)

    def _handle(self, messages: list[dict[str, Any]]) -> None:
        reply = self._function.invoke(sqs_event(messages, AwsStandIn.arn_of(self._queue_url)))
        if reply.error is not None:
            return
        failures = (reply.value or {}).get("batchItemFailures") or ()
        failed = {failure.get("itemIdentifier") for failure in failures}
        if not failed <= {message["MessageId"] for message in messages}:
            return  # the service takes an identifier that it does not know, or none, as the failure of the whole batch
        for message in messages:
            if message["MessageId"] not in failed:
                self._sqs.delete_message(QueueUrl=self._queue_url, ReceiptHandle=message["ReceiptHandle"])


def sqs_event(messages: list[dict[str, Any]], queue_arn: str) -> dict[str, Any]:
    """Return the event for messages as a client receives them."""
    return {
        "Records": [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message["Attributes"],
                "messageAttributes": {},
                "md5OfBody": message["MD5OfBody"],
                "eventSource": "aws:sqs",
                "eventSourceARN": queue_arn,
                "awsRegion": REGION,
            }
            for message in messages
        ]
    }
