"""An MCP server that wants OAuth, on the SDK's own server side, in each way of saying where to get it."""

import asyncio
import contextlib
import secrets
import time
from contextlib import asynccontextmanager

from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, AuthorizationCode, RefreshToken, TokenError, construct_redirect_uri
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthToken
from uvicorn import Config, Server

from infinity_agents.rap.asgi import listening_socket, url_of

PRM = "/.well-known/oauth-protected-resource"
ASM = "/.well-known/oauth-authorization-server"
OIDC = "/.well-known/openid-configuration"
VARIANTS = ("told", "untold", "legacy", "oidc", "path")


class Provider:
    """Issues codes and tokens; a refresh token is good once."""

    def __init__(self):
        self.clients, self.codes, self.access, self.refresh, self.owners = {}, {}, {}, {}, {}
        self.next_owner = "somebody"
        self.refreshes, self.reused = [], []
        self.pause = lambda: asyncio.sleep(0)
        self.begun, self.end = asyncio.Event(), asyncio.Event()
        self.expires_in = 3600
        self.asked = []

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):
        self.asked.append(params)
        code = secrets.token_urlsafe(16)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 300,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.owners[code] = self.next_owner
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client, code):
        return self.codes.get(code)

    async def exchange_authorization_code(self, client, code):
        del self.codes[code.code]
        return self._issued(client, code.scopes, code.resource, self.owners[code.code])

    async def load_refresh_token(self, client, token):
        if token in self.owners and token not in self.refresh:
            self.reused.append(token)
        return self.refresh.get(token)

    async def exchange_refresh_token(self, client, token, scopes):
        self.refreshes.append(token.token)
        await self.pause()
        if self.refresh.pop(token.token, None) is None:
            raise TokenError("invalid_grant", "used before")
        return self._issued(client, scopes, self.resource, self.owners[token.token])

    async def load_access_token(self, token):
        found = self.access.get(token)
        return found if found and found.expires_at > time.time() else None

    async def revoke_token(self, token):
        self.access.pop(token.token, None)

    def expire_access_tokens(self):
        self.access.clear()

    def _issued(self, client, scopes, resource, owner):
        self.resource = resource
        access, refresh = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        self.access[access] = AccessToken(
            token=access,
            client_id=client.client_id,
            scopes=scopes,
            expires_at=int(time.time()) + 3600,
            resource=resource,
            subject=owner,
        )
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client.client_id, scopes=scopes)
        self.owners[refresh] = owner
        return OAuthToken(
            access_token=access, refresh_token=refresh, expires_in=self.expires_in, scope=" ".join(scopes)
        )


@asynccontextmanager
async def oauth_server(variant):
    """Give the URL of the MCP server, and its provider."""
    with listening_socket("127.0.0.1", 0) as listening:
        base = url_of(listening)
        provider = Provider()
        issuer = f"{base}/tenant" if variant == "path" else base
        mcp = MCPServer(
            "protected",
            auth_server_provider=provider,
            auth=AuthSettings(
                issuer_url=issuer,
                resource_server_url=f"{base}/mcp",
                required_scopes=["use"],
                validate_token_resource=True,
                client_registration_options=ClientRegistrationOptions(
                    enabled=True, valid_scopes=["use"], default_scopes=["use"]
                ),
            ),
        )

        @mcp.tool()
        def whoami() -> str:
            """Tell who is logged in."""
            return get_access_token().subject

        @mcp.tool()
        async def slow() -> str:
            """Tell who is logged in, in its time."""
            provider.begun.set()
            await provider.end.wait()
            return get_access_token().subject

        app = told_by(variant, mcp.streamable_http_app())
        config = Config(app, log_config=None, lifespan="on")
        config.load()
        server = Server(config)
        server.lifespan = config.lifespan_class(config)
        server.capture_signals = contextlib.nullcontext
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"{base}/mcp", provider
        finally:
            server.should_exit = True
            server.force_exit = True
            await task


def told_by(variant, app):
    async def application(scope, receive, send):
        path = scope.get("path", "")
        scope = dict(scope)
        if variant == "legacy" and path.startswith(PRM):
            scope["path"] = "/nothing"
        if variant == "oidc" and path == ASM:
            scope["path"] = "/nothing"
        if variant == "oidc" and path == OIDC:
            scope["path"] = ASM
        if variant == "path":
            if path == f"{ASM}/tenant":
                scope["path"] = ASM
            elif path == ASM:
                scope["path"] = "/nothing"
            elif path.startswith("/tenant/"):
                scope["path"] = path.removeprefix("/tenant")

        async def sent(message):
            if message["type"] == "http.response.start" and variant != "told":
                headers = [
                    (name, b"Bearer" if name.lower() == b"www-authenticate" else value)
                    for name, value in message["headers"]
                ]
                message = {**message, "headers": headers}
            await send(message)

        await app(scope, receive, sent)

    return application
