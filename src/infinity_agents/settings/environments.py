"""Environments of Lambda functions: how any is read and written."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any, ClassVar, Self

from ..errors import Misconfigured, without_user


class Environment:
    """What one function is told by environment variables: each field is the variable of its name in capitals.

    A field without a default is a variable that must be set. Of each entry of ``ALTERNATIVES``, exactly one group of
    variables must be set. An empty variable counts as not set.
    """

    FUNCTION: ClassVar[str]
    ALTERNATIVES: ClassVar[Sequence[Sequence[Sequence[str]]]] = ()

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        """Return what ``environ`` says.

        Raises:
            Misconfigured: variables are missing or wrong; the text names the function and all of them.
        """
        variables = _variables(cls)
        values = {name: environ[name] for name in variables if environ.get(name)}
        missing = [name for name, told in variables.items() if told.default is MISSING and name not in values]
        problems = [f"{', '.join(missing)} must be set"] if missing else []
        problems += [problem for groups in cls.ALTERNATIVES if (problem := _undecided(groups, values))]
        problems += [problem for name, value in values.items() if (problem := _misspelt(name, value))]
        if problems:
            raise Misconfigured(f"the environment of the function {cls.FUNCTION}: {'; '.join(problems)}")
        return cls(
            **{
                variables[name].name: int(value) if variables[name].type is int else value
                for name, value in values.items()
            }
        )

    def written(self) -> dict[str, str]:
        """Return the variables of which ``read`` makes the same again; what is ``None`` is left out."""
        told = {name: getattr(self, variable.name) for name, variable in _variables(type(self)).items()}
        return {name: str(value) for name, value in told.items() if value is not None}


def _variables(environment: type[Environment]) -> dict[str, Field[Any]]:
    told: tuple[Field[Any], ...] = fields(environment)  # type: ignore[arg-type] # the classes below are dataclasses
    return {variable.name.upper(): variable for variable in told}


def _undecided(groups: Sequence[Sequence[str]], values: Mapping[str, str]) -> str | None:
    begun = [group for group in groups if any(name in values for name in group)]
    choice = ", or ".join(" and ".join(group) for group in groups)
    if len(begun) != 1:
        return f"{choice} must be set" + (", and not both" if begun else "")
    missing = [name for name in begun[0] if name not in values]
    return f"{', '.join(missing)} must be set beside {begun[0][0]}" if missing else None


_SHAPES = {
    "_QUEUE_URL": (r"https?://\S+", "the URL of a queue"),
    "_CALLBACK_URL": (r"https?://\S+", "a URL"),
    "_ARN": (r"arn:\S+", "an ARN"),
    "_COUNT": (r"[1-9]\d{0,3}", "a whole number from 1 to 9999"),
    "_API_URL": (r"https://\S+|http://(?:127\.0\.0\.1|localhost)(?::\d+)?/\S*", "an https URL"),
    "_ALLOWED": (r"[A-Z0-9]+(?:,[A-Z0-9]+)*", "ids of users, channels and teams, by comma"),
    "_EVERYONE": ("true", "'true', or not set"),
    "_VCS": ("git|jj", "'git' or 'jj'"),
}
"""What a variable must be, by how its name ends: compiled when asked, as no function is told all of them."""


def _misspelt(name: str, value: str) -> str | None:
    for end, (shape, meant) in _SHAPES.items():
        if name.endswith(end) and not re.fullmatch(shape, value):
            return f"{name} must be {meant}, and is {without_user(value)[:100]!r}"
    return None


SECRET = (("CALLBACK_SECRET_ARN",), ("CALLBACK_SECRET",))
"""The two ways to name the keys of callbacks."""
