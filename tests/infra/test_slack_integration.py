"""The template of an agent in Slack: two paths, two functions, and no secret."""

import importlib
import json
import runpy
from pathlib import Path

import pytest
from aws_cdk import App, Stack, aws_apigatewayv2, aws_lambda, aws_sns
from aws_cdk.assertions import Match, Template
from infra.infinity_cdk import InfinityAgent, SlackIntegration, functions

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow

NAMES = {"bot_token": "my-agent/slack-bot-token", "signing_secret": "my-agent/slack-signing"}


@pytest.fixture
def agent(monkeypatch):
    """An agent whose functions have no code: what packages hold is another test's."""
    code = aws_lambda.Code.from_inline("x")
    monkeypatch.setattr(functions, "function_code", lambda *_, **__: code)
    stack = Stack(App(), "Stack")
    return InfinityAgent(stack, "Agent", monitoring=False)


def template_of(agent):
    return Template.from_stack(Stack.of(agent))


def test_two_paths_two_functions_and_their_rights(agent):
    SlackIntegration(agent, "Slack", allowed=["U1", "C1"], **NAMES)
    template = template_of(agent)
    for path in ("/slack/events", "/slack/interactivity"):
        template.has_resource_properties("AWS::ApiGatewayV2::Route", {"RouteKey": f"POST {path}"})
    template.has_resource_properties(
        "AWS::Lambda::Function",
        {
            "Handler": "infinity_agents.aws.slack_receiver.handler",
            "RecursiveLoop": "Allow",
            "Environment": {"Variables": Match.object_like({"SLACK_ALLOWED": "U1,C1"})},
        },
    )
    template.has_resource_properties(
        "AWS::Lambda::Function", {"Handler": "infinity_agents.aws.slack_responder.handler", "RecursiveLoop": "Allow"}
    )
    template.has_resource_properties(
        "AWS::Lambda::EventSourceMapping",
        {
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
            "MaximumBatchingWindowInSeconds": 1,
            "ScalingConfig": {"MaximumConcurrency": 2},
        },
    )
    template.has_resource_properties(
        "AWS::Lambda::EventInvokeConfig", {"DestinationConfig": {"OnFailure": {"Destination": Match.any_value()}}}
    )
    text = json.dumps(template.to_json())
    assert "SLACK_BOT_TOKEN_ARN" in text
    assert '"SLACK_BOT_TOKEN"' not in text


def test_a_gateway_that_is_there_is_used(agent):
    gateway = aws_apigatewayv2.HttpApi(Stack.of(agent), "Gateway")
    slack = SlackIntegration(agent, "Slack", allow_everyone=True, webhook_gateway=gateway, **NAMES)
    assert slack.webhook_gateway is gateway
    template = template_of(agent)
    template.resource_count_is("AWS::ApiGatewayV2::Api", 1)
    variables = Match.object_like({"SLACK_ALLOW_EVERYONE": "true"})
    template.has_resource_properties("AWS::Lambda::Function", {"Environment": {"Variables": variables}})


def test_what_fails_wakes_somebody(agent):
    stack = Stack.of(agent)
    topic = "arn:aws:sns:eu-central-1:123456789012:alarms"
    watched = InfinityAgent(stack, "Watched", alarm_topic=aws_sns.Topic.from_topic_arn(stack, "Topic", topic))
    before = set(watched.monitoring.alarms)
    slack = SlackIntegration(watched, "Slack", allowed=["U1"], **NAMES)
    ours = {name: alarm for name, alarm in watched.monitoring.alarms.items() if name not in before}
    assert set(ours) == {
        "SlackFailedEvents",
        *(f"Slack{name}{what}" for name in ("Receiver", "Responder") for what in ("Errors", "Throttles")),
    }
    template = template_of(watched)
    queue = stack.resolve(slack.failed_events.queue_name)
    watch = {"Dimensions": [{"Name": "QueueName", "Value": queue}], "MetricName": "ApproximateNumberOfMessagesVisible"}
    [alarm] = template.find_resources("AWS::CloudWatch::Alarm", {"Properties": watch}).values()
    assert alarm["Properties"]["Threshold"] == 1
    assert alarm["Properties"]["AlarmActions"] == alarm["Properties"]["OKActions"] == [topic]
    assert "messages from Slack with files" in alarm["Properties"]["AlarmDescription"]
    for function in (slack.receiver, slack.responder):
        name = {"Dimensions": [{"Name": "FunctionName", "Value": stack.resolve(function.function_name)}]}
        assert len(template.find_resources("AWS::CloudWatch::Alarm", {"Properties": name})) == 2


def test_an_agent_without_monitoring_has_no_alarms(agent):
    SlackIntegration(agent, "Slack", allowed=["U1"], **NAMES)
    template_of(agent).resource_count_is("AWS::CloudWatch::Alarm", 0)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "allow_everyone=True"),
        ({"allowed": ["ann"]}, "'ann' is no id"),
        ({"allowed": ["U1"], "allow_everyone": True}, "either ids, or everyone"),
        ({"allowed": ["U1"], "bot_token": "xoxb-123-abc"}, "SLACK_BOT_TOKEN must be the name of a secret"),
    ],
)
def test_what_cannot_be_is_an_error(agent, changed, said):
    with pytest.raises(ValueError, match=r"allow|no id|ids|secret") as caught:
        SlackIntegration(agent, "Slack", **{**NAMES, **changed})
    assert said in str(caught.value)
    assert "xoxb" not in str(caught.value)


def test_the_example_deploys_it(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "infra"))
    constructs = importlib.import_module("infinity_cdk.functions")
    code = aws_lambda.Code.from_inline("x")
    monkeypatch.setattr(constructs, "function_code", lambda *_, **__: code)
    monkeypatch.setenv("SLACK_ALLOWED", "U1,C1")
    stack = runpy.run_path(str(ROOT / "examples" / "slack_agent" / "app.py"))["stack"]
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::ApiGatewayV2::Route", 2)
    template.has_output("WebhookUrl", {})
