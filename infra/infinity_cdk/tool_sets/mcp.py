"""The tools of MCP servers: one at a URL, or one that runs in a function of ours."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from aws_cdk import Duration, RemovalPolicy, Stack, aws_apigateway, aws_iam, aws_lambda
from aws_cdk.aws_secretsmanager import ISecret, Secret, SecretStringGenerator
from constructs import Construct

from infinity_agents.settings.tool_servers import McpOAuthEnvironment, McpProxyEnvironment

from ..agent import InfinityAgent
from ..arguments import CALL_SECONDS, FUNCTION_MB, check_fields, checked
from ..bundling import mcp_server_code
from ..functions import RuntimeFunction
from ..review import accept
from ..storage import keyed_table
from .base import agent_around
from .rap import HTTPS
from .tool_function import FunctionToolSet, ToolFunction

_SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})
_RECORDS = ("dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query")


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaProps:
    """What the function of a proxy gets: ``timeout`` is how long one call may take, ``memory_size`` is in MB."""

    timeout: Annotated[Duration, CALL_SECONDS] | None = None
    memory_size: Annotated[int, FUNCTION_MB] = 1024

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpOAuth:
    """How people authorize the agent with an MCP server: each for themselves, on a page of ``callback_gateway``.

    ``stage_name`` is that of the gateway's deployment. Without a ``client_id``, the agent registers by itself, where
    the authorization server lets it. ``removal_policy`` is what becomes of the links when the tool set is removed.
    """

    callback_gateway: aws_apigateway.RestApi
    stage_name: str = "prod"
    client_id: str | None = None
    client_secret: ISecret | None = None
    removal_policy: RemovalPolicy = RemovalPolicy.RETAIN

    def __post_init__(self) -> None:
        check_fields(self)


class HTTPMCPToolSet(FunctionToolSet):
    """The tools of the MCP server at ``url``, which speaks Streamable HTTP.

    Args:
        headers: go with every request; a value is a text, or a secret that holds it.
        oauth: see ``McpOAuth``; without it, whoever talks to the agent uses the server by these headers.
        name: the tools' names begin with it: 1 to 32 letters, digits, ``_`` and ``-``.

    Attributes:
        callback_url: the redirect URL to register, with ``oauth``.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        url: str,
        headers: Mapping[str, str | ISecret] | None = None,
        oauth: McpOAuth | None = None,
        lambda_props: LambdaProps | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(scope, id, name=name)
        _check_name(self.name)
        if not HTTPS.fullmatch(url):
            raise ValueError(
                f"the tool set {id!r}: url must be https, as it carries tokens, and without user or spaces"
            )
        if oauth is not None and oauth.client_secret is not None and oauth.client_id is None:
            raise ValueError(f"the tool set {id!r}: client_secret is of a client; give its client_id too")
        plain, secret = _split(headers or {})
        for name_of_secret in _SECRET_HEADERS & {key.casefold() for key in plain}:
            raise ValueError(
                f"the tool set {id!r}: the header {name_of_secret} would stand in the template for all to read; pass a "
                'secret, such as Secret.from_secret_name_v2(self, "Token", "my-agent/token")'
            )
        told: dict[str, Any] = {
            "mcp_name": self.name,
            "mcp_url": url,
            "mcp_headers": _object(plain),
            "mcp_secret_headers": _object({key: value.secret_arn for key, value in secret.items()}),
        }
        self.callback_url: str | None = None
        secrets = list(secret.values())
        if oauth is not None:
            self._make_links(oauth, told, secrets)
        props = lambda_props or LambdaProps()
        server = ToolFunction(
            self,
            "Tool",
            function="mcp_proxy",
            description=f"The tools of the MCP server {self.name}",
            timeout=props.timeout,
            memory_size=props.memory_size,
            environment=partial(McpProxyEnvironment, **told),
        )
        for each in secrets:
            each.grant_read(server.role)
        if oauth is not None:
            self.table.grant(server.role, *_RECORDS)
        self.serve(server)

    def bind(self, agent: InfinityAgent) -> None:
        super().bind(agent)
        if self.callback_url is not None:
            agent.grant_rap_access(self.page_role)

    def _make_links(self, oauth: McpOAuth, told: dict[str, Any], secrets: list[ISecret]) -> None:
        self.table = keyed_table(self, "Links", deletion_protection=False, removal_policy=oauth.removal_policy)
        encryption = Secret(
            self,
            "Encryption",
            description=f"Encrypts the tokens of {self.name}",
            generate_secret_string=SecretStringGenerator(exclude_punctuation=True, password_length=64),
            removal_policy=oauth.removal_policy,
        )
        accept(encryption, "AwsSolutions-SMG4", "what was encrypted with it could not be read any more")
        secrets += [encryption, *([oauth.client_secret] if oauth.client_secret else [])]
        gateway, stack = oauth.callback_gateway, Stack.of(self)
        # Not by the stage: that waits for the page, and the page is told of this.
        host = f"{gateway.rest_api_id}.execute-api.{stack.region}.{stack.url_suffix}"
        self.callback_url = f"https://{host}/{oauth.stage_name}/mcp/{self.name}"
        told |= {
            "mcp_callback_url": self.callback_url,
            "mcp_table_name": self.table.table_name,
            "mcp_encryption_secret_arn": encryption.secret_arn,
            "mcp_client_id": oauth.client_id,
            "mcp_client_secret_arn": oauth.client_secret.secret_arn if oauth.client_secret else None,
        }
        agent = agent_around(self)
        page = RuntimeFunction(
            self,
            "Page",
            function="mcp_oauth",
            description=f"Links people with {self.name}",
            environment=McpOAuthEnvironment(**told),
            timeout=Duration.minutes(11),
            memory_size=1024,
            architecture=agent.architecture if agent else aws_lambda.Architecture.ARM_64,
            recursive=True,
        )
        self.page_role = page.role
        self.table.grant(page.role, *_RECORDS)
        for each in secrets:
            each.grant_read(page.role)
        aws_iam.Policy(
            self,
            "PageInvokesItself",
            statements=[
                aws_iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[page.function.function_arn])
            ],
            roles=[page.role],
        )
        above = gateway.root.get_resource("mcp") or gateway.root.add_resource("mcp")
        resource = above.add_resource(self.name)
        for verb in ("GET", "POST"):
            method = resource.add_method(
                verb,
                aws_apigateway.LambdaIntegration(page.function),
                authorization_type=aws_apigateway.AuthorizationType.NONE,
            )
            for rule in ("AwsSolutions-APIG4", "AwsSolutions-COG4"):
                accept(
                    method, rule, "people come with a secret state, used once, and the page checks where a yes is from"
                )


