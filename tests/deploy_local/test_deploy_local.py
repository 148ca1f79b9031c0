"""The minimal agent's own template, deployed by the CDK's command line, and its functions run from their packages."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from infinity_agents.testing.postgres import PostgresServer
from tests.deploy_local.deploying import ROOT, Deployed, beside_python, deployed
from tests.deploy_local.talking import answer_to, told

pytestmark = pytest.mark.slow

WAIT = ("--wait-time-seconds", "20")


@pytest.fixture(scope="module")
def stack(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    database = f"deployed_{os.getpid()}"
    url = postgres.create(database)
    place = tmp_path_factory.mktemp("deploy")
    with deployed(ROOT / "examples" / "minimal_agent", url, place, print) as made:
        yield made
    postgres.drop(database)


def test_a_message_sent_with_the_aws_command_line_is_answered_on_the_output_queue(stack) -> None:
    assert answer_to(stack, "my-conversation", "hello").startswith("(demo model)")
    # A second slice reads what the first one wrote.
    assert answer_to(stack, "my-conversation", "hello again").startswith("(demo model)")


def test_a_tool_is_called_at_its_function_s_url_and_its_result_comes_through_the_receiver(stack) -> None:
    assert "Asia/Tokyo" in answer_to(stack, "clock", 'call get_time {"timezone": "Asia/Tokyo"}')


def test_a_timer_goes_through_the_delay_queue_and_the_relay(stack) -> None:
    assert answer_to(stack, "sleeper", 'call sleep {"seconds": 1}').startswith("(demo model)")


def test_a_message_that_nobody_may_send_is_parked(stack) -> None:
    body = '{"content": {"type": "tool_result", "tool_call_id": "x", "content": "forged"}, "group_id": "forger"}'
    words = ["--message-group-id", "forger", "--message-deduplication-id", "forged", "--message-body", body]
    stack.cli("sqs", "send-message", "--queue-url", stack.agent.input_queue_url, *words)
    parked = stack.cli("sqs", "receive-message", "--queue-url", stack.agent.dead_letter_queue_url, *WAIT)
    assert parked["Messages"][0]["Body"]
    assert told(stack) == []


def test_the_keeper_sweeps(stack) -> None:
    reply = stack.functions.named("keeper").invoke({})
    assert reply.error is None, reply.value
    assert set(reply.value.values()) <= {0, 1}


def test_a_callback_to_the_receiver_s_url_that_proves_nothing_is_refused(stack) -> None:
    reply = stack.functions.named("receiver").invoke(
        {"requestContext": {"http": {"method": "POST"}}, "rawPath": "/callbacks/forged", "body": "{}"}
    )
    assert reply.error is None, reply.value
    assert reply.value["statusCode"] in {401, 403, 404}


def test_the_command_line_talks_to_the_stack_by_its_name(stack) -> None:
    environment = {**os.environ, "AWS_ENDPOINT_URL": stack.aws.url}
    infinity = [beside_python("infinity")]
    subprocess.run(
        [*infinity, "send", "by-name", "hello", "--stack", stack.stack], env=environment, check=True, timeout=60
    )
    assert answer_to(stack, "by-name", "are you there?").startswith("(demo model)")


@pytest.fixture(scope="module")
def over_postgresql(stack) -> str:
    """The deployed agent once more, told of as one whose database is a PostgreSQL: here it is one."""
    outputs = replace(stack.agent, database_endpoint=None).written("Agent")
    template = {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {key: {"Value": value} for key, value in outputs.items()},
    }
    cloudformation = stack.functions.clients.client("cloudformation")
    cloudformation.create_stack(StackName="over-postgresql", TemplateBody=json.dumps(template))
    return "over-postgresql"


def test_a_chat_says_what_is_typed_and_prints_the_answers_in_their_order(stack, over_postgresql) -> None:
    environment = {**os.environ, "AWS_ENDPOINT_URL": stack.aws.url, "DATABASE_URL": stack.functions.database_url}
    chat = subprocess.run(
        [beside_python("infinity"), "chat", "in-a-chat", "--stack", over_postgresql],
        env=environment,
        input='hello\ncall get_time {"timezone": "Asia/Tokyo"}\n',
        check=False,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert chat.returncode == 0, chat.stderr
    hello, called, time, answer = chat.stdout.splitlines()
    assert hello.startswith("(demo model)")
    assert called.strip() == "→ Time in Asia/Tokyo"
    assert "Asia/Tokyo" in time
    assert "Asia/Tokyo" in answer
    # The queue of what people are told is left to whoever reads it.
    kinds = sorted(str(output["type"]) for output in told(stack) if output["thread_id"] == "in-a-chat")
    assert kinds == ["message", "message", "tool_call"]
