"""One agent on this machine, whole: its functions as processes, fed as AWS feeds them, and stand-ins for the rest."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infinity_agents.rap.asgi import serving as serving_tools
from infinity_agents.testing.aws import (
    AwsStandIn,
    Firing,
    FunctionUrl,
    LambdaFunction,
    Resources,
    SqsEventSource,
)
from infinity_agents.testing.doubles import FrozenClock
from infinity_agents.testing.model_servers import KEY, BedrockProtocol, ModelServer, serving
from infinity_agents.toolsets import get_time
from tests.aws.deployment import SECRET
from tests.aws_adapters.conftest import aws, clients, deployed, running_aws

__all__ = ["aws", "clients", "deployed", "running_aws"]

SOURCES = Path(__file__).parents[2] / "src"
MODEL = "global.anthropic.claude-sonnet-4-6"
PATIENCE = 180.0
FUNCTION_SECONDS = 20.0
"""The functions' timeout. A thread whose function was killed waits for that and ten seconds more."""


@dataclass
class Agent:
    """An agent as its users see it: two queues, and the command line of AWS."""

    aws: AwsStandIn
    clients: Any
    resources: Resources
    functions: dict[str, LambdaFunction]

    def send(self, body: str, group: str, dedup: str) -> None:
        """Send as the README has it."""
        command = [
            *(Path(sys.executable).with_name("aws"), "--endpoint-url", self.aws.url, "sqs", "send-message"),
            *("--queue-url", self.resources.input_url, "--message-body", body),
            *("--message-group-id", group, "--message-deduplication-id", dedup),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)

    async def told(self, kind: str = "message") -> dict[str, Any]:
        """Return the next thing of that kind that people are told; what is told besides is dropped."""
        sqs, url = self.clients.client("sqs"), self.resources.output_url
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = await asyncio.to_thread(sqs.receive_message, QueueUrl=url, MaxNumberOfMessages=1)
            for message in found.get("Messages", ()):
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                fields = json.loads(message["Body"])
                if fields["type"] == kind and fields["text"]:
                    return fields
            await asyncio.sleep(0.05)
        logs = "\n".join(f"--- {name}\n{function.log[-3000:]}" for name, function in self.functions.items())
        raise AssertionError(f"nobody was told a {kind}\n{logs}")

    async def schedules(self) -> list[dict[str, Any]]:
        """Return the schedules that wait."""
        answer = await self.clients.call("scheduler", "list_schedules", GroupName=self.resources.schedule_group)
        return [
            await self.clients.call(
                "scheduler", "get_schedule", GroupName=self.resources.schedule_group, Name=listed["Name"]
            )
            for listed in answer["Schedules"]
        ]

    async def later(self, clock: FrozenClock) -> None:
        """Have Scheduler fire what is due by ``clock``."""
        await Firing(self.clients, self.resources, clock, None).fire_schedules()


@pytest.fixture
async def agent(aws, clients, deployed, postgres_url, script):
    """Deploy an agent whose model follows ``script``."""
    async with contextlib.AsyncExitStack() as stack:
        model_url = await stack.enter_async_context(serving(ModelServer(BedrockProtocol(), script)))
        tools_url = await stack.enter_async_context(serving_tools(get_time.server, "127.0.0.1", 0))
        secret = clients.client("secretsmanager").create_secret(Name=deployed.table, SecretString=SECRET)["ARN"]
        to_aws = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_ENDPOINT_URL": aws.url,
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": model_url,
            "INPUT_QUEUE_URL": deployed.input_url,
            "CALLBACK_SECRET_ARN": secret,
        }
        functions = {}

        def function(name, **variables):
            functions[name] = LambdaFunction(
                f"{deployed.table}-{name}",
                f"infinity_agents.aws.{name}.handler",
                environment=to_aws | variables,
                python_path=[SOURCES],
                timeout=FUNCTION_SECONDS,
            )
            stack.callback(functions[name].close)
            return functions[name]

        receiver = function("receiver", DYNAMODB_TABLE_NAME=deployed.table, BLOB_BUCKET=deployed.bucket)
        relay = function("delay_relay")
        signed, public = FunctionUrl(receiver), FunctionUrl(receiver, iam=False)
        stack.callback(signed.close)
        stack.callback(public.close)
        leader = function(
            "leader",
            DELAY_QUEUE_URL=deployed.delay_url,
            DELAY_QUEUE_ARN=deployed.delay_arn,
            DELAY_DEAD_LETTER_QUEUE_ARN=deployed.delay_dead_letter_arn,
            SCHEDULER_ROLE_ARN=deployed.role_arn,
            SCHEDULE_GROUP_NAME=deployed.schedule_group,
            OUTPUT_QUEUE_URL=deployed.output_url,
            DEAD_LETTER_QUEUE_URL=deployed.dead_letter_url,
            MAX_RECEIVE_COUNT="5",
            DYNAMODB_TABLE_NAME=deployed.table,
            DATABASE_URL=postgres_url,
            RAP_CALLBACK_URL=signed.url,
            RAP_PUBLIC_CALLBACK_URL=public.url,
            BLOB_BUCKET=deployed.bucket,
            MODEL_ID=MODEL,
            TOOLS_CONFIG=json.dumps(
                {"tool_sets": [{"type": "toolset_server", "server_url": tools_url, "id": "time", "auth": "none"}]}
            ),
        )
        sqs = clients.client("sqs")
        for source in (
            SqsEventSource(sqs, deployed.input_url, leader),
            SqsEventSource(sqs, deployed.delay_url, relay),
        ):
            stack.push_async_callback(asyncio.to_thread, source.close)
        yield Agent(aws, clients, deployed, functions)
