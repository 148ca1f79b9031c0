"""Links: a person authorizes us with a server, on the SDK's own server side, and a call that waited is carried out."""

import asyncio
import html
import ipaddress
import json
import re
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest

from infinity_agents.adapters.memory_records import MemoryRecords
from infinity_agents.adapters.system import SystemClock
from infinity_agents.errors import Misconfigured
from infinity_agents.mcp.addresses import AddressRefused, GuardedTransport, is_public
from infinity_agents.mcp.discovery import discover, guarded_client
from infinity_agents.mcp.links import LinkRefused, Links, Waiting
from infinity_agents.mcp.pages import PATH, LinkPages, fields_of, with_pages
from infinity_agents.mcp.proxy import McpProxy
from infinity_agents.mcp.results import McpError
from infinity_agents.mcp.servers import HttpServer
from infinity_agents.mcp.vault import Vault
from infinity_agents.rap.asgi import listening_socket
from tests.mcp.oauth_server import VARIANTS, oauth_server
from tests.rap.conftest import client, invoke, raw_server, receiver, result_of, serve

__all__ = ["client", "invoke", "raw_server", "receiver", "result_of", "serve"]

SECRET = b"a secret for the tests alone"


class Setup:
    """A proxy with links, its page, and the protected server."""

    def __init__(self, url, provider, records, clock=None):
        self.provider, self.records = provider, records
        with listening_socket("127.0.0.1", 0) as listening:
            self.port = listening.getsockname()[1]
        self.base = f"http://127.0.0.1:{self.port}"
        self.vault = Vault(records, SECRET)
        self.server = HttpServer(url)
        self.links = Links(self.server, vault=self.vault, callback_url=self.base + PATH, clock=clock or SystemClock())
        self.proxy = McpProxy(self.server, name="protected", links=self.links, seconds=20)
        self.proxy.offer_pair()
        self.pages = LinkPages(self.links, self.vault, self.proxy.resume)
        self.app = with_pages(self.pages, self.proxy.server)


@asynccontextmanager
async def serving(variant="told"):
    async with oauth_server(variant) as (url, provider):
        setup = Setup(url, provider, MemoryRecords(SystemClock()))
        async with served_pages(setup):
            yield setup


@asynccontextmanager
async def served_pages(setup):
    from infinity_agents.rap.asgi import serving as served

    async with served(setup.app, "127.0.0.1", setup.port):
        yield
    await setup.proxy.aclose()


async def followed(client, provider, auth_url, owner):
    """Log in as ``owner``; return the page that asks, as a browser gets it."""
    provider.next_owner = owner
    sent = await client.get(auth_url, follow_redirects=False)
    assert sent.status_code == 302, sent.text
    return await client.get(sent.headers["location"])


def form_of(page):
    return {name: html.unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', page.text)}


WHOAMI = {"tool": "whoami"}


@pytest.mark.parametrize(
    "variant", [VARIANTS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS[1:])]
)
async def test_a_call_is_carried_out_once_its_person_has_linked(variant, client, invoke, receiver):
    async with serving(variant) as setup:
        await invoke(setup.base, "protected_invoke_tool", WHOAMI, user_id="Ada")
        asked = (await receiver.heard(1))[-1].json
        assert asked["type"] == "oauth"
        query = dict(parse_qsl(urlsplit(asked["auth_url"]).query))
        assert query["code_challenge_method"] == "S256"
        assert query["resource"].startswith(setup.server.url.removesuffix("/mcp"))
        page = await followed(client, setup.provider, asked["auth_url"], "ada@example.com")
        assert page.status_code == 200
        assert "Ada" in page.text
        assert setup.server.url in page.text
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert len(receiver.requests) == 1, "nothing is linked before the yes"
        done = await client.post(setup.base + PATH, data=form_of(page))
        assert done.status_code == 200, done.text
        result = (await receiver.heard(2))[-1].json
        assert (result["type"], result["id"], result["text"]) == ("tool_result", "call-1", "ada@example.com")
        await invoke(setup.base, "protected_invoke_tool", WHOAMI, user_id="Ada", id="call-2")
        assert (await receiver.heard(3))[-1].json["text"] == "ada@example.com"
        again = await client.post(setup.base + PATH, data=form_of(page))
        assert again.status_code == 400, "a state is used once"
        kept = json.dumps(setup.records._groups, default=str)
        for token in [*setup.provider.access, *setup.provider.refresh, "Ada"]:
            assert token not in kept, "nothing secret is kept in the clear"


