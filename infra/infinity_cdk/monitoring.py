"""What operators look at, and what wakes them."""

from collections.abc import Mapping
from typing import Annotated

from aws_cdk import Duration, aws_cloudwatch, aws_cloudwatch_actions, aws_lambda, aws_sns, aws_sqs
from constructs import Construct

# Not its class, which is not there yet: an agent makes its own monitoring.
from . import agent as agents
from .arguments import Between, checked

NAMESPACE = "InfinityAgents"
"""Where the leader writes its metrics; their only dimension is the function's name."""

RUNBOOK = "docs/runbook.md of infinity-agents"
"""What alarms refer to where no other runbook is named."""

_PERIOD = Duration.minutes(5)
_PRICE = Between(0, 100_000, "dollars for a million tokens")
_Metrics = list[aws_cloudwatch.IMetric]


class AgentMonitoring(Construct):
    """A dashboard and alarms of one agent.

    Args:
        agent: what is watched.
        alarm_topic: told when an alarm goes off, and when it is over.
        runbook_url: what alarms and dashboard refer to.
        oldest_message: how long a message may wait before that is an alarm.
        input_price, output_price, cached_price: dollars for a million tokens read, written, and read from the cache,
            for the estimate of the costs; see your model's.

    Attributes:
        dashboard: the dashboard.
        alarms: the alarms, by name.

    Raises:
        TypeError, ValueError: a value cannot be; the text names it and says what to do.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        agent: "agents.InfinityAgent",
        alarm_topic: aws_sns.ITopic | None = None,
        runbook_url: str = RUNBOOK,
        oldest_message: Annotated[Duration, Between(60, 14 * 86_400, "seconds")] | None = None,
        input_price: Annotated[float, _PRICE] = 3.0,
        output_price: Annotated[float, _PRICE] = 15.0,
        cached_price: Annotated[float, _PRICE] = 0.3,
    ) -> None:
        super().__init__(scope, id)
        self._agent = agent
        self._runbook_url = runbook_url
        self._prices = {"InputTokens": input_price, "OutputTokens": output_price, "CachedTokens": cached_price}
        self.dashboard = aws_cloudwatch.Dashboard(self, "Dashboard", default_interval=Duration.days(1))
        self.dashboard.add_widgets(
            aws_cloudwatch.TextWidget(
                markdown=f"**{agent.node.path}** · what to do when an alarm goes off: {runbook_url}",
                width=24,
                height=1,
            )
        )
        self._draw()
        self.alarms: dict[str, aws_cloudwatch.Alarm] = {}
        self._action = aws_cloudwatch_actions.SnsAction(alarm_topic) if alarm_topic is not None else None
        self._alarm_about_queues(oldest_message or Duration.minutes(15))
        for name, function in self._functions().items():
            self.watch_function(name, function, f"the {name.lower()}")

    # ------------------------------------------------------------------------------------------------ dashboard

    def _draw(self) -> None:
        agent = self._agent
        told = {name: self._told(name) for name in ("InputTokens", "OutputTokens", "CachedTokens")}
        cost = aws_cloudwatch.MathExpression(
            expression=" + ".join(f"{name.lower()} * {self._prices[name]} / 1000000" for name in told),
            using_metrics={name.lower(): metric for name, metric in told.items()},
            label="dollars for tokens, estimated",
            period=_PERIOD,
        )
        rows: list[Mapping[str, _Metrics]] = [
            {
                "Slices": [self._told("Slices"), self._told("FailedSlices"), self._told("Retries")],
                "Tokens": list(told.values()),
                "Cost": [cost],
            },
            {
                "Round trips": [self._told("RoundTrips"), self._told("Rounds"), self._told("ColdStarts")],
                "Oldest message, seconds": [
                    queue.metric_approximate_age_of_oldest_message(label=name, period=_PERIOD)
                    for name, queue in self._queues().items()
                ],
                "Parked": [
                    self._told("Parked"),
                    *(
                        queue.metric_approximate_number_of_messages_visible(label=name, period=_PERIOD)
                        for name, queue in self._dead_letters().items()
                    ),
                ],
            },
            {
                "Errors": [
                    function.metric_errors(label=name, period=_PERIOD) for name, function in self._functions().items()
                ],
                "Throttles": [
                    function.metric_throttles(label=name, period=_PERIOD)
                    for name, function in self._functions().items()
                ],
                "Leader, milliseconds": [
                    agent.leader.metric_duration(statistic=statistic, period=_PERIOD) for statistic in ("p50", "p99")
                ],
            },
        ]
        for row in rows:
            self.dashboard.add_widgets(
                *(aws_cloudwatch.GraphWidget(title=title, left=left, width=8) for title, left in row.items())
            )

    def _told(self, metric: str) -> aws_cloudwatch.Metric:
        """Return what the leader says of itself."""
        return aws_cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=metric,
            dimensions_map={"service": self._agent.leader.function_name},
            statistic="Sum",
            period=_PERIOD,
        )

    # --------------------------------------------------------------------------------------------------- alarms

    def _alarm_about_queues(self, oldest: Duration) -> None:
        for name, queue in self._dead_letters().items():
            self.watch_parked(
                f"{name}DeadLetters",
                queue,
                f"messages of the {name.lower()} queue could not be processed and are parked",
            )
        self._alarm(
            "OldestMessage",
            self._agent.input_queue.metric_approximate_age_of_oldest_message(period=_PERIOD, statistic="Maximum"),
            threshold=oldest.to_seconds(),
            meaning=f"a message has waited for {oldest.to_human_string()} to be heard",
        )

    def watch_function(self, name: str, function: aws_lambda.IFunction, called: str) -> None:
        """Have alarms go off when ``function`` fails or may not run; ``called`` is what their text calls it."""
        self._alarm(
            f"{name}Errors", function.metric_errors(period=_PERIOD), threshold=1, periods=2, meaning=f"{called} fails"
        )
        self._alarm(
            f"{name}Throttles",
            function.metric_throttles(period=_PERIOD),
            threshold=1,
            periods=3,
            meaning=f"{called} may not run as often as it would have to",
        )

    def watch_parked(self, name: str, queue: aws_sqs.IQueue, meaning: str) -> None:
        """Have an alarm go off when anything is in ``queue``, which holds what failed for good."""
        self._alarm(
            name,
            queue.metric_approximate_number_of_messages_visible(period=_PERIOD, statistic="Maximum"),
            threshold=1,
            meaning=meaning,
        )

    def _alarm(
        self, name: str, metric: aws_cloudwatch.Metric, *, threshold: float, meaning: str, periods: int = 1
    ) -> None:
        alarm = aws_cloudwatch.Alarm(
            self,
            name,
            metric=metric,
            threshold=threshold,
            evaluation_periods=periods,
            comparison_operator=aws_cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=aws_cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=f"{self._agent.node.path}: {meaning}. What to do: {self._runbook_url}",
        )
        if self._action is not None:
            alarm.add_alarm_action(self._action)
            alarm.add_ok_action(self._action)
        self.alarms[name] = alarm

    # ----------------------------------------------------------------------------------------------- what there is

    def _queues(self) -> Mapping[str, aws_sqs.Queue]:
        return {"Input": self._agent.input_queue, "Output": self._agent.output_queue, "Delay": self._agent.delay_queue}

    def _dead_letters(self) -> Mapping[str, aws_sqs.Queue]:
        return {
            "Input": self._agent.input_dead_letters,
            "Output": self._agent.output_dead_letters,
            "Delay": self._agent.delay_dead_letters,
        }

    def _functions(self) -> Mapping[str, aws_lambda.Function]:
        functions = {
            "Leader": self._agent.leader,
            "Receiver": self._agent.receiver,
            "Relay": self._agent.relay,
            "Keeper": self._agent.keeper,
        }
        if self._agent.public_receiver is not None:
            functions["PublicReceiver"] = self._agent.public_receiver
        return functions