class LambdaMCPToolSet(FunctionToolSet):
    """The tools of an MCP server over stdio, which runs in the function itself.

    Args:
        command: of npx or uvx, with an exact version: ``["npx", "-y", "name@1.2.3", "--flag"]``, or a text as a shell
            has it: ``"uvx name@1.2.3 --flag"``. The server is put into the package when it is built.
        env: what the server sees besides ``PATH`` and ``HOME``; a value is a text, or a secret that holds it.
        name: as for ``HTTPMCPToolSet``.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        command: str | Sequence[str],
        env: Mapping[str, str | ISecret] | None = None,
        lambda_props: LambdaProps | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(scope, id, name=name)
        _check_name(self.name)
        agent = agent_around(self)
        architecture = agent.architecture if agent else aws_lambda.Architecture.ARM_64
        packaged = mcp_server_code(command, architecture=architecture)
        plain, secret = _split(env or {})
        props = lambda_props or LambdaProps()
        server = ToolFunction(
            self,
            "Tool",
            function="mcp_proxy",
            description=f"The MCP server {self.name}",
            timeout=props.timeout,
            memory_size=props.memory_size,
            code=packaged.code,
            environment=partial(
                McpProxyEnvironment,
                mcp_name=self.name,
                mcp_command=json.dumps(list(packaged.command)),
                mcp_env=_object(plain),
                mcp_secret_env=_object({key: value.secret_arn for key, value in secret.items()}),
            ),
        )
        for each in secret.values():
            each.grant_read(server.role)
        self.serve(server)


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,30}[A-Za-z0-9]|[A-Za-z0-9]", name):
        raise ValueError(
            f"the tool set's name {name!r} must be 1 to 32 letters, digits, _ and -, as tools begin with it"
        )


def _split(values: Mapping[str, str | ISecret]) -> tuple[dict[str, str], dict[str, ISecret]]:
    """Return the texts, and the secrets."""
    texts = {key: value for key, value in values.items() if isinstance(value, str)}
    return texts, {key: value for key, value in values.items() if not isinstance(value, str)}


def _object(values: Mapping[str, str]) -> str | None:
    return json.dumps(dict(values)) if values else None
