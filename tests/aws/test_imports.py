"""What a function brings with it at its cold start: nothing that its first event may not need."""

import subprocess
import sys

import pytest

_HEAVY = {
    *("aioboto3", "boto3", "cryptography", "httpx", "jsonschema", "mcp", "psycopg_pool", "rich", "slack_sdk"),
    *("sqlite3", "typer", "uvicorn", "aws_xray_sdk"),
}
_ADAPTERS = (
    "infinity_agents.adapters.httpx_client",
    "infinity_agents.adapters.scheduler",
    "infinity_agents.adapters.sigv4",
    "infinity_agents.adapters.dsql",
    "infinity_agents.adapters.bedrock",
    "infinity_agents.aws.leading",
    "infinity_agents.rap.toolsets",
    "infinity_agents.tools",
)


def brought_by(*modules):
    program = f"import sys; [__import__(name) for name in {modules!r}]; print('\\n'.join(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(ended.stdout.split())


@pytest.mark.parametrize("function", ["leader", "receiver", "delay_relay", "keeper", "migrate"])
def test_a_function_imports_no_more_than_its_first_event_needs(function):
    brought = brought_by(f"infinity_agents.aws.{function}")
    assert f"infinity_agents.aws.{function}" in brought
    assert sorted(brought & (_HEAVY | {"psycopg", "botocore.session"})) == []


@pytest.mark.parametrize("function", ["receiver", "delay_relay"])
def test_what_only_puts_messages_on_a_queue_brings_no_engine(function):
    brought = brought_by(f"infinity_agents.aws.{function}")
    engine = ("aws.telemetry", "conversation.slice", "ports.conversations", "rap.toolsets", "runtime", "wire.history")
    assert sorted(brought & {f"infinity_agents.{name}" for name in engine}) == []


def test_what_the_leader_is_built_of_brings_the_driver_and_nothing_else_that_is_heavy():
    brought = brought_by("infinity_agents.aws.leader", *_ADAPTERS)
    assert "psycopg" in brought
    assert sorted(brought & _HEAVY) == []
