"""The tools that every agent has: threads, subscriptions, sleep."""

from ..ports.clock import Clock
from .sleep import Sleep, SleepUntil, SleepUntilEventOrInput
from .subscriptions import CancelSubscription, CancelToolCall
from .synchronous import Tool
from .threads import CloseThread, ReportToParent, SendMessageToChild, SpawnThread


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
