"""The agent: everything that a conversation needs to go on by itself, as one construct that people subclass."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

from aws_cdk import (
    CfnOutput,
    Duration,
    RemovalPolicy,
    SecretValue,
    Stack,
    aws_dynamodb,
    aws_events,
    aws_events_targets,
    aws_iam,
    aws_lambda,
    aws_s3,
    aws_secretsmanager,
    aws_sns,
)
from aws_cdk.aws_logs import RetentionDays
from constructs import Construct

from infinity_agents.settings.leading import DEFAULT_MODEL, KeeperEnvironment, LeaderEnvironment
from infinity_agents.settings.queueing import ReceiverEnvironment
from infinity_agents.settings.stacks import AgentOutputs

from .arguments import ARN, AtMost, Between, Spelt, checked
from .bedrock import MODEL_ID
from .bedrock import model_arns as arns_of_model
from .functions import RuntimeFunction, url_statements
from .monitoring import AgentMonitoring
from .queues import KEPT, QueueWithDeadLetters
from .review import accept, accept_wildcard
from .storage import DATABASE_USER, DsqlDatabase, Migration, dsql_cluster, grant_blobs, keyed_table, private_bucket
from .timers import Timers
from .tools_config import ToolAccess, ToolsConfig, ToolSetEntry

if TYPE_CHECKING:
    from .tool_sets import ToolSet

MAX_RECEIVE_COUNT = 20
"""How often the leader tries a message before it parks it with its error: an outage of minutes counts too."""

_REDRIVEN_AFTER = MAX_RECEIVE_COUNT + 5
"""When SQS parks a message by itself: only if the leader never got to say why."""

_RECEIVER_TIMEOUT = Duration.seconds(30)
_KEEPER_EVERY = Duration.minutes(5)
_OUTPUT_READER_TIMEOUT = Duration.minutes(1)
_PROMPT = AtMost(
    2000, "as a function's environment holds 4 KB in all; a longer one goes into a layer, as docs/constructs.md says"
)
_ID = Spelt(r"(?=.*[A-Za-z0-9])[^\0/]{1,200}", "1 to 200 characters without a slash, one of them a letter or a digit")


class InfinityAgent(Construct):
    """An agent that can be talked to through its queues; as many in a stack as you like.

    Args:
        model_id: a model or inference profile of Bedrock, or ``demo``, which needs no model.
        system_prompt: what the agent is told about itself.
        model_arns: what the leader may invoke; by default what ``model_id`` needs.
        memory_size: of the leader, in MB; processor time is in proportion.
        slice_timeout: how long one slice may take: 30 seconds to 15 minutes.
        batch_size: how many messages the leader takes at once: 1 to 10.
        max_concurrency: how many leaders run at once at most: 2 to 1000. It limits what a flood can cost.
        receiver_concurrency: how many receivers of each kind run at once at most, reserved for them; ``None`` for no
            limit, in an account whose own limit is too low to reserve from.
        public_receiver: whether there is a receiver that takes callbacks without IAM, by their token alone, for tool
            servers outside the account.
        architecture: of all functions.
        snap_start: whether leaders start from a snapshot, which makes a cold start shorter and costs while it is kept.
        database: an Aurora DSQL cluster that exists already, and no other agent's; by default one is made.
        deletion_protection: whether the table and the cluster refuse to be deleted until that is switched off.
        removal_policy: what becomes of table, cluster, bucket, queues and secret when they leave the stack.
        message_retention: how long the queues keep messages: up to 14 days.
        log_retention: how long logs are kept.
        monitoring: whether there are a dashboard and alarms.
        alarm_topic: told of every alarm.

    Attributes:
        input_queue, input_dead_letters: messages for the agent (FIFO); those that could not be processed.
        output_queue, output_dead_letters: what people are told.
        delay_queue, delay_dead_letters: messages that wait up to 15 minutes.
        state_table, blob_bucket, database, callback_secret: what the agent keeps.
        schedule_group, scheduler_role: of timers that wait for longer.
        leader, leader_role: the function that does the slices. ``leader_alias`` is what the queue invokes with
            SnapStart.
        relay, keeper, migrate, receiver, public_receiver: the other functions.
        receiver_url, public_receiver_url: where tool servers post; the second is ``None`` by default.
        monitoring: the dashboard and alarms, or ``None``.

    Raises:
        TypeError, ValueError: a value cannot be; the text names it and says what to do.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: Annotated[str, _ID],
        *,
        model_id: Annotated[str, MODEL_ID] = DEFAULT_MODEL,
        system_prompt: Annotated[str, _PROMPT] = "",
        model_arns: Sequence[Annotated[str, ARN]] | None = None,
        memory_size: Annotated[int, Between(256, 10_240, "MB")] = 1024,
        slice_timeout: Annotated[Duration, Between(30, 900, "seconds")] | None = None,
        batch_size: Annotated[int, Between(1, 10, "messages, which is what a FIFO queue hands over at once")] = 10,
        max_concurrency: Annotated[int, Between(2, 1000, "leaders")] = 20,
        receiver_concurrency: Annotated[int, Between(1, 1000, "receivers, or None for no limit")] | None = 20,
        public_receiver: bool = False,
        architecture: aws_lambda.Architecture = aws_lambda.Architecture.ARM_64,
        snap_start: bool = False,
        database: DsqlDatabase | None = None,
        deletion_protection: bool = True,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
        message_retention: Annotated[Duration, Between(60, KEPT.to_seconds(), "seconds")] = KEPT,
        log_retention: RetentionDays = RetentionDays.THREE_MONTHS,
        monitoring: bool = True,
        alarm_topic: aws_sns.ITopic | None = None,
    ) -> None:
        super().__init__(scope, id)
        timeout = slice_timeout or Duration.minutes(5)
        self.architecture = architecture
        self.log_retention = log_retention

        inputs = QueueWithDeadLetters(
            self,
            "Input",
            fifo=True,
            timeout=timeout,
            max_receive_count=_REDRIVEN_AFTER,
            retention=message_retention,
            removal_policy=removal_policy,
        )
        outputs = QueueWithDeadLetters(
            self,
            "Output",
            timeout=_OUTPUT_READER_TIMEOUT,
            max_receive_count=10,
            retention=message_retention,
            removal_policy=removal_policy,
        )
        self.input_queue, self.input_dead_letters = inputs.queue, inputs.dead_letters
        self.output_queue, self.output_dead_letters = outputs.queue, outputs.dead_letters
        self.state_table: aws_dynamodb.TableV2 = keyed_table(
            self, "State", deletion_protection=deletion_protection, removal_policy=removal_policy
        )
        self.blob_bucket: aws_s3.Bucket = private_bucket(self, "Blobs", removal_policy=removal_policy)
        self.database = database or dsql_cluster(
            self, "Database", deletion_protection=deletion_protection, removal_policy=removal_policy
        )
        self.callback_secret = _callback_secret(self, removal_policy)

        timers = Timers(
            self,
            "Timers",
            input_queue=self.input_queue,
            secret=self.callback_secret,
            architecture=architecture,
            log_retention=log_retention,
            removal_policy=removal_policy,
        )
        self.delay_queue, self.delay_dead_letters = timers.queue, timers.dead_letters
        self.schedule_group, self.scheduler_role, self.relay = timers.schedule_group, timers.role, timers.relay

        self.receiver, self.receiver_url = self._receiver("Receiver", signed=True, concurrency=receiver_concurrency)
        self.public_receiver: aws_lambda.Function | None = None
        self.public_receiver_url: str | None = None
        if public_receiver:
            self.public_receiver, self.public_receiver_url = self._receiver(
                "PublicReceiver", signed=False, concurrency=receiver_concurrency
            )
        self._rap_access = aws_iam.Policy(self, "RapAccess", statements=url_statements(self.receiver.function_arn))

        self._tools_config = ToolsConfig(self, "ToolsConfig", table=self.state_table)
        leader = self._leader(model_id, system_prompt, timers, timeout, memory_size, snap_start=snap_start)
        self.leader, self.leader_role = leader.function, leader.role
        self._allow_leader(timers, arns_of_model(Stack.of(self), model_id) if model_arns is None else model_arns)
        self._tool_access = ToolAccess(self, "ToolAccess", role=self.leader_role)
        keeper = self._keeper()
        self.keeper = keeper.function

        migration = Migration(
            self,
            "Migration",
            database=self.database,
            roles=[leader.role, keeper.role],
            architecture=architecture,
            log_retention=log_retention,
        )
        self.migrate = migration.function
        self.leader_alias: aws_lambda.Alias | None = None
        if snap_start:
            self.leader_alias = aws_lambda.Alias(self, "Live", alias_name="live", version=self.leader.current_version)
        leader.read_from(self.input_queue, batch_size=batch_size, max_concurrency=max_concurrency, by=self.leader_alias)
        # A new release's code meets the schema and the tools that it was written for.
        for function in (leader, keeper):
            function.function.node.add_dependency(migration.resource, self._tools_config)

        self.monitoring: AgentMonitoring | None = None
        if monitoring:
            self.monitoring = AgentMonitoring(self, "Monitoring", agent=self, alarm_topic=alarm_topic)
        self._write_outputs()

    # -------------------------------------------------------------------------------------------------- tools

    def add_tool_set(self, tool_set: "ToolSet") -> None:
        """Give the agent a tool set that was made elsewhere, such as in another stack.

        One that is made inside of an agent is given to that by itself.

        Raises:
            ValueError: it has a tool set of this name already.
        """
        tool_set.bind(self)

    def register_tool_set(self, entry: ToolSetEntry) -> None:
        """Have the leader load the tools of a server; for authors of tool sets, who grant what it needs besides.

        Raises:
            ValueError: there is one of this name already.
        """
        self._tools_config.add(entry)

    # ------------------------------------------------------------------------------------------------- grants

    def grant_send_input(self, grantee: aws_iam.IGrantable) -> aws_iam.Grant:
        """Let ``grantee`` send messages to the agent."""
        return self.input_queue.grant_send_messages(grantee)

    def grant_tool_invoke_access(self, function: aws_lambda.IFunction) -> None:
        """Let the leader send signed requests to the function's URL."""
        self._tool_access.add(function.function_arn)

    def grant_rap_access(self, role: aws_iam.IRole) -> None:
        """Let ``role`` answer calls: send signed requests to the receiver's URL."""
        # The policy stays with the agent: a tool's stack, on which the agent's depends, need not know the agent.
        self._rap_access.attach_to_role(role)

    # -------------------------------------------------------------------------------------------------- parts

    def _receiver(self, id: str, *, signed: bool, concurrency: int | None) -> tuple[aws_lambda.Function, str]:
        receiver = RuntimeFunction(
            self,
            id,
            function="receiver",
            description=f"Takes what tool servers post to the agent, {'signed' if signed else 'by token'}",
            environment=ReceiverEnvironment(
                input_queue_url=self.input_queue.queue_url,
                dynamodb_table_name=self.state_table.table_name,
                callback_secret_arn=self.callback_secret.secret_arn,
                blob_bucket=self.blob_bucket.bucket_name,
            ),
            timeout=_RECEIVER_TIMEOUT,
            memory_size=256,
            architecture=self.architecture,
            log_retention=self.log_retention,
            recursive=True,
            reserved_concurrency=concurrency,
        )
        self.input_queue.grant_send_messages(receiver.role)
        self.callback_secret.grant_read(receiver.role)
        self.state_table.grant(receiver.role, "dynamodb:PutItem")
        grant_blobs(self.blob_bucket, receiver.role, "s3:PutObject")
        auth = aws_lambda.FunctionUrlAuthType
        url = receiver.function.add_function_url(auth_type=auth.AWS_IAM if signed else auth.NONE)
        return receiver.function, url.url

    def _leader(
        self,
        model_id: str,
        system_prompt: str,
        timers: Timers,
        timeout: Duration,
        memory_size: int,
        *,
        snap_start: bool,
    ) -> RuntimeFunction:
        return RuntimeFunction(
            self,
            "Leader",
            function="leader",
            description="Does one slice of each conversation that has messages",
            environment=LeaderEnvironment(
                input_queue_url=self.input_queue.queue_url,
                delay_queue_url=timers.queue.queue_url,
                delay_queue_arn=timers.queue.queue_arn,
                delay_dead_letter_queue_arn=timers.dead_letters.queue_arn,
                scheduler_role_arn=timers.role.role_arn,
                schedule_group_name=timers.schedule_group.ref,
                output_queue_url=self.output_queue.queue_url,
                dead_letter_queue_url=self.input_dead_letters.queue_url,
                max_receive_count=MAX_RECEIVE_COUNT,
                dynamodb_table_name=self.state_table.table_name,
                dsql_cluster_endpoint=self.database.endpoint,
                dsql_db_user=DATABASE_USER,
                rap_callback_url=self.receiver_url,
                rap_public_callback_url=self.public_receiver_url,
                callback_secret_arn=self.callback_secret.secret_arn,
                blob_bucket=self.blob_bucket.bucket_name,
                model_id=model_id,
                system_prompt=system_prompt or None,
                tools_config_ddb_key=self._tools_config.key,
            ),
            timeout=timeout,
            memory_size=memory_size,
            architecture=self.architecture,
            log_retention=self.log_retention,
            recursive=True,
            snap_start=snap_start,
        )

    def _allow_leader(self, timers: Timers, models: Sequence[str]) -> None:
        role = self.leader_role
        for queue in (self.input_queue, self.output_queue, self.input_dead_letters):
            queue.grant_send_messages(role)
        timers.grant_set(role)
        self.state_table.grant(role, "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query")
        grant_blobs(self.blob_bucket, role, "s3:GetObject", "s3:PutObject")
        self.callback_secret.grant_read(role)
        role.add_to_policy(aws_iam.PolicyStatement(actions=["dsql:DbConnect"], resources=[self.database.arn]))
        if models:
            role.add_to_policy(
                aws_iam.PolicyStatement(actions=["bedrock:InvokeModelWithResponseStream"], resources=list(models))
            )
        for arn in models:
            if "*" in arn:
                spelt = arn.replace(Stack.of(self).partition, "<AWS::Partition>")
                accept_wildcard(role, spelt, "AWS chooses the regions that a profile routes to; the model is named")

    def _keeper(self) -> RuntimeFunction:
        keeper = RuntimeFunction(
            self,
            "Keeper",
            function="keeper",
            description="Sees to calls past their deadline, effects that were left, and dead letters",
            environment=KeeperEnvironment(
                input_queue_url=self.input_queue.queue_url,
                output_queue_url=self.output_queue.queue_url,
                dead_letter_queue_url=self.input_dead_letters.queue_url,
                delay_dead_letter_queue_url=self.delay_dead_letters.queue_url,
                dynamodb_table_name=self.state_table.table_name,
                dsql_cluster_endpoint=self.database.endpoint,
                dsql_db_user=DATABASE_USER,
                callback_secret_arn=self.callback_secret.secret_arn,
                blob_bucket=self.blob_bucket.bucket_name,
            ),
            timeout=Duration.minutes(4),
            memory_size=512,
            architecture=self.architecture,
            log_retention=self.log_retention,
            recursive=True,
        )
        role = keeper.role
        for queue in (self.input_queue, self.output_queue):
            queue.grant_send_messages(role)
        for queue in (self.input_dead_letters, self.delay_dead_letters):
            queue.grant_consume_messages(role)
        self.state_table.grant(role, "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query")
        self.callback_secret.grant_read(role)
        role.add_to_policy(aws_iam.PolicyStatement(actions=["dsql:DbConnect"], resources=[self.database.arn]))
        aws_events.Rule(
            self,
            "KeeperRule",
            schedule=aws_events.Schedule.rate(_KEEPER_EVERY),
            targets=[aws_events_targets.LambdaFunction(keeper.function, retry_attempts=0)],
        )
        return keeper

    def _write_outputs(self) -> None:
        told = AgentOutputs(
            input_queue_url=self.input_queue.queue_url,
            output_queue_url=self.output_queue.queue_url,
            dead_letter_queue_url=self.input_dead_letters.queue_url,
            state_table_name=self.state_table.table_name,
            blob_bucket_name=self.blob_bucket.bucket_name,
            migrate_function_name=self.migrate.function_name,
            leader_function_name=self.leader.function_name,
            database_endpoint=self.database.endpoint,
        )
        agent = re.sub(r"[^A-Za-z0-9]", "", self.node.id)
        for key, value in told.written(agent).items():
            CfnOutput(self, key.removeprefix(agent), value=value).override_logical_id(key)


