"""Ending what is running: a detached call, or a subscription."""

from ..conversation.ledger import Call, CallState
from ..ports.tool import SliceContext, ToolAnswer, ToolSpec
from .synchronous import BuiltIn, described, object_schema

_CALL_ID = {"tool_call_id": described("string", "The id of the call, as the events about it name it.")}


class CancelToolCall(BuiltIn):
    """Cancels a call of this thread that is still running in the background."""

    spec = ToolSpec(
        "cancel_tool_call",
        "Cancel a call of yours that was answered as still running. Its result will not come any more.",
        object_schema(_CALL_ID, required=("tool_call_id",)),
    )

    async def execute_synchronous(self, call: Call, context: SliceContext) -> ToolAnswer:
        return _cancel(context, str(call.arguments["tool_call_id"]), CallState.DETACHED, "call that is still running")


class CancelSubscription(BuiltIn):
    """Cancels a subscription of this thread."""

    spec = ToolSpec(
        "cancel_subscription",
        "Cancel a subscription of yours, named by the call that started it. No more events of it will come.",
        object_schema(_CALL_ID, required=("tool_call_id",)),
    )

    async def execute_synchronous(self, call: Call, context: SliceContext) -> ToolAnswer:
        return _cancel(context, str(call.arguments["tool_call_id"]), CallState.SUBSCRIBED, "open subscription")


def _cancel(context: SliceContext, call_id: str, state: CallState, what: str) -> ToolAnswer:
    meant = context.call(call_id)
    if meant is None or meant.state is not state:
        return ToolAnswer.error(f"{call_id!r} is no {what} of this thread.")
    context.cancel(meant)
    return ToolAnswer.of(f"Cancelled {meant.tool}.")
