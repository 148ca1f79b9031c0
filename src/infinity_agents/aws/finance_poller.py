"""The function that looks at the market for all watches of the finance server, whenever a schedule invokes it."""

import os
from dataclasses import asdict
from typing import Any

from ..adapters.finance_dynamodb import DynamoFinanceStore
from ..aws_clients import AwsClients
from ..rap.posting import CallbackSender, push_with
from ..rap.results import Event
from ..settings.tool_servers import FinancePollerEnvironment
from ..toolsets.finance.market import Market
from ..toolsets.finance.polling import poll
from .finance import market
from .sandbox import Sandbox
from .tool_servers import signed

_Ports = tuple[Market, DynamoFinanceStore, CallbackSender]


async def _ports() -> _Ports:
    environment, clients = FinancePollerEnvironment.read(os.environ), AwsClients()
    store = DynamoFinanceStore(clients, environment.finance_table_name)
    return market(clients, environment.finnhub_key_arn), store, CallbackSender(sign=signed(clients))


sandbox = Sandbox(_ports)


def handler(event: object, context: object) -> dict[str, Any]:
    """Look once, whatever ``event`` says; return how much was fetched and told, and what failed.

    Raises:
        StoreUnavailable: the watches cannot be read or noted; the next look does it again.
    """
    return sandbox.run(lambda ports: _look(*ports))


async def _look(market: Market, store: DynamoFinanceStore, sender: CallbackSender) -> dict[str, Any]:
    async def push(handle: str, text: str, *, event_id: str | None = None) -> None:
        # What is not taken at once is told at the next look.
        await push_with(sender, handle, Event(text, event_id=event_id), patience=0.0)

    return asdict(await poll(market, store, push))
