"""The templates of tool sets that wait for events: who may do what, and who is told of what."""

import json

import pytest
from aws_cdk import App, Stack, aws_apigateway, aws_lambda
from aws_cdk.assertions import Match, Template
from aws_cdk.aws_ec2 import InstanceType
from aws_cdk.aws_secretsmanager import Secret
from infra.infinity_cdk import Ec2ToolSet, GitHubEventToolSet, InfinityAgent, functions

pytestmark = pytest.mark.slow


@pytest.fixture
def agent(monkeypatch):
    """An agent whose functions have no code: what packages hold is another test's."""
    code = aws_lambda.Code.from_inline("x")
    monkeypatch.setattr(functions, "function_code", lambda *_, **__: code)
    return InfinityAgent(Stack(App(), "Stack"), "Agent", monitoring=False)


def function_of(template, name, variables):
    handler = f"infinity_agents.aws.{name}.handler"
    told = {"Variables": Match.object_like(dict.fromkeys(variables, Match.any_value()))}
    template.has_resource_properties(
        "AWS::Lambda::Function", {"Handler": handler, "RecursiveLoop": "Allow", "Environment": told}
    )


def statements_of(template):
    policies = template.find_resources("AWS::IAM::Policy").values()
    return [each for policy in policies for each in policy["Properties"]["PolicyDocument"]["Statement"]]


def roles_that_may_answer(template):
    """The roles that may call the receiver's URL, by the words of their names."""
    (policy,) = (
        policy
        for policy in template.find_resources("AWS::IAM::Policy").values()
        if any(
            "Receiver" in json.dumps(statement["Resource"]) and "lambda:InvokeFunctionUrl" in statement["Action"]
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        )
    )
    return json.dumps(policy["Properties"]["Roles"])


def test_instances(agent):
    Ec2ToolSet(agent, "Ec2", instance_types=[InstanceType("t4g.small")])
    template = Template.from_stack(Stack.of(agent))
    function_of(template, "ec2", ["INSTANCES_TABLE_NAME", "CLAIMS_TABLE_NAME", "PAYLOAD_BUCKET"])
    function_of(template, "ec2_events", ["INSTANCES_TABLE_NAME"])
    pattern = {"source": ["aws.ec2"], "detail-type": ["EC2 Instance State-change Notification"]}
    template.has_resource_properties("AWS::Events::Rule", {"EventPattern": pattern})
    starting = [each for each in statements_of(template) if each["Action"] == "ec2:RunInstances"]
    assert [each["Condition"] for each in starting] == [{"StringEqualsIfExists": {"ec2:InstanceType": ["t4g.small"]}}]
    for role in ("Tool", "Failures", "Events"):
        assert role in roles_that_may_answer(template)


def test_there_must_be_types(agent):
    with pytest.raises(ValueError, match="needs instance_types="):
        Ec2ToolSet(agent, "Ec2", instance_types=[])


def test_github(agent):
    stack = Stack.of(agent)
    gateway = aws_apigateway.RestApi(stack, "Gateway")
    secret = Secret.from_secret_name_v2(stack, "Secret", "my-agent/github-webhook")
    tools = GitHubEventToolSet(agent, "GitHub", webhook_gateway=gateway, webhook_secret=secret, agent_login="robot")
    template = Template.from_stack(stack)
    function_of(template, "github_events", ["GITHUB_TABLE_NAME", "BLOB_BUCKET", "CLAIMS_TABLE_NAME"])
    told = ["GITHUB_TABLE_NAME", "BLOB_BUCKET", "GITHUB_WEBHOOK_SECRET_ARN", "GITHUB_AGENT_LOGIN"]
    function_of(template, "github_webhook", told)
    template.has_resource_properties("AWS::ApiGateway::Resource", {"PathPart": "github"})
    template.has_resource_properties("AWS::ApiGateway::Method", {"HttpMethod": "POST", "AuthorizationType": "NONE"})
    assert '"GITHUB_WEBHOOK_SECRET"' not in json.dumps(template.to_json())
    for role in ("Tool", "Failures", "Webhook"):
        assert role in roles_that_may_answer(template)
    assert "/github" in json.dumps(stack.resolve(tools.webhook_url))


@pytest.fixture
def github(agent):
    """Makes the tool set with the options, and returns the template."""

    def made(**options):
        stack = Stack.of(agent)
        gateway = aws_apigateway.RestApi(stack, "Gateway")
        secret = Secret.from_secret_name_v2(stack, "Secret", "my-agent/github-webhook")
        GitHubEventToolSet(agent, "GitHub", webhook_gateway=gateway, webhook_secret=secret, **options)
        return Template.from_stack(stack)

    return made


def test_the_server_alone_may_read_the_token(agent, github):
    token = Secret.from_secret_name_v2(Stack.of(agent), "Token", "my-agent/github-token")
    template = github(token=token, api_url="https://github.example.com/api/v3")
    function_of(template, "github_events", ["GITHUB_TOKEN_ARN", "GITHUB_API_URL"])
    reading = [
        policy["Properties"]
        for policy in template.find_resources("AWS::IAM::Policy").values()
        if "secret:my-agent/github-token-" in json.dumps(policy["Properties"])
    ]
    (roles,) = (policy["Roles"] for policy in reading)
    assert ["Tool" in json.dumps(role) for role in roles] == [True]
    (statement,) = (
        each for each in reading[0]["PolicyDocument"]["Statement"] if "github-token" in json.dumps(each["Resource"])
    )
    assert set(statement["Action"]) == {"secretsmanager:GetSecretValue", "secretsmanager:DescribeSecret"}
    assert '"GITHUB_TOKEN"' not in json.dumps(template.to_json())


def test_without_a_token_no_other_secret_may_be_read(github):
    template = github()
    assert "GITHUB_TOKEN_ARN" not in json.dumps(template.to_json())


@pytest.mark.parametrize(
    ("url", "has_token"),
    [
        ("http://github.example.com", True),
        ("https://me:secret@x.example.com", True),
        ("https://github.example.com/api/v3", False),
    ],
)
def test_an_api_is_asked_by_https_with_a_token(agent, github, url, has_token):
    token = Secret.from_secret_name_v2(Stack.of(agent), "Token", "my-agent/github-token") if has_token else None
    with pytest.raises(ValueError, match="must be an https URL without a user") as refused:
        github(token=token, api_url=url)
    assert "secret@" not in str(refused.value)
