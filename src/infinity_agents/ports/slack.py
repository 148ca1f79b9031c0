"""Slack's Web API, as its front end needs it."""

from collections.abc import Mapping
from typing import Any, Protocol

from ..errors import InfinityError, Redeliver


class SlackUnavailable(Redeliver):
    """Slack cannot be reached or is down; what was asked for may have been done."""


class SlackLimited(Redeliver):
    """Slack asks to wait ``retry_after`` seconds; nothing was done."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SlackRefused(InfinityError):
    """Slack said no for good; ``code`` is its own word for the reason, such as ``channel_not_found``."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class SlackWeb(Protocol):
    """Calls the methods of Slack's Web API with the agent's own token."""

    async def call(self, method: str, /, **arguments: Any) -> Mapping[str, Any]:
        """Return the answer to ``method``, spelt as Slack spells it (``chat.postMessage``).

        Raises:
            SlackRefused: the answer says no, whatever its HTTP status.
            SlackLimited: too many calls.
            SlackUnavailable: no answer, or one that makes no sense.
        """
        ...
