"""Lambda functions: ours, from their packages, and who may call the URL of any."""

from aws_cdk import Duration, RemovalPolicy, aws_ec2, aws_iam, aws_lambda, aws_logs, aws_sqs
from constructs import Construct

from infinity_agents.settings.environments import Environment

from .bundling import PYTHON, function_code, handler_of
from .review import accept


class RuntimeFunction(Construct):
    """One of our functions, with a role that may write its log and nothing else.

    Args:
        function: its name, as in ``infinity_agents.aws.<name>.handler``.
        environment: all that it is told.
        timeout: how long an invocation may take.
        memory_size: in MB; processor time is in proportion.
        architecture: of the processor.
        log_retention: how long its log is kept.
        recursive: it is on a cycle of functions and queues, which Lambda would otherwise cut after about 16 hops.
        snap_start: whether versions start from a snapshot.
        reserved_concurrency: how many run at once at most, taken from what the account has; without it, no limit.
        code: instead of the package of ``function``.
        image: whether ``code`` is a container image, which says itself what it runs.
        vpc, filesystem: the network that the function is in, and what is mounted there.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        function: str,
        environment: Environment,
        timeout: Duration,
        memory_size: int,
        description: str,
        architecture: aws_lambda.Architecture = aws_lambda.Architecture.ARM_64,
        log_retention: aws_logs.RetentionDays = aws_logs.RetentionDays.THREE_MONTHS,
        recursive: bool = False,
        snap_start: bool = False,
        reserved_concurrency: int | None = None,
        code: aws_lambda.Code | None = None,
        image: bool = False,
        vpc: aws_ec2.IVpc | None = None,
        filesystem: aws_lambda.FileSystem | None = None,
    ) -> None:
        super().__init__(scope, id)
        self.role = aws_iam.Role(self, "Role", assumed_by=aws_iam.ServicePrincipal("lambda.amazonaws.com"))
        self.log_group = aws_logs.LogGroup(self, "Log", retention=log_retention, removal_policy=RemovalPolicy.DESTROY)
        self.log_group.grant_write(self.role)
        self.function = aws_lambda.Function(
            self,
            "Function",
            runtime=aws_lambda.Runtime.FROM_IMAGE if image else PYTHON,
            architecture=architecture,
            handler=aws_lambda.Handler.FROM_IMAGE if image else handler_of(function),
            vpc=vpc,
            filesystem=filesystem,
            code=code or function_code(function, architecture=architecture),
            description=description,
            environment=environment.written(),
            role=self.role,
            log_group=self.log_group,
            timeout=timeout,
            memory_size=memory_size,
            recursive_loop=aws_lambda.RecursiveLoop.ALLOW if recursive else None,
            snap_start=aws_lambda.SnapStartConf.ON_PUBLISHED_VERSIONS if snap_start else None,
            reserved_concurrent_executions=reserved_concurrency,
        )
        accept(self.function, "AwsSolutions-L1", f"packages are built for {PYTHON.name}, and are tested with it")

    def read_from(
        self,
        queue: aws_sqs.IQueue,
        *,
        batch_size: int = 10,
        max_concurrency: int | None = None,
        max_batching_window: Duration | None = None,
        by: aws_lambda.IFunction | None = None,
    ) -> None:
        """Have Lambda hand the function, or its version ``by``, what is in ``queue``, and take back what failed."""
        queue.grant_consume_messages(self.role)
        # SqsEventSource would name it after the stack, and a stack of another name would have two for a while.
        aws_lambda.EventSourceMapping(
            self,
            "Messages",
            target=by or self.function,
            event_source_arn=queue.queue_arn,
            batch_size=batch_size,
            max_concurrency=max_concurrency,
            max_batching_window=max_batching_window,
            report_batch_item_failures=True,
        )


def url_statements(*arns: str) -> list[aws_iam.PolicyStatement]:
    """Return the two permissions that a caller of signed function URLs needs, on the functions ``arns``."""
    return [
        aws_iam.PolicyStatement(actions=["lambda:InvokeFunctionUrl"], resources=list(arns)),
        aws_iam.PolicyStatement(
            actions=["lambda:InvokeFunction"],
            resources=list(arns),
            conditions={"Bool": {"lambda:InvokedViaFunctionUrl": "true"}},
        ),
    ]
