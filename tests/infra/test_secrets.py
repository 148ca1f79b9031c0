"""A secret is told by its name, and the secret itself is refused."""

import pytest

from infinity_cdk.secrets import secret_named

ARN = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:infinity/slack-AbCdEf"


@pytest.mark.parametrize("name", ["infinity/slack-bot-token", "team.a/agent_1/github", ARN])
def test_a_name_is_taken(stack, name):
    secret = secret_named(stack, "Secret", "SLACK_BOT_TOKEN", name)
    assert name == secret.secret_arn if name == ARN else secret.secret_name


@pytest.mark.parametrize(
    "value",
    [
        "",
        "xoxb-1234567890123-1234567890123-abcdefABCDEF0123456789ab",
        "0123456789abcdef0123456789abcdef",
        "Ov23liABCDEFGHIJKLMN",
        "c2VjcmV0/b64VALUE0123456789abcdefGHIJ",
        "short",
        "infinity/../x y",
        "arn:aws:sqs:eu-central-1:123456789012:queue",
    ],
)
def test_a_value_is_refused_with_the_command_that_stores_it_and_not_repeated(stack, value):
    with pytest.raises(ValueError, match="create-secret --name infinity/slack-bot-token") as caught:
        secret_named(stack, "Secret", "SLACK_BOT_TOKEN", value)
    assert not value or value not in str(caught.value)
    assert not stack.node.children
