"""Links between people and an MCP server: who has authorized us, with which tokens, and what waits for it.

A link is made so: a call is refused by the server; the person of that call, and nobody else, is shown the address of
the authorization server; that one sends the browser back to our page, which says who is about to link what; after a
yes, the code is exchanged for tokens, and all calls of that person that wait are carried out.
"""

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

import anyio
import httpx2
from mcp.shared.auth import OAuthToken
from pydantic import ValidationError

from ..ports.clock import Clock
from .discovery import TIMEOUT, Client, Endpoints, discover, guarded_client, register
from .results import McpError
from .servers import HttpServer
from .vault import Vault

LINK_KEPT = timedelta(hours=6)
"""How long a link may be followed: so long a runtime waits for the call."""
TOKENS_KEPT = timedelta(days=400)
REFRESH_MARGIN = 60.0
"""Seconds before its end from which on a token is refreshed."""
_LEASE = timedelta(seconds=45)
"""How long one refresh has; longer than its request may take."""
_LOOK_EVERY = 0.2


class LinkRefused(Exception):
    """What came to the page is not taken; the text is for the person who sees it."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that waits for a link: ``tool`` of the MCP server, or its list of tools where that is ``None``."""

    handle: str
    call_id: str
    tool: str | None
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Link:
    """What a person is about to link."""

    user: str
    server_url: str
    issuer: str


