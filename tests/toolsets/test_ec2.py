"""The EC2 server against moto: an instance is made once, and its call is answered when it runs, or will not."""

import asyncio
import json

import pytest
from moto.ec2 import ec2_backends
from moto.ec2.models.instances import InstanceBackend

from infinity_agents.adapters.dynamo_records import DynamoRecords
from infinity_agents.adapters.ec2 import Ec2Instances
from infinity_agents.adapters.system import SystemClock
from infinity_agents.aws import ec2_events
from infinity_agents.aws.sandbox import Sandbox
from infinity_agents.errors import StoreUnavailable
from infinity_agents.rap.posting import CallbackSender
from infinity_agents.testing.aws import Fault
from infinity_agents.testing.aws.server import ACCOUNT, REGION
from infinity_agents.toolsets.ec2 import ec2_server, heard
from tests.aws_adapters.conftest import aws, clients, deployed, pauses, running_aws
from tests.toolsets.waiting import conforms, running

__all__ = ["aws", "clients", "deployed", "pauses", "running_aws"]


def an_image():
    """The id of an image, not asked for by HTTP: moto takes seconds to list all that it has."""
    return next(iter(ec2_backends[ACCOUNT][REGION].amis))


@pytest.fixture
def image(aws):
    return an_image()


@pytest.fixture(autouse=True)
def starting(aws, monkeypatch):
    """EC2 as it is and moto is not: one token makes one instance, and an instance is pending at first."""
    made = {}
    original = InstanceBackend.run_instances

    def run_instances(self, *arguments, **options):
        token = options.get("client_token")
        if token not in made:
            made[token] = original(self, *arguments, **options)
            for instance in made[token].instances:
                instance._state.name, instance._state.code = "pending", 0
        return made[token]

    monkeypatch.setattr(InstanceBackend, "run_instances", run_instances)
    return made


def go(instance_id, state):
    ec2_backends[ACCOUNT][REGION].get_instance(instance_id)._state.name = state


@pytest.fixture
def records(clients, deployed):
    return DynamoRecords(clients, deployed.table, SystemClock())


@pytest.fixture
def cloud(clients):
    return Ec2Instances(clients)


@pytest.fixture
def server(cloud, records):
    return ec2_server(cloud, records)


@pytest.fixture
def hear(cloud, records):
    async def heard_of(instance_id, state, event_id="event-1"):
        go(instance_id, state)
        sender = CallbackSender()
        await heard(
            instance_id,
            state,
            event_id=event_id,
            at="2026-11-29T12:00:00Z",
            cloud=cloud,
            records=records,
            sender=sender,
        )
        await sender.aclose()

    return heard_of


def instances(clients):
    found = clients.client("ec2").describe_instances()["Reservations"]
    return [instance["InstanceId"] for group in found for instance in group["Instances"]]


@pytest.fixture
def new(clients):
    before = set(instances(clients))
    return lambda: [name for name in instances(clients) if name not in before]


@pytest.fixture
def running_at_once(cloud, monkeypatch):
    """Instances that run before anybody waits for that."""
    create = cloud.create

    async def made_and_running(*arguments, **options):
        instance_id = await create(*arguments, **options)
        go(instance_id, "running")
        return instance_id

    monkeypatch.setattr(cloud, "create", made_and_running)


