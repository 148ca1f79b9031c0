"""What constructs are given: what cannot be is named with what must be, before the CDK sees it."""

import inspect
import re

import aws_cdk as cdk
import pytest
from aws_cdk import aws_apigateway, aws_ec2, aws_lambda
from aws_cdk.aws_secretsmanager import Secret
from constructs import Construct

import infinity_cdk
from infinity_cdk import (
    AgentMonitoring,
    DsqlDatabase,
    Ec2ToolSet,
    FinanceToolSet,
    FunctionToolSet,
    GetTimeToolSet,
    GitHubEventToolSet,
    HTTPMCPToolSet,
    InfinityAgent,
    LambdaMCPToolSet,
    LambdaProps,
    McpOAuth,
    RapToolSet,
    SandboxToolSet,
    SlackIntegration,
    ToolFunction,
)
from tests.infra.conftest import app_without_bundling

ARN = "arn:aws:dsql:eu-central-1:123456789012:cluster/abc"
URL = {"server_url": "https://x.example"}
SERVER = {"url": "https://x.example"}
SECRETS = {"bot_token": "a/b", "signing_secret": "a/c"}
seconds, millis = cdk.Duration.seconds, cdk.Duration.millis


@pytest.fixture(scope="module")
def stack():
    return cdk.Stack(app_without_bundling(), "Stack")


@pytest.fixture(scope="module")
def agent(stack):
    return InfinityAgent(stack, "Agent", monitoring=False)


def needed(construct, stack, agent):
    """Return what a construct cannot do without besides scope and id."""
    gateway = stack.node.try_find_child("Gateway") or aws_apigateway.RestApi(stack, "Gateway")
    secret = stack.node.try_find_child("Secret") or Secret.from_secret_name_v2(stack, "Secret", "a/b")
    return {
        AgentMonitoring: {"agent": agent},
        DsqlDatabase: {"endpoint": "abc.dsql.eu-central-1.on.aws", "arn": ARN},
        Ec2ToolSet: {"instance_types": [aws_ec2.InstanceType("t4g.small")]},
        GitHubEventToolSet: {"webhook_gateway": gateway, "webhook_secret": secret},
        HTTPMCPToolSet: SERVER,
        LambdaMCPToolSet: {"command": ["npx", "-y", "x@1.2.3"]},
        McpOAuth: {"callback_gateway": gateway},
        SlackIntegration: SECRETS,
        ToolFunction: {"function": "get_time", "description": "x"},
    }.get(construct, {})


def parameters(construct):
    return [name for name in inspect.signature(construct.__init__).parameters if name != "self"]


@pytest.mark.parametrize(
    ("construct", "argument"),
    [
        pytest.param(made, name, id=f"{made.__name__}-{name}")
        for made in (getattr(infinity_cdk, each) for each in infinity_cdk.__all__)
        if made is not infinity_cdk.ToolSet
        for name in parameters(made)
    ],
)
def test_no_argument_of_any_construct_takes_anything(stack, agent, construct, argument):
    given = needed(construct, stack, agent)
    if issubclass(construct, Construct):
        first = "agent" if construct is SlackIntegration else "scope"
        given |= {first: agent, "id": "Wrong"}
    before = len(agent.node.children)
    with pytest.raises(TypeError, match=rf"^{construct.__name__}.*: {argument} (is an object and|\(object\)) must be "):
        construct(**given | {argument: object()})
    assert len(agent.node.children) == before


