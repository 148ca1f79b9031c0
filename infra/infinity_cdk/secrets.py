"""Secrets that a deployment is told of by name: no secret is ever written to a template."""

import re

from aws_cdk.aws_secretsmanager import ISecret, Secret
from constructs import Construct

from .arguments import looks_complete

_NAME = re.compile(r"(?=.*[^/]/[^/])[A-Za-z0-9/_+=.@-]{1,512}")
_ARN = re.compile(r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:[A-Za-z0-9/_+=.@-]{1,519}")
_KEY = re.compile(
    r"(?:.*[/=])?(?:"
    r"sk-(?:ant|proj|svcacct|or)-.+|(?:sk-|[srp]k_(?:live|test)_|r8_|hf_|npm_|pypi-)\w{20,}|whsec_.+"
    r"|xox[a-z](?:\.xox[a-z])?-[\w.-]{10,}|xapp-\d-.+|gh[oprsu]_\w{30,}|github_pat_\w{20,}|glpat-[\w.-]{20,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{35}|ya29\..+|SG\.[\w-]{16,}\..+|eyJ[\w-]+\.eyJ[\w-]+\..*"
    r")|(?:hooks\.slack\.com|discord\.com)/.+"
)
"""Keys by the marks that their services put on them, also where something stands before them."""
_AWS_KEY = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z0-9/+]{40}")
"""The secret half of an AWS access key."""


def secret_named(scope: Construct, id: str, variable: str, value: str) -> ISecret:
    """Return the secret of Secrets Manager that the variable ``variable`` names: by ``value``, a name or an ARN.

    An ARN may lack the random part at its end. A name must have a slash in it, as no key of Slack, GitHub or a model
    has: of a single word, nobody could tell which of the two it is. A name without one is told by its ARN.

    Raises:
        ValueError: ``value`` is no name, or could be the secret itself, which it then does not repeat; or AWS could not
            find the secret by that name.
    """
    if _ARN.fullmatch(value):
        made_by = Secret.from_secret_complete_arn if looks_complete(value) else Secret.from_secret_partial_arn
        return made_by(scope, id, value)
    if not _NAME.fullmatch(value) or _KEY.fullmatch(value) or _AWS_KEY.fullmatch(value) or value.endswith("="):
        # Underscores: a name that ends in -secret is one of those that AWS does not find.
        name = f"infinity/{variable.lower()}"
        raise ValueError(
            f"{variable} must be the name of a secret, with a slash in it, such as {name}, or its ARN; what it holds "
            "is neither, or looks like the secret itself, which would stand in the template. Store it, and name it:\n"
            f"  aws secretsmanager create-secret --name {name} --secret-string file:///dev/stdin\n"
            f"  export {variable}={name}"
        )
    if looks_complete(value):
        raise ValueError(
            f"{variable} names a secret by a name that ends in a hyphen and six characters, which AWS takes for an ARN "
            "with its random part, and does not find; give its complete ARN:\n"
            f"  aws secretsmanager describe-secret --secret-id {value} --query ARN"
        )
    return Secret.from_secret_name_v2(scope, id, value)
