"""Builds the adapters of each function from its environment: once per sandbox, at its first invocation."""

import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..adapters.dynamodb import DynamoStateStore
from ..adapters.s3 import S3BlobStore
from ..adapters.sqs import SqsDeadLetters, SqsDelayDeadLetters, SqsInputSender, SqsOutputSender, SqsReceipts
from ..adapters.system import FreshIds, SystemClock
from ..aws_clients import AwsClients
from ..errors import Misconfigured, StoreUnavailable
from ..ports.queues import DeadLetters, InputSender
from ..rap.callbacks import callback_url
from ..receiving import CallbackReceiver
from ..settings import AgentSettings
from ..settings.leading import KeeperEnvironment, LeaderEnvironment, MigrateEnvironment
from ..settings.queueing import ReceiverEnvironment, RelayEnvironment
from ..wire.keys import Keyring
from .logs import log_as_json

if TYPE_CHECKING:
    from ..adapters.dsql import DsqlDatabase, Migrated
    from ..ports.conversations import ConversationStore
    from ..ports.model import Model
    from ..rap.toolsets import ToolSetConfig
    from ..runtime.keeper import Keeper
    from ..runtime.services import CallbackUrls
    from ..slack.receiver import SlackRequests
    from ..slack.responder import SlackResponder
    from .leading import Leader

_KEYS_KEPT = timedelta(minutes=5)

_log = logging.getLogger(__name__)

# What not every function needs is imported where it is built: a receiver has no use for a database driver.


async def leader() -> "Leader":
    """Return the leader that the environment variables describe.

    Raises:
        Misconfigured: a variable, or what it names, cannot be used; the text names it.
        StoreUnavailable: a secret or the tools configuration cannot be read at the moment.
    """
    from ..adapters.httpx_client import HttpxClient
    from ..adapters.scheduler import AwsTimers
    from ..adapters.sigv4 import SigV4Signer
    from ..rap.toolsets import RapToolServers
    from ..runtime import AgentSystem, Services
    from ..tools import built_in
    from .leading import Leader
    from .telemetry import Telemetry

    log_as_json(LeaderEnvironment.FUNCTION)
    environment, clients, clock = LeaderEnvironment.read(os.environ), AwsClients(), SystemClock()
    keyring = await _keyring(clients, environment)
    state = DynamoStateStore(clients, environment.dynamodb_table_name, clock)
    tool_sets = await _tool_sets(environment, state)
    http = HttpxClient(
        bearer=Secrets(clients).value, signer=SigV4Signer(clients.credentials, clock, region=clients.region)
    )
    services = Services(
        conversations=_conversations(environment, clients),
        state=state,
        model=_model(environment.model_id),
        inputs=SqsInputSender(clients, environment.input_queue_url),
        outputs=SqsOutputSender(clients, environment.output_queue_url),
        timers=AwsTimers(
            clients,
            clock,
            delay_queue_url=environment.delay_queue_url,
            delay_queue_arn=environment.delay_queue_arn,
            dead_letter_queue_arn=environment.delay_dead_letter_queue_arn,
            role_arn=environment.scheduler_role_arn,
            group_name=environment.schedule_group_name,
        ),
        blobs=S3BlobStore(clients, environment.blob_bucket),
        clock=clock,
        ids=FreshIds(),
        keyring=keyring,
        tools=built_in(clock),
        tool_servers=RapToolServers(tool_sets, http=http, state=state, clock=clock),
        callback_urls=_callback_urls(environment, keyring, tool_sets),
        settings=AgentSettings(system_prompt=_system_prompt(environment)),
    )
    return Leader(
        AgentSystem(services),
        SqsReceipts(clients, environment.input_queue_url),
        SqsDeadLetters(
            clients,
            dead_letter_url=environment.dead_letter_queue_url,
            input_url=environment.input_queue_url,
            clock=clock,
        ),
        environment.max_receive_count,
        Telemetry(os.environ.get("AWS_LAMBDA_FUNCTION_NAME", LeaderEnvironment.FUNCTION)),
    )


