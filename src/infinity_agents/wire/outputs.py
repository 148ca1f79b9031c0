"""Output queue messages as JSON."""

import json
from typing import Any

from ..conversation.outputs import Output
from .inputs import mended_json


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
    """Return the output that ``encode`` gave this text."""
    fields = json.loads(text)
    seq = fields.pop("seq")
    return Output(
        type=fields.pop("type"),
        text=fields.pop("text"),
        metadata=fields.pop("metadata"),
        group_id=fields.pop("group_id"),
        thread_id=fields.pop("thread_id"),
        output_id=fields.pop("output_id"),
        seq=(seq[0], seq[1]),
        details=fields or None,
    )
