"""Tool servers that speak RAP: a function of yours, or any server."""

import re
from typing import Literal

from aws_cdk import Annotations, Duration, Token, aws_iam, aws_lambda
from aws_cdk.aws_secretsmanager import ISecret
from constructs import Construct

from infinity_agents.errors import without_user

from ..agent import InfinityAgent
from ..arguments import checked
from ..tools_config import ToolSetEntry
from .base import ToolSet

_LOOPBACK = re.compile(r"http://(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?(?:/|$)")
HTTPS = re.compile(r"https://[A-Za-z0-9._\[\]:-]+(?:/\S*)?")
"""An https URL with a host, and without a user."""
_FUNCTION_URL = re.compile(r"https://[a-z0-9]+\.lambda-url\.[a-z0-9-]+\.on\.aws(?:/|$)")
_YEAR = Duration.days(366)


class RapToolSet(ToolSet):
    """The tools of a Lambda function, or of the server at a URL.

    A function gets a URL that takes only signed requests, unless ``server_url`` is one that it has; the agent may call
    it, and it may answer.

    Args:
        handler: the function; one that is imported needs its role (``Function.from_function_attributes``) to answer.
        server_url: where the server is: https, or http on loopback.
        call_timeout: how long a call may take before the agent is told that it failed; by default 6 hours, or 14 days
            for tools that say they run long.
        auth: how the agent proves itself: ``sigv4``, ``none``, or a secret that holds a bearer token. By default
            ``sigv4`` for a function and ``none`` for a URL.
        name: see ``ToolSet``.

    Raises:
        ValueError: a value cannot be, or both or neither of handler and URL are given; the text says what to do.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        handler: aws_lambda.IFunction | None = None,
        server_url: str | None = None,
        call_timeout: Duration | None = None,
        auth: Literal["sigv4", "none"] | ISecret | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(scope, id, name=name)
        if handler is None and server_url is None:
            raise ValueError(f"the tool set {id!r} needs handler= (a Lambda function) or server_url= (any server)")
        self._auth: Literal["sigv4", "none"] | ISecret = auth or ("none" if handler is None else "sigv4")
        if isinstance(self._auth, str) and self._auth not in {"sigv4", "none"}:
            raise ValueError(
                f"the tool set {id!r}: auth is neither 'sigv4' nor 'none'; pass a bearer token as a secret, such as "
                'Secret.from_secret_name_v2(self, "Token", "my-agent/token")'
            )
        if handler is not None and self._auth != "sigv4":
            raise ValueError(f"the tool set {id!r}: a handler takes signed requests; leave auth= away")
        if server_url is not None:
            _check_url(id, server_url, signed_without_handler=self._auth == "sigv4" and handler is None)
        if call_timeout is not None and not 0 < call_timeout.to_seconds() <= _YEAR.to_seconds():
            raise ValueError(
                f"the tool set {id!r}: call_timeout is {call_timeout.to_seconds():.12g} seconds and must be 1 to "
                f"{_YEAR.to_seconds():.12g}"
            )
        self.handler = handler
        self.server_url: str = server_url or function_url(handler) if handler is not None else server_url or ""
        self.call_timeout = call_timeout
        if handler is not None:
            allow_recursion(self, handler)
            if handler.role is not None:
                allow_second_invocation(self, handler, handler.role)
        self.join()

    def bind(self, agent: InfinityAgent) -> None:
        auth = self._auth if isinstance(self._auth, str) else self._auth.secret_arn
        agent.register_tool_set(
            ToolSetEntry(name=self.name, server_url=self.server_url, auth=auth, call_timeout=self.call_timeout)
        )
        if not isinstance(self._auth, str):
            self._auth.grant_read(agent.leader_role)
        if self.handler is not None:
            agent.grant_tool_invoke_access(self.handler)
            if self.handler.role is None:
                Annotations.of(self).add_warning_v2(
                    "infinity:no-role",
                    f"the role of the imported handler of {self.name!r} is not known, so that it cannot be allowed to "
                    "answer; import it by Function.from_function_attributes with role=, or allow its role "
                    "lambda:InvokeFunctionUrl and lambda:InvokeFunction on the agent's receiver",
                )
            else:
                agent.grant_rap_access(self.handler.role)


def function_url(function: aws_lambda.IFunction) -> str:
    """Return the function's URL for signed requests, made where it has none yet."""
    made = function.node.try_find_child("FunctionUrl")
    if isinstance(made, aws_lambda.FunctionUrl):
        return made.url
    return function.add_function_url(auth_type=aws_lambda.FunctionUrlAuthType.AWS_IAM).url


def allow_recursion(scope: Construct, function: aws_lambda.IFunction) -> None:
    """Have Lambda let the function be part of a cycle, or warn where that is not ours to set."""
    resource = (function.lambda_ if isinstance(function, aws_lambda.Alias) else function).node.default_child
    if isinstance(resource, aws_lambda.CfnFunction):
        resource.recursive_loop = "Allow"
        return
    Annotations.of(scope).add_warning_v2(
        "infinity:recursive-loop",
        "an imported handler is on a cycle with the agent, which Lambda cuts after about 16 hops; let it: "
        "`aws lambda put-function-recursion-config --recursive-loop Allow --function-name NAME`",
    )


def allow_second_invocation(scope: Construct, function: aws_lambda.IFunction, role: aws_iam.IRole) -> None:
    """Let the function, whose role is ``role``, invoke itself: it answers at once and works afterwards."""
    # Not in the role's own policy, for which the function waits.
    aws_iam.Policy(
        scope,
        "InvokeItself",
        statements=[aws_iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[function.function_arn])],
        roles=[role],
    )


def _check_url(id: str, url: str, *, signed_without_handler: bool) -> None:
    if Token.is_unresolved(url):
        return
    if not (HTTPS.fullmatch(url) or _LOOPBACK.match(url)) or "?" in url or "#" in url:
        raise ValueError(
            f"the tool set {id!r}: server_url is {without_user(url)!r} and must be an https URL without query, "
            "fragment and user"
        )
    if signed_without_handler and _FUNCTION_URL.match(url):
        raise ValueError(
            f"the tool set {id!r}: nothing lets the agent call the function behind {url}; pass the function too, as "
            'handler=Function.from_function_attributes(self, "…", function_arn="…", role=…)'
        )
