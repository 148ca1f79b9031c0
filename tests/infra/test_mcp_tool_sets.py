"""The templates of MCP tool sets: what the proxy and the page are told, and what they may do."""

import json

import pytest
from aws_cdk import App, Stack, aws_apigateway, aws_lambda
from aws_cdk.assertions import Template
from aws_cdk.aws_secretsmanager import Secret
from infra.infinity_cdk import HTTPMCPToolSet, InfinityAgent, LambdaMCPToolSet, McpOAuth, functions
from infra.infinity_cdk.bundling import McpServerCode
from infra.infinity_cdk.packages import CannotPackage

pytestmark = pytest.mark.slow

CODE = aws_lambda.Code.from_inline("x")


@pytest.fixture
def agent(monkeypatch):
    """An agent whose functions have no code: what packages hold is another test's."""
    monkeypatch.setattr(functions, "function_code", lambda *_, **__: CODE)
    return InfinityAgent(Stack(App(), "Stack"), "Agent", monitoring=False)


def environment_of(template, name):
    handler = f"infinity_agents.aws.{name}.handler"
    [found] = [
        each["Properties"]["Environment"]["Variables"]
        for each in template.find_resources("AWS::Lambda::Function").values()
        if each["Properties"]["Handler"] == handler
    ]
    return found


def test_a_server_at_a_url_whose_token_is_a_secret(agent):
    token = Secret.from_secret_name_v2(agent, "Token", "infinity/token")
    HTTPMCPToolSet(agent, "search", url="https://mcp.example.com/mcp", headers={"x-a": "b", "authorization": token})
    template = Template.from_stack(Stack.of(agent))
    told = environment_of(template, "mcp_proxy")
    assert told["MCP_URL"] == "https://mcp.example.com/mcp"
    assert told["MCP_NAME"] == "search"
    assert json.loads(told["MCP_HEADERS"]) == {"x-a": "b"}
    assert "infinity/token" in json.dumps(told["MCP_SECRET_HEADERS"])
    assert "MCP_CALLBACK_URL" not in told
    assert "CLAIMS_TABLE_NAME" in told


def test_people_link_themselves_on_a_page_of_the_gateway(agent):
    gateway = aws_apigateway.RestApi(agent, "Gateway")
    secret = Secret.from_secret_name_v2(agent, "ClientSecret", "infinity/client")
    oauth = McpOAuth(callback_gateway=gateway, client_id="me", client_secret=secret)
    HTTPMCPToolSet(agent, "search", url="https://mcp.example.com/mcp", oauth=oauth)
    HTTPMCPToolSet(agent, "other", url="https://other.example.com/mcp")
    template = Template.from_stack(Stack.of(agent))
    page = environment_of(template, "mcp_oauth")
    assert "/prod/mcp/search" in json.dumps(page["MCP_CALLBACK_URL"])
    assert page["MCP_CLIENT_ID"] == "me"
    assert {"MCP_TABLE_NAME", "MCP_ENCRYPTION_SECRET_ARN", "MCP_CLIENT_SECRET_ARN"} <= page.keys()
    verbs = [each["Properties"]["HttpMethod"] for each in template.find_resources("AWS::ApiGateway::Method").values()]
    assert sorted(verbs) == ["GET", "POST"]
    answering = [
        json.dumps(each["Properties"]["Roles"])
        for each in template.find_resources("AWS::IAM::Policy").values()
        if any(
            "Receiver" in json.dumps(statement["Resource"]) and "lambda:InvokeFunctionUrl" in statement["Action"]
            for statement in each["Properties"]["PolicyDocument"]["Statement"]
        )
    ]
    assert any("searchPage" in roles and "searchTool" in roles for roles in answering)


def test_a_server_in_the_function_itself(agent, monkeypatch):
    monkeypatch.setattr(
        "infra.infinity_cdk.tool_sets.mcp.mcp_server_code", lambda *_, **__: McpServerCode(CODE, ["/var/task/s", "--x"])
    )
    LambdaMCPToolSet(agent, "files", command=["npx", "-y", "a@1.2.3", "--x"], env={"A": "b"})
    told = environment_of(Template.from_stack(Stack.of(agent)), "mcp_proxy")
    assert json.loads(told["MCP_COMMAND"]) == ["/var/task/s", "--x"]
    assert json.loads(told["MCP_ENV"]) == {"A": "b"}
    assert "MCP_URL" not in told


def test_what_cannot_be_is_refused(agent):
    with pytest.raises(ValueError, match="https"):
        HTTPMCPToolSet(agent, "a", url="http://mcp.example.com/")
    with pytest.raises(ValueError, match="letters"):
        HTTPMCPToolSet(agent, "b", url="https://mcp.example.com/", name="a b")
    for number, (command, said) in enumerate(
        [
            (["npx", "-y", "some-server"], "exact version; write name@1.2.3"),
            ("uvx some-server", "'some-server' does not name a package at an exact version; write name@1.2.3"),
            ("uvx some-server@latest", "exact version"),
            (["uvx", "--with", "other", "some-server@1.2.3"], "--from alone"),
            ("docker run some-server", "HTTPMCPToolSet"),
            ("uvx 'some-server", "quote it"),
        ]
    ):
        with pytest.raises(CannotPackage, match=said):
            LambdaMCPToolSet(agent, f"c{number}", command=command)
    gateway = aws_apigateway.RestApi(agent, "Gateway")
    secret = Secret.from_secret_name_v2(agent, "ClientSecret", "infinity/client")
    with pytest.raises(ValueError, match="client_id"):
        HTTPMCPToolSet(
            agent, "d", url="https://m.example/", oauth=McpOAuth(callback_gateway=gateway, client_secret=secret)
        )