def _callback_secret(scope: Construct, removal_policy: RemovalPolicy) -> aws_secretsmanager.Secret:
    """Make a random key, and the secret that holds it as ``keyid:secret``: Secrets Manager cannot generate that.

    No property of the secret may change in a later release: docs/runbook.md says what that would do.
    """
    key = aws_secretsmanager.Secret(
        scope,
        "CallbackKey",
        description="The random part of the first callback key; only a deployment reads it",
        generate_secret_string=aws_secretsmanager.SecretStringGenerator(exclude_punctuation=True, password_length=48),
        removal_policy=removal_policy,
    )
    secret = aws_secretsmanager.Secret(
        scope,
        "CallbackSecret",
        description="The keys that sign callbacks and timers: keyid:secret, several by comma, the first signs",
        # A dynamic reference: CloudFormation fills it in where the secret is made, and it stands in no template.
        secret_string_value=SecretValue.unsafe_plain_text(f"k1:{key.secret_value.unsafe_unwrap()}"),
        removal_policy=removal_policy,
    )
    # An update of the secret, if only of its tags, would put the first key in place of those that stand there by then.
    cast("aws_secretsmanager.CfnSecret", secret.node.default_child).add_property_deletion_override("Tags")
    for each in (key, secret):
        accept(
            each, "AwsSolutions-SMG4", "old timers and calls are signed with it: a person adds a key, see docs/aws.md"
        )
    return secret
