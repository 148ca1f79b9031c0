"""Bundled tool servers under AWS's own runtime client: each sandbox is a process, and processes are killed."""

import asyncio
import json
import os
import threading
import time
from pathlib import Path

import pytest

from infinity_agents.adapters.httpx_client import HttpxClient
from infinity_agents.rap.conformance import check
from infinity_agents.testing.aws.lambda_runtime import FunctionUrl, LambdaFunction, LambdaService, request_event
from tests.aws.test_tool_servers import Callbacks

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parents[2] / "src"
TOOLS = '''
import os
import time

from infinity_agents import ToolServer
from infinity_agents.aws import tool_handler

server = ToolServer(name="deadly-tools")


@server.tool
async def die(marks: str) -> str:
    """Die in the middle."""
    with open(marks, "a") as file:
        file.write("begun ")
    os._exit(137)


@server.tool
def block(marks: str) -> str:
    """Never end."""
    with open(marks, "a") as file:
        file.write("begun ")
    time.sleep(60)
    return "too late"


@server.tool
async def hog(marks: str) -> str:
    """Keep the event loop from going on until the platform's own timeout."""
    with open(marks, "a") as file:
        file.write("begun ")
    time.sleep(60)
    return "too late"


handler = tool_handler(server)
'''


@pytest.fixture
def callbacks():
    callbacks = Callbacks([])
    yield callbacks
    callbacks.close()


@pytest.fixture
def service(monkeypatch):
    service = LambdaService()
    yield service
    service.close()


@pytest.fixture
def deploy(aws, deployed, service, tmp_path):
    (tmp_path / "deadly.py").write_text(TOOLS)
    told = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    told |= {
        "AWS_ENDPOINT_URL_LAMBDA": service.url,
        "CLAIMS_TABLE_NAME": deployed.table,
        "PAYLOAD_BUCKET": deployed.bucket,
        "INSTANCES_TABLE_NAME": deployed.table,
        "GITHUB_TABLE_NAME": deployed.table,
        "BLOB_BUCKET": deployed.bucket,
        "FINANCE_TABLE_NAME": deployed.table,
        "SANDBOX_ROOT": str(tmp_path / "sandboxes"),
    }
    path = [SOURCES, tmp_path]
    made = [LambdaFunction("failures", "infinity_agents.aws.tool_failures.handler", environment=told, python_path=path)]

    def function(handler, timeout=30.0):
        made.append(LambdaFunction("tools", handler, environment=told, python_path=path, timeout=timeout))
        service.add(made[-1], on_failure=made[0])
        return made[-1]

    yield function
    for each in made:
        each.close()


def post(function, callbacks, operation, **arguments):
    fields = {
        "operation": operation,
        "arguments": arguments,
        "id": "call-1",
        "callback_url": callbacks.url,
        "group_id": "thread-1",
    }
    event = request_event("POST", "/invoke", {"Host": "t.example.com"}, json.dumps(fields).encode())
    return function.invoke(event).value


@pytest.mark.parametrize("server", ["get_time", "ec2", "github_events", "finance", "sandbox_server"])
async def test_a_bundled_server_keeps_the_protocol_behind_its_function_url(deploy, server):
    function = deploy(f"infinity_agents.aws.{server}.handler")
    url, http = FunctionUrl(function, iam=False), HttpxClient()
    try:
        findings = await check(url.url, http=http, patience=30.0)
    finally:
        await http.aclose()
        await asyncio.to_thread(url.close)
    assert [finding for finding in findings if finding.verdict == "broken"] == [], function.log
    assert {finding.verdict for finding in findings if finding.rule == "discovery"} == {"ok"}


@pytest.mark.parametrize(("operation", "said"), [("die", "die broke off"), ("hog", "hog broke off")])
def test_a_call_whose_process_dies_ends_in_one_result(deploy, callbacks, service, tmp_path, operation, said):
    function = deploy("deadly.handler", timeout=6.0)
    marks = tmp_path / "marks"
    assert post(function, callbacks, operation, marks=str(marks))["statusCode"] == 200
    service.settle()
    (result,) = callbacks.bodies
    assert (result["is_error"], result["text"][: len(said)]) == (True, said), function.log
    # What must not run twice did not: the platform's second try said so.
    assert marks.read_text() == "begun "


def test_a_call_killed_right_after_the_acknowledgement_ends_in_a_result(deploy, callbacks, service):
    function = deploy("deadly.handler")
    # No second invocation lives long enough to begin.
    original, acknowledged = function.invoke, threading.Event()

    def invoke(event):
        if event.get("type") == "tool_invocation":
            acknowledged.wait(30)
            function.kill()
            function._handler = "no_such_module.handler"
        return original(event)

    function.invoke = invoke
    assert post(function, callbacks, "die", marks="/nowhere")["statusCode"] == 200
    acknowledged.set()
    service.settle()
    (result,) = callbacks.bodies
    assert result["is_error"]
    assert "die failed in its function: " in result["text"]


def test_a_tool_that_blocks_is_cut_off_in_time_to_say_so(deploy, callbacks, service, tmp_path):
    function = deploy("deadly.handler", timeout=6.0)
    post(function, callbacks, "block", marks=str(tmp_path / "marks"))
    service.settle()
    (result,) = callbacks.bodies
    assert result["text"].startswith("block was cut off after"), function.log


def test_the_poller_tells_whoever_watches(deploy, callbacks):
    function = deploy("infinity_agents.aws.finance.handler")
    assert post(function, callbacks, "notify_price_change", symbol="ACME", above="200")["statusCode"] == 200
    while not callbacks.bodies:
        time.sleep(0.02)
    assert callbacks.bodies.pop()["subscription"] is True
    poller = deploy("infinity_agents.aws.finance_poller.handler")
    assert poller.invoke({}).value == {"fetched": 1, "told": 0, "failed": []}, poller.log
    assert callbacks.bodies == []


def test_without_a_clone_a_sandbox_on_lambda_says_so(deploy, callbacks):
    function = deploy("infinity_agents.aws.sandbox_server.handler")
    assert post(function, callbacks, "execute_command", command="env")["statusCode"] == 200
    while not callbacks.bodies:
        time.sleep(0.02)
    assert "clone_repo" in callbacks.bodies.pop()["text"]
