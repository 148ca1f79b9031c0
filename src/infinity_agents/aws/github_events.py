"""The server of GitHub events as a Lambda function."""

import os
from functools import partial

import httpx

from ..adapters.dynamo_records import DynamoRecords
from ..adapters.s3 import S3BlobStore
from ..adapters.system import SystemClock
from ..aws_clients import AwsClients
from ..rap.server import ToolServer
from ..settings.tool_servers import GitHubEnvironment
from ..toolsets.github_api import GitHubApi
from ..toolsets.github_events import github_server
from . import wiring
from .tool_servers import tool_handler

_SECONDS = 10.0


def _server() -> ToolServer:
    environment, clients = GitHubEnvironment.read(os.environ), AwsClients()
    records = DynamoRecords(clients, environment.github_table_name, SystemClock())
    return github_server(records, S3BlobStore(clients, environment.blob_bucket), _api(environment, clients))


def _api(environment: GitHubEnvironment, clients: AwsClients) -> GitHubApi | None:
    arn, token = environment.github_token_arn, environment.github_token
    if arn is None and token is None:
        return None

    async def known() -> str:
        return token or ""

    ask = known if arn is None else partial(wiring.Secrets(clients).value, arn)
    return GitHubApi(ask, httpx.AsyncClient(timeout=_SECONDS), url=environment.github_api_url)


handler = tool_handler(_server)
