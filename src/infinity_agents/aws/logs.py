"""The log lines of a function, as JSON."""

import logging
import os
from functools import cached_property

from ..wire.traces import current_trace_id


def log_as_json(function: str) -> None:
    """Have Lambda's own handler write each log line as a JSON object; anywhere else, change nothing."""
    if "AWS_LAMBDA_RUNTIME_API" not in os.environ:
        return
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    for handler in root.handlers:
        handler.setFormatter(_JsonFormatter(function))
        handler.addFilter(with_trace_id)


class _JsonFormatter(logging.Formatter):
    """Writes lines as powertools does, which is imported at the first one: most events have nothing to log."""

    def __init__(self, function: str) -> None:
        super().__init__()
        self._function = function

    @cached_property
    def _formatter(self) -> logging.Formatter:
        from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

        return LambdaPowertoolsFormatter(service=self._function)

    def format(self, record: logging.LogRecord) -> str:
        return self._formatter.format(record)


def with_trace_id(record: logging.LogRecord) -> bool:
    """Have the formatter write ``trace_id``, where what is being done belongs to a trace; keep every record."""
    trace_id = current_trace_id()
    if trace_id is not None:
        record.trace_id = trace_id
    return True
