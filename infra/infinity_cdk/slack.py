"""Slack as an agent's front end."""

from collections.abc import Sequence

from aws_cdk import (
    Duration,
    RemovalPolicy,
    aws_apigatewayv2,
    aws_apigatewayv2_integrations,
    aws_iam,
    aws_lambda_destinations,
    aws_sqs,
)
from aws_cdk.aws_secretsmanager import ISecret
from constructs import Construct

from infinity_agents.errors import Misconfigured
from infinity_agents.settings.slack import SlackAccess, SlackReceiverEnvironment, SlackResponderEnvironment

from .agent import InfinityAgent
from .arguments import checked
from .functions import RuntimeFunction
from .queues import KEPT
from .review import accept
from .secrets import secret_named
from .storage import grant_blobs

EVENTS_PATH = "/slack/events"
INTERACTIVITY_PATH = "/slack/interactivity"
_RESPONDER_TIMEOUT = Duration.minutes(1)


class SlackIntegration(Construct):
    """Lets people talk to ``agent`` in Slack: what they say goes to its queue, and what they are told comes back.

    Args:
        agent: whom they talk to. One agent has one Slack app.
        bot_token: the name or ARN of the secret with the app's bot token (``xoxb-...``), or the secret.
        signing_secret: the same for its signing secret.
        allowed: the ids of the users, channels and teams that may talk to the agent.
        allow_everyone: whether everybody may who can write to the app; instead of ``allowed``.
        webhook_gateway: the HTTP API to which the two paths are added; by default one is made.

    Attributes:
        webhook_url: the base of the URLs to enter in Slack: ``/slack/events`` and ``/slack/interactivity`` below it.
        webhook_gateway: the HTTP API.
        receiver, responder: the functions.
        failed_events: events whose files could not be put on the queue, after three attempts.

    Raises:
        ValueError: nobody may talk to it, everybody and some may, an id is none, or a secret stands in place of its
            name; the text says what to do.
    """

    @checked
    def __init__(
        self,
        agent: InfinityAgent,
        id: str,
        *,
        bot_token: str | ISecret,
        signing_secret: str | ISecret,
        allowed: Sequence[str] = (),
        allow_everyone: bool = False,
        webhook_gateway: aws_apigatewayv2.IHttpApi | None = None,
    ) -> None:
        super().__init__(agent, id)
        try:
            SlackAccess.parse(",".join(allowed), everyone=allow_everyone)
        except Misconfigured as error:
            raise ValueError(f"{error}: allowed=[...], or allow_everyone=True") from error
        token = self._secret("BotToken", "SLACK_BOT_TOKEN", bot_token)
        signing = self._secret("SigningSecret", "SLACK_SIGNING_SECRET", signing_secret)
        receiver = self._receiver(agent, token, signing, allowed)
        responder = self._responder(agent, token)
        self.receiver, self.responder = receiver.function, responder.function
        if agent.monitoring is not None:
            agent.monitoring.watch_parked(
                f"{id}FailedEvents",
                self.failed_events,
                "messages from Slack with files could not be taken and are parked",
            )
            agent.monitoring.watch_function(f"{id}Receiver", self.receiver, "the receiver of Slack")
            agent.monitoring.watch_function(f"{id}Responder", self.responder, "the responder to Slack")
        self.webhook_gateway: aws_apigatewayv2.IHttpApi = webhook_gateway or self._gateway()
        integration = aws_apigatewayv2_integrations.HttpLambdaIntegration("Receiver", self.receiver)
        for name, path in (("Events", EVENTS_PATH), ("Interactivity", INTERACTIVITY_PATH)):
            route = aws_apigatewayv2.HttpRoute(
                self,
                name,
                http_api=self.webhook_gateway,
                integration=integration,
                route_key=aws_apigatewayv2.HttpRouteKey.with_(path, aws_apigatewayv2.HttpMethod.POST),
            )
            accept(route, "AwsSolutions-APIG4", "Slack proves itself by its signature, which the function checks first")
        self.webhook_url = self.webhook_gateway.api_endpoint

    def _secret(self, id: str, variable: str, told: str | ISecret) -> ISecret:
        return secret_named(self, id, variable, told) if isinstance(told, str) else told

    def _receiver(
        self, agent: InfinityAgent, token: ISecret, signing: ISecret, allowed: Sequence[str]
    ) -> RuntimeFunction:
        receiver = RuntimeFunction(
            self,
            "Receiver",
            function="slack_receiver",
            description="Takes what people say and click in Slack",
            environment=SlackReceiverEnvironment(
                input_queue_url=agent.input_queue.queue_url,
                dynamodb_table_name=agent.state_table.table_name,
                blob_bucket=agent.blob_bucket.bucket_name,
                slack_signing_secret_arn=signing.secret_arn,
                slack_bot_token_arn=token.secret_arn,
                slack_allowed=",".join(allowed) or None,
                slack_allow_everyone=None if allowed else "true",
            ),
            # Slack is answered within three; the rest is for files, which are fetched afterwards.
            timeout=Duration.minutes(2),
            memory_size=512,
            architecture=agent.architecture,
            log_retention=agent.log_retention,
            recursive=True,
        )
        agent.grant_send_input(receiver.role)
        agent.state_table.grant(receiver.role, "dynamodb:PutItem", "dynamodb:Query")
        grant_blobs(agent.blob_bucket, receiver.role, "s3:PutObject")
        for secret in (token, signing):
            secret.grant_read(receiver.role)
        # Not in the role's own policy, for which the function waits.
        arn = receiver.function.function_arn
        aws_iam.Policy(
            self,
            "InvokeItself",
            statements=[aws_iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[arn])],
            roles=[receiver.role],
        )
        self.failed_events = aws_sqs.Queue(
            self,
            "FailedEvents",
            retention_period=KEPT,
            encryption=aws_sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            removal_policy=RemovalPolicy.DESTROY,
        )
        accept(self.failed_events, "AwsSolutions-SQS3", "it holds what has failed already")
        receiver.function.configure_async_invoke(on_failure=aws_lambda_destinations.SqsDestination(self.failed_events))
        return receiver

    def _responder(self, agent: InfinityAgent, token: ISecret) -> RuntimeFunction:
        responder = RuntimeFunction(
            self,
            "Responder",
            function="slack_responder",
            description="Posts in Slack what the agent tells people",
            environment=SlackResponderEnvironment(
                output_queue_url=agent.output_queue.queue_url, slack_bot_token_arn=token.secret_arn
            ),
            timeout=_RESPONDER_TIMEOUT,
            memory_size=256,
            architecture=agent.architecture,
            log_retention=agent.log_retention,
            recursive=True,
        )
        token.grant_read(responder.role)
        # What one slice tells comes in one batch, so that its order can be restored.
        responder.read_from(agent.output_queue, max_concurrency=2, max_batching_window=Duration.seconds(1))
        return responder

    def _gateway(self) -> aws_apigatewayv2.HttpApi:
        gateway = aws_apigatewayv2.HttpApi(self, "Gateway", description="Where Slack posts")
        accept(gateway, "AwsSolutions-APIG1", "each request that is refused is in the function's own log")
        return gateway
