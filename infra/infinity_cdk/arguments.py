"""What constructs are given, checked against their own signatures: the CDK's errors name no argument of ours."""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache, wraps
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, Protocol, Union, get_args, get_origin, get_type_hints

from aws_cdk import Duration, RemovalPolicy, Stack, Token
from aws_cdk.aws_lambda import Architecture
from aws_cdk.aws_secretsmanager import ISecret
from constructs import Construct

from infinity_agents.errors import without_user

P = ParamSpec("P")


class Rule(Protocol):
    """What is asked of a value whose type is right."""

    def wanted(self, value: Any) -> str | None:
        """Return what it must be, in words; ``None`` where it is that."""


@dataclass(frozen=True, slots=True)
class Between:
    """A number, or a whole number of seconds, from ``least`` to ``most``; ``of_what`` tells of what."""

    least: float
    most: float
    of_what: str

    def wanted(self, value: float | Duration) -> str | None:
        number = _seconds(value) if isinstance(value, Duration) else value
        is_whole = not isinstance(value, Duration) or number % 1 == 0
        if math.isfinite(number) and is_whole and self.least <= number <= self.most:
            return None
        return f"{self.least:.12g} to {self.most:.12g} {self.of_what}"


@dataclass(frozen=True, slots=True)
class Spelt:
    """A text that matches ``pattern`` as a whole; ``meant`` says what that is."""

    pattern: str
    meant: str

    def wanted(self, value: str) -> str | None:
        return None if re.fullmatch(self.pattern, value, re.DOTALL) else self.meant


@dataclass(frozen=True, slots=True)
class AtMost:
    """A text of at most so many bytes, which may be empty; ``reason`` says what holds no more, and the remedy."""

    size: int
    reason: str

    def wanted(self, value: str) -> str | None:
        if len(value.encode(errors="replace")) > self.size:
            return f"{self.size:,} bytes at most, {self.reason}"
        return _not_unicode(value)


ARN = Spelt(r"arn:[^\s:]+(?::\S*){4}", "an ARN")
FUNCTION_MB = Between(128, 10_240, "MB")
CALL_SECONDS = Between(1, 900, "seconds, which is as long as a function runs")
SECONDS = Between(1, Duration.days(366).to_seconds(), "seconds, a whole number")


