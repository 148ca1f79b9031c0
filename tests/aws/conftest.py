"""AWS on loopback, and one agent deployed on it: the environment of its functions, and a sandbox for each."""

import pytest

from infinity_agents.aws import delay_relay, keeper, leader, migrate, receiver
from infinity_agents.aws.sandbox import Sandbox
from tests.aws.deployment import SECRET, Deployment
from tests.aws_adapters.conftest import aws, clients, deployed, pauses, running_aws

__all__ = ["aws", "clients", "deployed", "pauses", "running_aws"]


@pytest.fixture
def fresh_sandboxes(monkeypatch):
    """Have each function begin in a sandbox of its own."""
    for function in (leader, receiver, delay_relay, keeper, migrate):
        monkeypatch.setattr(function, "sandbox", Sandbox(function.sandbox._build))


@pytest.fixture
def deployment(aws, clients, deployed, postgres_url, fresh_sandboxes, monkeypatch):
    secret = clients.client("secretsmanager").create_secret(Name=deployed.table, SecretString=SECRET)
    variables = {
        "INPUT_QUEUE_URL": deployed.input_url,
        "DELAY_QUEUE_URL": deployed.delay_url,
        "DELAY_QUEUE_ARN": deployed.delay_arn,
        "DELAY_DEAD_LETTER_QUEUE_ARN": deployed.delay_dead_letter_arn,
        "DELAY_DEAD_LETTER_QUEUE_URL": deployed.delay_dead_letter_url,
        "SCHEDULER_ROLE_ARN": deployed.role_arn,
        "SCHEDULE_GROUP_NAME": deployed.schedule_group,
        "OUTPUT_QUEUE_URL": deployed.output_url,
        "DEAD_LETTER_QUEUE_URL": deployed.dead_letter_url,
        "MAX_RECEIVE_COUNT": "5",
        "DYNAMODB_TABLE_NAME": deployed.table,
        "DATABASE_URL": postgres_url,
        "RAP_CALLBACK_URL": "https://callbacks.example.com",
        "CALLBACK_SECRET_ARN": secret["ARN"],
        "BLOB_BUCKET": deployed.bucket,
        "MODEL_ID": "demo",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return Deployment(aws, clients.client("sqs"), deployed, postgres_url)
