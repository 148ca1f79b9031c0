"""The environments of the functions that only put messages on the input queue."""

from dataclasses import dataclass, field
from typing import ClassVar

from .environments import SECRET, Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverEnvironment(Environment):
    """What the receiver of callbacks is told."""

    FUNCTION: ClassVar[str] = "receiver"
    ALTERNATIVES: ClassVar = (SECRET,)

    input_queue_url: str
    dynamodb_table_name: str
    callback_secret_arn: str | None = None
    callback_secret: str | None = field(default=None, repr=False)
    blob_bucket: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayEnvironment(Environment):
    """What the relay of the delay queue is told."""

    FUNCTION: ClassVar[str] = "relay"
    ALTERNATIVES: ClassVar = (SECRET,)

    input_queue_url: str
    callback_secret_arn: str | None = None
    callback_secret: str | None = field(default=None, repr=False)
