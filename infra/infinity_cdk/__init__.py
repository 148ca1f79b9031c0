"""CDK constructs that deploy agents: subclass ``InfinityAgent``, and give it tool sets."""

# isort: off
from .node import choose_node

choose_node()  # before anything starts the CDK

# isort: on
from .agent import InfinityAgent
from .monitoring import AgentMonitoring
from .slack import SlackIntegration
from .storage import DsqlDatabase
from .tool_sets import (
    Ec2ToolSet,
    FinanceToolSet,
    FunctionToolSet,
    GetTimeToolSet,
    GitHubEventToolSet,
    HTTPMCPToolSet,
    LambdaMCPToolSet,
    LambdaProps,
    McpOAuth,
    RapToolSet,
    SandboxToolSet,
    ToolFunction,
    ToolSet,
)

__all__ = [
    "AgentMonitoring",
    "DsqlDatabase",
    "Ec2ToolSet",
    "FinanceToolSet",
    "FunctionToolSet",
    "GetTimeToolSet",
    "GitHubEventToolSet",
    "HTTPMCPToolSet",
    "InfinityAgent",
    "LambdaMCPToolSet",
    "LambdaProps",
    "McpOAuth",
    "RapToolSet",
    "SandboxToolSet",
    "SlackIntegration",
    "ToolFunction",
    "ToolSet",
]
