"""What the built-in tools have in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from ..conversation.content import JsonObject, shown
from ..conversation.ledger import Call
from ..ports.tool import CallContext, SliceContext, Tool, ToolAnswer, ToolSpec

__all__ = ["BuiltIn", "Tool", "described", "object_schema"]


def object_schema(properties: Mapping[str, Any], *, required: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the JSON Schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def described(type_: str, description: str, **more: Any) -> dict[str, Any]:
    """Return the JSON Schema of one property."""
    return {"type": type_, "description": description, **more}


class BuiltIn(ABC):
    """A tool of ours that answers inside the slice."""

    spec: ToolSpec
    is_passive = False
    tool_set: str | None = None
    call_timeout: timedelta | None = None

    def display(self, arguments: JsonObject) -> str:
        shown_arguments = ", ".join(f"{key}={_short(value)}" for key, value in arguments.items())
        return f"{self.spec.name}({shown_arguments})"

    def wakes_at(self, call: Call) -> datetime | None:
        return None

    @abstractmethod
    async def execute_synchronous(self, call: Call, context: SliceContext) -> ToolAnswer | None:
        """Answer now, or return ``None`` to be dispatched after the commit."""

    async def execute(self, call: Call, context: CallContext) -> None:  # noqa: B027 - most tools leave it as it is
        """Do nothing: there is nobody to hand the call to."""


def _short(value: object) -> str:
    text = shown(str(value)).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."
