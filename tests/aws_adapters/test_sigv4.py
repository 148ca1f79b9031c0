"""Signatures, beside those that botocore makes."""

import string
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import httpx
import pytest
from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, RefreshableCredentials
from hypothesis import given
from hypothesis import strategies as st

from infinity_agents.adapters.httpx_client import HttpxClient
from infinity_agents.adapters.sigv4 import SigV4Signer
from infinity_agents.aws_clients import AwsClients, AwsCredentials
from infinity_agents.errors import Misconfigured
from infinity_agents.testing.doubles import FrozenClock

FUNCTION = "https://abc123.lambda-url.eu-west-1.on.aws/"


def signer(token=None, **more):
    return SigV4Signer(lambda: AwsCredentials("AKID", "secret/+=", token), FrozenClock(), **more)


def by_botocore(method, url, headers, body, *, token=None, service="lambda", region="eu-west-1"):
    request = AWSRequest(method, url, headers=headers, data=body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auth, "get_current_datetime", lambda **_: FrozenClock().now())
        auth.SigV4Auth(Credentials("AKID", "secret/+=", token), service, region).add_auth(request)
    return request.headers["Authorization"]


@pytest.mark.parametrize(
    ("url", "service", "region"),
    [
        (FUNCTION, "lambda", "eu-west-1"),
        ("https://abc123.lambda-url.eu-west-1.on.aws", "lambda", "eu-west-1"),
        ("https://x1.execute-api.us-gov-west-1.amazonaws.com/prod/a%20b/c?b=2&a=1&a=0", "execute-api", "us-gov-west-1"),
        ("https://x1.execute-api.cn-north-1.amazonaws.com.cn/", "execute-api", "cn-north-1"),
        ("https://x1-vpce-01.execute-api.eu-west-1.amazonaws.com/p", "execute-api", "eu-west-1"),
        ("https://tools.example.com:8443/invoke?x=%2F&empty=&bare", "execute-api", "ap-south-1"),
        ("http://127.0.0.1:8001/.well-known/rap-toolset", "execute-api", "ap-south-1"),
    ],
)
@pytest.mark.parametrize("token", [None, "a/session+token=="])
@pytest.mark.parametrize("body", [b"", '{"a": "ä"}'.encode(), b"\x00\xff"])
def test_a_signature_is_botocores(url, service, region, token, body):
    headers = {"Content-Type": "application/json", "Idempotency-Key": "  g:call-1   x "}
    proof = signer(token, region="ap-south-1")("POST", url, {**headers, "Accept-Encoding": "identity"}, body)
    expected = by_botocore("POST", url, headers, body, token=token, service=service, region=region)
    assert proof["Authorization"] == expected
    assert proof.get("x-amz-security-token") == token
    assert proof["x-amz-date"] == "20260105T120000Z"


@given(
    path=st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), max_size=4),
    query=st.dictionaries(st.text(string.printable, min_size=1, max_size=6), st.text(string.printable, max_size=6)),
)
def test_any_url_is_signed_as_it_is_sent(path, query):
    segments = [segment for segment in (quote(part, safe="") for part in path) if set(segment) != {"."}]
    spelt = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query.items())
    url = f"{FUNCTION}{'/'.join(segments)}" + (f"?{spelt}" if spelt else "")
    on_the_wire = str(httpx.URL(url))
    assert signer()("GET", url, {}, b"")["Authorization"] == by_botocore("GET", on_the_wire, {}, b"")


def test_a_host_without_a_region_needs_one():
    with pytest.raises(Misconfigured, match=r"tools\.example\.com.*set AWS_REGION"):
        signer()("GET", "https://tools.example.com/", {}, b"")
    assert (
        "/ap-south-1/lambda/"
        in signer(region="ap-south-1", service="lambda")(
            "GET", "https://evil.lambda-url.eu-west-1.on.aws.example.com/", {}, b""
        )["Authorization"]
    )


async def test_the_http_client_sends_what_was_signed(monkeypatch):
    sent = []

    def answer(request):
        sent.append(request)
        return httpx.Response(200)

    client = HttpxClient(signer=signer("token"))
    client._client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    headers = {"Content-Type": "application/json"}
    await client.request("POST", f"{FUNCTION}a b/ä?x=1 2", body=b"{}", headers=headers, auth="sigv4")
    await client.aclose()
    (request,) = sent
    assert request.headers["host"] == "abc123.lambda-url.eu-west-1.on.aws"
    expected = by_botocore("POST", str(request.url), headers, request.content, token="token")
    assert request.headers["authorization"] == expected


def test_credentials_are_those_of_the_moment(monkeypatch):
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert AwsClients().credentials() == AwsCredentials("AKID", "secret", None)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    clients = AwsClients()
    assert clients.credentials() == AwsCredentials("AKID", "secret", "token")
    assert "secret" not in repr(clients.credentials())
    assert "token" not in repr(clients.credentials()).replace("token)", "")


def test_credentials_that_expire_are_refreshed_in_time():
    clients, issued = AwsClients(), []

    def issue():
        issued.append(f"AKID{len(issued)}")
        expiry = datetime.now(UTC) + timedelta(minutes=1 if len(issued) == 1 else 60)
        return {
            "access_key": issued[-1],
            "secret_key": "secret",
            "token": "token",
            "expiry_time": expiry.isoformat(),
        }

    clients._opened()._credentials = RefreshableCredentials.create_from_metadata(
        issue(), refresh_using=issue, method="test"
    )
    assert [clients.credentials().access_key for _ in range(3)] == ["AKID1"] * 3


def test_no_credentials_are_a_wrong_setting(monkeypatch, tmp_path):
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(Misconfigured, match="no AWS credentials were found; set AWS_ACCESS_KEY_ID"):
        AwsClients().credentials()
