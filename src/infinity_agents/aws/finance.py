"""The finance server as a Lambda function."""

import os
from functools import partial

import httpx

from ..adapters.finance_dynamodb import DynamoFinanceStore
from ..aws_clients import AwsClients
from ..rap.server import ToolServer
from ..settings.tool_servers import FinanceEnvironment
from ..toolsets.finance.market import BundledMarket, Finnhub, Market
from ..toolsets.finance.server import finance_server
from . import wiring
from .tool_servers import tool_handler

_SECONDS = 10.0


def _server() -> ToolServer:
    environment, clients = FinanceEnvironment.read(os.environ), AwsClients()
    store = DynamoFinanceStore(clients, environment.finance_table_name)
    return finance_server(market(clients, environment.finnhub_key_arn), store)


def market(clients: AwsClients, key_arn: str | None) -> Market:
    """Return Finnhub with the key in the secret ``key_arn``, or the bundled market where none is named."""
    if key_arn is None:
        return BundledMarket()
    return Finnhub(partial(wiring.Secrets(clients).value, key_arn), httpx.AsyncClient(timeout=_SECONDS))


handler = tool_handler(_server)
