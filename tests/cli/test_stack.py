"""The command line on a deployed agent: the leader's handler, PostgreSQL, and every other service behind real HTTP."""

import contextlib
import json
import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
from botocore.stub import Stubber

from infinity_agents.aws.deployed import DeployedAgent
from infinity_agents.aws_clients import AwsClients
from infinity_agents.conversation.messages import InputMessage, UserChoiceRequired
from infinity_agents.errors import Misconfigured
from infinity_agents.settings.stacks import AgentOutputs
from infinity_agents.testing.aws import Fault
from infinity_agents.wire import inputs
from tests.aws.conftest import aws, clients, deployed, deployment, fresh_sandboxes, pauses, running_aws
from tests.aws.deployment import KEYRING

__all__ = ["aws", "clients", "deployed", "deployment", "fresh_sandboxes", "pauses", "running_aws"]


ENDPOINT = "abc.dsql.us-east-1.on.aws"
RESOURCES = ("input_url", "output_url", "dead_letter_url", "table", "bucket")


def outputs_of(resources, **more):
    return AgentOutputs(
        input_queue_url=resources.input_url,
        output_queue_url=resources.output_url,
        dead_letter_queue_url=resources.dead_letter_url,
        state_table_name=resources.table,
        blob_bucket_name=resources.bucket,
        migrate_function_name="migrate",
        leader_function_name="leader",
        **more,
    )


@pytest.fixture
def stack(clients):
    """Make a stack with these outputs; return its name. It is deleted with the test."""
    cloudformation = clients.client("cloudformation")
    made = []

    def of(outputs, name="my-stack"):
        template = {
            "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
            "Outputs": {key: {"Value": value} for key, value in outputs.items()},
        }
        # The first takes seconds, and may be asked for a second time.
        with contextlib.suppress(cloudformation.exceptions.AlreadyExistsException):
            cloudformation.create_stack(StackName=name, TemplateBody=json.dumps(template))
        made.append(name)
        return name

    yield of
    for name in made:
        cloudformation.delete_stack(StackName=name)


@pytest.fixture
def my_stack(deployment, stack):
    return stack(outputs_of(deployment.resources).written("Support"))


# Outputs.


def test_outputs_are_read_as_they_were_written():
    names = [f"https://sqs.example.com/{number}" for number in range(8)]
    outputs = AgentOutputs(**dict(zip(AgentOutputs.suffixes(), names, strict=True)))
    assert set(outputs.written("A")) == {f"A{suffix}" for suffix in AgentOutputs.suffixes().values()}
    both = {**outputs.written("A"), **outputs.written("Other"), "Url": "of somebody else"}
    assert AgentOutputs.read(both, "Other") == outputs
    assert AgentOutputs.read(outputs.written("A")) == outputs


# Commands.


def test_what_is_sent_is_answered_and_tail_takes_the_answer(infinity, deployment, my_stack):
    assert "is on the queue for main" in infinity("send", "main", "hello", "--stack", my_stack).stdout
    deployment.settle()
    deployment.send("other", "hello")
    deployment.settle()
    (told,) = [
        json.loads(line)
        for line in infinity("tail", "main", "--no-follow", "--json", "--stack", my_stack).stdout.splitlines()
    ]
    assert (told["type"], told["group_id"]) == ("message", "main")
    # What is for others is still there.
    assert "other message (demo model)" in infinity("tail", "--no-follow", "--stack", my_stack).stdout
    assert infinity("tail", "--no-follow", "--stack", my_stack).stdout == ""


def test_the_same_id_twice_is_heard_once(infinity, deployment, my_stack):
    for _ in range(2):
        infinity("send", "main", "hello", "--stack", my_stack, "--id", "one")
    deployment.settle()
    assert len(deployment.told()) == 1


def test_threads_and_transcripts_come_from_the_database(infinity, deployment, my_stack):
    assert "there are no threads yet" in infinity("threads", "--stack", my_stack).stdout
    infinity("send", "main", 'call sleep {"seconds": 600}', "--stack", my_stack)
    deployment.settle()
    assert "sleeps until" in infinity("threads", "--stack", my_stack).stdout
    told = json.loads(infinity("threads", "main", "--json", "--stack", my_stack).stdout)
    assert told["hosted_by"] == "the stack my-stack"
    assert [thread["id"] for thread in told["threads"]] == ["main"]
    assert "sleep" in infinity("show", "main", "--stack", my_stack).stdout
    assert "no thread 'none' in the stack my-stack" in infinity("show", "none", "--stack", my_stack, code=1).stderr


@pytest.fixture
def fed(deployment):
    """Feed the functions as they have something to do, as Lambda does, while the test runs."""
    over = threading.Event()

    def feed():
        while not over.wait(0.05):
            deployment.settle()

    feeding = threading.Thread(target=feed)
    feeding.start()
    yield
    over.set()
    feeding.join()


