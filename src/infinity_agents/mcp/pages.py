"""The page to which an authorization server sends a person's browser, whoever serves it."""

import hmac
import html
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from ..errors import StoreUnavailable
from ..rap.asgi import Application, Receive, Refused, Scope, Send, body_of
from .links import Link, LinkRefused, Links, Resume
from .results import McpError
from .vault import Vault

PATH = "/oauth/callback"
MAX_FORM = 64 * 1024

HEADERS: Mapping[str, str] = {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    # The address holds a code, the page asks for a yes: nobody else is to see the one or to frame the other.
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Page:
    """What a browser is answered, with ``HEADERS``."""

    status: int
    body: str


class LinkPages:
    """Says who is about to link what, waits for a yes, links, and has ``resume`` carry out what waited.

    The yes carries a token that only our page of that very code has: no other page can say it for a person.
    """

    def __init__(self, links: Links, vault: Vault, resume: Resume) -> None:
        self._links = links
        self._vault = vault
        self._resume = resume

    async def shown(self, query: Mapping[str, str]) -> Page:
        """Return the page for a browser that comes from the authorization server."""
        if "error" in query:
            why = query.get("error_description") or query["error"]
            return _page(400, "Not linked", f"The authorization server says: {why[:500]}")
        missing = [name for name in ("state", "code") if not query.get(name)]
        if missing:
            return _page(
                400, "Not linked", f"The address lacks {' and '.join(missing)}. Follow the agent's link again."
            )
        try:
            link = await self._links.look(query["state"], query.get("iss"))
        except LinkRefused as refusal:
            return _page(400, "Not linked", str(refusal))
        except StoreUnavailable:
            return _LATER
        fields = {name: query[name] for name in ("state", "code", "iss") if query.get(name)}
        return Page(200, _question(link, {**fields, "token": self._token(fields)}))

    async def said_yes(self, form: Mapping[str, str]) -> Page:
        """Return the page for a person who said yes."""
        fields = {name: form[name] for name in ("state", "code", "iss") if form.get(name)}
        if not hmac.compare_digest(form.get("token", "").encode(), self._token(fields).encode()):
            return _page(403, "Not linked", "This yes does not come from our page. Follow the agent's link again.")
        try:
            link, waiting = await self._links.finish(fields["state"], fields["code"], fields.get("iss"))
        except LinkRefused as refusal:
            return _page(400, "Not linked", str(refusal))
        except (StoreUnavailable, McpError):
            return _LATER
        await self._resume(link.user, waiting)
        return _page(200, "Linked", f"{link.user} is linked with {link.server_url}. You can close this page.")

    def _token(self, fields: Mapping[str, str]) -> str:
        return self._vault.signature("yes", fields.get("state", ""), fields.get("code", ""), fields.get("iss", ""))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the page."""
        if scope["method"] == "GET":
            page = await self.shown(fields_of(scope["query_string"].decode("latin-1")))
        elif scope["method"] == "POST":
            try:
                body = await body_of(receive, MAX_FORM)
                page = await self.said_yes(fields_of(body.decode("utf-8", "replace")))
            except Refused as refusal:
                page = _page(413, "Not linked", str(refusal))
        else:
            page = _page(405, "Not here", "This page takes GET and POST.")
        headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        await send({"type": "http.response.start", "status": page.status, "headers": headers})
        await send({"type": "http.response.body", "body": page.body.encode()})


def with_pages(pages: LinkPages, tools: Application) -> Application:
    """Return an application that serves ``pages`` at ``PATH``, and ``tools`` elsewhere."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["type"] == "http" and scope["path"] == PATH
        await (pages if is_page else tools)(scope, receive, send)

    return application


def fields_of(text: str) -> dict[str, str]:
    """Return the fields of a query or a form; of one that is there twice, none: it is not clear which is meant."""
    pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=50) if text.count("&") < 50 else []
    names = [name for name, _ in pairs]
    return {name: value for name, value in pairs if names.count(name) == 1}


def _question(link: Link, fields: Mapping[str, str]) -> str:
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{html.escape(value)}">' for name, value in fields.items()
    )
    return _document(
        "Link an account?",
        f"<p>The agent will act at <b>{html.escape(link.server_url)}</b> in your name, for its user "
        f"<b>{html.escape(link.user)}</b>. You have just authorized that at {html.escape(link.issuer)}.</p>"
        f"<p>Say yes only if {html.escape(link.user)} is you, and you asked the agent for this. Otherwise close this "
        f'page: nothing is linked.</p><form method="post">{hidden}<button>Yes, link my account</button></form>',
    )


def _page(status: int, title: str, text: str) -> Page:
    return Page(status, _document(title, f"<p>{html.escape(text)}</p>"))


def _document(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>body{{font:16px/1.5 '
        f"sans-serif;max-width:36em;margin:4em auto;padding:0 1em}}</style><h1>{title}</h1>{body}</html>"
    )


_LATER = _page(503, "Not linked yet", "This cannot be done right now. Reload the page in a minute.")
