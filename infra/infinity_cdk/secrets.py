"""Secrets that a deployment is told of by name: no secret is ever written to a template."""

import re

from aws_cdk.aws_secretsmanager import ISecret, Secret
from constructs import Construct

_NAME = re.compile(r"[A-Za-z][\w.-]*(?:/[\w.-]+)+")
_ARN = re.compile(r"arn:aws[\w-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:[\w/+=.@-]+")
_RANDOM = re.compile(r"(?=[\w.-]*\d)(?=[\w.-]*[A-Za-z])[\w.-]{24,}")


def secret_named(scope: Construct, id: str, variable: str, value: str) -> ISecret:
    """Return the secret of Secrets Manager that the variable ``variable`` names: by ``value``, a name or an ARN.

    Raises:
        ValueError: ``value`` is no name, and could be the secret itself, which it then does not repeat.
    """
    if _ARN.fullmatch(value):
        return Secret.from_secret_complete_arn(scope, id, value)
    if not _NAME.fullmatch(value) or any(_RANDOM.fullmatch(part) for part in value.split("/")):
        name = f"infinity/{variable.lower().replace('_', '-')}"
        raise ValueError(
            f"{variable} must be the name of a secret, with a slash in it, such as {name}, or its ARN; what it holds "
            "looks like the secret itself, which would stand in the template. Store it, and name it:\n"
            f"  aws secretsmanager create-secret --name {name} --secret-string file:///dev/stdin\n"
            f"  export {variable}={name}"
        )
    return Secret.from_secret_name_v2(scope, id, value)
