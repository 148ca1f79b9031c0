"""HTTP, as the runtime needs it: one request, whole answer, no redirects followed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A whole answer."""

    status: int
    body: bytes


class HttpUnreachable(Exception):
    """No whole answer came: no connection, a time-out, an answer over ``max_bytes``. The request may have arrived."""


class HttpClient(Protocol):
    """Sends one request at a time and follows nothing."""

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        auth: str = "none",
        timeout: float = 30.0,  # noqa: ASYNC109 - an adapter hands it to its client library
        max_bytes: int = 8 * 1024 * 1024,
    ) -> HttpResponse:
        """Send one request and return the whole answer; a redirect is returned, not followed.

        ``auth`` is how the request proves itself: ``none``, ``sigv4``, or ``bearer:NAME`` of a secret.

        Raises:
            HttpUnreachable: no whole answer within ``timeout`` seconds, or a longer one than ``max_bytes``.
        """
        ...