async def receiver() -> CallbackReceiver:
    """Return the receiver that the environment variables describe; raise as ``leader`` does."""
    log_as_json(ReceiverEnvironment.FUNCTION)
    environment, clients, clock = ReceiverEnvironment.read(os.environ), AwsClients(), SystemClock()
    return CallbackReceiver(
        keyring=await _keyring(clients, environment),
        inputs=SqsInputSender(clients, environment.input_queue_url),
        state=DynamoStateStore(clients, environment.dynamodb_table_name, clock),
        blobs=S3BlobStore(clients, environment.blob_bucket),
        clock=clock,
        inline_bytes=AgentSettings().inline_bytes,
    )


async def relay() -> tuple[InputSender, Keyring]:
    """Return what the relay works with; raise as ``leader`` does."""
    log_as_json(RelayEnvironment.FUNCTION)
    environment, clients = RelayEnvironment.read(os.environ), AwsClients()
    return SqsInputSender(clients, environment.input_queue_url), await _keyring(clients, environment)


async def keeper() -> "tuple[Keeper, DeadLetters]":
    """Return the keeper, and the dead letters that it sees to besides those of the input queue; raise as ``leader``."""
    from ..runtime.keeper import Keeper

    log_as_json(KeeperEnvironment.FUNCTION)
    environment, clients, clock = KeeperEnvironment.read(os.environ), AwsClients(), SystemClock()
    input_url = environment.input_queue_url
    keeper = Keeper(
        conversations=_conversations(environment, clients),
        state=DynamoStateStore(clients, environment.dynamodb_table_name, clock),
        inputs=SqsInputSender(clients, input_url),
        outputs=SqsOutputSender(clients, environment.output_queue_url),
        dead_letters=SqsDeadLetters(
            clients, dead_letter_url=environment.dead_letter_queue_url, input_url=input_url, clock=clock
        ),
        keyring=await _keyring(clients, environment),
        clock=clock,
    )
    delayed = SqsDelayDeadLetters(
        clients, dead_letter_url=environment.delay_dead_letter_queue_url, input_url=input_url, clock=clock
    )
    return keeper, delayed


async def slack_receiver() -> "SlackRequests":
    """Return what answers Slack's requests; raise as ``leader`` does."""
    from ..adapters.httpx_client import HttpxClient
    from ..adapters.slack_web import SlackWebClient
    from ..settings.slack import SlackAccess, SlackReceiverEnvironment
    from ..slack.files import SlackFiles
    from ..slack.receiver import SlackReceiver, SlackRequests

    log_as_json(SlackReceiverEnvironment.FUNCTION)
    environment, clients, clock = SlackReceiverEnvironment.read(os.environ), AwsClients(), SystemClock()
    access = SlackAccess.parse(environment.slack_allowed, everyone=environment.slack_allow_everyone is not None)
    secret = await _secret(clients, environment.slack_signing_secret_arn, environment.slack_signing_secret)
    token = await _secret(clients, environment.slack_bot_token_arn, environment.slack_bot_token)
    web = SlackWebClient(token, url=environment.slack_api_url)
    receiver = SlackReceiver(
        inputs=SqsInputSender(clients, environment.input_queue_url),
        state=DynamoStateStore(clients, environment.dynamodb_table_name, clock),
        blobs=S3BlobStore(clients, environment.blob_bucket),
        web=web,
        files=SlackFiles(web, HttpxClient(), token, environment.slack_api_url, clock),
        access=access,
        clock=clock,
        inline_bytes=AgentSettings().inline_bytes,
    )
    return SlackRequests(receiver, secret, partial(_take_later, clients))


SLACK_LATER = "infinity_slack_event"
"""The one key of an event that the receiver of Slack sends itself: the payload whose files are to be fetched."""