def checked(init: Callable[P, None]) -> Callable[P, None]:
    """Make a constructor refuse what its annotations do not allow, before it does anything.

    A text is never empty, and a duration a whole number of seconds, unless a rule in ``Annotated`` says otherwise. What
    only a deployment knows (a token) is taken as it is.

    Raises (when called):
        TypeError: an argument has another type.
        ValueError: an argument cannot have this value. Both name the construct, the argument, what it is, and what it
            must be; a value that could be a secret is not repeated.
    """
    signature = inspect.signature(init)

    @wraps(init)
    def checking(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{init.__qualname__.removesuffix('.__init__')}: {error}") from None
        made, *others = given.items()
        _check(f"{type(made[1]).__name__} {given.get('id', '')!r}", dict(others), _hints(init))
        init(*args, **kwargs)

    return checking


def check_fields(made: Any) -> None:
    """Refuse what the annotations of a dataclass do not allow, as ``checked`` does."""
    values = {field.name: getattr(made, field.name) for field in fields(made)}
    _check(type(made).__name__, values, _hints(type(made).__init__))


@cache
def _hints(init: Callable[..., None]) -> Mapping[str, Any]:
    return get_type_hints(init, include_extras=True)


def _check(owner: str, values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    for name, value in values.items():
        fault = _fault(name, hints.get(name, Any), value)
        if fault is not None:
            shown = f"is {fault.shown} and" if not _holds_secret(hints[name]) else f"({type(fault.value).__name__})"
            raise fault.kind(f"{owner}: {fault.name} {shown} must be {fault.wanted}")


@dataclass(frozen=True, slots=True)
class _Fault:
    name: str
    value: Any
    wanted: str
    kind: type[TypeError | ValueError]

    @property
    def shown(self) -> str:
        if isinstance(self.value, Duration):
            return f"{_seconds(self.value):.12g}"
        value = without_user(self.value) if isinstance(self.value, str) else self.value
        told = str(value) if isinstance(value, Enum) else repr(value)
        if told.startswith("<"):
            return _name_of(type(self.value))
        return told if len(told) <= 100 else f"{told[:100]}… ({len(told)} characters)"


def _fault(name: str, hint: Any, value: Any) -> _Fault | None:
    """Return what is wrong with a value, the innermost that can be named."""
    hint, rule = _ruled(hint)
    match get_origin(hint):
        case t if t in {Union, UnionType}:
            kinds = [each for each in get_args(hint) if each is not NoneType]
            if ISecret in kinds and str in kinds and isinstance(value, str):
                # A text in place of a secret: the construct has the remedy.
                return None
            faults = [_fault(name, each, value) for each in kinds]
            if None in faults or (value is None and NoneType in get_args(hint)):
                return None
            told = [fault for fault in faults if fault is not None]
            # Of the right type, it is only its value that is wrong.
            return next(
                (fault for fault in told if fault.kind is ValueError or fault.name != name),
                _Fault(name, value, " or ".join(fault.wanted for fault in told), TypeError),
            )
        case t if isinstance(t, type) and issubclass(t, Mapping):
            if not isinstance(value, Mapping):
                return _Fault(name, value, "a mapping such as a dict", TypeError)
            return next(_faults_within(name, value.items(), get_args(hint)), None)
        case t if isinstance(t, type) and issubclass(t, Sequence):
            if isinstance(value, str | bytes) or not isinstance(value, Sequence):
                return None if _is_token(value) else _Fault(name, value, "a list", TypeError)
            (of,) = get_args(hint)
            each = (_fault(f"{name}[{place}]", of, one) for place, one in enumerate(value))
            return None if _is_token(value) else next((fault for fault in each if fault), None)
        case t if t is Literal:
            hint = type(get_args(hint)[0])  # which of them it may be, each construct says with its own remedy
        case t if t is not None:
            return None if callable(value) else _Fault(name, value, "something to call", TypeError)
    return _fault_of_one(name, hint, rule, value)


def _faults_within(name: str, items: Any, hints: tuple[Any, Any]) -> Iterator[_Fault]:
    for key, value in items:
        found = (_fault(f"a key of {name}", hints[0], key), _fault(f"{name}[{key!r}]", hints[1], value))
        yield from (fault for fault in found if fault is not None)


def _fault_of_one(name: str, hint: Any, rule: Rule | None, value: Any) -> _Fault | None:
    if hint is Any or _is_token(value):
        return None
    if not _is(hint, value):
        return _Fault(name, value, _NAMES.get(hint) or _name_of(hint), TypeError)
    if isinstance(value, Duration) and value.is_unresolved():
        return None
    rule = rule or next((each for kind, each in _RULES.items() if hint is kind), None)
    wanted = None if rule is None else rule.wanted(value)
    return None if wanted is None else _Fault(name, value, wanted, ValueError)


def _ruled(hint: Any) -> tuple[Any, Rule | None]:
    return (hint.__origin__, hint.__metadata__[0]) if get_origin(hint) is Annotated else (hint, None)


def _is(hint: Any, value: Any) -> bool:
    if hint in {int, float}:
        return not isinstance(value, bool) and isinstance(value, int if hint is int else int | float)
    if getattr(hint, "_is_protocol", False):
        # An interface of the CDK: what implements it may be a stranger that has its methods, so no class is asked for.
        return all(hasattr(value, name) for name, method in vars(hint).items() if inspect.isfunction(method))
    return isinstance(value, hint)


def _is_token(value: Any) -> bool:
    if isinstance(value, float):
        # Infinity and NaN do not get through to the CDK.
        return math.isfinite(value) and Token.is_unresolved(value)
    return isinstance(value, str | list) and Token.is_unresolved(value)


def _holds_secret(hint: Any) -> bool:
    return hint is ISecret or any(map(_holds_secret, get_args(hint)))


def _seconds(duration: Duration) -> float:
    return float(duration.to_milliseconds(integral=False)) / 1000


def _name_of(hint: type) -> str:
    if issubclass(hint, Enum):
        return f"one of {hint.__name__}, such as {hint.__name__}.{next(iter(hint)).name}"
    return f"{'an' if hint.__name__[0] in 'AEIOUaeiou' else 'a'} {hint.__name__}"


class _Filled:
    def wanted(self, value: str) -> str | None:
        return _not_unicode(value) if value.strip() else "a text that is not empty"


def _not_unicode(value: str) -> str | None:
    is_whole = "\0" not in value and value == value.encode(errors="replace").decode()
    return None if is_whole else "a text of Unicode without NUL"


class _InStack:
    def wanted(self, value: Construct) -> str | None:
        return None if any(map(Stack.is_stack, value.node.scopes)) else "a Stack, or a construct in one"


class _Kept:
    def wanted(self, value: RemovalPolicy) -> str | None:
        return "RETAIN, RETAIN_ON_UPDATE_OR_DELETE or DESTROY" if value is RemovalPolicy.SNAPSHOT else None


class _Built:
    def wanted(self, value: Architecture) -> str | None:
        return None if value.name in {"arm64", "x86_64"} else "Architecture.ARM_64 or X86_64"


class _Findable:
    """By the end of its name, AWS would take the partial ARN of the secret for a whole one, and not find it."""

    def wanted(self, value: ISecret) -> str | None:
        if value.secret_full_arn is None and looks_complete(value.secret_name):
            return (
                "a secret that is told by its complete ARN, or has another name: with the hyphen and six characters "
                "that the name ends with, AWS takes it for an ARN with its random part, and does not find it"
            )
        return None


def looks_complete(name: str) -> bool:
    """Tell whether AWS takes a secret's name or ARN for one with its random part: a hyphen and six characters."""
    return bool(re.search(r"-[A-Za-z0-9]{6}$", name))


_RULES: Mapping[Any, Rule] = {
    str: _Filled(),
    Duration: SECONDS,
    Construct: _InStack(),
    RemovalPolicy: _Kept(),
    Architecture: _Built(),
    ISecret: _Findable(),
}
_NAMES = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Duration: "a Duration, such as Duration.seconds(30)",
}
