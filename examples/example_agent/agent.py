"""The agent that `cdk deploy` in this project deploys: the tool sets that come with the package, and Slack."""

from collections.abc import Mapping

from aws_cdk import aws_apigateway, aws_ec2
from constructs import Construct

from infinity_cdk import (
    Ec2ToolSet,
    FinanceToolSet,
    GetTimeToolSet,
    GitHubEventToolSet,
    InfinityAgent,
    SandboxToolSet,
    SlackIntegration,
)
from infinity_cdk.review import accept
from infinity_cdk.secrets import secret_named

PROMPT = """
You help people who run software. Do what they ask with your tools, and say shortly what came of it. What takes long
goes on by itself: say so, and tell them when it is done.
"""


class ExampleAgent(InfinityAgent):
    """An agent with all tool sets.

    What needs an account elsewhere is there if `environ` names its secrets; the sandbox, which costs money while nobody
    uses it, if `WITH_SANDBOX` is set.
    """

    def __init__(self, scope: Construct, id: str, *, environ: Mapping[str, str]) -> None:
        super().__init__(scope, id, system_prompt=PROMPT.strip())
        GetTimeToolSet(self, "GetTime")
        FinanceToolSet(self, "Finance")
        Ec2ToolSet(self, "Ec2", instance_types=[aws_ec2.InstanceType("t4g.small")])
        if "GITHUB_WEBHOOK_SECRET" in environ:
            GitHubEventToolSet(
                self,
                "GitHub",
                webhook_gateway=self._gateway(),
                webhook_secret=secret_named(
                    self, "GitHubSecret", "GITHUB_WEBHOOK_SECRET", environ["GITHUB_WEBHOOK_SECRET"]
                ),
            )
        if "SLACK_BOT_TOKEN" in environ:
            SlackIntegration(
                self,
                "Slack",
                bot_token=environ["SLACK_BOT_TOKEN"],
                signing_secret=environ.get("SLACK_SIGNING_SECRET", ""),
                allowed=[each for each in environ.get("SLACK_ALLOWED", "").split(",") if each],
            )
        if environ.get("WITH_SANDBOX"):
            SandboxToolSet(self, "Sandbox")

    def _gateway(self) -> aws_apigateway.RestApi:
        gateway = aws_apigateway.RestApi(self, "Webhooks", cloud_watch_role=False)
        accept(gateway, "AwsSolutions-APIG1", "the function logs each delivery; the gateway would log the same again")
        accept(gateway, "AwsSolutions-APIG6", "logs of a gateway need a role that is one for the whole account")
        accept(gateway, "AwsSolutions-APIG2", "the function checks the signature over the bytes before it reads them")
        return gateway