async def _take_later(clients: AwsClients, payload: Mapping[str, object]) -> None:
    """Have this function take the payload once more, when it has answered."""
    await clients.call(
        "lambda",
        "invoke",
        FunctionName=os.environ["AWS_LAMBDA_FUNCTION_NAME"],
        InvocationType="Event",
        Payload=json.dumps({SLACK_LATER: payload}).encode(),
    )


async def slack_responder() -> "tuple[SlackResponder, SqsReceipts]":
    """Return what posts to Slack, and the receipts of the output queue; raise as ``leader`` does."""
    from ..adapters.slack_web import SlackWebClient
    from ..settings.slack import SlackResponderEnvironment
    from ..slack.responder import SlackResponder

    log_as_json(SlackResponderEnvironment.FUNCTION)
    environment, clients = SlackResponderEnvironment.read(os.environ), AwsClients()
    token = await _secret(clients, environment.slack_bot_token_arn, environment.slack_bot_token)
    web = SlackWebClient(token, url=environment.slack_api_url)
    return SlackResponder(web, SystemClock()), SqsReceipts(clients, environment.output_queue_url)


async def _secret(clients: AwsClients, arn: str | None, value: str | None) -> str:
    return value or "" if arn is None else (await Secrets(clients).value(arn)).strip()


Migrate = Callable[[str | None, Sequence[str]], Awaitable["Migrated"]]
"""Migrates, and lets the role of that name, and whoever acts as one of these IAM roles, use the database."""


async def migrated_database() -> Migrate:
    """Return the way to migrate the database that the environment variables name; raise as ``leader`` does."""
    log_as_json(MigrateEnvironment.FUNCTION)
    return partial(migrate_database, named_database(os.environ))


def named_database(environ: Mapping[str, str]) -> "DsqlDatabase":
    """Return the database to migrate that ``environ`` names.

    Raises:
        Misconfigured: it names none, or both kinds.
    """
    return _database(MigrateEnvironment.read(environ), AwsClients())


async def migrate_database(
    database: "DsqlDatabase",
    role: str | None,
    iam_role_arns: Sequence[str],
    progress: Callable[[str], None] | None = None,
) -> "Migrated":
    """Migrate ``database``, and let ``role`` and the IAM roles use it; ``progress`` is told each statement before.

    Raises:
        Misconfigured: its user may not do that, or it is of a newer release.
        StoreUnavailable: it cannot be reached; it may be tried again.
    """
    from ..adapters.dsql import migrate

    progress = progress or _say_nothing
    migrated = await migrate(database, role=role, progress=progress)
    for arn in iam_role_arns:
        await migrate(database, role=role, iam_role_arn=arn, progress=progress)
    return migrated


def _say_nothing(line: str) -> None:
    """Say nothing: what was applied is told at the end."""


# ------------------------------------------------------------------------------------------------------ parts


async def _keyring(
    clients: AwsClients, environment: LeaderEnvironment | ReceiverEnvironment | RelayEnvironment | KeeperEnvironment
) -> Keyring:
    if environment.callback_secret_arn is None:
        return Keyring.parse(environment.callback_secret or "")
    keys = _SecretKeys(clients, environment.callback_secret_arn)
    await keys.refresh()
    return Keyring(keys)


async def fresh(keyring: Keyring) -> None:
    """Read the secret of ``keyring`` again if that was minutes ago, so that no running sandbox misses a rotation.

    Raises:
        Misconfigured: what the secret holds now are no keys.
    """
    if isinstance(keyring.keys, _SecretKeys):
        await keyring.keys.refresh()


