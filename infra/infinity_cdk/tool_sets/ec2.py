"""Virtual machines: made, and their states told of."""

from collections.abc import Sequence
from functools import partial

from aws_cdk import Duration, RemovalPolicy, aws_ec2, aws_events, aws_events_targets, aws_iam
from constructs import Construct

from infinity_agents.settings.tool_servers import Ec2Environment, Ec2EventsEnvironment

from ..agent import InfinityAgent
from ..arguments import checked
from ..functions import RuntimeFunction
from ..review import accept_wildcard
from ..storage import keyed_table
from .tool_function import FunctionToolSet, ToolFunction

_RECORDS = ("dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query")


class Ec2ToolSet(FunctionToolSet):
    """Tools that make instances and tell of their states.

    The agent can start instances that cost money, of the types in ``instance_types`` alone.

    Args:
        instance_types: what it may start.
        removal_policy: what becomes of the table of who waits when the tool set is removed.

    Raises:
        ValueError: there are no ``instance_types``.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        instance_types: Sequence[aws_ec2.InstanceType],
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
        name: str | None = None,
    ) -> None:
        super().__init__(scope, id, name=name)
        if not instance_types:
            raise ValueError(f'the tool set {id!r} needs instance_types=, such as [InstanceType("t4g.small")]')
        self.table = keyed_table(self, "Instances", deletion_protection=False, removal_policy=removal_policy)
        server = ToolFunction(
            self,
            "Tool",
            function="ec2",
            description="Makes EC2 instances",
            environment=partial(Ec2Environment, instances_table_name=self.table.table_name),
        )
        events = RuntimeFunction(
            self,
            "Events",
            function="ec2_events",
            description="Tells of the states of EC2 instances",
            environment=Ec2EventsEnvironment(instances_table_name=self.table.table_name),
            timeout=Duration.minutes(5),
            memory_size=256,
            architecture=server.function.architecture,
            recursive=True,
        )
        for role in (server.role, events.role):
            self.table.grant(role, *_RECORDS)
            role.add_to_policy(aws_iam.PolicyStatement(actions=["ec2:DescribeInstances"], resources=["*"]))
            accept_wildcard(role, "*", "EC2 knows no narrower resource for what describes and starts instances")
        for statement in _starting([kind.to_string() for kind in instance_types]):
            server.role.add_to_policy(statement)
        aws_events.Rule(
            self,
            "States",
            event_pattern=aws_events.EventPattern(
                source=["aws.ec2"], detail_type=["EC2 Instance State-change Notification"]
            ),
            targets=[aws_events_targets.LambdaFunction(events.function)],
        )
        self.events, self.events_role = events.function, events.role
        self.serve(server)

    def bind(self, agent: InfinityAgent) -> None:
        super().bind(agent)
        agent.grant_rap_access(self.events_role)


def _starting(instance_types: Sequence[str]) -> list[aws_iam.PolicyStatement]:
    return [
        # Of an instance, the type is asked; of what it is made of, there is none.
        aws_iam.PolicyStatement(
            actions=["ec2:RunInstances"],
            resources=["*"],
            conditions={"StringEqualsIfExists": {"ec2:InstanceType": list(instance_types)}},
        ),
        aws_iam.PolicyStatement(
            actions=["ec2:CreateTags"],
            resources=["*"],
            conditions={"StringEquals": {"ec2:CreateAction": "RunInstances"}},
        ),
    ]
