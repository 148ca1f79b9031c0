"""What an agent can be told: every number and word that changes how the runtime behaves, and every variable."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Literal, Self

from .errors import Misconfigured, without_user


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
    "_API_URL": (re.compile(r"https://\S+|http://(?:127\.0\.0\.1|localhost)(?::\d+)?/\S*"), "an https URL"),
    "_ALLOWED": (re.compile(r"[A-Z0-9]+(?:,[A-Z0-9]+)*"), "ids of users, channels and teams, by comma"),
    "_EVERYONE": (re.compile("true"), "'true', or not set"),
    "_VCS": (re.compile("git|jj"), "'git' or 'jj'"),
}
"""What a variable must be, by how its name ends."""


def _misspelt(name: str, value: str) -> str | None:
    for end, (shape, meant) in _SHAPES.items():
        if name.endswith(end) and not shape.fullmatch(value):
            return f"{name} must be {meant}, and is {without_user(value)[:100]!r}"
    return None


_DATABASE = (("DSQL_CLUSTER_ENDPOINT", "DSQL_DB_USER"), ("DATABASE_URL",))
_SECRET = (("CALLBACK_SECRET_ARN",), ("CALLBACK_SECRET",))
_SLACK_TOKEN = (("SLACK_BOT_TOKEN_ARN",), ("SLACK_BOT_TOKEN",))
DEFAULT_MODEL = "global.anthropic.claude-sonnet-4-6"
"""What an agent thinks with where nothing else is said: an inference profile of Bedrock."""
SLACK_API = "https://slack.com/api/"
"""Where Slack's Web API is."""
GITHUB_API = "https://api.github.com"
"""Where GitHub's REST API is, unless it is that of an Enterprise Server."""


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
    model_id: str = DEFAULT_MODEL
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
    """What the keeper is told. It reads no large values, so its role may not: the bucket is named for all functions."""

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


