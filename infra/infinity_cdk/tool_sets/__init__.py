"""Tool sets: what an agent can do, one construct each."""

from .base import ToolSet
from .ec2 import Ec2ToolSet
from .finance import FinanceToolSet
from .get_time import GetTimeToolSet
from .github import GitHubEventToolSet
from .mcp import HTTPMCPToolSet, LambdaMCPToolSet, LambdaProps, McpOAuth
from .rap import RapToolSet
from .sandbox import SandboxToolSet
from .tool_function import FunctionToolSet, ToolFunction

__all__ = [
    "Ec2ToolSet",
    "FinanceToolSet",
    "FunctionToolSet",
    "GetTimeToolSet",
    "GitHubEventToolSet",
    "HTTPMCPToolSet",
    "LambdaMCPToolSet",
    "LambdaProps",
    "McpOAuth",
    "RapToolSet",
    "SandboxToolSet",
    "ToolFunction",
    "ToolSet",
]
