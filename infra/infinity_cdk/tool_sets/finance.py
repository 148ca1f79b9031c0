"""Prices, news and paper trading."""

from functools import partial

from aws_cdk import Duration, RemovalPolicy, aws_events, aws_events_targets
from aws_cdk.aws_secretsmanager import ISecret
from constructs import Construct

from infinity_agents.settings.tool_servers import FinanceEnvironment, FinancePollerEnvironment

from ..agent import InfinityAgent
from ..arguments import checked
from ..functions import RuntimeFunction
from ..storage import keyed_table
from .tool_function import FunctionToolSet, ToolFunction

_TRADES = ("dynamodb:ConditionCheckItem", "dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem")
_READS = ("dynamodb:Query", "dynamodb:UpdateItem")


class FinanceToolSet(FunctionToolSet):
    """Tools for prices, news and trading with paper money, and a function that looks at the market for all watches.

    Args:
        finnhub_key: the secret that holds a key for Finnhub; without it, the market is a small bundled one.
        poll_every: how often watches are looked at; by default each minute, which is as often as can be.
        removal_policy: what becomes of the accounts when the tool set is removed.

    Raises:
        ValueError: ``poll_every`` is less than a minute, or no whole number of them.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        finnhub_key: ISecret | None = None,
        poll_every: Duration | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
        name: str | None = None,
    ) -> None:
        super().__init__(scope, id, name=name)
        every = poll_every or Duration.minutes(1)
        if every.to_seconds() < 60 or every.to_seconds() % 60:
            raise ValueError(
                f"the tool set {id!r}: poll_every is {every.to_seconds():g} seconds and must be one minute or several"
            )
        self.table = keyed_table(self, "Accounts", deletion_protection=False, removal_policy=removal_policy)
        key_arn = finnhub_key.secret_arn if finnhub_key else None
        server = ToolFunction(
            self,
            "Tool",
            function="finance",
            description="Prices, news, and trading with paper money",
            environment=partial(FinanceEnvironment, finance_table_name=self.table.table_name, finnhub_key_arn=key_arn),
        )
        poller = RuntimeFunction(
            self,
            "Poller",
            function="finance_poller",
            description="Looks at the market, and tells who watches it",
            environment=FinancePollerEnvironment(finance_table_name=self.table.table_name, finnhub_key_arn=key_arn),
            timeout=Duration.minutes(1),
            memory_size=256,
            architecture=server.function.architecture,
            recursive=True,
        )
        self.table.grant(server.role, *_TRADES, *_READS)
        self.table.grant(poller.role, *_READS)
        if finnhub_key is not None:
            finnhub_key.grant_read(server.role)
            finnhub_key.grant_read(poller.role)
        aws_events.Rule(
            self,
            "Every",
            schedule=aws_events.Schedule.rate(every),
            targets=[aws_events_targets.LambdaFunction(poller.function, retry_attempts=0)],
        )
        self.poller, self.poller_role = poller.function, poller.role
        self.serve(server)

    def bind(self, agent: InfinityAgent) -> None:
        super().bind(agent)
        agent.grant_rap_access(self.poller_role)
