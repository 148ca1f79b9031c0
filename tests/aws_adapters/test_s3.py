"""Large values in S3."""

import asyncio
from hashlib import sha256

import pytest

from infinity_agents.adapters.s3 import S3BlobStore
from infinity_agents.errors import Misconfigured, StoreUnavailable
from infinity_agents.testing.aws import Fault


@pytest.fixture
def store(clients, deployed):
    return S3BlobStore(clients, deployed.bucket)


KEY, VALUE = sha256(b"value").hexdigest(), b"value"


async def test_what_is_there_is_not_written_again(clients, deployed, store):
    await store.put(KEY, VALUE)
    before = await clients.call("s3", "head_object", Bucket=deployed.bucket, Key=f"blobs/{KEY}")
    await asyncio.gather(*(store.put(KEY, VALUE) for _ in range(8)))
    after = await clients.call("s3", "head_object", Bucket=deployed.bucket, Key=f"blobs/{KEY}")
    assert (after["LastModified"], after["ETag"]) == (before["LastModified"], before["ETag"])
    assert await store.get(KEY) == VALUE


async def test_four_mebibytes_come_back(store):
    value = bytes(range(256)) * 16 * 1024
    await store.put(KEY, value)
    assert await store.get(KEY) == value


@pytest.mark.parametrize("status", [500, 503, "hang up"])
async def test_a_bucket_that_is_down_is_unavailable_after_three_tries(aws, store, status):
    aws.faults = [Fault("s3", status=status, code="SlowDown")] * 3
    with pytest.raises(StoreUnavailable, match="s3 put_object"):
        await store.put(KEY, VALUE)
    assert len(aws.calls) == 3
    aws.faults = [Fault("s3", status=status, code="SlowDown")] * 2
    with pytest.raises(KeyError, match=KEY):
        await store.get(KEY)


async def test_a_put_that_took_effect_and_was_not_answered_is_done(aws, store):
    aws.faults = [Fault("s3", "PUT", "hang up", after=True)]
    await store.put(KEY, VALUE)
    assert await store.get(KEY) == VALUE


async def test_somebody_elses_write_at_the_same_moment_may_be_waited_for(aws, store):
    aws.faults = [Fault("s3", "PUT", 409, "ConditionalRequestConflict")]
    with pytest.raises(StoreUnavailable, match="written by somebody else"):
        await store.put(KEY, VALUE)
    await store.put(KEY, VALUE)


async def test_a_bucket_that_is_not_there_is_a_wrong_setting(clients):
    with pytest.raises(Misconfigured, match="NoSuchBucket"):
        await S3BlobStore(clients, "nobody").get(KEY)


async def test_a_value_that_may_not_be_read_or_is_not_there_names_both_permissions(aws, deployed, store):
    aws.faults = [Fault("s3", "GET", 403, "AccessDenied")]
    with pytest.raises(Misconfigured, match=rf"AccessDenied.*'{deployed.bucket}', or s3:ListBucket"):
        await store.get(KEY)
