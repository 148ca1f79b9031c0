"""A Lambda function of ours that serves tools: it answers at once, and works in a second invocation of itself."""

from collections.abc import Callable
from typing import Annotated

from aws_cdk import Duration, RemovalPolicy, aws_ec2, aws_lambda, aws_lambda_destinations
from aws_cdk.aws_logs import RetentionDays
from constructs import Construct

from infinity_agents.settings.tool_servers import ToolFailuresEnvironment, ToolServerEnvironment

from ..agent import InfinityAgent
from ..arguments import CALL_SECONDS, FUNCTION_MB, checked
from ..functions import RuntimeFunction
from ..review import accept_wildcard, logical_id_of
from ..storage import grant_blobs, keyed_table, private_bucket
from ..tools_config import ToolSetEntry
from .base import ToolSet, agent_around
from .rap import allow_second_invocation, function_url

_PAYLOADS_KEPT = Duration.days(2)
"""Longer than Lambda tries an asynchronous invocation: 6 hours."""


class ToolFunction(Construct):
    """One of our tool servers as a function, with what its second invocation needs.

    That is the permission to invoke itself, a table in which a call is claimed so that a repeat does nothing, a bucket
    for invocations over 1 MiB, and a function that answers the calls of an invocation that died.

    Args:
        function: its name, as in ``infinity_agents.aws.<name>.handler``.
        environment: makes what it is told, given ``claims_table_name`` and ``payload_bucket``: a class of settings,
            or a ``partial`` of one.
        timeout: how long one call may take: up to 15 minutes.
        code, image, vpc, filesystem: see ``RuntimeFunction``.

    Attributes:
        function, role: the function, and its role to grant things to.
        failures: the function that answers for it.
        claims, payloads: the table and the bucket.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        function: str,
        description: str,
        timeout: Annotated[Duration, CALL_SECONDS] | None = None,
        memory_size: Annotated[int, FUNCTION_MB] = 512,
        environment: Callable[..., ToolServerEnvironment] = ToolServerEnvironment,
        code: aws_lambda.Code | None = None,
        image: bool = False,
        vpc: aws_ec2.IVpc | None = None,
        filesystem: aws_lambda.FileSystem | None = None,
    ) -> None:
        super().__init__(scope, id)
        agent = agent_around(self)
        architecture = agent.architecture if agent else aws_lambda.Architecture.ARM_64
        log_retention = agent.log_retention if agent else RetentionDays.THREE_MONTHS
        self.claims = keyed_table(self, "Claims", deletion_protection=False, removal_policy=RemovalPolicy.DESTROY)
        self.payloads = private_bucket(self, "Payloads", removal_policy=RemovalPolicy.RETAIN, expiration=_PAYLOADS_KEPT)
        failures = RuntimeFunction(
            self,
            "Failures",
            function="tool_failures",
            description=f"Answers the calls of {function} that died",
            environment=ToolFailuresEnvironment(payload_bucket=self.payloads.bucket_name),
            timeout=Duration.minutes(1),
            memory_size=256,
            architecture=architecture,
            log_retention=log_retention,
            recursive=True,
        )
        self.failures = failures.function
        server = RuntimeFunction(
            self,
            "Server",
            function=function,
            description=description,
            environment=environment(claims_table_name=self.claims.table_name, payload_bucket=self.payloads.bucket_name),
            timeout=timeout or Duration.minutes(5),
            memory_size=memory_size,
            architecture=architecture,
            log_retention=log_retention,
            recursive=True,
            code=code,
            image=image,
            vpc=vpc,
            filesystem=filesystem,
        )
        self.function, self.role, self.failures_role = server.function, server.role, failures.role
        self.claims.grant(self.role, "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem")
        grant_blobs(self.payloads, self.role, "s3:GetObject", "s3:PutObject")
        grant_blobs(self.payloads, self.failures_role, "s3:GetObject")
        allow_second_invocation(self, self.function, self.role)
        self.function.configure_async_invoke(on_failure=aws_lambda_destinations.LambdaDestination(self.failures))
        accept_wildcard(
            self.role,
            f"<{logical_id_of(self.failures)}.Arn>:*",
            "a destination for failures may be any version of this one function",
        )


class FunctionToolSet(ToolSet):
    """The tools of a ``ToolFunction``. A subclass makes that, and calls ``serve`` last.

    Args:
        call_timeout: how long a call may take before the agent is told that it failed.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        name: str | None = None,
        call_timeout: Duration | None = None,
    ) -> None:
        super().__init__(scope, id, name=name)
        self.call_timeout = call_timeout

    def serve(self, server: ToolFunction) -> None:
        """Offer the tools of ``server`` at its URL."""
        self.server = server
        self.server_url = function_url(server.function)
        self.join()

    def bind(self, agent: InfinityAgent) -> None:
        agent.register_tool_set(
            ToolSetEntry(name=self.name, server_url=self.server_url, auth="sigv4", call_timeout=self.call_timeout)
        )
        agent.grant_tool_invoke_access(self.server.function)
        for role in (self.server.role, self.server.failures_role):
            agent.grant_rap_access(role)
