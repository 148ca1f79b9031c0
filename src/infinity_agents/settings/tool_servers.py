"""The environments of tool servers, and of the functions beside them."""

from dataclasses import dataclass, field
from typing import ClassVar

from .environments import Environment

GITHUB_API = "https://api.github.com"
"""Where GitHub's REST API is, unless it is that of an Enterprise Server."""


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
