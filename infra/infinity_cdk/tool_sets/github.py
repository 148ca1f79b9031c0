"""What happens in repositories on GitHub."""

from functools import partial

from aws_cdk import Duration, RemovalPolicy, aws_apigateway
from aws_cdk.aws_secretsmanager import ISecret
from constructs import Construct

from infinity_agents.errors import without_user
from infinity_agents.settings.tool_servers import GITHUB_API, GitHubEnvironment, GitHubWebhookEnvironment

from ..agent import InfinityAgent
from ..arguments import checked
from ..functions import RuntimeFunction
from ..review import accept
from ..storage import grant_blobs, keyed_table, private_bucket
from .rap import HTTPS
from .tool_function import FunctionToolSet, ToolFunction

_RECORDS = ("dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query")
_EVENTS_KEPT = Duration.days(30)


class GitHubEventToolSet(FunctionToolSet):
    """Tools that tell of events in repositories, and a receiver of GitHub's deliveries at ``/github`` of a REST API.

    In the repository's settings, add a webhook: the URL ``webhook_url``, content type ``application/json``, the secret
    of ``webhook_secret``, and the events to be told of; ``check_github_actions`` needs check runs and workflow runs.

    Args:
        webhook_gateway: the REST API that gets the receiver; it may be shared with others.
        webhook_secret: the secret, as text, that GitHub signs with.
        token: the secret that holds a token for GitHub's REST API, which may read Checks, Actions and Contents; without
            it, ``check_github_actions`` knows of no check that was over before the webhook was there.
        api_url: the REST API, where it is that of a GitHub Enterprise Server.
        agent_login: the account by which the agent acts on GitHub, whose doings it is not told of.
        removal_policy: what becomes of the table of who waits when the tool set is removed.

    Raises:
        ValueError: ``api_url`` is no https URL, or is of no use without ``token``.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        webhook_gateway: aws_apigateway.RestApi,
        webhook_secret: ISecret,
        token: ISecret | None = None,
        api_url: str | None = None,
        agent_login: str | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
        name: str | None = None,
    ) -> None:
        super().__init__(scope, id, name=name)
        if api_url is not None and (token is None or not HTTPS.fullmatch(api_url)):
            raise ValueError(
                f"the tool set {id!r}: api_url is {without_user(api_url)[:100]!r} and must be an https URL without a "
                "user, such as https://github.example.com/api/v3, beside token= (the secret to ask it with)"
            )
        self.table = keyed_table(self, "Waiting", deletion_protection=False, removal_policy=removal_policy)
        self.bucket = private_bucket(self, "Deliveries", removal_policy=RemovalPolicy.RETAIN, expiration=_EVENTS_KEPT)
        told = {"github_table_name": self.table.table_name, "blob_bucket": self.bucket.bucket_name}
        server = ToolFunction(
            self,
            "Tool",
            function="github_events",
            description="Subscriptions to events in GitHub repositories",
            environment=partial(
                GitHubEnvironment,
                **told,
                github_token_arn=token.secret_arn if token else None,
                github_api_url=api_url or GITHUB_API,
            ),
        )
        webhook = RuntimeFunction(
            self,
            "Webhook",
            function="github_webhook",
            description="Takes GitHub's deliveries",
            environment=GitHubWebhookEnvironment(
                **told, github_agent_login=agent_login, github_webhook_secret_arn=webhook_secret.secret_arn
            ),
            timeout=Duration.minutes(1),
            memory_size=512,
            architecture=server.function.architecture,
            recursive=True,
        )
        for role in (server.role, webhook.role):
            self.table.grant(role, *_RECORDS)
        grant_blobs(self.bucket, server.role, "s3:GetObject")
        grant_blobs(self.bucket, webhook.role, "s3:PutObject")
        webhook_secret.grant_read(webhook.role)
        if token is not None:
            token.grant_read(server.role)
        resource = webhook_gateway.root.add_resource("github")
        method = resource.add_method(
            "POST",
            aws_apigateway.LambdaIntegration(webhook.function),
            authorization_type=aws_apigateway.AuthorizationType.NONE,
        )
        for rule in ("AwsSolutions-APIG4", "AwsSolutions-COG4"):
            accept(method, rule, "GitHub proves itself by the signature over the delivery, which the function checks")
        self.webhook, self.webhook_role = webhook.function, webhook.role
        self.webhook_url = webhook_gateway.url_for_path("/github")
        self.serve(server)

    def bind(self, agent: InfinityAgent) -> None:
        super().bind(agent)
        agent.grant_rap_access(self.webhook_role)