class TestCreate:
    async def test_the_call_is_answered_when_the_instance_runs(self, server, image, hear, new, records):
        async with running(server) as (runtime, call, _):
            await call("create_ec2", image_id=image, instance_type="t4g.small", name="ünder test")
            (instance_id,) = new()
            await hear(instance_id, "pending")
            assert runtime.callbacks == []
            await hear(instance_id, "running")
            await hear(instance_id, "running")
        (result,) = runtime.callbacks
        assert (result["id"], result["call_id"], result["is_error"]) == ("call-1", "model-1", False)
        told = json.loads(result["text"])
        assert (told["instance_id"], told["state"], told["instance_type"]) == (instance_id, "running", "t4g.small")
        assert await records.all("waiting#thread-1") == {}

    async def test_one_that_ends_first_is_an_error(self, server, image, hear, new):
        async with running(server) as (runtime, call, _):
            await call("create_ec2", image_id=image)
            (instance_id,) = new()
            await hear(instance_id, "shutting-down")
            await hear(instance_id, "terminated")
        (result,) = runtime.callbacks
        assert result["is_error"]
        assert result["text"].startswith(f"The instance {instance_id} is shutting-down before it ran")

    async def test_it_may_run_before_anybody_waits(self, server, image, new, running_at_once):
        async with running(server) as (runtime, call, _):
            await call("create_ec2", image_id=image)
        (result,) = runtime.callbacks
        assert json.loads(result["text"])["instance_id"] == new()[0]

    async def test_a_repeat_makes_no_second_instance(self, cloud, records, image, hear, new):
        for _ in range(2):  # another process each time
            async with running(ec2_server(cloud, records)) as (_, call, _):
                await call("create_ec2", image_id=image)
        async with running(ec2_server(cloud, records)) as (_, call, _):
            await call("create_ec2", "call-2", image_id=image)
        assert len(new()) == 2

    async def test_what_ec2_refuses_is_an_error_result(self, server, image, new):
        async with running(server) as (runtime, call, _):
            await call("create_ec2", image_id=image, subnet_id="subnet-0123abcd")
            await call("create_ec2", "call-2", image_id="no image")
        assert [result["is_error"] for result in runtime.callbacks] == [True, True]
        assert "InvalidSubnetID.NotFound" in runtime.callbacks[0]["text"]
        assert new() == []

    async def test_an_event_is_told_again_where_the_table_was_away(self, server, image, hear, new, aws):
        async with running(server) as (runtime, call, _):
            await call("create_ec2", image_id=image)
            (instance_id,) = new()
            aws.faults[:] = [Fault("dynamodb", "Query")] * 3
            with pytest.raises(StoreUnavailable):
                await hear(instance_id, "running")
            await hear(instance_id, "running")
        assert len(runtime.callbacks) == 1


class TestSubscription:
    async def test_states_are_told_until_the_end(self, server, image, hear, new, cloud, records):
        await cloud.create("t", image_id=image, instance_type="t3.micro", name=None, subnet_id=None)
        (instance_id,) = new()
        async with running(server) as (runtime, call, _):
            await call("subscribe_ec2_states", instance_id=instance_id, states=["stopped"])
            for number, state in enumerate(("running", "stopping", "stopped", "terminated")):
                await hear(instance_id, state, f"event-{number}")
        assert runtime.told("tool_result")[0]["subscription"]
        events = runtime.told("subscription_event")
        assert [(event["event_id"], event["final"]) for event in events] == [("event-2", False), ("event-3", True)]
        assert await records.all(f"instance#{instance_id}") == {}

    async def test_there_must_be_an_instance(self, server):
        async with running(server) as (runtime, call, _):
            await call("subscribe_ec2_states", instance_id="i-00000000000000000")
        assert "there is no instance" in runtime.callbacks[0]["text"]

    @pytest.mark.parametrize(
        ("path", "fields"),
        [
            ("/cancel_tool_call", {"thread_id": "thread-1", "tool_call_id": "call-1"}),
            ("/close_thread", {"thread_id": "thread-1"}),
        ],
    )
    async def test_nobody_is_told_who_does_not_listen(self, server, image, hear, new, cloud, path, fields):
        await cloud.create("t", image_id=image, instance_type="t3.micro", name=None, subnet_id=None)
        (instance_id,) = new()
        async with running(server) as (runtime, call, notice):
            await call("subscribe_ec2_states", instance_id=instance_id)
            await notice(path, **fields)
            await notice(path, **fields)
            await hear(instance_id, "running")
        assert runtime.told("subscription_event") == []


async def test_the_function_hears_of_it(server, image, new, deployed, monkeypatch):
    monkeypatch.setenv("INSTANCES_TABLE_NAME", deployed.table)
    monkeypatch.setattr(ec2_events, "sandbox", Sandbox(ec2_events.sandbox._build))
    async with running(server) as (runtime, call, _):
        await call("create_ec2", image_id=image)
        go(new()[0], "running")
        event = {
            "version": "0",
            "id": "ee376907-2647-4179-9203-343cfb3017a4",
            "detail-type": "EC2 Instance State-change Notification",
            "source": "aws.ec2",
            "time": "2026-11-29T12:00:00Z",
            "detail": {"instance-id": new()[0], "state": "running"},
        }
        await asyncio.to_thread(ec2_events.handler, event, None)
    assert len(runtime.callbacks) == 1


async def test_the_server_keeps_the_protocol(server, image, running_at_once, cloud):
    instance_id = await cloud.create("token", image_id=image, instance_type="t4g.small", name=None, subnet_id=None)
    examples = {"create_ec2": {"image_id": image}, "subscribe_ec2_states": {"instance_id": instance_id}}
    await conforms(server, examples)
