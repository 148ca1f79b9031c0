"""The stand-in for Lambda: what goes wrong with a function is told, and survived, as the service does it."""

import json
import time
from pathlib import Path

import httpx
import pytest

from infinity_agents.aws_clients import AwsClients
from infinity_agents.testing.aws import FunctionUrl, LambdaFunction, SqsEventSource
from infinity_agents.testing.aws.lambda_runtime import MAX_ASYNCHRONOUS, LambdaService

HANDLERS = """
import base64, os, time
from pathlib import Path

def odd(event, context):
    left = context.get_remaining_time_in_millis()
    if event.get("raise"): raise ValueError("a reason")
    if event.get("sleep"): time.sleep(60)
    if event.get("exit"): os._exit(3)
    return {"pid": os.getpid(), "told": os.environ.get("TOLD"), "home": "HOME" in os.environ, "left": left > 1000}

def noted(event, context):
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(__import__("json").dumps(event) + "\\n")
    if event.get("n") == "fails": raise ValueError("a reason")

def web(event, context):
    body = event.get("body", "")
    sent = base64.b64decode(body) if event["isBase64Encoded"] else body.encode()
    return {"statusCode": 201, "headers": {"x-path": event["rawPath"]}, "isBase64Encoded": True,
            "body": base64.b64encode(sent[::-1]).decode()}

def batch(event, context):
    bad = [record["messageId"] for record in event["Records"] if record["body"] == "bad"]
    if any(record["body"] == "worse" for record in event["Records"]): bad = [""]
    return {"batchItemFailures": [{"itemIdentifier": one} for one in bad]}
"""


@pytest.fixture
def a_function(tmp_path):
    (tmp_path / "handlers.py").write_text(HANDLERS)
    made = []

    def make(handler, *, timeout=10.0, **environment):
        name = handler.replace(".", "-")
        made.append(LambdaFunction(name, handler, environment=environment, python_path=[tmp_path], timeout=timeout))
        return made[-1]

    yield make
    for function in made:
        function.close()


def test_a_sandbox_is_kept_told_its_environment_and_replaced_when_it_is_broken(a_function):
    function = a_function("handlers.odd", timeout=2.0, TOLD="this")
    first = function.invoke({}).value
    assert first == {"pid": first["pid"], "told": "this", "home": False, "left": True}
    raised = function.invoke({"raise": True})
    assert raised.error == "Unhandled"
    assert (raised.value["errorType"], raised.value["errorMessage"]) == ("ValueError", "a reason")
    assert function.invoke({}).value["pid"] == first["pid"]
    assert function.invoke({"exit": True}).value["errorType"] == "Runtime.ExitError"
    second = function.invoke({}).value
    assert second["pid"] != first["pid"]
    assert function.invoke({"sleep": True}).value["errorType"] == "Sandbox.Timedout"
    assert function.invoke({}).value["pid"] != second["pid"]


def test_a_handler_that_is_not_there_fails_each_invocation(a_function):
    function = a_function("nowhere.handler")
    for _ in range(2):
        reply = function.invoke({})
        assert reply.error == "Unhandled"
        assert "nowhere" in reply.value["errorMessage"]


@pytest.mark.slow
def test_an_event_is_tried_three_times_and_then_told_to_the_destination(a_function, tmp_path, running_aws, monkeypatch):
    notes, told = tmp_path / "notes", tmp_path / "told"
    function = a_function("handlers.noted", NOTES=str(notes))
    destination = LambdaFunction(
        "told", "handlers.noted", environment={"NOTES": str(told)}, python_path=[tmp_path], timeout=10.0
    )
    service = LambdaService()
    service.add(function, on_failure=destination)
    invoke = invoking(service, monkeypatch)
    assert invoke(FunctionName=function.name, InvocationType="Event", Payload=b'{"n": 1}')["StatusCode"] == 202
    invoke(FunctionName=function.arn, InvocationType="Event", Payload=b'{"n": "fails"}')
    service.settle()
    assert sorted(lines(notes), key=str) == sorted([{"n": 1}, *[{"n": "fails"}] * 3], key=str)
    [record] = lines(told)
    assert record["requestPayload"] == {"n": "fails"}
    assert record["requestContext"]["condition"] == "RetriesExhausted"
    assert record["responsePayload"]["errorMessage"] == "a reason"
    with pytest.raises(Exception, match="RequestTooLarge"):
        invoke(FunctionName=function.name, InvocationType="Event", Payload=json.dumps("x" * MAX_ASYNCHRONOUS))
    with pytest.raises(Exception, match="Function not found"):
        invoke(FunctionName="nobody", Payload=b"{}")
    service.close()
    destination.close()


def invoking(service, monkeypatch):
    """Return ``invoke`` of a real client that is told of the service as people tell it: by its environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", service.url)
    return AwsClients().client("lambda").invoke


def lines(path: Path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_function_url_hands_bytes_over_and_wants_a_signature(a_function):
    function = a_function("handlers.web")
    signed, public = FunctionUrl(function), FunctionUrl(function, iam=False)
    answer = httpx.post(f"{public.url}a/b?c=d", content=b"\xff\x00text")
    assert (answer.status_code, answer.headers["x-path"], answer.content) == (201, "/a/b", b"txet\x00\xff")
    assert httpx.post(signed.url, content=b"text").status_code == 403
    signed.close()
    public.close()


@pytest.mark.slow
def test_what_is_reported_comes_again_and_nothing_else(a_function, aws, clients, deployed):
    sqs, url = clients.client("sqs"), deployed.delay_url
    for body in ("good", "bad", "good"):
        sqs.send_message(QueueUrl=url, MessageBody=body)
    source = SqsEventSource(sqs, url, a_function("handlers.batch"), concurrency=2)
    until(lambda: left(aws, url) == ["bad"])
    sqs.send_message(QueueUrl=url, MessageBody="worse")
    until(lambda: hidden(aws, url) == 2)
    source.close()
    assert left(aws, url) == ["bad", "worse"]


def left(aws, url):
    return sorted(message.body for message in aws.queue(url)._messages)


def hidden(aws, url):
    return sum(not message.visible for message in aws.queue(url)._messages)


def until(true):
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
