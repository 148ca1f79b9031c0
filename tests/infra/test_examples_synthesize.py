"""Both examples synthesize, without credentials and without Docker, and hold against the rules of others."""

import json
import os
import re
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path

import aws_cdk as cdk
import pytest
from cdk_nag import AwsSolutionsChecks

from infinity_agents.settings import leading, queueing, slack, tool_servers
from infinity_cdk import InfinityAgent
from tests.infra.conftest import CONTEXT, app_without_bundling

ROOT = Path(__file__).parents[2]

SETTINGS = {
    each.FUNCTION: each
    for module in (leading, queueing, slack, tool_servers)
    for each in vars(module).values()
    if hasattr(each, "FUNCTION")
}
SETTINGS |= {"delay_relay": queueing.RelayEnvironment, "get_time": tool_servers.ToolServerEnvironment}
"""The settings of each function, by the name of its module."""

NAMES = {
    **{
        name: f"infinity/{name.lower()}"
        for name in ("SLACK_BOT_TOKEN", "SLACK_SIGNING_SECRET", "GITHUB_WEBHOOK_SECRET")
    },
    "SLACK_ALLOWED": "T0123456789",
}
"""What brings everything into the example agent that needs no Docker."""

pytestmark = pytest.mark.slow


def synthesized(directory, place, **environ):
    """Run the app that the directory's cdk.json names, as the CDK's command line does; return its one template."""
    words = json.loads((directory / "cdk.json").read_text())
    context = {**words["context"], "aws:cdk:bundling-stacks": []}
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    told = {
        "CDK_OUTDIR": str(place),
        "CDK_CONTEXT_JSON": json.dumps(context),
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'infra'}",
    }
    command = words["app"].split()
    assert command[0] == "python3"
    done = subprocess.run(
        [sys.executable, *command[1:]],
        cwd=directory,
        env={**kept, **told, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [template] = place.glob("*.template.json")
    return template


@pytest.mark.parametrize("directory", [ROOT, ROOT / "examples" / "minimal_agent"], ids=["example", "minimal"])
def test_an_example_synthesizes_and_its_template_is_clean(directory, tmp_path):
    template = synthesized(directory, tmp_path / "out")
    # W3005: the CDK writes down dependencies that CloudFormation would find by itself.
    lint = [Path(sys.executable).with_name("cfn-lint"), "--ignore-checks", "W3005", "--", str(template)]
    done = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_everything_comes_with_the_names_of_its_secrets_and_is_told_what_its_settings_read(tmp_path):
    template = json.loads(synthesized(ROOT, tmp_path / "out", **NAMES).read_text())
    told = {}
    for resource in template["Resources"].values():
        handler = re.fullmatch(
            r"infinity_agents\.aws\.(\w+)\.handler", resource.get("Properties", {}).get("Handler", "")
        )
        if resource["Type"] == "AWS::Lambda::Function" and handler:
            told[handler[1]] = set(resource["Properties"]["Environment"]["Variables"])
    assert {"slack_receiver", "slack_responder", "github_webhook", "finance_poller", "ec2_events"} <= set(told)
    for function, variables in told.items():
        environment = SETTINGS[function]
        known = {field.name.upper(): field.default for field in fields(environment)}
        needed = {name for name, default in known.items() if default is MISSING}
        assert needed <= variables <= set(known), function
        for groups in environment.ALTERNATIVES:
            assert len([group for group in groups if set(group) <= variables]) == 1, function


def test_a_secret_in_place_of_its_name_stops_the_deployment(tmp_path):
    value = "xoxb-1234567890123-1234567890123-abcdefABCDEF0123456789ab"
    with pytest.raises(
        AssertionError, match="aws secretsmanager create-secret --name infinity/slack_bot_token"
    ) as told:
        synthesized(ROOT, tmp_path / "out", SLACK_BOT_TOKEN=value, SLACK_ALLOWED="T0123456789")
    assert value not in str(told.value)


def test_what_the_security_rules_say_was_looked_at(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples" / "example_agent")
    from agent import ExampleAgent

    app = cdk.App(context=CONTEXT, outdir=str(tmp_path))
    stack = cdk.Stack(app, "Stack")
    ExampleAgent(stack, "Example", environ=NAMES)
    InfinityAgent(stack, "Other", public_receiver=True, snap_start=True)
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()  # fails with what was not looked at


def test_the_security_rules_are_asked():
    app = app_without_bundling()
    cdk.aws_sqs.Queue(cdk.Stack(app, "Stack"), "Open")
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    with pytest.raises(Exception, match="AwsSolutions-SQS4"):
        app.synth()
