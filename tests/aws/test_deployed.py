"""The functions as they are deployed: handlers, environment, PostgreSQL, and every other service behind real HTTP."""

import json
import threading
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from infinity_agents.aws import delay_relay, keeper, leader, migrate, receiver, wiring
from infinity_agents.aws.sandbox import Sandbox
from infinity_agents.conversation.content import Text
from infinity_agents.conversation.messages import InputMessage, ToolResult
from infinity_agents.errors import Misconfigured
from infinity_agents.rap.callbacks import callback_url
from infinity_agents.testing.aws import Fault
from infinity_agents.wire import inputs, timers
from infinity_agents.wire.keys import Keyring
from tests.aws.deployment import KEYRING, SECRET
from tests.aws.lambdas import Context, failures_of
from tests.aws.test_receiver import BASE, request_of

NEW_SECRET = "k2:another secret of enough characters"


def timer(thread_id="c", call_id="call-1", text="wake up"):
    """Return the body of a message that waits in the delay queue."""
    message = InputMessage(ToolResult(call_id, (Text(text),)), thread_id, message_id=f"timer-{call_id}")
    body = inputs.encode(message, KEYRING)
    return timers.encode(timers.DelayedMessage(body, thread_id, f"timer-{call_id}"))


def relayed(deployment, *bodies):
    for body in bodies:
        deployment.sqs.send_message(QueueUrl=deployment.resources.delay_url, MessageBody=body)
    event = deployment.received(deployment.resources.delay_url)
    failed = deployment.invoked(delay_relay.handler, deployment.resources.delay_url, event)
    return [record["body"] for record in event["Records"] if record["messageId"] in failed]


# ------------------------------------------------------------------------------------------------------- the leader


def test_the_plainest_message_is_answered_three_times_in_one_process(deployment):
    for text in ("hello", "hello again", "hello once more"):
        deployment.send("my-conversation", text)
        deployment.settle()
        ((kind, reply),) = deployment.told()
        assert kind == "message"
        assert reply.startswith("(demo model)")
    assert deployment.count(deployment.resources.input_url) == 0


def test_a_sandbox_whose_sockets_died_goes_on(deployment):
    deployment.send("c", "hello")
    deployment.settle()
    deployment.told()
    deployment.cut_connections()
    deployment.aws.faults += [Fault("sqs", status="hang up"), Fault("dynamodb", status="hang up")]
    deployment.send("c", "hello again")
    deployment.settle()
    assert [kind for kind, _ in deployment.told()] == ["message"]


def test_the_same_event_twice_and_two_sandboxes_at_once_answer_once(deployment, monkeypatch):
    deployment.send("c", "hello")
    event = deployment.received(deployment.resources.input_url)
    sandboxes = [Sandbox(leader.sandbox._build) for _ in range(2)]

    def run(sandbox):
        async def handled(built):
            return await built.handle(event, seconds=300.0)

        failures_of(sandbox.run(handled))

    at_once = [threading.Thread(target=run, args=[sandbox]) for sandbox in sandboxes]
    for thread in at_once:
        thread.start()
    for thread in at_once:
        thread.join()
    run(sandboxes[0])
    assert [kind for kind, _ in deployment.told()] == ["message"]


def test_a_batch_of_two_groups_of_which_one_fails_reports_that_one(deployment):
    deployment.send("a", "hello")
    deployment.send_body("b", "no JSON")
    deployment.send("c", "hello")
    event = deployment.received(deployment.resources.input_url)
    assert len(event["Records"]) == 3
    deployment.aws.faults += [Fault("dynamodb", "GetItem", status=400, code="ValidationException")]
    failed = deployment.invoked(leader.handler, deployment.resources.input_url, event)
    assert len(failed) == 1
    assert deployment.count(deployment.resources.dead_letter_url) == 1
    assert deployment.count(deployment.resources.input_url) == 1
    assert len(deployment.told()) == 1
    deployment.later(30)
    deployment.settle()
    assert len(deployment.told()) == 1


def test_a_slice_costs_one_visibility_change_and_one_delete(deployment):
    for text in ("hello", "hello again"):
        deployment.send("c", text)
        event = deployment.received(deployment.resources.input_url)
        deployment.aws.calls.clear()
        assert failures_of(leader.handler(event, Context())) == []
    operations = [operation for service, operation in deployment.aws.calls if service == "sqs"]
    assert operations == ["ChangeMessageVisibilityBatch", "SendMessage", "DeleteMessageBatch"]
    assert [operation for service, operation in deployment.aws.calls if service == "dynamodb"] == ["GetItem", "PutItem"]
    assert {service for service, _ in deployment.aws.calls} == {"sqs", "dynamodb"}