@pytest.mark.parametrize(
    ("construct", "wrong", "said"),
    [
        (InfinityAgent, {"batch_size": 2.5}, "batch_size is 2.5 and must be a whole number"),
        (InfinityAgent, {"batch_size": True}, "batch_size is True and must be a whole number"),
        (InfinityAgent, {"batch_size": "3"}, "batch_size is '3' and must be a whole number"),
        (InfinityAgent, {"model_id": ""}, "model_id is '' and must be a model or an inference profile of Bedrock"),
        (InfinityAgent, {"model_id": "openai:gpt"}, "model_id is 'openai:gpt' and must be a model or an inference"),
        (InfinityAgent, {"model_id": None}, "model_id is None and must be a text"),
        (InfinityAgent, {"slice_timeout": millis(60_500)}, "slice_timeout is 60.5 and must be 30 to 900 seconds"),
        (InfinityAgent, {"slice_timeout": 60}, "slice_timeout is 60 and must be a Duration, such as"),
        (InfinityAgent, {"message_retention": None}, "message_retention is None and must be a Duration"),
        (InfinityAgent, {"model_arns": ARN}, f"model_arns is '{ARN}' and must be a list"),
        (InfinityAgent, {"model_arns": [ARN, "x"]}, "model_arns[1] is 'x' and must be an ARN"),
        (InfinityAgent, {"architecture": "arm64"}, "architecture is 'arm64' and must be an Architecture"),
        (
            InfinityAgent,
            {"architecture": aws_lambda.Architecture.custom("mips")},
            "architecture is an Architecture and must be Architecture.ARM_64 or X86_64",
        ),
        (InfinityAgent, {"removal_policy": "retain"}, "must be one of RemovalPolicy, such as RemovalPolicy."),
        (InfinityAgent, {"removal_policy": cdk.RemovalPolicy.SNAPSHOT}, "removal_policy is RemovalPolicy.SNAPSHOT and"),
        (InfinityAgent, {"log_retention": 7}, "log_retention is 7 and must be one of RetentionDays"),
        (InfinityAgent, {"alarm_topic": "arn:aws:sns:eu-central-1:1:x"}, "and must be an ITopic"),
        (InfinityAgent, {"system_prompt": "ü" * 1001}, "(1003 characters) and must be 2,000 bytes at most"),
        (InfinityAgent, {"system_prompt": "a\0b"}, "system_prompt is 'a\\x00b' and must be a text of Unicode"),
        (InfinityAgent, {"system_prompt": "\ud800"}, "system_prompt is '\\ud800' and must be a text of Unicode"),
        (InfinityAgent, {"public_receiver": "no"}, "public_receiver is 'no' and must be True or False"),
        (InfinityAgent, {"id": ""}, "InfinityAgent '': id is '' and must be 1 to 200 characters"),
        (InfinityAgent, {"id": "!!"}, "id is '!!' and must be 1 to 200 characters without a slash, one of them a"),
        (InfinityAgent, {"scope": cdk.App()}, "scope is an App and must be a Stack, or a construct in one"),
        (InfinityAgent, {"scope": None}, "scope is None and must be a Construct"),
        (RapToolSet, {**URL, "call_timeout": millis(1500)}, "call_timeout is 1.5 and must be 1 to 31622400 seconds, a"),
        (RapToolSet, {**URL, "call_timeout": seconds(0)}, "call_timeout is 0 and must be 1 to"),
        (RapToolSet, {**URL, "name": ""}, "name is '' and must be a text that is not empty"),
        (RapToolSet, {"server_url": " "}, "server_url is ' ' and must be a text that is not empty"),
        (RapToolSet, {"handler": "function"}, "handler is 'function' and must be an IFunction"),
        (HTTPMCPToolSet, {**SERVER, "headers": {"a": 5}}, "headers['a'] (int) must be a text or an ISecret"),
        (HTTPMCPToolSet, {**SERVER, "headers": [("a", "b")]}, "headers (list) must be a mapping such as a dict"),
        (LambdaMCPToolSet, {"command": ["npx", 1]}, "command[1] is 1 and must be a text"),
        (LambdaProps, {"memory_size": 64}, "LambdaProps: memory_size is 64 and must be 128 to 10240 MB"),
        (LambdaProps, {"timeout": seconds(901)}, "timeout is 901 and must be 1 to 900 seconds"),
        (Ec2ToolSet, {"instance_types": ["t4g.small"]}, "instance_types[0] is 't4g.small' and must be an InstanceType"),
        (FinanceToolSet, {"finnhub_key": "a-key"}, "finnhub_key (str) must be an ISecret"),
        (FinanceToolSet, {"poll_every": millis(60_500)}, "poll_every is 60.5 and must be"),
        (FunctionToolSet, {"call_timeout": 5}, "call_timeout is 5 and must be a Duration"),
        (GetTimeToolSet, {"name": " "}, "name is ' ' and must be a text that is not empty"),
        (SandboxToolSet, {"memory_size": 1.5}, "memory_size is 1.5 and must be a whole number"),
        (SandboxToolSet, {"vpc": "vpc-1"}, "vpc is 'vpc-1' and must be an IVpc"),
        (ToolFunction, {"function": "get_time", "description": ""}, "description is '' and must be a text that is not"),
        (SlackIntegration, {**SECRETS, "allowed": "U1"}, "allowed is 'U1' and must be a list"),
        (SlackIntegration, {**SECRETS, "allowed": ["U1", ""]}, "allowed[1] is '' and must be a text that is not empty"),
        (SlackIntegration, {"bot_token": None, "signing_secret": "a/b"}, "bot_token (NoneType) must be a text or an"),
        (DsqlDatabase, {"endpoint": "https://x", "arn": ARN}, "endpoint is 'https://x' and must be a host"),
        (DsqlDatabase, {"endpoint": "x", "arn": "y"}, "arn is 'y' and must be an ARN"),
    ],
)
def test_a_wrong_argument_is_named_with_what_it_must_be(agent, construct, wrong, said):
    if issubclass(construct, Construct):
        wrong = {"agent" if construct is SlackIntegration else "scope": agent, "id": "Wrong", **wrong}
    before = len(agent.node.children)
    with pytest.raises((TypeError, ValueError), match=re.escape(said)) as caught:
        construct(**wrong)
    assert "\n" not in str(caught.value)
    assert len(agent.node.children) == before


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf"), "3"])
def test_a_price_is_a_number_of_dollars(agent, price):
    with pytest.raises((TypeError, ValueError), match=f"output_price is {price!r} and must be"):
        AgentMonitoring(agent, "Prices", agent=agent, output_price=price)


