"""What operators see of a function: its log lines as JSON, and its metrics."""

import logging
import os
from collections import Counter

from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from ..conversation.events import AgentEvent, Completed, Failed, StepFinished, TurnDropped
from ..wire.traces import current_trace_id

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


def log_as_json(function: str) -> None:
    """Have Lambda's own handler write each log line as a JSON object; anywhere else, change nothing."""
    if "AWS_LAMBDA_RUNTIME_API" not in os.environ:
        return
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    for handler in root.handlers:
        handler.setFormatter(LambdaPowertoolsFormatter(service=function))
        handler.addFilter(with_trace_id)


def with_trace_id(record: logging.LogRecord) -> bool:
    """Have the formatter write ``trace_id``, where what is being done belongs to a trace; keep every record."""
    trace_id = current_trace_id()
    if trace_id is not None:
        record.trace_id = trace_id
    return True