_SLACK_ID = re.compile("[UWCGDTE][A-Z0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class SlackAccess:
    """The ids of users, channels and teams whose people may talk to the agent; ``everyone`` is written out."""

    allowed: frozenset[str] = frozenset()
    everyone: bool = False

    @classmethod
    def parse(cls, allowed: str | None, *, everyone: bool = False) -> "SlackAccess":
        """Return what a list by comma says.

        Raises:
            Misconfigured: it names nobody, or what is no id of Slack's; the text names it.
        """
        ids = [each.strip() for each in (allowed or "").split(",") if each.strip()]
        for each in ids:
            if not _SLACK_ID.fullmatch(each):
                raise Misconfigured(
                    f"{each!r} is no id of a user (U...), a channel (C...) or a team (T...) of Slack; "
                    "copy it from the profile or the channel's details"
                )
        if bool(ids) == everyone:
            raise Misconfigured("say who may talk to the agent in Slack: either ids, or everyone")
        return cls(frozenset(ids), everyone)

    def admits(self, *, user: str, channel: str, team: str) -> bool:
        """Tell whether this user may talk to the agent in this channel."""
        return self.everyone or not self.allowed.isdisjoint((user, channel, team))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackReceiverEnvironment(Environment):
    """What the function is told that takes Slack's requests.

    ``slack_allowed`` are the ids of users, channels and teams who may talk to the agent. The ARNs name secrets; the
    values themselves are for tests.
    """

    FUNCTION: ClassVar[str] = "slack_receiver"
    ALTERNATIVES: ClassVar = (
        _SLACK_TOKEN,
        (("SLACK_SIGNING_SECRET_ARN",), ("SLACK_SIGNING_SECRET",)),
        (("SLACK_ALLOWED",), ("SLACK_ALLOW_EVERYONE",)),
    )

    input_queue_url: str
    dynamodb_table_name: str
    blob_bucket: str
    slack_signing_secret_arn: str | None = None
    slack_signing_secret: str | None = field(default=None, repr=False)
    slack_bot_token_arn: str | None = None
    slack_bot_token: str | None = field(default=None, repr=False)
    slack_allowed: str | None = None
    slack_allow_everyone: str | None = None
    slack_api_url: str = SLACK_API


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackResponderEnvironment(Environment):
    """What the function is told that posts to Slack what the output queue holds."""

    FUNCTION: ClassVar[str] = "slack_responder"
    ALTERNATIVES: ClassVar = (_SLACK_TOKEN,)

    output_queue_url: str
    slack_bot_token_arn: str | None = None
    slack_bot_token: str | None = field(default=None, repr=False)
    slack_api_url: str = SLACK_API


# ------------------------------------------------------------------------------------ the outputs of a stack


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOutputs:
    """What a stack tells of one agent in it: each field is an output whose key is the agent's id and a suffix.

    The suffix is the field's name in camel case: ``SupportInputQueueUrl`` is of the agent ``Support``. Without
    ``database_endpoint``, the agent's database is a PostgreSQL that the stack does not own.
    """

    input_queue_url: str
    output_queue_url: str
    dead_letter_queue_url: str
    state_table_name: str
    blob_bucket_name: str
    migrate_function_name: str
    leader_function_name: str
    database_endpoint: str | None = None

    @classmethod
    def suffixes(cls) -> Mapping[str, str]:
        """Return how the key of each output ends, by the field's name."""
        return {told.name: told.name.title().replace("_", "") for told in fields(cls)}

    @classmethod
    def read(cls, outputs: Mapping[str, str], agent: str | None = None) -> Self:
        """Return what ``outputs`` say of ``agent``; of the only agent there is, where none is named.

        Raises:
            Misconfigured: there is no such agent, or several; the text names those there are.
        """
        suffixes = cls.suffixes()
        first = suffixes["input_queue_url"]
        agents = sorted(key.removesuffix(first) for key in outputs if key.endswith(first))
        chosen = agents if agent is None else [name for name in agents if name == agent]
        if len(chosen) != 1:
            known = f"; it has {', '.join(agents)}" if agents else "; it has none: deploy one with the constructs"
            wrong = "there is no agent" if agent is None and not agents else "there are several agents"
            raise Misconfigured(f"{wrong if agent is None else f'there is no agent {agent!r}'} in this stack{known}")
        named = {name: outputs.get(f"{chosen[0]}{suffix}") for name, suffix in suffixes.items()}
        missing = [
            f"{chosen[0]}{suffixes[told.name]}"
            for told in fields(cls)
            if told.default is MISSING and not named[told.name]
        ]
        if missing:
            raise Misconfigured(f"the stack lacks the outputs {', '.join(missing)}; deploy it with this release")
        return cls(**{name: value for name, value in named.items() if value})

    def written(self, agent: str) -> dict[str, str]:
        """Return the outputs of ``agent`` of which ``read`` makes the same again; what is ``None`` is left out."""
        told = {f"{agent}{suffix}": getattr(self, name) for name, suffix in self.suffixes().items()}
        return {key: value for key, value in told.items() if value is not None}


# ------------------------------------------------------------------ the environments of tool servers


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServerEnvironment(Environment):
    """What any tool server is told.

    ``claims_table_name`` is a table with keys ``pk`` and ``sk`` and TTL attribute ``ttl``, needed unless every tool is
    idempotent or read-only. ``payload_bucket`` takes invocations over 1 MiB, which are refused without it.
    """

    FUNCTION: ClassVar[str] = "tool_server"

    claims_table_name: str | None = None
    payload_bucket: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFailuresEnvironment(Environment):
    """What the function is told that answers the calls of tool servers that died."""

    FUNCTION: ClassVar[str] = "tool_failures"

    payload_bucket: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Environment(ToolServerEnvironment):
    """What the EC2 tool server is told besides; ``instances_table_name`` may be the table of the claims."""

    FUNCTION: ClassVar[str] = "ec2"

    instances_table_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2EventsEnvironment(Environment):
    """What the function is told that hears of changes of instances' states."""

    FUNCTION: ClassVar[str] = "ec2_events"

    instances_table_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHubEnvironment(ToolServerEnvironment):
    """What the tool server of GitHub events is told besides; ``github_table_name`` may be the table of the claims.

    ``github_token_arn`` names the secret that holds a token to ask GitHub with; ``github_token`` is one itself, for
    tests. Without either, GitHub is not asked.
    """

    FUNCTION: ClassVar[str] = "github_events"

    github_table_name: str
    blob_bucket: str
    github_token_arn: str | None = None
    github_token: str | None = field(default=None, repr=False)
    github_api_url: str = GITHUB_API


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHubWebhookEnvironment(Environment):
    """What the receiver of GitHub's deliveries is told.

    ``github_agent_login`` is the account by which the agent itself acts on GitHub.
    """

    FUNCTION: ClassVar[str] = "github_webhook"
    ALTERNATIVES: ClassVar = ((("GITHUB_WEBHOOK_SECRET_ARN",), ("GITHUB_WEBHOOK_SECRET",)),)

    github_table_name: str
    blob_bucket: str
    github_agent_login: str | None = None
    github_webhook_secret_arn: str | None = None
    github_webhook_secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinanceEnvironment(ToolServerEnvironment):
    """What the finance tool server is told besides.

    ``finnhub_key_arn`` names the secret that holds the key for Finnhub; without it, the market is the bundled one.
    """

    FUNCTION: ClassVar[str] = "finance"

    finance_table_name: str
    finnhub_key_arn: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinancePollerEnvironment(Environment):
    """What the function is told that looks at the market for all watches."""

    FUNCTION: ClassVar[str] = "finance_poller"

    finance_table_name: str
    finnhub_key_arn: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxEnvironment(ToolServerEnvironment):
    """What the sandbox tool server is told besides.

    ``sandbox_root`` is the directory of its file system where the sandboxes are. ``sandbox_vcs`` is what keeps the
    versions of new ones: ``git``, or ``jj``, which must be in the image.
    """

    FUNCTION: ClassVar[str] = "sandbox_server"

    sandbox_root: str
    sandbox_vcs: str = "git"


_MCP_SECRET = (("MCP_ENCRYPTION_SECRET_ARN",), ("MCP_ENCRYPTION_SECRET",))


@dataclass(frozen=True, slots=True, kw_only=True)
class McpProxyEnvironment(ToolServerEnvironment):
    """What the proxy of an MCP server is told: ``mcp_url``, or ``mcp_command``, a list in JSON.

    ``mcp_headers`` and ``mcp_env`` are JSON objects of texts. ``mcp_secret_headers`` and ``mcp_secret_env`` are such of
    ARNs of secrets. With ``mcp_callback_url``, the page of ``mcp_oauth``, each person authorizes the agent; then
    ``mcp_table_name`` and an encryption secret must be there. Its ARN names a secret; the value itself is for tests.
    """

    FUNCTION: ClassVar[str] = "mcp_proxy"
    ALTERNATIVES: ClassVar = ((("MCP_URL",), ("MCP_COMMAND",)),)

    mcp_name: str
    mcp_url: str | None = None
    mcp_command: str | None = None
    mcp_headers: str | None = None
    mcp_secret_headers: str | None = None
    mcp_env: str | None = None
    mcp_secret_env: str | None = None
    mcp_callback_url: str | None = None
    mcp_table_name: str | None = None
    mcp_encryption_secret_arn: str | None = None
    mcp_encryption_secret: str | None = field(default=None, repr=False)
    mcp_client_id: str | None = None
    mcp_client_secret_arn: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class McpOAuthEnvironment(Environment):
    """What the page is told that links people with an MCP server; the variables are those of the proxy."""

    FUNCTION: ClassVar[str] = "mcp_oauth"
    ALTERNATIVES: ClassVar = (_MCP_SECRET,)

    mcp_name: str
    mcp_url: str
    mcp_headers: str | None = None
    mcp_secret_headers: str | None = None
    mcp_callback_url: str
    mcp_table_name: str
    mcp_encryption_secret_arn: str | None = None
    mcp_encryption_secret: str | None = field(default=None, repr=False)
    mcp_client_id: str | None = None
    mcp_client_secret_arn: str | None = None