def test_a_chat_says_waits_and_shows_what_the_stores_say(infinity, deployment, my_stack, fed):
    done = infinity("chat", "--stack", my_stack, stdin="hello\nhello again\n")
    first, second = (line for line in done.stdout.splitlines() if "(demo model)" in line)
    assert "hello" in first
    assert "hello again" in second
    # The output queue is left to whoever reads it.
    assert len(deployment.told()) == 2


def test_a_chat_answers_a_question(infinity, deployment, my_stack, fed):
    infinity("chat", "--stack", my_stack, stdin='call sleep {"seconds": 600}\n')
    (call,) = [
        entry["call"]
        for entry in json.loads(infinity("show", "main", "--json", "--stack", my_stack).stdout)["entries"]
        if entry["kind"] == "tool_call"
    ]
    question = UserChoiceRequired(call["id"], "Which shed?", ("red", "blue"), 0, "https://tools.example.com/answer")
    deployment.send_body("main", inputs.encode(InputMessage(question, "main", message_id="question"), KEYRING))
    while "Which shed?" not in infinity("threads", "--stack", my_stack).stdout:
        pass
    infinity("chat", "--stack", my_stack, stdin="/answer 2\n")
    assert "Which shed?" not in infinity("threads", "--stack", my_stack).stdout
    assert "user_choice_complete" in {kind for kind, _ in deployment.told()}


@pytest.mark.slow  # SQS waits a second for each look at the dead letters
def test_dead_letters_are_listed_shown_put_back_and_forgotten(infinity, deployment, my_stack):
    for number in range(2):
        deployment.send_body("main", f"no JSON {number}")
        deployment.settle()
    listed = json.loads(infinity("dead-letters", "list", "--json", "--stack", my_stack).stdout)
    assert len(listed) == 2
    assert all(letter["reason"] for letter in listed)
    first, second = (letter["id"] for letter in listed)
    assert "no JSON" in infinity("dead-letters", "show", first, "--stack", my_stack).stdout
    assert "is on the queue again" in infinity("dead-letters", "redrive", first, "--stack", my_stack).stdout
    assert deployment.count(deployment.resources.input_url) == 1
    infinity("dead-letters", "discard", second, "--stack", my_stack)
    assert "there are no dead letters" in infinity("dead-letters", "list", "--stack", my_stack).stdout
    assert "no dead letter" in infinity("dead-letters", "redrive", second, "--stack", my_stack, code=1).stderr


async def test_what_was_sent_counts_until_it_is_heard_or_long_gone(deployment, my_stack, monkeypatch):
    agent = await DeployedAgent.find(my_stack)
    await agent.send("main", "hello")
    assert await agent.queue.outstanding() == {"main": 1}
    monkeypatch.setattr("infinity_agents.aws.deployed._COUNTED_FOR", timedelta(0))
    assert await agent.queue.outstanding() == {}
    await agent.aclose()


# What is wrong.


def test_a_stack_that_is_not_there_or_not_ours_is_told(infinity, deployment, stack):
    assert "there is no stack 'none' in us-east-1" in infinity("threads", "--stack", "none", code=2).stderr
    stack({"Url": "https://example.com"}, "theirs")
    assert "there is no agent in this stack" in infinity("threads", "--stack", "theirs", code=2).stderr
    part = outputs_of(deployment.resources).written("A")
    del part["AStateTableName"]
    stack(part, "old")
    assert "lacks the outputs AStateTableName" in infinity("threads", "--stack", "old", code=2).stderr


@pytest.mark.parametrize(
    ("service", "operation", "command"),
    [
        ("sqs", "SendMessage", ["send", "main", "hello"]),
        ("sqs", "ReceiveMessage", ["tail", "--no-follow"]),
    ],
)
def test_what_one_may_not_is_named(infinity, aws, my_stack, service, operation, command):
    aws.faults += [Fault(service, operation, status=403, code="AccessDenied")]
    told = infinity(*command, "--stack", my_stack, code=2).stderr
    assert service in told
    assert "AccessDenied" in told


