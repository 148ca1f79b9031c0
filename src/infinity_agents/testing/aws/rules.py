"""What the services refuse and moto takes: sizes, alphabets, batches, schedules that could never fire."""

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ...conversation.ids import is_sendable

MAX_MESSAGE = 1024 * 1024
MAX_SCHEDULE_INPUT = 256 * 1024

_BATCH_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_SCHEDULE_NAME = re.compile(r"[0-9a-zA-Z\-_.]{1,64}")
_ONE_OFF = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_RECURRING = re.compile(r"rate\([1-9]\d* (minutes?|hours?|days?)\)|cron\(\S+( \S+){5}\)")
_NOT_XML = re.compile("[^\\t\\n\\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_IS_BATCH = {"SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"}

QueueAttributes = Callable[[str], Mapping[str, str]]
"""Returns the attributes of the queue with that URL or ARN; none where there is no such queue."""


@dataclass(frozen=True)
class RefusedByRule(Exception):
    """The service refuses the request with ``code``."""

    code: str
    message: str
    status: int = 400


def _require(true: object, code: str, message: str) -> None:
    if not true:
        raise RefusedByRule(code, message)


# ------------------------------------------------------------------------------------------------------------- SQS


def check_sqs(operation: str, request: Mapping[str, Any], attributes_of: QueueAttributes) -> None:
    """Return if SQS would look at such a request.

    Raises:
        RefusedByRule: it would not.
    """
    if operation in _IS_BATCH:
        _check_batch(request["Entries"])
    messages: Sequence[Mapping[str, Any]] = ()
    if operation == "SendMessage":
        messages = [request]
    elif operation == "SendMessageBatch":
        messages = request["Entries"]
        _require(
            sum(_size(message) for message in messages) <= MAX_MESSAGE,
            "AWS.SimpleQueueService.BatchRequestTooLong",
            f"Batch requests cannot be longer than {MAX_MESSAGE} bytes.",
        )
    for message in messages:
        _check_message(message, attributes_of(request["QueueUrl"]))


def _check_batch(entries: Sequence[Mapping[str, Any]]) -> None:
    names = [entry["Id"] for entry in entries]
    prefix = "AWS.SimpleQueueService."
    _require(names, f"{prefix}EmptyBatchRequest", "There should be at least one entry in the request.")
    _require(len(names) <= 10, f"{prefix}TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10.")
    _require(
        len(set(names)) == len(names), f"{prefix}BatchEntryIdsNotDistinct", "Two or more batch entries have one Id."
    )
    _require(all(map(_BATCH_ID.fullmatch, names)), f"{prefix}InvalidBatchEntryId", "A batch entry id is invalid.")


def _check_message(message: Mapping[str, Any], queue: Mapping[str, str]) -> None:
    body = message["MessageBody"]
    _require(body, "MissingParameter", "The request must contain the parameter MessageBody.")
    _require(not _NOT_XML.search(body), "InvalidMessageContents", "The message contains characters outside the set.")
    _require(
        _size(message) <= MAX_MESSAGE,
        "InvalidParameterValue",
        f"One or more parameters are invalid. Reason: Message must be shorter than {MAX_MESSAGE} bytes.",
    )
    for name in ("MessageGroupId", "MessageDeduplicationId"):
        value = message.get(name)
        _require(value is None or is_sendable(value), "InvalidParameterValue", f"Value {value} for {name} is invalid.")
    is_fifo = queue.get("FifoQueue") == "true"
    misplaced = "DelaySeconds" if is_fifo else "MessageDeduplicationId"
    _require(
        not message.get(misplaced),
        "InvalidParameterValue",
        f"Value for parameter {misplaced} is invalid. Reason: not valid for this queue type.",
    )
    delay = message.get("DelaySeconds", 0)
    _require(isinstance(delay, int) and 0 <= delay <= 900, "InvalidParameterValue", "DelaySeconds must be 0 to 900.")
    for name, attribute in (message.get("MessageAttributes") or {}).items():
        value = attribute.get("StringValue", "-")
        _require(value, "InvalidParameterValue", f"Message attribute {name} is empty.")
        _require(not _NOT_XML.search(value), "InvalidParameterValue", f"Message attribute {name} has invalid content.")
    _require(len(message.get("MessageAttributes") or {}) <= 10, "InvalidParameterValue", "More than 10 attributes.")


def _size(message: Mapping[str, Any]) -> int:
    return len(message["MessageBody"].encode("utf-8", "surrogatepass")) + sum(
        len((name + value["DataType"] + value.get("StringValue", value.get("BinaryValue", ""))).encode())
        for name, value in (message.get("MessageAttributes") or {}).items()
    )


# ------------------------------------------------------------------------------------------------------- Scheduler


def check_schedule(
    name: str,
    request: Mapping[str, Any],
    *,
    now: datetime,
    groups: Container[str],
    attributes_of: QueueAttributes,
) -> None:
    """Return if Scheduler would make such a schedule, and its target could be reached.

    Raises:
        RefusedByRule: it would not.
    """

    def require(true: object, message: str) -> None:
        _require(true, "ValidationException", message)

    group = request.get("GroupName", "default")
    if group not in groups:
        raise RefusedByRule("ResourceNotFoundException", f"Schedule group {group} does not exist.", 404)
    require(_SCHEDULE_NAME.fullmatch(name), f"Invalid schedule name {name!r}.")
    expression = request.get("ScheduleExpression", "")
    require(_is_expression(expression), f"Invalid Schedule Expression {expression}.")
    one_off = _ONE_OFF.fullmatch(expression)
    if one_off and request.get("ScheduleExpressionTimezone", "UTC") == "UTC":
        due = datetime.fromisoformat(one_off[1]).replace(tzinfo=UTC)
        require(due > now, f"Invalid Schedule Expression {expression}: it is in the past.")
    require(request.get("FlexibleTimeWindow", {}).get("Mode") in {"OFF", "FLEXIBLE"}, "FlexibleTimeWindow is missing.")
    require(request.get("ActionAfterCompletion", "NONE") in {"NONE", "DELETE"}, "Invalid ActionAfterCompletion.")
    target = request.get("Target", {})
    require(str(target.get("RoleArn", "")).startswith("arn:aws:iam::"), "RoleArn is not the ARN of a role.")
    require(
        len(target.get("Input", "").encode("utf-8", "surrogatepass")) <= MAX_SCHEDULE_INPUT,
        f"Input must be at most {MAX_SCHEDULE_INPUT} bytes.",
    )
    queue = attributes_of(target.get("Arn", ""))
    require(queue, f"The target {target.get('Arn')} is not there.")
    if queue.get("FifoQueue") == "true":
        require(target.get("SqsParameters", {}).get("MessageGroupId"), "A FIFO target needs a MessageGroupId.")
        require(queue.get("ContentBasedDeduplication") == "true", "A FIFO target needs content-based deduplication.")
    dead_letters = target.get("DeadLetterConfig", {}).get("Arn")
    if dead_letters is not None:
        require(attributes_of(dead_letters), f"The dead-letter queue {dead_letters} is not there.")
        require(attributes_of(dead_letters).get("FifoQueue") != "true", "A dead-letter queue must be a standard queue.")


def _is_expression(expression: str) -> bool:
    one_off = _ONE_OFF.fullmatch(expression)
    if one_off is None:
        return _RECURRING.fullmatch(expression) is not None
    try:
        datetime.fromisoformat(one_off[1])
    except ValueError:
        return False
    return True
