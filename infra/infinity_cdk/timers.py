"""What wakes an agent later: the delay queue with its relay, and the schedules."""

from aws_cdk import Duration, RemovalPolicy, Stack, aws_iam, aws_scheduler, aws_secretsmanager, aws_sqs
from aws_cdk.aws_lambda import Architecture
from aws_cdk.aws_logs import RetentionDays
from constructs import Construct

from infinity_agents.settings.queueing import RelayEnvironment

from .functions import RuntimeFunction
from .queues import QueueWithDeadLetters
from .review import accept_wildcard, logical_id_of

_RELAY_TIMEOUT = Duration.seconds(30)
_RELAY_TRIES = 10


class Timers(Construct):
    """The delay queue, which holds for up to 15 minutes, and a group of schedules for what is due later.

    Both go through a relay to the input queue: a schedule cannot name the ids that a FIFO queue needs.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        input_queue: aws_sqs.Queue,
        secret: aws_secretsmanager.ISecret,
        architecture: Architecture,
        log_retention: RetentionDays,
        removal_policy: RemovalPolicy,
    ) -> None:
        super().__init__(scope, id)
        queues = QueueWithDeadLetters(
            self, "Delay", timeout=_RELAY_TIMEOUT, max_receive_count=_RELAY_TRIES, removal_policy=removal_policy
        )
        self.queue, self.dead_letters = queues.queue, queues.dead_letters
        relay = RuntimeFunction(
            self,
            "Relay",
            function="delay_relay",
            description="Puts what has waited its time on the agent's input queue",
            environment=RelayEnvironment(input_queue_url=input_queue.queue_url, callback_secret_arn=secret.secret_arn),
            timeout=_RELAY_TIMEOUT,
            memory_size=256,
            architecture=architecture,
            log_retention=log_retention,
            recursive=True,
        )
        self.relay = relay.function
        input_queue.grant_send_messages(relay.role)
        secret.grant_read(relay.role)
        relay.read_from(self.queue)

        self.schedule_group = aws_scheduler.CfnScheduleGroup(self, "Schedules")
        self.role = aws_iam.Role(
            self,
            "SchedulerRole",
            assumed_by=aws_iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={
                    "StringEquals": {"aws:SourceAccount": Stack.of(self).account},
                    "ArnEquals": {"aws:SourceArn": self.schedule_group.attr_arn},
                },
            ),
        )
        for queue in (self.queue, self.dead_letters):
            queue.grant_send_messages(self.role)

    def grant_set(self, role: aws_iam.Role) -> None:
        """Let ``role`` set timers and cancel them."""
        self.queue.grant_send_messages(role)
        stack = Stack.of(self)
        schedules = stack.format_arn(
            service="scheduler", resource="schedule", resource_name=f"{self.schedule_group.ref}/*"
        )
        role.add_to_policy(
            aws_iam.PolicyStatement(
                actions=["scheduler:CreateSchedule", "scheduler:DeleteSchedule"], resources=[schedules]
            )
        )
        group = f"<{logical_id_of(self.schedule_group)}>"
        accept_wildcard(
            role,
            f"arn:<AWS::Partition>:scheduler:<AWS::Region>:<AWS::AccountId>:schedule/{group}/*",
            "schedules are made and deleted while the agent runs, in a group of their own",
        )
        role.add_to_policy(
            aws_iam.PolicyStatement(
                actions=["iam:PassRole"],
                resources=[self.role.role_arn],
                conditions={"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
            )
        )