def test_no_value_is_repeated_where_a_secret_may_stand(agent):
    with pytest.raises(TypeError, match="finnhub_key") as caught:
        FinanceToolSet(agent, "Key", finnhub_key="a-secret-key")
    assert "a-secret-key" not in str(caught.value)
    with pytest.raises(TypeError, match="authorization") as caught:
        HTTPMCPToolSet(agent, "Headers", url="https://x.example", headers={"authorization": b"a-secret-key"})
    assert "a-secret-key" not in str(caught.value)


def test_a_secret_by_a_name_that_aws_does_not_find_is_refused(stack, agent):
    named = Secret.from_secret_name_v2(stack, "Unfindable", "my/api-secret")
    with pytest.raises(ValueError, match=r"auth .* must be a secret that is told by its complete ARN"):
        RapToolSet(agent, "Unfound", server_url="https://x.example", auth=named)
    complete = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:my/api-secret-AbCdEf"
    RapToolSet(agent, "Found", **URL, auth=Secret.from_secret_complete_arn(stack, "Complete", complete))
    RapToolSet(agent, "Made", **URL, auth=Secret(stack, "Own", secret_name="my/api-secret"))


def test_what_only_a_deployment_knows_is_taken():
    stack = cdk.Stack(app_without_bundling(), "Stack")
    number, text = cdk.CfnParameter(stack, "Number", type="Number"), cdk.CfnParameter(stack, "Text")
    agent = InfinityAgent(
        stack,
        "Agent",
        monitoring=False,
        batch_size=number.value_as_number,
        message_retention=seconds(number.value_as_number),
        model_arns=cdk.Token.as_list({"Ref": "Text"}),
        system_prompt=text.value_as_string,
        database=DsqlDatabase(endpoint=text.value_as_string, arn=text.value_as_string),
    )
    RapToolSet(agent, "Tools", server_url=text.value_as_string)
    mapping = agent.leader.node.scope.node.find_child("Messages").node.default_child
    assert stack.resolve(mapping.batch_size) == {"Ref": "Number"}


def test_a_subclass_is_called_by_its_own_name(stack):
    class Support(InfinityAgent):
        def __init__(self, scope, id):
            super().__init__(scope, id, max_concurrency=1)

    with pytest.raises(ValueError, match=r"^Support 'Mine': max_concurrency is 1 and must be 2 to 1000 leaders"):
        Support(stack, "Mine")


def test_what_is_missing_is_named(agent):
    with pytest.raises(TypeError, match=r"missing a required.* argument: 'url'"):
        HTTPMCPToolSet(agent, "Missing")
