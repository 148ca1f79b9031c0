"""The templates of the finance and the sandbox tool set: what their functions are told, and what they may do."""

import aws_cdk as cdk
import pytest

from infinity_agents.settings.tool_servers import FinanceEnvironment, FinancePollerEnvironment, SandboxEnvironment
from infinity_cdk import FinanceToolSet, HTTPMCPToolSet, InfinityAgent, RapToolSet, SandboxToolSet
from tests.infra.conftest import Synthesized, app_without_bundling

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def template():
    stack = cdk.Stack(app_without_bundling(), "Stack")
    agent = InfinityAgent(stack, "Agent", monitoring=False)
    FinanceToolSet(agent, "Finance")
    SandboxToolSet(agent, "Sandbox")
    return Synthesized(stack)


def told(function):
    return {
        name: value if isinstance(value, str) else "x" for name, value in function["Environment"]["Variables"].items()
    }


@pytest.mark.parametrize(
    ("prefix", "settings"),
    [
        ("AgentFinanceToolServer", FinanceEnvironment),
        ("AgentFinancePoller", FinancePollerEnvironment),
        ("AgentSandboxToolServer", SandboxEnvironment),
    ],
)
def test_what_the_template_says_is_what_the_function_reads(template, prefix, settings):
    variables = told(template.function(prefix))
    assert settings.read(variables).written() == variables
    assert template.function(prefix)["RecursiveLoop"] == "Allow"


def test_the_market_is_looked_at_each_minute(template):
    [rule] = [rule for name, rule in template.of_type("AWS::Events::Rule").items() if "Finance" in name]
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    actions = {action for one in template.statements("AgentFinancePoller") for action in listed(one["Action"])}
    assert "dynamodb:Query" in actions
    assert "dynamodb:DeleteItem" not in actions


def test_a_command_of_a_sandbox_can_do_no_more_than_its_function(template):
    function = template.function("AgentSandboxToolServer")
    assert function["PackageType"] == "Image"
    assert function["FileSystemConfigs"][0]["LocalMountPath"] == function["Environment"]["Variables"]["SANDBOX_ROOT"]
    [files] = template.of_type("AWS::EFS::FileSystem").values()
    assert files["Encrypted"] is True
    actions = {action for one in template.statements("AgentSandboxToolServer") for action in listed(one["Action"])}
    services = {action.partition(":")[0] for action in actions}
    assert services <= {"dynamodb", "elasticfilesystem", "lambda", "logs", "s3", "ec2"}


def test_how_often_is_a_whole_number_of_minutes():
    agent = InfinityAgent(cdk.Stack(app_without_bundling(), "Stack"), "Agent", monitoring=False)
    with pytest.raises(ValueError, match="poll_every is 90 seconds"):
        FinanceToolSet(agent, "Finance", poll_every=cdk.Duration.seconds(90))


@pytest.mark.parametrize(
    "wrong",
    [
        {"server_url": "https://a.example", "auth": "a-token"},
        {"server_url": "https://user:pass@a.example"},
        {"server_url": "https://"},
        {"server_url": "https://a b"},
        {"server_url": "https://a.example\n"},
    ],
)
def test_what_a_tool_server_may_not_be(wrong):
    agent = InfinityAgent(cdk.Stack(app_without_bundling(), "Stack"), "Agent", monitoring=False)
    with pytest.raises(ValueError, match="the tool set 'x'") as told:
        RapToolSet(agent, "x", **wrong)
    assert "a-token" not in str(told.value)
    assert "pass@" not in str(told.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "https://user:pass@a.example"},
        {"url": "http://a.example"},
        {"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer a-token"}},
    ],
)
def test_no_secret_of_an_mcp_server_gets_into_the_template(wrong):
    agent = InfinityAgent(cdk.Stack(app_without_bundling(), "Stack"), "Agent", monitoring=False)
    with pytest.raises(ValueError, match="the tool set 'x'") as told:
        HTTPMCPToolSet(agent, "x", **wrong)
    assert "a-token" not in str(told.value)
    assert "pass@" not in str(told.value)


def listed(value):
    return value if isinstance(value, list) else [value]
