"""The stand-in for AWS refuses what the services refuse, and keeps order and time as they do."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest
from botocore.exceptions import ClientError

from infinity_agents.testing.doubles import FrozenClock

MIB = 1024 * 1024


@pytest.fixture
def clock(aws):
    clock = FrozenClock()
    aws.now = lambda: clock.now().timestamp()
    return clock


@pytest.fixture
def sqs(clients):
    return clients.client("sqs")


@pytest.fixture
def fifo(sqs, deployed):
    return {"QueueUrl": deployed.input_url, "MessageGroupId": "g"}


def code_of(call, **arguments):
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    return caught.value.response["Error"]["Code"]


# -------------------------------------------------------------------------------------------------------------- SQS


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"MessageBody": "x" * (MIB + 1)}, "InvalidParameterValue"),
        ({"MessageBody": "\x00"}, "InvalidMessageContents"),
        ({"MessageBody": "\ufffe"}, "InvalidMessageContents"),
        ({"MessageBody": ""}, "MissingParameter"),
        ({"MessageGroupId": "a b"}, "InvalidParameterValue"),
        ({"MessageGroupId": "g" * 129}, "InvalidParameterValue"),
        ({"MessageDeduplicationId": "ä"}, "InvalidParameterValue"),
        ({"DelaySeconds": 1}, "InvalidParameterValue"),
        ({"MessageAttributes": {"a": {"DataType": "String", "StringValue": "\x01"}}}, "InvalidParameterValue"),
    ],
)
def test_what_a_message_may_not_be(sqs, fifo, changed, code):
    assert code_of(sqs.send_message, **{**fifo, "MessageBody": "x", "MessageDeduplicationId": "d", **changed}) == code


def test_attributes_count_towards_the_size(sqs, fifo):
    attributes = {"a": {"DataType": "String", "StringValue": "x" * 92}}
    message = {**fifo, "MessageDeduplicationId": "d", "MessageAttributes": attributes}
    assert code_of(sqs.send_message, MessageBody="x" * (MIB - 98), **message) == "InvalidParameterValue"
    sqs.send_message(MessageBody="x" * (MIB - 99), **message)


def test_a_standard_queue_takes_no_deduplication_id_and_no_long_delay(sqs, deployed):
    message = {"QueueUrl": deployed.delay_url, "MessageBody": "x"}
    assert code_of(sqs.send_message, MessageDeduplicationId="d", **message) == "InvalidParameterValue"
    assert code_of(sqs.send_message, DelaySeconds=901, **message) == "InvalidParameterValue"


@pytest.mark.parametrize(
    ("names", "code"),
    [
        ([], "EmptyBatchRequest"),
        ([f"{number}" for number in range(11)], "TooManyEntriesInBatchRequest"),
        (["a", "a"], "BatchEntryIdsNotDistinct"),
        (["a b"], "InvalidBatchEntryId"),
    ],
)
def test_what_a_batch_may_not_be(sqs, deployed, names, code):
    url = deployed.input_url
    entries = [{"Id": name, "ReceiptHandle": "r"} for name in names]
    assert code in code_of(sqs.delete_message_batch, QueueUrl=url, Entries=entries)
    entries = [{"Id": name, "MessageBody": "x"} for name in names]
    assert code in code_of(sqs.send_message_batch, QueueUrl=deployed.output_url, Entries=entries)


def test_a_batch_is_not_larger_than_a_message(sqs, deployed):
    entries = [{"Id": name, "MessageBody": "x" * (MIB // 2 + 1)} for name in "ab"]
    assert "BatchRequestTooLong" in code_of(sqs.send_message_batch, QueueUrl=deployed.output_url, Entries=entries)


def bodies(sqs, url, count=10):
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=count, VisibilityTimeout=30)
    return [message["Body"] for message in answer.get("Messages", ())]


@pytest.mark.parametrize("count", [1, 2, 10])
def test_a_batch_that_expires_comes_again_in_order(sqs, fifo, clock, count):
    for text in "0123":
        sqs.send_message(MessageBody=text, MessageDeduplicationId=text, **fifo)
    first = bodies(sqs, fifo["QueueUrl"], count)
    assert bodies(sqs, fifo["QueueUrl"]) == []
    clock.advance(30)
    assert bodies(sqs, fifo["QueueUrl"], count) == first == list("0123")[:count]


def test_an_id_counts_in_its_group_and_for_five_minutes(sqs, fifo, clock):
    for group in ("g", "g", "h"):
        sqs.send_message(**{**fifo, "MessageGroupId": group}, MessageBody="x", MessageDeduplicationId="d")
    assert len(bodies(sqs, fifo["QueueUrl"])) == 2
    clock.advance(300)
    sqs.send_message(MessageBody="y", MessageDeduplicationId="d", **fifo)
    assert sorted(bodies(sqs, fifo["QueueUrl"])) == ["x", "x", "y"]


def test_a_message_is_in_hand_for_twelve_hours_from_when_it_was_received(sqs, fifo, clock):
    sqs.send_message(MessageBody="x", MessageDeduplicationId="d", **fifo)
    clock.advance(13 * 3600)
    (message,) = sqs.receive_message(QueueUrl=fifo["QueueUrl"], VisibilityTimeout=30)["Messages"]
    held = {"QueueUrl": fifo["QueueUrl"], "ReceiptHandle": message["ReceiptHandle"]}
    sqs.change_message_visibility(**held, VisibilityTimeout=12 * 3600)
    clock.advance(3600)
    with pytest.raises(ClientError, match="beyond the limit"):
        sqs.change_message_visibility(**held, VisibilityTimeout=12 * 3600)


def test_the_receipt_of_an_expired_message_is_refused(sqs, fifo, clock):
    sqs.send_message(MessageBody="x", MessageDeduplicationId="d", **fifo)
    (message,) = sqs.receive_message(QueueUrl=fifo["QueueUrl"], VisibilityTimeout=30)["Messages"]
    clock.advance(30)
    receipt = {"QueueUrl": fifo["QueueUrl"], "ReceiptHandle": message["ReceiptHandle"]}
    assert "ReceiptHandle" in code_of(sqs.delete_message, **receipt)
    assert "ReceiptHandle" in code_of(sqs.change_message_visibility, VisibilityTimeout=1, **receipt)


# -------------------------------------------------------------------------------------------------------- Scheduler


@pytest.fixture
def schedule(deployed, clock):
    target = {"Arn": deployed.delay_arn, "RoleArn": deployed.role_arn, "Input": "x"}
    return {
        "Name": "s",
        "GroupName": deployed.schedule_group,
        "ScheduleExpression": "at(2026-01-05T13:00:00)",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": target,
    }


@pytest.mark.parametrize(
    "expression",
    ["soon", "at(2026-01-05T12:00:00)", "at(2026-13-05T12:00:00)", "at(2026-01-06)", "rate(0 days)", "cron(* *)"],
)
def test_a_time_that_never_comes_is_refused(clients, schedule, expression):
    create = clients.client("scheduler").create_schedule
    assert code_of(create, **{**schedule, "ScheduleExpression": expression}) == "ValidationException"


@pytest.mark.parametrize("name", ["a b", "n" * 65, "ä"])
def test_a_name_of_other_letters_is_refused(clients, schedule, name):
    # botocore checks the length itself; the service checks the letters.
    with pytest.raises(Exception, match=r"(?i)name"):
        clients.client("scheduler").create_schedule(**{**schedule, "Name": name})


def test_a_target_that_cannot_be_reached_is_refused(clients, deployed, aws, schedule):
    create = clients.client("scheduler").create_schedule
    fifo = aws.arn_of(deployed.input_url)
    for changed in (
        {"Arn": f"{deployed.delay_arn}x"},
        {"Arn": fifo},
        {"Arn": fifo, "SqsParameters": {"MessageGroupId": "g"}},
        {"RoleArn": "arn:aws:sqs:us-east-1:123456789012:q"},
        {"Input": "x" * (256 * 1024 + 1)},
        {"DeadLetterConfig": {"Arn": aws.arn_of(deployed.dead_letter_url)}},
        {"DeadLetterConfig": {"Arn": "arn:aws:sqs:us-east-1:123456789012:nobody"}},
    ):
        target = {**schedule["Target"], **changed}
        assert code_of(create, **{**schedule, "Target": target}) == "ValidationException"
    create(**schedule)
    assert code_of(create, **schedule) == "ConflictException"


def test_a_fifo_target_with_content_based_deduplication_is_taken(clients, deployed, aws, sqs, schedule):
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName="by-content.fifo", Attributes=attributes)["QueueUrl"]
    target = {**schedule["Target"], "Arn": aws.arn_of(url), "SqsParameters": {"MessageGroupId": "g"}}
    clients.client("scheduler").create_schedule(**{**schedule, "Target": target})


# ------------------------------------------------------------------------------------------------ the other services


def test_an_item_of_more_than_400_kb_is_refused(clients, deployed):
    put = clients.client("dynamodb").put_item
    item = {"pk": {"S": "p"}, "sk": {"S": "s"}, "a": {"S": "x" * 409_600}}
    assert code_of(put, TableName=deployed.table, Item=item) == "ValidationException"
    put(TableName=deployed.table, Item={**item, "a": {"S": "x" * 404_000}})


def test_of_writers_at_once_whose_condition_is_that_nothing_is_there_one_writes(deployed):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    writers = [boto3.client("dynamodb") for _ in range(4)]
    try:
        with ThreadPoolExecutor(len(writers)) as pool:
            for number in range(30):
                item, ready = {"pk": {"S": "a"}, "sk": {"S": str(number)}}, threading.Barrier(len(writers))

                def write(writer, item=item, ready=ready):
                    ready.wait()
                    try:
                        writer.put_item(
                            TableName=deployed.table, Item=item, ConditionExpression="attribute_not_exists(pk)"
                        )
                    except ClientError as error:
                        return error.response["Error"]["Code"]
                    return "written"

                assert sorted(pool.map(write, writers)) == ["ConditionalCheckFailedException"] * 3 + ["written"]
    finally:
        sys.setswitchinterval(interval)
