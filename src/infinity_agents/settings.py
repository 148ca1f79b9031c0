"""What an agent can be told: every number and word that changes how the runtime behaves, and every variable."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Literal, Self

from .errors import Misconfigured


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How one agent behaves.

    ``interrupt`` is what a person's message does to a running call: ``detach`` lets it run on and reports its result
    later, ``cancel`` cancels it. ``compact_at`` is the share of the model's window from which on the oldest entries
    are summarised. ``inline_bytes`` is the size from which on a value goes to the blob store. A warm process holds the
    histories of ``cached_threads`` threads, and ``cached_bytes`` of such values.
    """

    system_prompt: str = ""
    interrupt: Literal["detach", "cancel"] = "detach"
    rounds_per_slice: int = 16
    slices_per_hour: int = 200
    deliveries_per_slice: int = 50
    events_per_thread: int = 25
    compact_at: float = 0.75
    inline_bytes: int = 256 * 1024
    model_tries: int = 5
    cached_threads: int = 64
    cached_bytes: int = 32 * 1024 * 1024


# ------------------------------------------------------------------ the environments of the Lambda functions


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
    "_QUEUE_URL": (re.compile(r"https?://\S+"), "the URL of a queue"),
    "_CALLBACK_URL": (re.compile(r"https?://\S+"), "a URL"),
    "_ARN": (re.compile(r"arn:\S+"), "an ARN"),
    "_COUNT": (re.compile(r"[1-9]\d{0,3}"), "a whole number from 1 to 9999"),
}
"""What a variable must be, by how its name ends."""


def _misspelt(name: str, value: str) -> str | None:
    for end, (shape, meant) in _SHAPES.items():
        if name.endswith(end) and not shape.fullmatch(value):
            return f"{name} must be {meant}, and is {value[:100]!r}"
    return None


_DATABASE = (("DSQL_CLUSTER_ENDPOINT", "DSQL_DB_USER"), ("DATABASE_URL",))
_SECRET = (("CALLBACK_SECRET_ARN",), ("CALLBACK_SECRET",))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEnvironment(Environment):
    """What the leader is told: everything that a step needs.

    The system prompt is ``system_prompt``, else the file at ``system_prompt_path``. The tools configuration is the
    first that is named of the item, the file and the text.
    """

    FUNCTION: ClassVar[str] = "leader"
    ALTERNATIVES: ClassVar = (_DATABASE, _SECRET)

    input_queue_url: str
    delay_queue_url: str
    delay_queue_arn: str
    delay_dead_letter_queue_arn: str
    scheduler_role_arn: str
    schedule_group_name: str
    output_queue_url: str
    dead_letter_queue_url: str
    max_receive_count: int
    dynamodb_table_name: str
    dsql_cluster_endpoint: str | None = None
    dsql_db_user: str | None = None
    database_url: str | None = field(default=None, repr=False)
    rap_callback_url: str
    rap_public_callback_url: str | None = None
    callback_secret_arn: str | None = None
    callback_secret: str | None = field(default=None, repr=False)
    blob_bucket: str
    model_id: str = "global.anthropic.claude-sonnet-4-6"
    system_prompt: str | None = None
    system_prompt_path: str | None = None
    tools_config_ddb_key: str | None = None
    tools_config_path: str | None = None
    tools_config: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverEnvironment(Environment):
    """What the receiver of callbacks is told."""

    FUNCTION: ClassVar[str] = "receiver"
    ALTERNATIVES: ClassVar = (_SECRET,)

    input_queue_url: str
    dynamodb_table_name: str
    callback_secret_arn: str | None = None
    callback_secret: str | None = field(default=None, repr=False)
    blob_bucket: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayEnvironment(Environment):
    """What the relay of the delay queue is told."""

    FUNCTION: ClassVar[str] = "relay"
    ALTERNATIVES: ClassVar = (_SECRET,)

    input_queue_url: str
    callback_secret_arn: str | None = None
    callback_secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperEnvironment(Environment):
    """What the keeper is told."""

    FUNCTION: ClassVar[str] = "keeper"
    ALTERNATIVES: ClassVar = (_DATABASE, _SECRET)

    input_queue_url: str
    output_queue_url: str
    dead_letter_queue_url: str
    delay_dead_letter_queue_url: str
    dynamodb_table_name: str
    dsql_cluster_endpoint: str | None = None
    dsql_db_user: str | None = None
    database_url: str | None = field(default=None, repr=False)
    callback_secret_arn: str | None = None
    callback_secret: str | None = field(default=None, repr=False)
    blob_bucket: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateEnvironment(Environment):
    """What the migration of the schema is told: the database, and the user that is its admin."""

    FUNCTION: ClassVar[str] = "migrate"
    ALTERNATIVES: ClassVar = (_DATABASE,)

    dsql_cluster_endpoint: str | None = None
    dsql_db_user: str | None = None
    database_url: str | None = field(default=None, repr=False)
