"""What waits for its time in the delay queue or in a schedule, for the relay to forward."""

import json
from dataclasses import dataclass
from typing import cast

from pydantic import ValidationError

from ..errors import Undecodable
from .codecs import adapter_of
from .inputs import explain, parse_json


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message for the input queue: its body, which carries its own proof, and the ids that it is sent under."""

    body: str
    group_id: str
    dedup_id: str


_delayed = adapter_of(DelayedMessage)


def encode(message: DelayedMessage) -> str:
    """Return ``message`` as ASCII JSON."""
    fields = {"body": message.body, "group_id": message.group_id, "dedup_id": message.dedup_id}
    return json.dumps(fields, separators=(",", ":"))


def decode(text: str) -> DelayedMessage:
    """Return the message that ``encode`` gave this text.

    Raises:
        Undecodable: it is not such a message; the text names the field.
    """
    try:
        return cast("DelayedMessage", _delayed().validate_python(parse_json(text)))
    except ValidationError as error:
        raise Undecodable(f"not a delayed message: {explain(error)}") from error
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"not a delayed message: not JSON: {error}") from error
