"""The state store in DynamoDB: sizes, odd keys, races, and the tools configuration."""

import asyncio
import json
import random

import pytest

from infinity_agents.adapters.dynamodb import DynamoStateStore
from infinity_agents.errors import Misconfigured, Reject, StoreUnavailable
from infinity_agents.rap.toolsets import ToolSetConfig
from infinity_agents.testing.aws import Fault
from infinity_agents.testing.doubles import FrozenClock


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
def store(clients, deployed, clock):
    return DynamoStateStore(clients, deployed.table, clock)


async def put_item(clients, deployed, **attributes):
    item = {name: {"S": value} for name, value in attributes.items()}
    await clients.call("dynamodb", "put_item", TableName=deployed.table, Item=item)


async def test_of_many_writers_at_once_the_furthest_counts(store):
    versions = random.sample(range(1, 41), 40)
    await asyncio.gather(*(store.set_performed_through("t", version) for version in versions))
    assert await store.performed_through("t") == 40


async def test_every_read_and_every_write_is_one_round_trip(aws, store):
    for act in (
        store.performed_through("t"),
        store.set_performed_through("t", 3),
        store.copy("t", "choice", "c", {"a": 1}, 3),
        store.copies("t", "choice"),
        store.put_view("t", "map", {}, 1.5),
        store.views("t"),
        store.put_manifests("s", {}),
        store.manifests("s"),
    ):
        aws.calls.clear()
        await act
        assert len(aws.calls) == 1


async def test_every_read_sees_what_was_written_before_it(monkeypatch, clients, store):
    # moto's reads always do; DynamoDB's do where they ask for it.
    asked, call = [], clients.call

    async def overheard(service, operation, **arguments):
        asked.append(arguments.get("ConsistentRead"))
        return await call(service, operation, **arguments)

    monkeypatch.setattr(clients, "call", overheard)
    await store.performed_through("t")
    await store.copies("t", "choice")
    await store.views("t")
    await store.manifests("s")
    await store.latest_manifest("t")
    assert asked == [True] * 5


@pytest.mark.parametrize("key", ["", "#", "a#b", "NUL \x00", "äé\U0001f600", "k" * 5000, "\U0001f600" * 400])
async def test_any_key_and_any_thread_will_do(store, key):
    await store.set_performed_through(key, 3)
    await store.copy(key, "choice", key, {"a": key}, 1)
    await store.put_view(key, key, key, 1.0)
    await store.put_manifests(key, {key: key})
    await store.put_latest_manifest(key, {"a": key})
    assert await store.performed_through(key) == 3
    assert await store.copies(key, "choice") == {key: {"a": key}}
    assert await store.views(key) == {key: key}
    assert await store.manifests(key) == {key: key}
    assert await store.latest_manifest(key) == {"a": key}
    assert await store.views(key + "x") == {}


async def test_lone_surrogates_are_mended(store):
    await store.copy("t", "choice", "half \ud83d", {"half \ud83d": "half \ud83d"}, 1)
    await store.put_view("t\ud83d", "half \ud83d", "half \ud83d", 1.0)
    mended = "half \ufffd"
    assert await store.copies("t", "choice") == {mended: {mended: mended}}
    assert await store.views("t\ud83d") == {mended: mended}


async def test_numbers_come_back_as_they_were(store):
    value = {"int": 2**80, "float": 0.1, "small": 1e-300, "zero": -0.0, "empty": [[], {}, "", None]}
    await store.put_view("t", "v", value, 1764435637.123456)
    assert await store.views("t") == {"v": value}
    await store.put_view("t", "v", "older", 1764435637.123455)
    await store.put_view("t", "v", "newer", 1764435637.123457)
    assert await store.views("t") == {"v": "newer"}


async def test_what_compresses_well_may_be_long(store):
    manifest = {"tools": [{"name": f"tool_{number}", "description": "Looks at it. " * 20} for number in range(5000)]}
    await store.put_latest_manifest("t", manifest)
    await store.put_manifests("s", {"t": manifest})
    assert await store.latest_manifest("t") == manifest
    assert await store.manifests("s") == {"t": manifest}


