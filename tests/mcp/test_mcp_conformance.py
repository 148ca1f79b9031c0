"""The proxy keeps the protocol of tool servers: on loopback, and as a Lambda function behind its URL."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from infinity_agents.adapters.httpx_client import HttpxClient
from infinity_agents.mcp.proxy import McpProxy
from infinity_agents.mcp.servers import StdioServer
from infinity_agents.rap.conformance import check
from infinity_agents.testing.aws.lambda_runtime import FunctionUrl, LambdaFunction, LambdaService, request_event
from tests.aws_adapters.conftest import aws, clients, deployed, pauses, running_aws
from tests.mcp.test_mcp_servers_of_others import node_server, python_server
from tests.mcp.test_mcp_stdio import SERVER

__all__ = ["aws", "clients", "deployed", "pauses", "running_aws"]
pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parents[2] / "src"
SERVERS = {
    "own": (lambda: SERVER.command, {"add": {"a": 1, "b": 2}, "fail": {}}),
    "time": (lambda: (python_server("mcp-server-time"),), {"get_current_time": {"timezone": "Asia/Tokyo"}}),
    "everything": (lambda: (node_server("mcp-server-everything"),), {"echo": {"message": "hello"}}),
}


@pytest.fixture
def function(deployed):
    """Deploys the proxy of an MCP server."""
    service, made = LambdaService(), []
    told = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    told |= {
        "AWS_ENDPOINT_URL_LAMBDA": service.url,
        "CLAIMS_TABLE_NAME": deployed.table,
        "PAYLOAD_BUCKET": deployed.bucket,
    }

    def deploy(name, command):
        environment = {**told, "MCP_NAME": name, "MCP_COMMAND": json.dumps(command)}
        handler = "infinity_agents.aws.mcp_proxy.handler"
        made.append(LambdaFunction("tools", handler, environment=environment, python_path=[SOURCES], timeout=60.0))
        service.add(made[-1])
        return made[-1]

    yield deploy
    for each in made:
        each.close()
    service.close()


async def assert_kept(url, examples):
    http = HttpxClient()
    try:
        findings = await check(url, http=http, examples=examples, patience=30.0)
    finally:
        await http.aclose()
    assert [finding for finding in findings if finding.verdict == "broken"] == []
    kept = {finding.rule for finding in findings if finding.verdict == "ok"}
    assert {"discovery", "accepted", "unknown-tool", "bad-arguments", "done-once", "callbacks", "oversize"} <= kept


@pytest.mark.parametrize("name", SERVERS)
async def test_the_proxy_keeps_the_protocol_on_loopback(name):
    make, examples = SERVERS[name]
    proxy = McpProxy(StdioServer(make()), name=name)
    await proxy.offer()
    async with proxy.server.serving() as url:
        await assert_kept(url, {f"{name}_{tool}": arguments for tool, arguments in examples.items()})
    await proxy.aclose()


@pytest.mark.parametrize("name", SERVERS)
async def test_the_proxy_keeps_the_protocol_behind_its_function_url(function, name):
    make, examples = SERVERS[name]
    proxy = function(name, make())
    # Sandboxes that have begun: how long that takes is the machine's matter.
    asked = request_event("GET", "/.well-known/rap-toolset", {"Host": "t.example.com"}, b"")
    begun = await asyncio.gather(*(asyncio.to_thread(proxy.invoke, asked) for _ in range(3)))
    assert [reply.value["statusCode"] for reply in begun] == [200] * 3, proxy.log
    url = FunctionUrl(proxy, iam=False)
    try:
        await assert_kept(url.url, {f"{name}_{tool}": arguments for tool, arguments in examples.items()})
    finally:
        await asyncio.to_thread(url.close)
