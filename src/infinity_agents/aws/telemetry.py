"""The metrics of a function."""

from collections import Counter

from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from ..conversation.events import AgentEvent, Completed, Failed, StepFinished, TurnDropped

NAMESPACE = "InfinityAgents"


class Telemetry:
    """Counts what the steps of an invocation do, as an ``Observer``, and writes it as one line in EMF.

    The only dimension is the function's name: nothing that grows with the conversations.
    """

    def __init__(self, function: str) -> None:
        self._metrics = EphemeralMetrics(namespace=NAMESPACE, service=function)
        self._counted = Counter[str](ColdStarts=1)

    def observe(self, event: AgentEvent) -> None:
        """Count ``event``."""
        match event:
            case StepFinished(outcome=outcome, deferred=deferred, round_trips=round_trips):
                self.count("Slices")
                self.count("Deferred", deferred)
                self.count("Rounds", round_trips.get("model", 0))
                self.count("RoundTrips", sum(round_trips.values()))
                if isinstance(outcome, Failed):
                    self.count("FailedSlices")
                if isinstance(outcome, Completed):
                    usage = outcome.usage
                    self.count("InputTokens", usage.input)
                    self.count("OutputTokens", usage.output)
                    self.count("CachedTokens", usage.cache_read)
            case TurnDropped():
                self.count("Retries")
            case _:
                pass

    def count(self, metric: str, by: int = 1) -> None:
        """Add ``by`` to ``metric``."""
        self._counted[metric] += by

    def flush(self) -> None:
        """Write what was counted since the last time, if anything was."""
        for metric, value in self._counted.items():
            self._metrics.add_metric(name=metric, unit=MetricUnit.Count, value=value)
        if self._counted:
            self._metrics.flush_metrics()
        self._counted.clear()
