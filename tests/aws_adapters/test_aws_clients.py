"""The one place that knows the client library: what it makes, what it tries again, what it says of failures."""

import asyncio
import contextvars
import socket
import subprocess
import sys
import threading

import pytest

from infinity_agents.aws_clients import AwsClients, AwsRefused
from infinity_agents.errors import InfinityError, Misconfigured, Redeliver, StoreUnavailable
from infinity_agents.testing.aws import Fault


async def test_a_client_is_made_once_however_many_ask_at_once(running_aws):
    clients = AwsClients()
    made = await asyncio.gather(*(asyncio.to_thread(clients.client, "sqs") for _ in range(16)))
    assert len(set(map(id, made))) == 1
    clients.close()


async def test_calls_go_on_side_by_side_and_carry_the_context(aws, monkeypatch):
    clients = AwsClients()
    variable = contextvars.ContextVar("variable")
    variable.set("mine")
    meeting = threading.Barrier(8, timeout=10)

    class Client:
        def meet(self):
            meeting.wait()
            return {"seen": variable.get()}

    monkeypatch.setattr(clients, "client", lambda _: Client())
    answers = await asyncio.gather(*(clients.call("any", "meet") for _ in range(8)))
    assert [answer["seen"] for answer in answers] == ["mine"] * 8
    clients.close()


def test_one_set_of_clients_serves_one_loop_after_another(aws, clients):
    for _ in range(3):
        assert asyncio.run(clients.call("sqs", "list_queues"))["ResponseMetadata"]["HTTPStatusCode"] == 200


async def test_an_endpoint_of_one_service_counts_before_that_of_all(running_aws, monkeypatch):
    stand_in, _ = running_aws
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", stand_in.url.replace("127.0.0.1", "localhost"))
    clients = AwsClients()
    assert clients.client("sqs").meta.endpoint_url.startswith("http://localhost:")
    assert clients.client("s3").meta.endpoint_url == stand_in.url
    clients.close()


async def test_sockets_that_died_in_the_freezer_are_replaced(aws, clients):
    await asyncio.gather(*(clients.call("sqs", "list_queues") for _ in range(4)))
    aws.faults = [Fault("sqs", status="hang up")] * 2
    await clients.call("sqs", "list_queues")
    for _ in range(2):
        for pool in clients.client("sqs")._endpoint.http_session._manager.pools._container.values():
            for connection in list(pool.pool.queue):
                if connection is not None and connection.sock is not None:
                    connection.sock.shutdown(socket.SHUT_RDWR)
        await clients.call("sqs", "list_queues")


async def test_nobody_listening_is_unavailable_after_three_tries(monkeypatch, running_aws, pauses):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", f"http://127.0.0.1:{free.getsockname()[1]}")
    clients = AwsClients()
    with pytest.raises(StoreUnavailable, match="dynamodb list_tables: Could not connect"):
        await clients.call("dynamodb", "list_tables")
    assert len(pauses) == 2
    clients.close()


async def test_a_service_that_does_not_answer_is_unavailable(monkeypatch, running_aws):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", f"http://127.0.0.1:{silent.getsockname()[1]}")
        clients = AwsClients(attempts=2, timeout=0.05)
        with pytest.raises(StoreUnavailable, match="sqs list_queues: Read timeout"):
            await clients.call("sqs", "list_queues")
        clients.close()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (500, "InternalError", StoreUnavailable),
        (503, "ServiceUnavailable", StoreUnavailable),
        (429, "Whatever", StoreUnavailable),
        (400, "ThrottlingException", StoreUnavailable),
        (400, "RequestThrottled", StoreUnavailable),
        (403, "KMS.ThrottlingException", StoreUnavailable),
        (403, "ExpiredTokenException", StoreUnavailable),
        (400, "OverLimit", StoreUnavailable),
        (403, "AccessDeniedException", AwsRefused),
        (400, "ValidationException", AwsRefused),
        (404, "ResourceNotFoundException", AwsRefused),
    ],
)
async def test_a_failure_is_told_by_who_must_act(aws, clients, status, code, kind):
    aws.faults = [Fault("sqs", status=status, code=code)] * 3
    with pytest.raises(InfinityError, match=f"sqs list_queues.*{code}") as caught:
        await clients.call("sqs", "list_queues")
    assert type(caught.value) is kind
    assert isinstance(caught.value, Redeliver if kind is StoreUnavailable else Misconfigured)
    if kind is AwsRefused:
        assert caught.value.code == code
        assert len(aws.calls) == 1


async def test_an_answer_that_makes_no_sense_is_unavailable(aws, clients, monkeypatch):
    monkeypatch.setattr(aws, "_moto", garbage)
    with pytest.raises(StoreUnavailable, match="sts get_caller_identity: the answer makes no sense"):
        await clients.call("sts", "get_caller_identity")


def garbage(_, start_response):
    start_response("200 OK", [("Content-Type", "text/html"), ("Content-Length", "15")])
    return [b"<html>It works!"]


async def test_a_value_that_no_request_can_carry_is_refused(aws, clients):
    with pytest.raises(AwsRefused, match=r"sqs send_message cannot be asked: .*QueueUrl") as caught:
        await clients.call("sqs", "send_message", MessageBody="x")
    assert caught.value.code == "ParamValidation"


def test_no_region_is_a_wrong_setting(monkeypatch, tmp_path):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(Misconfigured, match=r"region.*set AWS_REGION"):
        asyncio.run(AwsClients().call("sqs", "list_queues"))


def test_no_client_library_is_imported_before_a_call():
    code = (
        "import sys; import infinity_agents.adapters.dynamodb, infinity_agents.adapters.sqs;"
        "import infinity_agents.adapters.scheduler, infinity_agents.adapters.s3, infinity_agents.adapters.sigv4;"
        "from infinity_agents.aws_clients import AwsClients; AwsClients();"
        "sys.exit(any(name in sys.modules for name in ('boto3', 'botocore', 'urllib3', 'aiohttp')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_one_file_alone_names_the_client_library():
    from pathlib import Path

    import infinity_agents

    root = Path(infinity_agents.__file__).parent
    naming = {
        path.name
        for path in (root / "adapters").glob("*.py")
        if "import boto" in (text := path.read_text()) or "from boto" in text or "aioboto" in text
    }
    assert naming <= {"bedrock.py"}