async def linked(setup, client, invoke, receiver, user, owner, call_id):
    before = len(receiver.requests)
    await invoke(setup.base, "protected_invoke_tool", WHOAMI, user_id=user, id=call_id)
    asked = (await receiver.heard(before + 1))[-1].json
    page = await followed(client, setup.provider, asked["auth_url"], owner)
    done = await client.post(setup.base + PATH, data=form_of(page))
    assert done.status_code == 200
    await receiver.heard(before + 2)


async def test_two_users_at_once_never_share_a_token(client, invoke, receiver):
    async with serving() as setup:
        await linked(setup, client, invoke, receiver, "Ada", "ada", "a")
        await linked(setup, client, invoke, receiver, "Bob", "bob", "b")
        before = len(receiver.requests)
        for number in range(10):
            user = ("Ada", "Bob")[number % 2]
            await invoke(setup.base, "protected_invoke_tool", WHOAMI, user_id=user, id=f"{user}-{number}")
        results = [request.json for request in (await receiver.heard(before + 10))[before:]]
        assert {(result["id"][:3], result["text"]) for result in results} == {("Ada", "ada"), ("Bob", "bob")}


async def test_concurrent_calls_refresh_a_rotating_token_once_and_across_processes(client, invoke, receiver):
    async with serving() as setup:
        await linked(setup, client, invoke, receiver, "Ada", "ada", "a")
        setup.provider.expire_access_tokens()
        stale = await setup.links.token("Ada")
        other = Links(setup.server, vault=Vault(setup.records, SECRET), callback_url=setup.base, clock=SystemClock())
        fresh = await asyncio.gather(*(links.refreshed("Ada", stale) for links in (setup.links, other) * 5))
        assert len(set(fresh)) == 1
        assert fresh[0] not in {None, stale}
        assert len(setup.provider.refreshes) == 1
        # The refresh token was rotated: the next refresh takes the new one.
        setup.provider.expire_access_tokens()
        before = len(receiver.requests)
        await invoke(setup.base, "protected_invoke_tool", WHOAMI, user_id="Ada", id="later")
        assert (await receiver.heard(before + 1))[-1].json["text"] == "ada"
        assert len(set(setup.provider.refreshes)) == 2
        # One that is not taken any more leads to a new link.
        setup.provider.expire_access_tokens()
        setup.provider.refresh.clear()
        before = len(receiver.requests)
        await invoke(setup.base, "protected_invoke_tool", WHOAMI, user_id="Ada", id="much-later")
        assert (await receiver.heard(before + 1))[-1].json["type"] == "oauth"


@pytest.mark.slow
async def test_a_token_near_its_end_is_refreshed_before_it_is_used(client, invoke, receiver):
    async with serving() as setup:
        setup.provider.expires_in = 30
        await linked(setup, client, invoke, receiver, "Ada", "ada", "a")
        # What waited was carried out with the token that the refresh gave.
        assert setup.provider.refreshes
        assert receiver.requests[-1].json["text"] == "ada"