async def test_a_value_of_any_length_is_kept_or_refused_before_the_call(aws, store):
    noise = random.Random(1).randbytes(400_000).hex()
    for length in (16_380, 16_390, 690_000):
        await store.put_view("t", "v", noise[:length], length)
        assert await store.views("t") == {"v": noise[:length]}
    aws.calls.clear()
    for act in (
        store.put_view("t", "v", noise * 2, 800_000.0),
        store.copy("t", "metadata", "metadata", {"a": noise * 2}, 1),
        store.put_manifests("s", {"a": noise * 2}),
        store.put_latest_manifest("s", {"a": noise * 2}),
    ):
        with pytest.raises(Reject, match=r"has 16000\d\d bytes, \d+ compressed, and the state store takes 399360"):
            await act
    assert not aws.calls


async def test_more_copies_than_a_page_holds_are_read(aws, store):
    noise = random.Random(1).randbytes(150_000).hex()
    values = {f"c{number}": {"a": f"{number}{noise}"} for number in range(12)}
    await asyncio.gather(*(store.copy("t", "choice", key, value, 1) for key, value in values.items()))
    aws.calls.clear()
    assert await store.copies("t", "choice") == values
    assert len(aws.calls) > 1


async def test_the_cache_of_a_session_is_forgotten_after_90_days(store, clock):
    await store.put_manifests("s", {"a": 1})
    clock.advance(90 * 86_400 - 1)
    assert await store.manifests("s") == {"a": 1}
    clock.advance(1)
    assert await store.manifests("s") is None


async def test_only_what_may_go_has_a_time_to_live(clients, deployed, store):
    await store.set_performed_through("t", 1)
    await store.copy("t", "choice", "c", {}, 1)
    await store.copy("t", "choice", "gone", None, 1)
    await store.put_view("t", "v", {}, 1.0)
    await store.put_manifests("s", {})
    await store.put_latest_manifest("s", {})
    items = (await clients.call("dynamodb", "scan", TableName=deployed.table))["Items"]
    assert sorted(item["sk"]["S"] for item in items if "ttl" in item) == ["copy#choice#gone", "manifests"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault("dynamodb", status=500),
        Fault("dynamodb", status=400, code="ProvisionedThroughputExceededException"),
        Fault("dynamodb", status=400, code="ThrottlingException"),
        Fault("dynamodb", status="hang up"),
    ],
    ids=lambda fault: fault.code if fault.status == 400 else str(fault.status),
)
async def test_a_table_that_is_down_is_unavailable_after_three_tries(aws, store, pauses, fault):
    aws.faults = [fault] * 3
    with pytest.raises(StoreUnavailable, match="dynamodb put_item"):
        await store.set_performed_through("t", 1)
    assert len(aws.calls) == 3
    assert len(pauses) == 2
    assert sum(pauses) < 5
    aws.faults = [fault] * 2
    assert await store.performed_through("t") == 0


async def test_a_table_that_is_not_there_is_a_wrong_setting(clients, clock):
    with pytest.raises(Misconfigured, match="dynamodb get_item is refused: ResourceNotFoundException"):
        await DynamoStateStore(clients, "nobody", clock).performed_through("t")


# ----------------------------------------------------------------------------------------------- tools configuration


async def test_the_tools_configuration_is_read_as_the_wire_format_says(clients, deployed, store):
    config = {"tool_sets": [{"type": "toolset_server", "server_url": "https://x.example/", "id": "x", "auth": "sigv4"}]}
    await put_item(clients, deployed, pk="my-agent", sk="config", config=json.dumps(config))
    assert await store.tools_config("my-agent") == (ToolSetConfig("x", "https://x.example", "sigv4"),)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({}, "is not there"),
        ({"sk": "config"}, "no attribute 'config'"),
        ({"sk": "config", "config": "{"}, "is not JSON"),
        ({"sk": "config", "config": '{"tool_sets": [{"type": "other"}]}'}, "tool_sets"),
    ],
)
async def test_an_unreadable_configuration_names_the_place(clients, deployed, store, attributes, said):
    if attributes:
        await put_item(clients, deployed, pk="my-agent", **attributes)
    with pytest.raises(Misconfigured, match=f"{deployed.table}, item pk='my-agent' sk='config'.*{said}"):
        await store.tools_config("my-agent")
