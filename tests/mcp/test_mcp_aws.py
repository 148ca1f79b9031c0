"""The proxy and the page as Lambda functions: once a link is made on the page, the call is carried out."""

import asyncio
import json
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from infinity_agents.adapters.dynamo_records import DynamoRecords
from infinity_agents.adapters.system import SystemClock
from infinity_agents.aws import tool_handler
from infinity_agents.aws.mcp_linking import server_of
from infinity_agents.aws.mcp_oauth import LinkFunction
from infinity_agents.aws.mcp_proxy import proxied
from infinity_agents.aws.sandbox import Sandbox
from infinity_agents.aws.tool_servers import Handed
from infinity_agents.aws.wiring import Secrets
from infinity_agents.aws_clients import AwsClients
from infinity_agents.errors import Misconfigured
from infinity_agents.settings.tool_servers import McpOAuthEnvironment, McpProxyEnvironment
from infinity_agents.testing.aws.lambda_runtime import LambdaService
from infinity_agents.wire import rap
from tests.aws.test_tool_servers import Callbacks, InProcess
from tests.aws_adapters.conftest import aws, clients, deployed, pauses, running_aws
from tests.mcp.oauth_server import oauth_server
from tests.mcp.test_mcp_oauth import form_of

__all__ = ["aws", "clients", "deployed", "pauses", "running_aws"]
pytestmark = pytest.mark.slow

CALLBACK_URL = "https://api.example.com/prod/mcp/search"


@pytest.fixture
def callbacks():
    made = Callbacks([])
    yield made
    made.close()


@pytest.fixture
def service(monkeypatch):
    made = LambdaService()
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", made.url)
    yield made
    made.close()


async def heard(callbacks, count):
    async with asyncio.timeout(60):
        while len(callbacks.bodies) < count:  # noqa: ASYNC110 - they come in threads
            await asyncio.sleep(0.05)
    return callbacks.bodies[count - 1]


def through_gateway(method, *, query=None, body=None):
    return {
        "httpMethod": method,
        "path": "/mcp/search",
        "queryStringParameters": query,
        "body": body,
        "isBase64Encoded": False,
    }


async def test_a_link_made_on_the_page_has_the_call_carried_out(deployed, clients, service, callbacks, monkeypatch):
    async with oauth_server("told") as (url, provider):
        told = {
            "mcp_name": "search",
            "mcp_url": url,
            "mcp_callback_url": CALLBACK_URL,
            "mcp_table_name": deployed.table,
            "mcp_encryption_secret": "a secret for the tests alone",
        }
        tools = McpProxyEnvironment(**told, claims_table_name=deployed.table)
        for name, value in {**tools.written(), "AWS_LAMBDA_FUNCTION_NAME": "tools"}.items():
            monkeypatch.setenv(name, value)

        def page_handler():
            function = LinkFunction(McpOAuthEnvironment(**told), AwsClients(), name="page")
            sandbox = Sandbox(function.begin)
            return lambda event, _: sandbox.run(lambda begun: begun.handle(event))

        proxy = InProcess("tools", lambda: tool_handler(proxied))
        page = InProcess("page", page_handler)
        service.add(proxy)
        service.add(page)
        invocation = rap.Invocation.model_validate(
            {
                "operation": "search_invoke_tool",
                "arguments": {"tool": "whoami"},
                "id": "call-1",
                "call_id": "model-1",
                "callback_url": callbacks.url,
                "group_id": "thread-1",
                "user_id": "Ada",
            }
        )
        event = json.loads(await Handed(invocation, "https://tools.example.com", "token").payload(None))
        await asyncio.to_thread(proxy.invoke, event)
        asked = await heard(callbacks, 1)
        assert asked["type"] == "oauth"
        provider.next_owner = "ada@example.com"
        async with httpx.AsyncClient() as client:
            back = (await client.get(asked["auth_url"])).headers["location"]
        assert back.startswith(CALLBACK_URL)
        query = dict(parse_qsl(urlsplit(back).query))
        shown = json.loads((await asyncio.to_thread(page.invoke, through_gateway("GET", query=query))).payload)
        assert shown["statusCode"] == 200
        assert "Ada" in shown["body"]
        form = httpx.Request("POST", CALLBACK_URL, data=form_of(httpx.Response(200, text=shown["body"]))).content
        done = json.loads((await asyncio.to_thread(page.invoke, through_gateway("POST", body=form.decode()))).payload)
        assert done["statusCode"] == 200
        result = await heard(callbacks, 2)
        assert (result["type"], result["id"], result["text"]) == ("tool_result", "call-1", "ada@example.com")
        records = DynamoRecords(clients, deployed.table, SystemClock())
        assert await records.get("state", query["state"]) is None


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"mcp_command": "not json"}, "MCP_COMMAND is not JSON"),
        ({"mcp_command": "[]"}, "MCP_COMMAND must be a list"),
        ({"mcp_command": '["a"]', "mcp_env": '{"A": 1}'}, "MCP_ENV must be an object of texts"),
        ({"mcp_url": "http://mcp.example.com/"}, "https"),
    ],
)
async def test_what_a_function_is_told_wrong_is_said(clients, told, said):
    with pytest.raises(Misconfigured, match=said):
        await server_of(McpProxyEnvironment(mcp_name="a", **told), Secrets(clients))


async def test_secrets_are_read_by_their_arns(clients):
    arn = clients.client("secretsmanager").create_secret(Name="token", SecretString="Bearer t\n")["ARN"]
    environment = McpProxyEnvironment(
        mcp_name="a", mcp_url="https://m.example/", mcp_secret_headers=json.dumps({"authorization": arn})
    )
    assert (await server_of(environment, Secrets(clients))).headers == {"authorization": "Bearer t"}
