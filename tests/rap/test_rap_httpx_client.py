"""The HTTP port over httpx."""

import asyncio
import gzip

import pytest

from infinity_agents.adapters.httpx_client import HttpxClient
from infinity_agents.errors import Misconfigured
from infinity_agents.ports.http import HttpClient, HttpResponse, HttpUnreachable
from tests.rap.conftest import HANG, HANG_UP, Answer


async def test_a_request_and_its_answer(raw_server, http: HttpClient):
    server = await raw_server(lambda _: Answer(418, b"\x00\xff"))
    answer = await http.request("PUT", server.url + "/a?b=c", body=b"\x00\xff", headers={"X-Mine": "1"})
    assert answer == HttpResponse(418, b"\x00\xff")
    [request] = server.requests
    assert (request.method, request.path, request.body) == ("PUT", "/a?b=c", b"\x00\xff")
    assert request.headers["x-mine"] == "1"
    assert "authorization" not in request.headers


async def test_a_redirect_is_an_answer(raw_server, http):
    target = await raw_server(lambda _: Answer())
    server = await raw_server(lambda _: Answer(307, b"", {"Location": target.url}))
    assert (await http.request("POST", server.url, body=b"x")).status == 307
    assert target.requests == []


async def test_an_answer_is_read_up_to_its_limit(raw_server, http):
    server = await raw_server(lambda _: Answer(200, b"x" * 1000))
    assert len((await http.request("GET", server.url, max_bytes=1000)).body) == 1000
    with pytest.raises(HttpUnreachable, match="more than 999 bytes"):
        await http.request("GET", server.url, max_bytes=999)


async def test_a_bomb_is_not_unpacked(raw_server, http):
    bomb = gzip.compress(b"x" * 20_000_000)
    server = await raw_server(lambda _: Answer(200, bomb, {"Content-Encoding": "gzip"}))
    with pytest.raises(HttpUnreachable, match="more than 100000 bytes"):
        await http.request("GET", server.url, max_bytes=100_000)


async def test_nothing_is_said_in_compressed_form_unasked(raw_server, http):
    server = await raw_server(lambda _: Answer())
    await http.request("GET", server.url)
    assert server.requests[0].headers["accept-encoding"] == "identity"


async def test_time_runs_out_for_the_whole_answer(raw_server, http):
    server = await raw_server(lambda _: HANG)
    with pytest.raises(HttpUnreachable, match=r"no answer within 0\.05 seconds"):
        await http.request("GET", server.url, timeout=0.05)


async def test_hanging_up_is_no_answer(raw_server, http):
    server = await raw_server(lambda _: HANG_UP)
    with pytest.raises(HttpUnreachable):
        await http.request("GET", server.url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "http://",
        "ftp://127.0.0.1/",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:1/",
        "http://a\x00b/",
        "http://[::1/",
        "http://" + "a" * 300 + ".invalid/",
        "http://xn--a.invalid/",
    ],
)
async def test_an_address_that_leads_nowhere(http, url):
    with pytest.raises(HttpUnreachable):
        await http.request("GET", url)


async def test_a_header_that_cannot_be_sent(raw_server, http):
    server = await raw_server(lambda _: Answer())
    with pytest.raises(HttpUnreachable):
        await http.request("GET", server.url, headers={"X-Mine": "a\r\nX-Other: b"})
    assert server.requests == []


async def test_cookies_are_not_kept(raw_server, http):
    server = await raw_server(lambda _: Answer(200, b"", {"Set-Cookie": "session=1; Path=/"}))
    await http.request("GET", server.url)
    await http.request("GET", server.url)
    assert "cookie" not in server.requests[1].headers


async def test_a_proxy_is_not_for_this_machine(raw_server, http, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    server = await raw_server(lambda _: Answer())
    assert (await http.request("GET", server.url)).status == 200


async def test_a_connection_is_used_again(raw_server, http):
    server = await raw_server(lambda _: Answer())
    for _ in range(3):
        await http.request("GET", server.url)
    assert len(server._open) == 1


async def test_it_opens_again_after_it_was_closed(raw_server, http):
    server = await raw_server(lambda _: Answer())
    await http.request("GET", server.url)
    await http.aclose()
    await http.aclose()
    assert (await http.request("GET", server.url)).status == 200


async def test_a_cancelled_request_is_cancelled(raw_server, http):
    server = await raw_server(lambda _: HANG)
    asking = asyncio.create_task(http.request("GET", server.url))
    await server.heard(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


class TestAuth:
    async def test_a_signature_covers_what_is_sent(self, raw_server):
        def sign(method, url, headers, body):
            return {"Authorization": f"{method} {url} {sorted(headers)} {body!r}"}

        client = HttpxClient(signer=sign)
        server = await raw_server(lambda _: Answer())
        await client.request("POST", server.url + "/x", body=b"b", headers={"X-Mine": "1"}, auth="sigv4")
        await client.aclose()
        signed = server.requests[0].headers["authorization"]
        assert signed == f"POST {server.url}/x ['Accept-Encoding', 'X-Mine'] b'b'"

    @pytest.mark.parametrize("auth", ["sigv4", "bearer:x", "basic", ""])
    async def test_what_cannot_be_served_is_not_sent(self, raw_server, http, auth):
        server = await raw_server(lambda _: Answer())
        with pytest.raises(Misconfigured, match=server.url):
            await http.request("GET", server.url, auth=auth)
        assert server.requests == []
