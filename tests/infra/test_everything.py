"""Everything that the constructs have, in one stack and split over two: no cycle, no unknown variable, no finding."""

import aws_cdk as cdk
import pytest
from aws_cdk import aws_apigateway
from aws_cdk.aws_ec2 import InstanceType
from aws_cdk.aws_secretsmanager import Secret
from cdk_nag import AwsSolutionsChecks

from infinity_agents.settings.tool_servers import McpOAuthEnvironment, McpProxyEnvironment
from infinity_cdk import (
    Ec2ToolSet,
    FinanceToolSet,
    GetTimeToolSet,
    GitHubEventToolSet,
    HTTPMCPToolSet,
    InfinityAgent,
    LambdaMCPToolSet,
    McpOAuth,
    SandboxToolSet,
    SlackIntegration,
)
from infinity_cdk.review import accept
from tests.infra.conftest import Synthesized, app_without_bundling

pytestmark = pytest.mark.slow

STATEFUL = (
    "AWS::DynamoDB::",
    "AWS::DSQL::",
    "AWS::S3::Bucket",
    "AWS::SQS::Queue",
    "AWS::EFS::",
    "AWS::SecretsManager::",
)


def tool_sets(scope, gateway, *, finance=True):
    yield GetTimeToolSet(scope, "GetTime")
    yield Ec2ToolSet(scope, "Ec2", instance_types=[InstanceType("t4g.small")])
    if finance:
        yield FinanceToolSet(scope, "Finance")
    yield GitHubEventToolSet(
        scope,
        "GitHub",
        webhook_gateway=gateway,
        webhook_secret=Secret.from_secret_name_v2(scope, "Hook", "infinity/hook"),
    )
    yield SandboxToolSet(scope, "Sandbox")
    yield HTTPMCPToolSet(scope, "linked", url="https://mcp.example.com/mcp", oauth=McpOAuth(callback_gateway=gateway))
    yield LambdaMCPToolSet(scope, "node", command=["npx", "-y", "mcp-server@1.0.0"])


def slack(agent):
    secrets = {
        name: Secret.from_secret_name_v2(agent, f"{name}-secret", f"infinity/{name}")
        for name in ("bot_token", "signing_secret")
    }
    return SlackIntegration(agent, "Slack", allowed=["T0123456789"], **secrets)


def whole(name="Stack", **options):
    stack = cdk.Stack(app_without_bundling(), name)
    agent = InfinityAgent(stack, "Agent")
    list(tool_sets(agent, aws_apigateway.RestApi(stack, "Gateway", cloud_watch_role=False), **options))
    slack(agent)
    return stack


@pytest.fixture(scope="module")
def template():
    return Synthesized(whole())


def stateful(template):
    return {name for name, each in template.resources.items() if each["Type"].startswith(STATEFUL)}


def test_the_tools_are_configured_by_one_resource(template):
    assert len(template.of_type("Custom::InfinityToolsConfig")) == 1


@pytest.mark.parametrize(
    ("prefix", "settings"), [("AgentlinkedToolServer", McpProxyEnvironment), ("AgentlinkedPage", McpOAuthEnvironment)]
)
def test_a_proxy_is_told_what_it_reads(template, prefix, settings):
    told = template.function(prefix)["Environment"]["Variables"]
    variables = {
        name: value if isinstance(value, str) else f"https://x.example/{name}" if name.endswith("_URL") else "arn:aws:x"
        for name, value in told.items()
    }
    assert settings.read(variables).written() == variables


def test_split_over_two_stacks_there_is_no_cycle():
    app = app_without_bundling()
    tools, agents = cdk.Stack(app, "Tools"), cdk.Stack(app, "Agents")
    agent = InfinityAgent(agents, "Agent")
    gateway = aws_apigateway.RestApi(tools, "Gateway", cloud_watch_role=False)
    for tool_set in tool_sets(tools, gateway):
        agent.add_tool_set(tool_set)
    slack(agent)
    app.synth()
    assert not tools.dependencies


def test_a_tool_set_that_goes_takes_nothing_else_with_it(template):
    without = Synthesized(whole(finance=False))
    gone = stateful(template) - stateful(without)
    assert gone
    assert all("Finance" in name for name in gone)
    assert stateful(without) < stateful(template)


def test_a_stack_of_another_name_keeps_every_id(template):
    assert stateful(Synthesized(whole("Another"))) == stateful(template)


def test_the_security_rules_find_nothing_new(tmp_path):
    stack = whole()
    for rule in ("APIG1", "APIG2", "APIG3", "APIG6"):
        accept(stack.node.find_child("Gateway"), f"AwsSolutions-{rule}", "a gateway is its owner's")
    app = stack.node.root
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()
