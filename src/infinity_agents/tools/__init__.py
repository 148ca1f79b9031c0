"""The tools that every agent has: threads, subscriptions, sleep."""

from .subscriptions import CancelSubscription, CancelToolCall
from .synchronous import Tool
from .sleep import Sleep, SleepUntil, SleepUntilEventOrInput
from .threads import CloseThread, ReportToParent, SendMessageToChild, SpawnThread
from ..ports.clock import Clock


def built_in(clock: Clock) -> tuple[Tool, ...]:
    """Return the built-in tools."""
    return (
        SpawnThread(),
        ReportToParent(),
        SendMessageToChild(),
        CloseThread(),
        CancelToolCall(),
        CancelSubscription(),
        Sleep(),
        SleepUntil(clock),
        SleepUntilEventOrInput(),
    )
