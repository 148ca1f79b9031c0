"""The get-time server as a Lambda function."""

from ..toolsets.get_time import server
from .tool_servers import tool_handler

handler = tool_handler(server)
