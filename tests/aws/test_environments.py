"""What the functions are told: read and written by one mechanism, and every mistake in one error."""

from dataclasses import fields

import pytest

from infinity_agents.errors import Misconfigured
from infinity_agents.settings.environments import Environment
from infinity_agents.settings.leading import KeeperEnvironment, LeaderEnvironment, MigrateEnvironment
from infinity_agents.settings.queueing import ReceiverEnvironment, RelayEnvironment

ALL = [LeaderEnvironment, ReceiverEnvironment, RelayEnvironment, KeeperEnvironment, MigrateEnvironment]
VALUES = {
    "MAX_RECEIVE_COUNT": "5",
    "DELAY_QUEUE_ARN": "arn:aws:sqs:eu-central-1:123456789012:delay",
    "DELAY_DEAD_LETTER_QUEUE_ARN": "arn:aws:sqs:eu-central-1:123456789012:dead",
    "SCHEDULER_ROLE_ARN": "arn:aws:iam::123456789012:role/scheduler",
    "CALLBACK_SECRET_ARN": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:callbacks-AbCdEf",
}
OTHERS = {"DATABASE_URL", "CALLBACK_SECRET"}
FUNCTIONS = {
    "INPUT_QUEUE_URL": "leader receiver relay keeper",
    "DELAY_QUEUE_URL": "leader",
    "DELAY_QUEUE_ARN": "leader",
    "DELAY_DEAD_LETTER_QUEUE_ARN": "leader",
    "SCHEDULER_ROLE_ARN": "leader",
    "SCHEDULE_GROUP_NAME": "leader",
    "OUTPUT_QUEUE_URL": "leader keeper",
    "DEAD_LETTER_QUEUE_URL": "leader keeper",
    "DELAY_DEAD_LETTER_QUEUE_URL": "keeper",
    "MAX_RECEIVE_COUNT": "leader",
    "DYNAMODB_TABLE_NAME": "leader receiver keeper",
    "DSQL_CLUSTER_ENDPOINT": "leader keeper migrate",
    "DSQL_DB_USER": "leader keeper migrate",
    "DATABASE_URL": "leader keeper migrate",
    "RAP_CALLBACK_URL": "leader",
    "RAP_PUBLIC_CALLBACK_URL": "leader",
    "CALLBACK_SECRET_ARN": "leader receiver relay keeper",
    "CALLBACK_SECRET": "leader receiver relay keeper",
    "BLOB_BUCKET": "leader receiver keeper",
    "MODEL_ID": "leader",
    "SYSTEM_PROMPT": "leader",
    "SYSTEM_PROMPT_PATH": "leader",
    "TOOLS_CONFIG_DDB_KEY": "leader",
    "TOOLS_CONFIG_PATH": "leader",
    "TOOLS_CONFIG": "leader",
}
"""The table of the wire formats."""


def variables_of(environment: type[Environment]) -> set[str]:
    return {field.name.upper() for field in fields(environment)}


def whole(environment: type[Environment]) -> dict[str, str]:
    names = variables_of(environment) - OTHERS
    return {name: VALUES.get(name, f"https://example.com/{name.lower()}") for name in names}


@pytest.mark.parametrize("environment", ALL)
def test_a_function_is_told_what_the_wire_formats_say(environment):
    told = {name for name, functions in FUNCTIONS.items() if environment.FUNCTION in functions.split()}
    assert variables_of(environment) == told


@pytest.mark.parametrize("environment", ALL)
def test_what_is_read_is_written_again(environment):
    assert environment.read({**whole(environment), "PATH": "/bin"}).written() == whole(environment)


def test_defaults_are_written_and_what_is_empty_is_not_set():
    told = {**whole(LeaderEnvironment), "MODEL_ID": "", "TOOLS_CONFIG": ""}
    read = LeaderEnvironment.read(told)
    assert (read.model_id, read.tools_config, read.max_receive_count) == (
        "global.anthropic.claude-sonnet-4-6",
        None,
        5,
    )
    assert read.written()["MODEL_ID"] == "global.anthropic.claude-sonnet-4-6"
    assert "TOOLS_CONFIG" not in read.written()


@pytest.mark.parametrize("environment", ALL)
def test_all_that_is_missing_is_told_at_once(environment):
    with pytest.raises(Misconfigured) as caught:
        environment.read({})
    optional = {name for name, field in environment.__dataclass_fields__.items() if field.default is None}
    optional |= {"model_id"}
    assert f"function {environment.FUNCTION}" in str(caught.value)
    for name in variables_of(environment) - {name.upper() for name in optional}:
        assert name in str(caught.value)
    for alternatives in environment.ALTERNATIVES:
        assert ", or ".join(" and ".join(group) for group in alternatives) in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"MAX_RECEIVE_COUNT": "0"}, "MAX_RECEIVE_COUNT must be a whole number from 1 to 9999, and is '0'"),
        ({"INPUT_QUEUE_URL": "input.fifo"}, "INPUT_QUEUE_URL must be the URL of a queue, and is 'input.fifo'"),
        ({"SCHEDULER_ROLE_ARN": "role"}, "SCHEDULER_ROLE_ARN must be an ARN, and is 'role'"),
        ({"RAP_CALLBACK_URL": "example.com"}, "RAP_CALLBACK_URL must be a URL, and is 'example.com'"),
        (
            {"DATABASE_URL": "host=x"},
            "DSQL_CLUSTER_ENDPOINT and DSQL_DB_USER, or DATABASE_URL must be set, and not both",
        ),
        ({"DSQL_DB_USER": ""}, "DSQL_DB_USER must be set beside DSQL_CLUSTER_ENDPOINT"),
        ({"CALLBACK_SECRET": "k:v", "CALLBACK_SECRET_ARN": "", "BLOB_BUCKET": ""}, "BLOB_BUCKET must be set"),
    ],
)
def test_a_wrong_value_is_named(changed, said):
    with pytest.raises(Misconfigured) as caught:
        LeaderEnvironment.read({**whole(LeaderEnvironment), **changed})
    assert str(caught.value) == f"the environment of the function leader: {said}"


def test_secrets_are_not_shown():
    told = {**whole(LeaderEnvironment), "CALLBACK_SECRET": "k:hidden", "DATABASE_URL": "host=hidden"}
    for name in ("CALLBACK_SECRET_ARN", "DSQL_CLUSTER_ENDPOINT", "DSQL_DB_USER"):
        del told[name]
    assert "hidden" not in repr(LeaderEnvironment.read(told))
