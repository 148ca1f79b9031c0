"""Output queue messages as JSON."""

import json
from typing import Any, cast

from pydantic import ValidationError

from ..conversation.outputs import Output
from ..errors import Undecodable
from .codecs import adapter_of, mended_json
from .inputs import explain

_ALWAYS = ("type", "text", "metadata", "group_id", "thread_id", "output_id", "seq")
"""The fields that every output has; all others are its details."""

_output = adapter_of(Output)


def to_json(output: Output) -> dict[str, Any]:
    """Return the fields of ``output`` in the fixed spelling; ``text`` and ``metadata`` are always there."""
    return {
        "type": output.type,
        "text": output.text,
        "metadata": output.metadata,
        "group_id": output.group_id,
        "thread_id": output.thread_id,
        "output_id": output.output_id,
        "seq": list(output.seq),
        **(output.details or {}),
    }


def encode(output: Output) -> str:
    """Return ``output`` as ASCII JSON."""
    text = json.dumps(to_json(output), separators=(",", ":"))
    # Only an escaped surrogate, lone or paired, can need mending; most texts have none.
    return json.dumps(mended_json(to_json(output)), separators=(",", ":")) if "\\ud" in text else text


def decode(text: str) -> Output:
    """Return the output that ``encode`` gave this text.

    Raises:
        Undecodable: it is none; the text names the field.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"not an output: not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise Undecodable(f"not an output: must be a JSON object, not {type(fields).__name__}")
    always = {name: fields.pop(name) for name in _ALWAYS if name in fields}
    try:
        return cast("Output", _output().validate_python({**always, "details": fields or None}))
    except ValidationError as error:
        raise Undecodable(f"not an output: {explain(error)}") from error