async def test_a_yes_of_another_page_is_refused_and_the_link_stays_good(client, invoke, receiver):
    async with serving() as setup:
        await invoke(setup.base, "protected_invoke_tool", WHOAMI, user_id="Ada")
        asked = (await receiver.heard(1))[-1].json
        page = await followed(client, setup.provider, asked["auth_url"], "ada")
        form = form_of(page)
        for wrong in ({**form, "token": "x" * 64}, {**form, "code": "other"}, {**form, "state": "other"}, {}):
            refused = await client.post(setup.base + PATH, data=wrong)
            assert refused.status_code in {400, 403}
        assert len(receiver.requests) == 1
        for address in ("", "?state=x", "?state=x&code=y", "?state=a&state=b&code=c", "?error=access_denied"):
            shown = await client.get(setup.base + PATH + address)
            assert shown.status_code == 400
        evil = await client.get(
            setup.base + PATH, params={"error": "x", "error_description": "<script>alert(1)</script>"}
        )
        assert "<script>" not in evil.text
        assert (await client.post(setup.base + PATH, data=form)).status_code == 200


async def test_an_answer_of_another_issuer_is_refused():
    async with serving() as setup:
        challenge = httpx2.Response(401)
        url = await setup.links.begin("Ada", challenge, Waiting("h", "c", "whoami", {}))
        state = dict(parse_qsl(urlsplit(url).query))["state"]
        with pytest.raises(LinkRefused, match="evil"):
            await setup.links.look(state, "https://evil.example/")
        assert (await setup.links.look(state, None)).user == "Ada"


async def test_a_call_without_a_user_is_refused(result_of):
    async with serving() as setup:
        result = await result_of(setup.base, "protected_invoke_tool", WHOAMI)
        assert result["is_error"]
        assert "no user" in result["text"]


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.1.2.3", "224.0.0.1", "::1",
     "fe80::1", "fd00::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::"],
)  # fmt: skip
def test_an_inner_address_is_not_public(address):
    assert not is_public(ipaddress.ip_address(address))


def test_an_outer_address_is_public():
    assert is_public(ipaddress.ip_address("93.184.216.34"))
    assert is_public(ipaddress.ip_address("2606:2800:220:1::1"))


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/latest", "https://10.1.2.3/", "https://localhost/", "http://[::1]:8080/"]
)
async def test_discovery_does_not_go_to_inner_addresses(url):
    challenge = httpx2.Response(401, headers={"www-authenticate": f'Bearer resource_metadata="{url}"'})
    async with guarded_client("https://mcp.example.com/mcp") as http:
        with pytest.raises(McpError, match="not a public address"):
            await discover(http, "https://mcp.example.com/mcp", challenge)


async def test_a_redirect_does_not_lead_to_inner_addresses(raw_server):
    from tests.rap.conftest import Answer

    server = await raw_server(lambda _: Answer(302, b"", {"location": "http://169.254.169.254/latest/meta-data"}))
    async with guarded_client(server.url) as http:
        with pytest.raises(AddressRefused, match=r"169\.254\.169\.254"):
            await http.get(server.url + "/.well-known/oauth-protected-resource")


async def test_a_server_on_loopback_may_name_loopback_by_http_and_nobody_else(raw_server):
    from tests.rap.conftest import Answer

    server = await raw_server(lambda _: Answer())
    async with httpx2.AsyncClient(transport=GuardedTransport("http://127.0.0.1:1/mcp")) as http:
        assert (await http.get(server.url)).status_code == 200
    async with httpx2.AsyncClient(transport=GuardedTransport("https://mcp.example.com/mcp")) as http:
        with pytest.raises(AddressRefused):
            await http.get(server.url)


async def test_a_record_opens_only_in_its_place_and_with_its_secret():
    from datetime import timedelta

    records = MemoryRecords(SystemClock())
    vault = Vault(records, SECRET)
    day = timedelta(days=1)
    await vault.put("group", "ada", {"token": "t"}, kept=day)
    await records.put("group", "bob", await records.get("group", "ada"), kept=day)
    assert await vault.get("group", "ada") == {"token": "t"}
    assert await vault.get("group", "bob") is None
    assert await Vault(records, b"another secret, long enough").get("group", "ada") is None
    with pytest.raises(Misconfigured, match="16"):
        Vault(records, b"short")


def test_a_field_that_is_there_twice_is_none():
    assert fields_of("a=1&b=2&b=3") == {"a": "1"}
    assert fields_of("&".join(["a=1"] * 1000)) == {}
