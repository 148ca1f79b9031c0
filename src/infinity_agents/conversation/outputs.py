"""What people are told through the output queue."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .content import JsonObject, shown

OutputType = Literal[
    "message",
    "tool_call",
    "oauth_required",
    "user_choice_required",
    "user_choice_complete",
    "limit_reached",
    "error",
    "status",
]


def spoken(text: str, thread_id: str, root_id: str) -> str:
    """Return ``text`` as people may see it; a child's says which thread speaks."""
    return shown(text) if thread_id == root_id or not text else f"[{thread_id}] {shown(text)}"


@dataclass(frozen=True, slots=True)
class Output:
    """One message to people. ``details`` are the fields that only its ``type`` has, as the wire format names them."""

    type: OutputType
    text: str
    group_id: str
    thread_id: str
    output_id: str
    seq: tuple[int, int]
    metadata: JsonObject | None = None
    details: Mapping[str, Any] | None = None
