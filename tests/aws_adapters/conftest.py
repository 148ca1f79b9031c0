"""AWS on loopback for each module of tests, and what one agent is deployed with for each test."""

import time

import botocore.endpoint
import pytest

from infinity_agents.aws_clients import AwsClients
from infinity_agents.testing.aws import AwsStandIn


@pytest.fixture(scope="module")
def running_aws():
    with AwsStandIn.running() as stand_in:
        clients = AwsClients()
        yield stand_in, clients
        clients.close()


@pytest.fixture
def aws(running_aws):
    stand_in, _ = running_aws
    stand_in.now = time.time
    stand_in.faults.clear()
    stand_in.calls.clear()
    return stand_in


@pytest.fixture
def clients(running_aws):
    return running_aws[1]


@pytest.fixture
def deployed(aws, clients):
    resources = aws.deploy(clients)
    aws.calls.clear()
    return resources


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """The pauses between attempts, which nobody waits for."""
    seconds = []

    class Impatient:
        sleep = seconds.append

        def __getattr__(self, name):
            return getattr(time, name)

    monkeypatch.setattr(botocore.endpoint, "time", Impatient())
    return seconds
