"""The log lines of a function, as JSON."""

import logging
import os

from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

from ..wire.traces import current_trace_id


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
