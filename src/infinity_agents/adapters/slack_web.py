"""Slack's Web API over ``slack_sdk``, each call in a thread."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ..ports.slack import SlackLimited, SlackRefused, SlackUnavailable
from ..settings.slack import SLACK_API

if TYPE_CHECKING:
    from slack_sdk import WebClient
    from slack_sdk.errors import SlackApiError

_PASSING = frozenset(
    {"fatal_error", "internal_error", "request_timeout", "service_unavailable", "team_added_to_org", "timeout"}
)
"""Answers that say no and mean: not now."""
_LIMITED = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})


class SlackWebClient:
    """A ``SlackWeb`` that speaks with ``token``; each call takes at most ``timeout`` seconds.

    ``slack_sdk`` is imported at the first call.
    """

    def __init__(self, token: str, *, url: str = SLACK_API, timeout: int = 10) -> None:
        self._token = token
        self._url = url
        self._timeout = timeout
        self._client: WebClient | None = None

    async def call(self, method: str, /, **arguments: Any) -> Mapping[str, Any]:
        """Return the answer to ``method``.

        Raises:
            SlackRefused: the answer says no.
            SlackLimited: too many calls.
            SlackUnavailable: no answer, or one that makes no sense.
        """
        return await asyncio.to_thread(self._call, method, arguments)

    def _call(self, method: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        from slack_sdk.errors import SlackApiError, SlackClientError  # noqa: PLC0415 - an optional extra

        try:
            # The SDK knows of each method whether it takes a form, JSON or a query.
            answer = getattr(self._opened(), method.replace(".", "_"))(**arguments)
        except SlackApiError as error:
            _raise_for(method, error)
        except (SlackClientError, OSError, ValueError) as error:
            raise SlackUnavailable(f"{method}: {str(error) or type(error).__name__}") from error
        found: Mapping[str, Any] = answer.data
        return found

    def _opened(self) -> "WebClient":
        if self._client is None:
            from slack_sdk import WebClient  # noqa: PLC0415 - an optional extra

            # Whoever calls knows how much time is left for another try.
            self._client = WebClient(self._token, base_url=self._url, timeout=self._timeout, retry_handlers=[])
        return self._client


def _raise_for(method: str, error: "SlackApiError") -> NoReturn:
    response: Any = error.response
    told: Mapping[str, Any] = response.data if isinstance(response.data, dict) else {}
    code = str(told.get("error", ""))
    if response.status_code == 429 or code in _LIMITED:
        raise SlackLimited(f"{method}: too many calls", _seconds(response.headers)) from error
    if response.status_code >= 500 or not code or code in _PASSING:
        raise SlackUnavailable(f"{method}: status {response.status_code}, {code or 'not of the API'}") from error
    needed = f"; the token lacks the scope {told['needed']}" if told.get("needed") else ""
    reasons = "; ".join(map(str, (told.get("response_metadata") or {}).get("messages", ())))
    raise SlackRefused(f"{method}: {code}{needed}{f' ({reasons[:300]})' if reasons else ''}", code) from error


def _seconds(headers: Mapping[str, Any]) -> float:
    value = next((value for name, value in headers.items() if name.lower() == "retry-after"), "1")
    told = value[0] if isinstance(value, list) else value
    return float(told) if str(told).isdigit() else 1.0
