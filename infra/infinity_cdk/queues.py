"""The queues of an agent, encrypted and over TLS only, each with its dead letters."""

from aws_cdk import Duration, RemovalPolicy, aws_sqs
from constructs import Construct

KEPT = Duration.days(14)
"""How long a message waits for somebody who takes it: as long as SQS keeps any."""


class QueueWithDeadLetters(Construct):
    """A queue, and the one for what could not be processed.

    Args:
        timeout: of the function that reads it; a message in hand stays invisible for six times as long.
        max_receive_count: how often a message is tried.
        fifo: whether it keeps the order of each group.
        retention: how long a message is kept.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        timeout: Duration,
        max_receive_count: int,
        fifo: bool = False,
        retention: Duration = KEPT,
        removal_policy: RemovalPolicy,
    ) -> None:
        super().__init__(scope, id)
        self.dead_letters = aws_sqs.Queue(
            self,
            "DeadLetters",
            fifo=fifo or None,
            retention_period=KEPT,
            encryption=aws_sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            removal_policy=removal_policy,
        )
        self.queue = aws_sqs.Queue(
            self,
            "Queue",
            fifo=fifo or None,
            # Ours name what they say; of a person's message, the body does.
            content_based_deduplication=fifo or None,
            deduplication_scope=aws_sqs.DeduplicationScope.MESSAGE_GROUP if fifo else None,
            fifo_throughput_limit=aws_sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID if fifo else None,
            visibility_timeout=Duration.seconds(6 * timeout.to_seconds()),
            retention_period=retention,
            encryption=aws_sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            dead_letter_queue=aws_sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=max_receive_count),
            removal_policy=removal_policy,
        )
