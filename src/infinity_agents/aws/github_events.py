"""The server of GitHub events as a Lambda function."""

import os

from ..adapters.dynamo_records import DynamoRecords
from ..adapters.s3 import S3BlobStore
from ..adapters.system import SystemClock
from ..aws_clients import AwsClients
from ..rap.server import ToolServer
from ..settings import GitHubEnvironment
from ..toolsets.github_events import github_server
from .tool_servers import tool_handler


def _server() -> ToolServer:
    environment, clients = GitHubEnvironment.read(os.environ), AwsClients()
    records = DynamoRecords(clients, environment.github_table_name, SystemClock())
    return github_server(records, S3BlobStore(clients, environment.blob_bucket))


handler = tool_handler(_server)
