"""Deploys an agent that people talk to in Slack: docs/slack.md has the steps."""

import os
import sys

import aws_cdk as cdk

from infinity_cdk import InfinityAgent, SlackIntegration

PROMPT = (
    "You talk with people in Slack. Each message begins with who said it, such as <@U024BE7LH|Ann Lee>: you mention "
    "somebody by writing that. Answer in Markdown, and briefly."
)

allowed = os.environ.get("SLACK_ALLOWED")
if not allowed:
    sys.exit("SLACK_ALLOWED must say who may talk to it: ids of people, channels or teams, by comma")

app = cdk.App()
stack = cdk.Stack(app, "SlackAgent")
agent = InfinityAgent(stack, "Agent", system_prompt=PROMPT)
slack = SlackIntegration(
    agent,
    "Slack",
    # Names of secrets, never the secrets themselves.
    bot_token=os.environ.get("SLACK_BOT_TOKEN", "slack-agent/bot_token"),
    signing_secret=os.environ.get("SLACK_SIGNING_SECRET", "slack-agent/signing_secret"),
    # Your own id, a channel's, or your team's: whoever is not on the list is told so.
    allowed=allowed.split(","),
)
cdk.CfnOutput(stack, "WebhookUrl", value=slack.webhook_url)
app.synth()