class _SecretKeys(Mapping[str, bytes]):
    """The keys in a secret, as they were when it was read last."""

    def __init__(self, clients: AwsClients, arn: str) -> None:
        self._clients = clients
        self._arn = arn
        self._clock = SystemClock()
        self._keys: Mapping[str, bytes] = {}
        self._read_again_at = self._clock.now()

    def __getitem__(self, key_id: str) -> bytes:
        return self._keys[key_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    async def refresh(self) -> None:
        now = self._clock.now()
        if now < self._read_again_at:
            return
        try:
            self._keys = Keyring.parse(await Secrets(self._clients).value(self._arn)).keys
        except StoreUnavailable as error:
            if not self._keys:
                raise
            _log.warning("the keys stay as they were: %s", error)
        self._read_again_at = now + _KEYS_KEPT


class Secrets:
    """The secrets of Secrets Manager, each read once in the life of a sandbox."""

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._known: dict[str, str] = {}

    async def value(self, arn: str) -> str:
        """Return the secret.

        Raises:
            Misconfigured: there is no such secret, this role may not read it, or it is no text.
            StoreUnavailable: it cannot be read at the moment.
        """
        if arn not in self._known:
            answer = await self._clients.call("secretsmanager", "get_secret_value", SecretId=arn)
            if "SecretString" not in answer:
                raise Misconfigured(f"the secret {arn} is no text; store it as a string")
            self._known[arn] = answer["SecretString"]
        return self._known[arn]


def _database(
    environment: LeaderEnvironment | KeeperEnvironment | MigrateEnvironment, clients: AwsClients
) -> "DsqlDatabase":
    from ..adapters.dsql import AuroraDsql, DsqlDatabase, PostgreSql

    clock = SystemClock()
    if environment.database_url is not None:
        return DsqlDatabase(PostgreSql(environment.database_url), clock)
    cluster = AuroraDsql(environment.dsql_cluster_endpoint or "", environment.dsql_db_user or "", clients)
    return DsqlDatabase(cluster, clock)


def _conversations(environment: LeaderEnvironment | KeeperEnvironment, clients: AwsClients) -> "ConversationStore":
    from ..adapters.dsql import DsqlConversationStore

    return DsqlConversationStore(_database(environment, clients))


def _model(model_id: str) -> "Model":
    from ..adapters.bedrock import BedrockModel
    from ..adapters.demo_model import DemoModel
    from ..runtime.models import RoutedModels

    bedrock, demo = BedrockModel(model_id), DemoModel()
    return RoutedModels({"bedrock": bedrock, "demo": demo}, demo.name if model_id == demo.name else bedrock.name)


def _system_prompt(environment: LeaderEnvironment) -> str:
    if environment.system_prompt is not None or environment.system_prompt_path is None:
        return environment.system_prompt or ""
    return _text_of(environment.system_prompt_path, "SYSTEM_PROMPT_PATH")


async def _tool_sets(environment: LeaderEnvironment, state: DynamoStateStore) -> "tuple[ToolSetConfig, ...]":
    from ..rap.toolsets import parse_tools_config

    if environment.tools_config_ddb_key is not None:
        return await state.tools_config(environment.tools_config_ddb_key)
    if environment.tools_config_path is not None:
        text = _text_of(environment.tools_config_path, "TOOLS_CONFIG_PATH")
        return parse_tools_config(text, f"the file {environment.tools_config_path} (TOOLS_CONFIG_PATH)")
    if environment.tools_config is not None:
        return parse_tools_config(environment.tools_config, "the variable TOOLS_CONFIG")
    return ()


def _text_of(path: str, variable: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise Misconfigured(
            f"{variable} names {path}, which cannot be read ({error}); bundle it, or unset it"
        ) from error


def _callback_urls(
    environment: LeaderEnvironment, keyring: Keyring, tool_sets: "Sequence[ToolSetConfig]"
) -> "CallbackUrls":
    """Return the way to make callback URLs: a server that does not sign its requests gets the public one."""
    signing = {tool_set.id for tool_set in tool_sets if tool_set.auth == "sigv4"}
    public_url = environment.rap_public_callback_url or environment.rap_callback_url

    def url(thread_id: str, call_id: str, tool_set: str | None) -> str:
        base = environment.rap_callback_url if tool_set in signing else public_url
        return callback_url(base, keyring, thread_id, call_id, tool_set or "")

    return url
