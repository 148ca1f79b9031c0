"""The events of function URLs and API Gateway: read in one place, whatever comes."""

import json

import pytest

from infinity_agents.aws import github_webhook, mcp_oauth, receiver, slack_receiver
from infinity_agents.aws.http_events import BadBody, NoRequest, answer, request_of
from infinity_agents.aws.sandbox import Sandbox
from infinity_agents.aws_clients import AwsClients
from infinity_agents.settings.tool_servers import McpOAuthEnvironment

V2 = {
    "version": "2.0",
    "rawPath": "/a/b",
    "headers": {"X-One": "1", "x-two": "ü"},
    "requestContext": {"http": {"method": "POST", "path": "/a/b"}},
    "queryStringParameters": {"q": "1"},
    "body": "dGV4dA==",
    "isBase64Encoded": True,
}
V1 = {
    "httpMethod": "GET",
    "path": "/a/b",
    "headers": None,
    "requestContext": {"httpMethod": "GET", "stage": "prod"},
    "queryStringParameters": None,
    "body": None,
    "isBase64Encoded": False,
}
NOT_REQUESTS = [
    None,
    [],
    "text",
    7,
    {},
    {"key1": "value1", "key2": "value2"},
    {"Records": [{"eventSource": "aws:sqs", "body": "{}"}]},
    {"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification", "detail": {}},
    {"requestContext": None, "rawPath": "/"},
    {"requestContext": {"http": {"method": 7}}, "rawPath": "/"},
]


def test_both_payload_formats_are_read():
    second, first = request_of(V2), request_of(V1)
    assert (second.method, second.path, second.query, second.body) == ("POST", "/a/b", {"q": "1"}, b"text")
    assert second.headers == {"x-one": "1", "x-two": "ü"}
    assert (first.method, first.path, first.headers, first.query, first.body) == ("GET", "/a/b", {}, {}, b"")


@pytest.mark.parametrize(
    ("body", "is_base64"),
    [("no base64!", True), ("dGV4dA", True), ("ü", True), ("\ud800", False), (7, False), ({}, True)],
)
def test_a_body_that_cannot_be_read_is_a_bad_one(body, is_base64):
    with pytest.raises(BadBody, match="the body cannot be read"):
        _ = request_of({**V2, "body": body, "isBase64Encoded": is_base64}).body


@pytest.mark.parametrize("event", NOT_REQUESTS, ids=str)
def test_what_is_no_request_is_named(event):
    with pytest.raises(NoRequest, match=r"takes HTTP requests, and this event .*; call its URL"):
        request_of(event)


@pytest.mark.parametrize("event", NOT_REQUESTS, ids=str)
@pytest.mark.parametrize("function", [receiver, github_webhook, slack_receiver, mcp_oauth], ids=lambda f: f.__name__)
def test_each_function_says_what_it_was_given(function, event, monkeypatch):
    async def build():  # what the functions have built is not reached; this one needs its methods
        environment = McpOAuthEnvironment(
            mcp_name="m", mcp_url="https://m.example", mcp_callback_url="https://c.example", mcp_table_name="t"
        )
        return mcp_oauth.LinkFunction(environment, AwsClients(), name="f")

    monkeypatch.setattr(function, "sandbox", Sandbox(build))
    with pytest.raises(NoRequest):
        function.handler(event, None)


def test_an_answer_has_a_body_or_none():
    assert json.loads(answer(400, {"error": "é"})["body"]) == {"error": "é"}
    assert answer(200) == {"statusCode": 200, "headers": {"content-type": "application/json"}, "body": ""}