def test_without_credentials_it_is_said_how_to_give_some(infinity, my_stack, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    assert "credentials" in infinity("threads", "--stack", my_stack, code=2).stderr


@pytest.mark.parametrize("name", ["", " ", "a b", "1st", "größe", "a" * 129, "\udcff", "arn:aws:s3:::bucket"])
@pytest.mark.parametrize("command", [["threads"], ["chat"], ["send", "main", "hello"], ["dead-letters", "list"]])
def test_what_no_stack_can_be_called_is_refused_before_aws_is_asked(infinity, monkeypatch, command, name):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    told = infinity(*command, "--stack", name, code=2).stderr
    assert f"{name[:100]!r} cannot be the name of a stack" in told
    assert "`aws cloudformation list-stacks` lists them" in told
    assert len(told.splitlines()) == 1


def test_an_agent_is_found_by_the_arn_of_its_stack(infinity, clients, my_stack):
    (described,) = clients.client("cloudformation").describe_stacks(StackName=my_stack)["Stacks"]
    assert "no threads yet" in infinity("threads", "--stack", described["StackId"]).stdout


def test_without_a_region_it_is_said_how_to_name_one(infinity, my_stack, monkeypatch, tmp_path):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    told = infinity("threads", "--stack", my_stack, code=2).stderr
    assert "You must specify a region; set AWS_REGION" in told
    monkeypatch.setenv("AWS_REGION", "no region")
    assert "set AWS_REGION" in infinity("threads", "--stack", my_stack, code=2).stderr


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("ExpiredToken", "get new credentials, such as by `aws sso login`"),
        ("AccessDenied", "let them do cloudformation:DescribeStacks"),
        ("InvalidClientTokenId", "`aws sts get-caller-identity` tells: check them"),
    ],
)
async def test_credentials_that_do_not_do_are_told_with_the_remedy(code, remedy):
    clients = AwsClients(region="us-east-1")
    with Stubber(clients.client("cloudformation")) as answers:
        answers.add_client_error("describe_stacks", code, "as AWS says it", http_status_code=403)
        with pytest.raises(Misconfigured, match=f"{code}: as AWS says it; .*{remedy}"):
            await DeployedAgent.find("mine", clients=clients)


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ("CREATE_IN_PROGRESS", "is still being created; wait until that is done"),
        ("REVIEW_IN_PROGRESS", "is not created yet; deploy it"),
        ("ROLLBACK_COMPLETE", "could not be created; read its events"),
        ("DELETE_IN_PROGRESS", "is being deleted"),
    ],
)
async def test_a_stack_in_which_nothing_is_at_work_is_told_with_its_status(status, told):
    # The stand-in makes and deletes stacks at once.
    clients = AwsClients(region="us-east-1")
    stack = {"StackName": "mine", "CreationTime": "2026-11-30T00:00:00Z", "StackStatus": status}
    with Stubber(clients.client("cloudformation")) as answers:
        answers.add_response("describe_stacks", {"Stacks": [stack]}, {"StackName": "mine"})
        with pytest.raises(Misconfigured, match=rf"the stack 'mine' {told}.*\({status}\)"):
            await DeployedAgent.find("mine", clients=clients)


async def test_a_stack_that_is_updated_is_used_meanwhile():
    clients = AwsClients(region="us-east-1")
    outputs = outputs_of(SimpleNamespace(**dict.fromkeys(RESOURCES, "https://x")), database_endpoint=ENDPOINT).written(
        "A"
    )
    stack = {
        "StackName": "mine",
        "CreationTime": "2026-11-30T00:00:00Z",
        "StackStatus": "UPDATE_IN_PROGRESS",
        "Outputs": [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()],
    }
    with Stubber(clients.client("cloudformation")) as answers:
        answers.add_response("describe_stacks", {"Stacks": [stack]}, {"StackName": "mine"})
        agent = await DeployedAgent.find("mine", clients=clients)
    assert agent.found.database_endpoint == ENDPOINT


def test_of_several_agents_one_is_to_be_named(infinity, deployment, stack):
    ours = outputs_of(deployment.resources)
    name = stack({**ours.written("Sales"), **ours.written("Support")}, "two")
    assert "it has Sales, Support" in infinity("threads", "--stack", name, code=2).stderr
    assert "it has Sales, Support" in infinity("threads", "--stack", name, "--agent", "Ops", code=2).stderr
    infinity("threads", "--stack", name, "--agent", "Sales")


def test_a_database_of_their_own_is_named_by_the_environment(infinity, my_stack, monkeypatch):
    monkeypatch.delenv("DATABASE_URL")
    assert "set DATABASE_URL" in infinity("threads", "--stack", my_stack, code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["threads", "--stack", "s", "--file", "agent.db"], "--file is for an agent in a file"),
        (["threads", "--agent", "A"], "name that with --stack"),
        (["tail", "--stack", "s", "--since", "0"], "a queue has none"),
        (["chat", "--stack", "s", "--json"], "infinity tail --json"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(infinity, arguments, told):
    assert told in " ".join(infinity(*arguments, code=2).output.replace("│", " ").split())


# Migrate.


def test_a_database_is_migrated_and_again_nothing_is_left_to_do(infinity, bare_postgres_url, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", bare_postgres_url)
    first = infinity("migrate", "--json")
    assert json.loads(first.stdout)["applied"]
    assert "CREATE TABLE" in first.stderr
    again = infinity("migrate")
    assert "there was nothing to apply" in again.stdout


def test_a_migration_of_nothing_is_refused(infinity, monkeypatch):
    for name in ("DATABASE_URL", "DSQL_CLUSTER_ENDPOINT", "DSQL_DB_USER"):
        monkeypatch.delenv(name, raising=False)
    assert "DATABASE_URL must be set" in infinity("migrate", code=2).stderr
    assert "needs --role" in infinity("migrate", "--iam-role-arn", "arn:aws:iam::1:role/r", code=2).output