# -------------------------------------------------------------------------------------------------------- the relay


def test_a_short_sleep_goes_through_the_delay_queue_and_the_relay(deployment):
    deployment.send("c", 'call sleep {"seconds": 3}')
    deployment.settle()
    assert [kind for kind, _ in deployment.told()] == ["tool_call"]
    deployment.later(5)
    deployment.settle()
    assert [kind for kind, _ in deployment.told()] == ["message"]


def test_a_long_sleep_goes_through_a_schedule_that_the_relay_ends(deployment, clients):
    deployment.send("c", 'call sleep {"seconds": 1200}')
    deployment.settle()
    assert [kind for kind, _ in deployment.told()] == ["tool_call"]
    scheduler, group = clients.client("scheduler"), deployment.resources.schedule_group
    (listed,) = scheduler.list_schedules(GroupName=group)["Schedules"]
    target = scheduler.get_schedule(GroupName=group, Name=listed["Name"])["Target"]
    assert relayed(deployment, target["Input"]) == []
    deployment.settle()
    assert [kind for kind, _ in deployment.told()] == ["message"]


def test_the_relay_forwards_under_the_ids_that_were_chosen(deployment):
    assert relayed(deployment, timer()) == []
    (record,) = deployment.received(deployment.resources.input_url)["Records"]
    assert record["body"] == timers.decode(timer()).body
    assert record["attributes"]["MessageGroupId"] == "c"
    assert record["attributes"]["MessageDeduplicationId"] == "timer-call-1"
    # A second copy, of a schedule that fired twice or of a send that was repeated, is dropped by the queue.
    assert relayed(deployment, timer()) == []
    assert deployment.count(deployment.resources.input_url) == 1


def test_the_relay_reports_what_it_cannot_forward_and_forwards_the_rest(deployment):
    said = json.dumps({"content": {"type": "text", "text": "not a timer"}, "group_id": "c"})
    unproven = timers.encode(timers.DelayedMessage(said, "c", "d"))
    for_another = timers.encode(timers.DelayedMessage(timers.decode(timer()).body, "another", "d"))
    bad = ["no JSON", unproven, for_another]
    assert relayed(deployment, *bad, timer()) == bad
    assert deployment.count(deployment.resources.input_url) == 1


# ------------------------------------------------------------------------------------------------------- the keeper


def test_the_keeper_answers_dead_timers_and_tells_of_dead_messages_once(deployment):
    deployment.send("c", 'call sleep {"seconds": 60}')
    deployment.settle()
    ((_, _),) = deployment.told()
    (waiting,) = deployment.aws.queue(deployment.resources.delay_url)._messages
    # The relay could not forward it, however often it tried: the queue has moved it.
    deployment.sqs.send_message(QueueUrl=deployment.resources.delay_dead_letter_url, MessageBody=waiting.body)
    deployment.send_body("d", "no JSON")
    deployment.settle()
    swept = keeper.handler({"source": "aws.scheduler"}, None)
    assert swept == {"deadlines": 0, "nudged": 0, "dead_letters": 2, "forgotten": 0}
    deployment.settle()
    told = deployment.told()
    assert [kind for kind, _ in told] == ["error", "message"]
    assert "not JSON" in told[0][1]
    assert "set aside" in told[1][1]
    deployment.later(600)
    assert keeper.handler({}, None)["dead_letters"] == 0
    assert deployment.told() == []


# ----------------------------------------------------------------------------------------------------- the receiver


def test_a_callback_comes_to_the_input_queue_and_an_unwanted_one_changes_nothing(deployment):
    url = callback_url(BASE, KEYRING, "c", "call-1", "tools")
    result = {"type": "tool_result", "group_id": "c", "id": "call-1", "text": "done"}
    assert receiver.handler(request_of(url, result), None)["statusCode"] == 200
    assert receiver.handler(request_of(url, result), None)["statusCode"] == 200
    assert receiver.handler(request_of(url[:-1], result), None)["statusCode"] == 401
    assert deployment.count(deployment.resources.input_url) == 1
    deployment.settle()
    assert deployment.count(deployment.resources.input_url) == 0
    assert deployment.told() == []


