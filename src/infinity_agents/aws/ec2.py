"""The EC2 server as a Lambda function."""

import os

from ..adapters.dynamo_records import DynamoRecords
from ..adapters.ec2 import Ec2Instances
from ..adapters.system import SystemClock
from ..aws_clients import AwsClients
from ..rap.server import ToolServer
from ..settings.tool_servers import Ec2Environment
from ..toolsets.ec2 import ec2_server
from .tool_servers import tool_handler


def _server() -> ToolServer:
    environment, clients = Ec2Environment.read(os.environ), AwsClients()
    records = DynamoRecords(clients, environment.instances_table_name, SystemClock())
    return ec2_server(Ec2Instances(clients), records)


handler = tool_handler(_server)