class Links:
    """The links of all people with one server.

    ``callback_url`` is the address of our page. Without a ``client``, we register by ourselves.
    """

    def __init__(
        self, server: HttpServer, *, vault: Vault, callback_url: str, clock: Clock, client: Client | None = None
    ) -> None:
        self._server = server
        self._vault = vault
        self._callback_url = callback_url
        self._clock = clock
        self._client = client

    def auth(self, user: str) -> httpx2.Auth:
        """Return what authorizes requests for ``user``."""
        return _UserAuth(self, user)

    # ------------------------------------------------------------------ making one

    async def begin(self, user: str, challenge: httpx2.Response, waiting: Waiting) -> str:
        """Return the address at which ``user`` can authorize us; keep what waits for it.

        Raises:
            McpError: there is no such address.
            StoreUnavailable: it cannot be kept.
        """
        async with guarded_client(self._server.url) as http:
            endpoints = await discover(http, self._server.url, challenge)
            client = self._client or await self._registered(http, endpoints)
        state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
        await self._vault.put(
            self._group("waiting", user),
            self._vault.name(waiting.handle),
            {
                "handle": waiting.handle,
                "call_id": waiting.call_id,
                "tool": waiting.tool,
                "arguments": dict(waiting.arguments),
            },
            kept=LINK_KEPT,
        )
        begun = {
            "user": user,
            "verifier": verifier,
            "endpoints": endpoints.model_dump(),
            "client": [client.id, client.secret, client.auth_method],
        }
        await self._vault.put("state", self._vault.name(state), begun, kept=LINK_KEPT)
        challenge_code = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": client.id,
            "redirect_uri": self._callback_url,
            "state": state,
            "code_challenge": challenge_code,
            "code_challenge_method": "S256",
            "resource": endpoints.resource,
        }
        if endpoints.scope:
            asked["scope"] = endpoints.scope
        if "offline_access" in (endpoints.scope or "").split():
            asked["prompt"] = "consent"
        joint = "&" if urlsplit(endpoints.authorize).query else "?"
        return f"{endpoints.authorize}{joint}{urlencode(asked)}"

    async def look(self, state: str, issuer: str | None) -> Link:
        """Return what ``state`` is about to link; it stays as it is.

        Raises:
            LinkRefused: the state is none of ours, over or used, or the answer is another issuer's.
        """
        begun = await self._begun(state, issuer)
        return Link(begun["user"], self._server.url, begun["endpoints"]["issuer"])

    async def finish(self, state: str, code: str, issuer: str | None) -> tuple[Link, Sequence[Waiting]]:
        """Exchange ``code`` for tokens, once; return what is linked now, and the calls to carry out.

        Raises:
            LinkRefused: as ``look`` has it, or the authorization server does not take the code.
        """
        begun = await self._begun(state, issuer)
        name = self._vault.name(state)
        if not await self._vault.claim("used", name, kept=LINK_KEPT):
            raise LinkRefused("This link was used already. Ask the agent again for a new one.")
        await self._vault.delete("state", name)
        endpoints, client = Endpoints.model_validate(begun["endpoints"]), Client(*begun["client"])
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._callback_url,
            "code_verifier": begun["verifier"],
            "resource": endpoints.resource,
        }
        try:
            token = await self._asked(endpoints, client, form)
        except _TokenRefused as error:
            raise LinkRefused(f"{endpoints.issuer} does not take the code: {error}. Ask the agent again.") from error
        user = begun["user"]
        await self._keep(user, token, endpoints, client)
        link = Link(user, self._server.url, endpoints.issuer)
        return link, await self._take_waiting(user)

    async def _begun(self, state: str, issuer: str | None) -> Mapping[str, Any]:
        begun = await self._vault.get("state", self._vault.name(state))
        if begun is None:
            raise LinkRefused("This link is unknown, used or too old. Ask the agent again for a new one.")
        endpoints = Endpoints.model_validate(begun["endpoints"])
        if (issuer is None and endpoints.tells_issuer) or (issuer is not None and issuer != endpoints.issuer):
            raise LinkRefused(f"This answer comes from {issuer}, and the link was to {endpoints.issuer}.")
        return begun

    async def _take_waiting(self, user: str) -> Sequence[Waiting]:
        group = self._group("waiting", user)
        taken = []
        for key, record in (await self._vault.all(group)).items():
            # Two links of one person may be finished at once: each call is carried out by one of them.
            if await self._vault.claim(self._group("carried-out", user), key, kept=LINK_KEPT):
                taken.append(Waiting(**record))
            await self._vault.delete(group, key)
        return taken

    async def _registered(self, http: httpx2.AsyncClient, endpoints: Endpoints) -> Client:
        key = self._vault.name(endpoints.issuer, self._callback_url)
        there = await self._vault.get("client", key)
        if there is not None:
            return Client(*there["client"])
        made = await register(http, endpoints, redirect_uri=self._callback_url, name="Infinity Agents")
        await self._vault.put("client", key, {"client": [made.id, made.secret, made.auth_method]}, kept=TOKENS_KEPT)
        return made

    # ------------------------------------------------------------------- using one

    async def token(self, user: str) -> str | None:
        """Return a token that is good for a while yet, refreshed where need be; ``None`` where there is no link."""
        kept = await self._tokens(user)
        if kept is None:
            return None
        ends_at = kept["ends_at"]
        if ends_at is not None and ends_at - REFRESH_MARGIN <= self._clock.now().timestamp():
            return await self.refreshed(user, kept["access"])
        access: str = kept["access"]
        return access

    async def refreshed(self, user: str, stale: str) -> str | None:
        """Return the token in place of ``stale``; ``None`` where only the person can make a new link.

        Of any number of processes that ask at once, one refreshes: most servers take a refresh token once.
        """
        group = self._group("tokens", user)
        while True:
            kept = await self._tokens(user)
            if kept is None or kept["access"] != stale:
                return None if kept is None else str(kept["access"])
            # Were a call that is given up to end this too, the new tokens might be issued and not kept.
            with anyio.CancelScope(shield=True):
                if await self._vault.claim(group, "lease", kept=_LEASE):
                    try:
                        # Whoever had the lease before may have been done in between.
                        kept = await self._tokens(user)
                        if kept is None or kept["access"] != stale:
                            return None if kept is None else str(kept["access"])
                        return await self._refresh(user, kept)
                    finally:
                        await self._vault.delete(group, "lease")
            await self._clock.sleep(_LOOK_EVERY)

    async def _refresh(self, user: str, kept: Mapping[str, Any]) -> str | None:
        endpoints, client = Endpoints.model_validate(kept["endpoints"]), Client(*kept["client"])
        refresh = kept["refresh"]
        try:
            if refresh is None:
                raise _TokenRefused("there is no refresh token")
            form = {"grant_type": "refresh_token", "refresh_token": refresh, "resource": endpoints.resource}
            token = await self._asked(endpoints, client, form)
        except _TokenRefused:
            await self._vault.delete(self._group("tokens", user), "tokens")
            return None
        # A server that does not rotate its refresh token leaves it out.
        await self._keep(user, token, endpoints, client, refresh=refresh)
        return token.access_token

    async def _tokens(self, user: str) -> Mapping[str, Any] | None:
        return await self._vault.get(self._group("tokens", user), "tokens")

    async def _keep(
        self, user: str, token: OAuthToken, endpoints: Endpoints, client: Client, *, refresh: str | None = None
    ) -> None:
        ends_at = None if token.expires_in is None else self._clock.now().timestamp() + token.expires_in
        record = {
            "access": token.access_token,
            "refresh": token.refresh_token or refresh,
            "ends_at": ends_at,
            "endpoints": endpoints.model_dump(),
            "client": [client.id, client.secret, client.auth_method],
        }
        await self._vault.put(self._group("tokens", user), "tokens", record, kept=TOKENS_KEPT)

    async def _asked(self, endpoints: Endpoints, client: Client, form: dict[str, str]) -> OAuthToken:
        """Ask the token endpoint.

        Raises:
            _TokenRefused: it says no.
            McpError: it cannot be asked now.
        """
        data, auth = client.authenticated(form)
        try:
            # The client's own timeout is of each step; one lease must last for all of them.
            async with asyncio.timeout(TIMEOUT), guarded_client(self._server.url) as http:
                response = await http.post(endpoints.token, data=data, auth=auth, follow_redirects=False)
        except (httpx2.HTTPError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            raise McpError(f"{endpoints.issuer} cannot be asked for a token: {why}") from error
        if response.status_code >= 500 or response.status_code == 429:
            raise McpError(f"{endpoints.issuer} cannot be asked for a token: it answers {response.status_code}")
        try:
            if response.status_code != 200:
                raise _TokenRefused(f"{response.status_code} {response.text[:200]}")
            return OAuthToken.model_validate_json(response.content)
        except ValidationError as error:
            raise _TokenRefused("its answer is no token") from error

    def _group(self, kind: str, user: str) -> str:
        return f"{kind}#{self._vault.name(self._server.url, user)}"


class _TokenRefused(Exception):
    """The authorization server says no."""


class _UserAuth(httpx2.Auth):
    """Puts one person's token on requests; a token that the server does not take any more is refreshed once."""

    def __init__(self, links: Links, user: str) -> None:
        self._links = links
        self._user = user

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        token = await self._links.token(self._user)
        if token is not None:
            request.headers["authorization"] = f"Bearer {token}"
        response = yield request
        if token is not None and response.status_code == 401:
            token = await self._links.refreshed(self._user, token)
            if token is not None:
                request.headers["authorization"] = f"Bearer {token}"
                yield request


Resume = Callable[[str, Sequence[Waiting]], Awaitable[None]]
"""Carries out what waited for a person."""
