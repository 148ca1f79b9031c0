"""The environments of the leader, and of the functions beside it that use its database."""

from dataclasses import dataclass, field
from typing import ClassVar

from .environments import SECRET, Environment

DEFAULT_MODEL = "global.anthropic.claude-sonnet-4-6"
"""What an agent thinks with where nothing else is said: an inference profile of Bedrock."""

_DATABASE = (("DSQL_CLUSTER_ENDPOINT", "DSQL_DB_USER"), ("DATABASE_URL",))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEnvironment(Environment):
    """What the leader is told: everything that a step needs.

    The system prompt is ``system_prompt``, else the file at ``system_prompt_path``. The tools configuration is the
    first that is named of the item, the file and the text.
    """

    FUNCTION: ClassVar[str] = "leader"
    ALTERNATIVES: ClassVar = (_DATABASE, SECRET)

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
class KeeperEnvironment(Environment):
    """What the keeper is told. It reads no large values, so its role may not: the bucket is named for all functions."""

    FUNCTION: ClassVar[str] = "keeper"
    ALTERNATIVES: ClassVar = (_DATABASE, SECRET)

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