def test_a_key_is_rotated_under_running_sandboxes(deployment, clients, monkeypatch):
    result = {"type": "tool_result", "group_id": "c", "id": "call-1", "text": "done"}
    old, new = (callback_url(BASE, Keyring.parse(secret), "c", "call-1", "tools") for secret in (SECRET, NEW_SECRET))
    secrets = clients.client("secretsmanager")

    def answered(url):
        return receiver.handler(request_of(url, result), None)["statusCode"]

    assert (answered(old), answered(new)) == (200, 401)
    secrets.put_secret_value(SecretId=deployment.resources.table, SecretString=f"{SECRET},{NEW_SECRET}")
    assert (answered(old), answered(new)) == (200, 401)
    minutes = timedelta(minutes=6)
    monkeypatch.setattr(wiring.SystemClock, "now", lambda _: datetime.now(UTC) + minutes)
    # Secrets Manager may be away for a while: the keys that are known go on.
    deployment.aws.faults += [Fault("secretsmanager", status=503) for _ in range(3)]
    assert (answered(old), answered(new)) == (200, 401)
    minutes *= 2
    assert (answered(old), answered(new)) == (200, 200)
    secrets.put_secret_value(SecretId=deployment.resources.table, SecretString=NEW_SECRET)
    minutes *= 2
    assert (answered(old), answered(new)) == (401, 200)


# ---------------------------------------------------------------------------------------------------- the migration


@pytest.mark.slow
def test_the_schema_is_made_once_however_often_the_resource_is_created(postgres, fresh_sandboxes, monkeypatch):
    url = postgres.create("never_migrated")
    try:
        monkeypatch.setenv("DATABASE_URL", url)
        event = {"RequestType": "Create", "ResourceProperties": {"Role": "functions_of_test", "IamRoleArns": []}}
        first = migrate.handler(event, None)
        assert migrate.handler({**event, "RequestType": "Update"}, None) == first
        assert migrate.handler({"RequestType": "Delete"}, None)["PhysicalResourceId"] == first["PhysicalResourceId"]
        with psycopg.connect(url) as connection:
            (row,) = connection.execute("SELECT count(*) FROM infinity.threads").fetchall()
        assert row == (0,)
    finally:
        postgres.drop("never_migrated")


# ------------------------------------------------------------------------------------------------ the configuration


@pytest.mark.parametrize(
    ("variable", "value", "place"),
    [
        ("TOOLS_CONFIG_DDB_KEY", "tools", "pk='tools' sk='config'"),
        ("TOOLS_CONFIG_PATH", "nowhere.json", "TOOLS_CONFIG_PATH names nowhere.json"),
        ("TOOLS_CONFIG", "{", "the variable TOOLS_CONFIG"),
        ("SYSTEM_PROMPT_PATH", "nowhere.txt", "SYSTEM_PROMPT_PATH names nowhere.txt"),
        ("CALLBACK_SECRET_ARN", "arn:aws:secretsmanager:us-east-1:1:secret:none", "secretsmanager"),
    ],
)
def test_what_is_configured_and_cannot_be_read_fails_with_its_place(deployment, monkeypatch, variable, value, place):
    monkeypatch.setenv(variable, value)
    with pytest.raises(Misconfigured) as caught:
        leader.handler({"Records": []}, Context())
    assert place in str(caught.value)


def test_the_item_comes_before_the_file_and_the_file_before_the_text(deployment, clients, monkeypatch, tmp_path):
    def tool_sets(name, auth="none"):
        server = {"type": "toolset_server", "server_url": "https://tools.example.com", "id": name, "auth": auth}
        return json.dumps({"tool_sets": [server]})

    def configured():
        services = Sandbox(leader.sandbox._build).run(taken)
        (name,) = services.tool_servers._tool_sets
        return name, services.callback_urls("c", "call-1", name)

    async def taken(built):
        return built.system.services

    monkeypatch.setenv("RAP_PUBLIC_CALLBACK_URL", "https://public.example.com")
    monkeypatch.setenv("TOOLS_CONFIG", tool_sets("text"))
    assert configured()[0] == "text"
    assert configured()[1].startswith("https://public.example.com/")
    (tmp_path / "tools.json").write_text(tool_sets("file", "sigv4"))
    monkeypatch.setenv("TOOLS_CONFIG_PATH", str(tmp_path / "tools.json"))
    assert configured()[0] == "file"
    assert configured()[1].startswith("https://callbacks.example.com/")
    item = {"pk": {"S": "tools"}, "sk": {"S": "config"}, "config": {"S": tool_sets("item")}}
    clients.client("dynamodb").put_item(TableName=deployment.resources.table, Item=item)
    monkeypatch.setenv("TOOLS_CONFIG_DDB_KEY", "tools")
    assert configured()[0] == "item"
