"""A secret is told by its name, and the secret itself is refused."""

import base64

import pytest
from aws_cdk import Stack, aws_iam

from infinity_cdk.secrets import secret_named
from tests.infra.conftest import Synthesized, app_without_bundling

ARN = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:infinity/slack"


@pytest.fixture(scope="module")
def empty():
    return Stack(app_without_bundling(), "Stack")


@pytest.mark.parametrize(
    "name",
    [
        "infinity/slack-bot-token",
        "team.a/agent_1/github",
        "/prod/eu-central-1/payments-slack-bot-token-2026-11-production",
        "infinity/slack-bot-token-production-eu-central-1-blue-2",
        "platform/SlackBotTokenOfProduction2026",
        "team/bot+alerts@example.com",
        "sk-prod/slack/token",
        "2026/agents/github_webhook_secret",
        "AKIA/rotation/notes",
        f"long/{'n' * 507}",
    ],
)
def test_a_name_is_taken(stack, name):
    secret = secret_named(stack, "Secret", "SLACK_BOT_TOKEN", name)
    assert secret.secret_name == name
    assert Stack.of(stack).resolve(secret.secret_arn)["Fn::Join"][1][-1] == f":secret:{name}"


@pytest.mark.parametrize(
    ("arn", "allowed"),
    [
        (f"{ARN}-AbCdEf", f"{ARN}-AbCdEf"),
        (f"{ARN}-bot-token", f"{ARN}-bot-token-??????"),
        (ARN, f"{ARN}-??????"),
        (
            f"{ARN.replace('arn:aws:', 'arn:aws-us-gov:')}-AbCdEf",
            f"{ARN.replace('arn:aws:', 'arn:aws-us-gov:')}-AbCdEf",
        ),
        (f"{ARN.rpartition(':')[0]}:word-AbCdEf", f"{ARN.rpartition(':')[0]}:word-AbCdEf"),
    ],
)
def test_an_arn_is_taken_with_and_without_its_random_part(stack, arn, allowed):
    secret = secret_named(stack, "Secret", "SLACK_BOT_TOKEN", arn)
    assert secret.secret_arn == arn
    secret.grant_read(aws_iam.Role(stack, "Role", assumed_by=aws_iam.AccountRootPrincipal()))
    [statement] = Synthesized(stack).statements("Role")
    assert statement["Resource"] == allowed


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "/",
        "/word",
        "word/",
        "short",
        "slack-bot-token",
        "infinity/../x y",
        "infinity/slack\n",
        "infinity/schlüssel",
        f"long/{'n' * 508}",
        # Keys that are known by their marks, alone and behind a name.
        "xoxb-1234567890123-1234567890123-abcdefABCDEF0123456789ab",
        "infinity/xoxb-1234567890123-1234567890123-abcdefABCDEF0123456789ab",
        "SLACK_BOT_TOKEN=infinity/xoxe.xoxb-1-abcdefghijklmnop",
        "keys/sk-ant-api03-abcdefghijklmnopqrstuvwxyz",
        "keys/sk-proj-abcdefghijklmnopqrstuvwxyz",
        "keys/ghp_abcdefghijklmnopqrstuvwxyzABCDEFGHIJ",
        "keys/github_pat_11ABCDEFG0abcdefghijkl_mnop",
        "keys/AKIAIOSFODNN7EXAMPLE",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw/abc",
        "hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
        # And by their form.
        "0123456789abcdef0123456789abcdef",
        "Ov23liABCDEFGHIJKLMN",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        base64.b64encode(bytes(range(200, 232))).decode(),
        base64.b64encode(b"??>" * 10 + b"?").decode(),
        '{"token": "a/b"}',
        "Bearer a/b",
        "-----BEGIN PRIVATE KEY-----\nMC4C/AQAw\n-----END PRIVATE KEY-----",
        "https://user:pass@example.com/a",
        # No ARN of a secret.
        "arn:aws:sqs:eu-central-1:123456789012:queue",
        "arn:aws:secretsmanager:eu-central-1:123456789012:secret:",
        "arn:aws:secretsmanager:eu-central-1:12345:secret:infinity/slack-AbCdEf",
        f"{ARN}-AbCdEf:token",
    ],
)
def test_a_value_is_refused_with_the_command_that_stores_it_and_not_repeated(empty, value):
    with pytest.raises(ValueError, match="create-secret --name infinity/slack_bot_token") as caught:
        secret_named(empty, "Secret", "SLACK_BOT_TOKEN", value)
    assert len(value) < 6 or value not in str(caught.value)
    assert not empty.node.children


@pytest.mark.parametrize("name", ["infinity/slack-signing-secret", "infinity/github-000001"])
def test_a_name_that_aws_takes_for_a_whole_arn_is_refused(stack, name):
    with pytest.raises(ValueError, match=f"complete ARN:\n  aws secretsmanager describe-secret --secret-id {name} "):
        secret_named(stack, "Secret", "SLACK_SIGNING_SECRET", name)
    assert secret_named(stack, "Secret", "SLACK_SIGNING_SECRET", f"{ARN}-secret-AbCdEf")


@pytest.mark.parametrize("variable", ["SLACK_BOT_TOKEN", "SLACK_SIGNING_SECRET", "GITHUB_WEBHOOK_SECRET"])
def test_the_name_that_an_error_proposes_is_one_that_is_taken(stack, variable):
    with pytest.raises(ValueError, match="export") as caught:
        secret_named(stack, "Wrong", variable, "a key")
    proposed = str(caught.value).rpartition(f"export {variable}=")[2]
    assert secret_named(stack, "Secret", variable, proposed).secret_name == proposed
