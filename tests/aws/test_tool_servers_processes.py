"""Bundled tool servers under AWS's own runtime client: each sandbox is a process, and processes are killed."""

import asyncio
import hashlib
import json
import os
import threading
import time
from pathlib import Path

import pytest

from infinity_agents.adapters.httpx_client import HttpxClient
from infinity_agents.adapters.s3 import S3BlobStore
from infinity_agents.rap.asgi import serving
from infinity_agents.rap.conformance import check
from infinity_agents.testing.aws.lambda_runtime import FunctionUrl, LambdaFunction, LambdaService, request_event
from tests.aws.test_tool_servers import Callbacks
from tests.toolsets import test_finance
from tests.toolsets.github_standin import TOKEN, GitHub
from tests.toolsets.test_ec2 import an_image
from tests.toolsets.test_github_events import CHECK
from tests.toolsets.waiting import all_called

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

    def function(handler, timeout=30.0, **more):
        made.append(LambdaFunction("tools", handler, environment=told | more, python_path=path, timeout=timeout))
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


async def keeps_the_protocol(function, examples=None):
    """What the checks find at the function's URL."""
    url, http = FunctionUrl(function, iam=False), HttpxClient()
    try:
        return await check(url.url, http=http, examples=examples, patience=30.0)
    finally:
        await http.aclose()
        await asyncio.to_thread(url.close)


async def test_the_time_keeps_the_protocol_behind_a_function_url(deploy):
    all_called(await keeps_the_protocol(deploy("infinity_agents.aws.get_time.handler")), {"get_time"})


async def test_ec2_keeps_the_protocol_behind_a_function_url(deploy, clients):
    image = an_image()
    made = clients.client("ec2").run_instances(ImageId=image, MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    examples = {"create_ec2": {"image_id": image}, "subscribe_ec2_states": {"instance_id": made}}
    all_called(await keeps_the_protocol(deploy("infinity_agents.aws.ec2.handler"), examples), set(examples))


async def test_finance_keeps_the_protocol_behind_a_function_url(deploy):
    findings = await keeps_the_protocol(deploy("infinity_agents.aws.finance.handler"), test_finance.EXAMPLES)
    all_called(findings, set(test_finance.EXAMPLES), test_finance.NOT_OWNED)


async def test_github_keeps_the_protocol_behind_a_function_url(deploy, clients, deployed):
    event, github = hashlib.sha256(b"{}").hexdigest(), GitHub("Octocat/Hello-World")
    github.refs["main"] = CHECK["head_sha"]
    github.checks.append(CHECK)
    await S3BlobStore(clients, deployed.bucket).put(event, b"{}")
    token = clients.client("secretsmanager").create_secret(Name=f"{deployed.table}-token", SecretString=TOKEN)["ARN"]
    here = {"owner": "octocat", "repo": "hello-world"}
    examples = {
        "subscribe_github_events": here,
        "check_github_actions": {**here, "ref": "main"},
        "get_github_event": {"event": event},
    }
    async with serving(github, "127.0.0.1", 0) as url:
        told = {"GITHUB_TOKEN_ARN": token, "GITHUB_API_URL": f"{url}/"}
        function = deploy("infinity_agents.aws.github_events.handler", **told)
        all_called(await keeps_the_protocol(function, examples), set(examples))


async def test_the_sandbox_keeps_the_protocol_behind_a_function_url(deploy):
    function = deploy("infinity_agents.aws.sandbox_server.handler")
    findings = await keeps_the_protocol(function)
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
