"""Where an MCP server's authorization server is, in each of the ways that a server may say it."""

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urljoin

import httpx2
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_client_registration_request,
    create_oauth_metadata_request,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    handle_registration_response,
    issuers_match,
    validate_metadata_issuer,
)
from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import BaseModel, ValidationError

from ..wire.addresses import secure_url
from .addresses import GuardedTransport
from .results import McpError

MAX_DOCUMENT = 256 * 1024
TIMEOUT = 20.0
"""Seconds that one request may take."""


class Endpoints(BaseModel):
    """What is known of the authorization server of an MCP server."""

    issuer: str
    authorize: str
    token: str
    register_at: str | None
    resource: str
    scope: str | None
    tells_issuer: bool = False
    """Whether its answers name the issuer, by which they can be told from those of another."""


@dataclass(frozen=True, slots=True)
class Client:
    """What we are to an authorization server. Without a ``secret``, we are a public client."""

    id: str
    secret: str | None = None
    auth_method: str | None = None

    def authenticated(self, form: dict[str, str]) -> tuple[dict[str, str], httpx2.Auth]:
        """Return the form of a request for tokens, and the authorization that goes with it."""
        form = {**form, "client_id": self.id}
        if self.secret is None:
            return form, httpx2.Auth()
        if self.auth_method == "client_secret_post":
            return {**form, "client_secret": self.secret}, httpx2.Auth()
        return form, httpx2.BasicAuth(quote(self.id, safe=""), quote(self.secret, safe=""))


def guarded_client(server_url: str) -> httpx2.AsyncClient:
    """Return a client for all that ``server_url`` names: public addresses alone, redirects included."""
    return httpx2.AsyncClient(
        transport=GuardedTransport(server_url), timeout=TIMEOUT, follow_redirects=True, max_redirects=3
    )


async def discover(http: httpx2.AsyncClient, server_url: str, challenge: httpx2.Response) -> Endpoints:
    """Return the authorization server that ``challenge``, an answer of 401 or 403, leads to.

    Raises:
        McpError: it leads to none, or to where we do not go.
    """
    try:
        resource = await _resource(http, server_url, challenge)
        advertised = None if resource is None else str(resource.authorization_servers[0])
        metadata = await _metadata(http, server_url, advertised)
        return _checked(_endpoints(server_url, challenge, resource, metadata), metadata)
    except (httpx2.HTTPError, OAuthFlowError, ValueError) as error:
        raise McpError(f"the MCP server wants to be authorized, and cannot be: {error}") from error


async def register(http: httpx2.AsyncClient, endpoints: Endpoints, *, redirect_uri: str, name: str) -> Client:
    """Register as a new client.

    Raises:
        McpError: the authorization server registers nobody, or not us.
    """
    if endpoints.register_at is None:
        raise McpError(
            f"{endpoints.issuer} registers no clients by itself; register one there with the redirect URL "
            f"{redirect_uri}, and configure its client_id"
        )
    wanted = OAuthClientMetadata.model_validate(
        {
            "client_name": name,
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "scope": endpoints.scope,
        }
    )
    request = create_client_registration_request(None, wanted, endpoints.issuer)
    try:
        response = await http.post(
            endpoints.register_at, content=request.content, headers={"content-type": "application/json"}
        )
        made = await handle_registration_response(response)
    except (httpx2.HTTPError, OAuthRegistrationError) as error:
        raise McpError(f"{endpoints.issuer} does not register us: {error}") from error
    return Client(made.client_id, made.client_secret, made.token_endpoint_auth_method)


async def _resource(
    http: httpx2.AsyncClient, server_url: str, challenge: httpx2.Response
) -> ProtectedResourceMetadata | None:
    told = extract_resource_metadata_from_www_auth(challenge)
    for url in build_protected_resource_metadata_discovery_urls(told, server_url):
        document = await _document(http, url)
        if document is None:
            continue
        try:
            found = ProtectedResourceMetadata.model_validate(document)
        except ValidationError:
            continue
        wanted = resource_url_from_server_url(server_url)
        if not check_resource_allowed(requested_resource=wanted, configured_resource=str(found.resource)):
            raise OAuthFlowError(f"{url} is about {found.resource}, and the server is {wanted}")
        return found
    return None


async def _metadata(http: httpx2.AsyncClient, server_url: str, advertised: str | None) -> OAuthMetadata | None:
    expected = advertised or _origin(server_url)
    for url in build_oauth_authorization_server_metadata_discovery_urls(advertised, server_url):
        document = await _document(http, url)
        if document is None:
            continue
        try:
            found = OAuthMetadata.model_validate(document)
        except ValidationError:
            continue
        if not issuers_match(str(found.issuer), expected):
            validate_metadata_issuer(found, expected)
        return found
    if advertised is not None:
        raise OAuthFlowError(f"{advertised} has no metadata where RFC 8414 and OpenID Connect look for it")
    return None


def _endpoints(
    server_url: str,
    challenge: httpx2.Response,
    resource: ProtectedResourceMetadata | None,
    metadata: OAuthMetadata | None,
) -> Endpoints:
    scope = get_client_metadata_scopes(
        extract_scope_from_www_auth(challenge), resource, metadata, ["authorization_code", "refresh_token"]
    )
    about = str(resource.resource) if resource else resource_url_from_server_url(server_url)
    if metadata is None:
        # The first revision of the protocol with authorization had these paths by default.
        base = _origin(server_url)
        paths = {name: urljoin(base, f"/{name}") for name in ("authorize", "token", "register")}
        return Endpoints(
            issuer=base,
            authorize=paths["authorize"],
            token=paths["token"],
            register_at=paths["register"],
            resource=about,
            scope=scope,
        )
    return Endpoints(
        issuer=str(metadata.issuer),
        authorize=str(metadata.authorization_endpoint),
        token=str(metadata.token_endpoint),
        register_at=str(metadata.registration_endpoint) if metadata.registration_endpoint else None,
        resource=about,
        scope=scope,
        tells_issuer=bool(metadata.authorization_response_iss_parameter_supported),
    )


def _checked(endpoints: Endpoints, metadata: OAuthMetadata | None) -> Endpoints:
    methods = metadata.code_challenge_methods_supported if metadata else None
    if methods is not None and "S256" not in methods:
        raise OAuthFlowError(f"{endpoints.issuer} has no PKCE with S256, without which a code can be stolen")
    # Where a person is sent. What we ask ourselves is looked at when it is asked.
    secure_url(endpoints.authorize)
    return endpoints


async def _document(http: httpx2.AsyncClient, url: str) -> Any:
    """Return a JSON document; ``None`` where there is none."""
    request = create_oauth_metadata_request(url)
    async with http.stream("GET", url, headers=request.headers) as response:
        if response.status_code >= 500 or response.status_code == 429:
            # That says nothing about whether it has any, and must not lead elsewhere.
            raise OAuthFlowError(f"{url} answers {response.status_code}; try again later")
        if response.status_code != 200:
            return None
        body = b""
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_DOCUMENT:
                raise OAuthFlowError(f"{url} has more than {MAX_DOCUMENT} bytes")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _origin(url: str) -> str:
    """Return scheme, host and port of ``url`` as it has them."""
    parts = httpx2.URL(url)
    return f"{parts.scheme}://{parts.netloc.decode()}"
