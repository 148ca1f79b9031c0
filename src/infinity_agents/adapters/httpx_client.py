"""The HTTP port over httpx: one long-lived client, opened at the first request."""

import asyncio
import http.cookiejar
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ..errors import Misconfigured
from ..ports.http import HttpResponse, HttpUnreachable

if TYPE_CHECKING:
    import httpx

BearerTokens = Callable[[str], Awaitable[str]]
"""Returns the secret of that name."""
Signer = Callable[[str, str, Mapping[str, str], bytes], Mapping[str, str]]
"""Returns the headers that sign (method, URL, headers, body)."""

# A proxy of the environment is for the world, not for this machine.
_UNPROXIED = {"all://localhost": None, "all://127.0.0.1": None, "all://[::1]": None}

# It logs the URL of every request, and some URLs are secrets.
if logging.getLogger("httpx").level == logging.NOTSET:
    logging.getLogger("httpx").setLevel(logging.WARNING)


class HttpxClient:
    """Sends requests with httpx; follows no redirect and keeps no cookie.

    ``bearer`` and ``signer`` serve the auth ``bearer:NAME`` and ``sigv4``; without them these are refused.
    """

    def __init__(self, *, bearer: BearerTokens | None = None, signer: Signer | None = None) -> None:
        self._bearer = bearer
        self._signer = signer
        self._client: httpx.AsyncClient | None = None

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        auth: str = "none",
        timeout: float = 30.0,  # noqa: ASYNC109 - the port's: it bounds the whole answer, retries are the caller's
        max_bytes: int = 8 * 1024 * 1024,
    ) -> HttpResponse:
        """Send one request and return the whole answer; a redirect is returned, not followed.

        Raises:
            HttpUnreachable: no whole answer within ``timeout`` seconds, or a longer one than ``max_bytes``.
            Misconfigured: ``auth`` is unknown, or nothing was passed that serves it.
        """
        import httpx  # noqa: PLC0415 - it takes long to import, and a slice without a tool does not need it

        # What httpx lets through beside its own: a host that is no name, a port that is no port, a group of these.
        failures = (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, OverflowError, ExceptionGroup)
        # Compressed answers could be far larger than what was read of them.
        sent = {"Accept-Encoding": "identity", **(headers or {})}
        sent |= await self._proof(auth, method, url, sent, body or b"")
        try:
            async with asyncio.timeout(timeout):
                return await self._answer(method, url, sent, body, max_bytes)
        except TimeoutError as error:
            raise HttpUnreachable(f"no answer within {timeout:g} seconds") from error
        except failures as error:
            raise HttpUnreachable(str(error) or type(error).__name__) from error

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _answer(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, max_bytes: int
    ) -> HttpResponse:
        answer = bytearray()
        async with self._opened().stream(method, url, content=body, headers=headers) as response:
            async for chunk in response.aiter_bytes():
                answer += chunk
                if len(answer) > max_bytes:
                    raise HttpUnreachable(f"the answer has more than {max_bytes} bytes")
            return HttpResponse(response.status_code, bytes(answer))

    def _opened(self) -> "httpx.AsyncClient":
        import httpx  # noqa: PLC0415 - as above

        if self._client is None:
            cookies = http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
            self._client = httpx.AsyncClient(
                follow_redirects=False,
                timeout=None,  # noqa: S113 - the whole request is timed
                cookies=cookies,
                mounts=_UNPROXIED,
            )
        return self._client

    async def _proof(
        self, auth: str, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> Mapping[str, str]:
        kind, _, name = auth.partition(":")
        if kind == "none":
            return {}
        if kind == "bearer" and self._bearer is not None:
            return {"Authorization": f"Bearer {await self._bearer(name)}"}
        if kind == "sigv4" and self._signer is not None:
            return self._signer(method, url, headers, body)
        raise Misconfigured(f"auth {kind!r} of {url} cannot be served here: use 'none', or a host that offers it")
