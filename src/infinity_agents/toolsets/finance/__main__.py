"""``python -m infinity_agents.toolsets.finance``."""

import argparse
import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

from ...rap.command_line import add_listening_options, told_by
from .local_store import LocalFinanceStore
from .market import BundledMarket, Finnhub, Market
from .polling import poll
from .server import finance_server

_log = logging.getLogger(__name__)


async def main() -> None:
    """Serve and poll until interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m infinity_agents.toolsets.finance",
        description="Prices, news, and trading with paper money; from Finnhub with FINNHUB_API_KEY set, else bundled.",
    )
    parser.add_argument("--file", type=Path, default=Path("finance.db"), help="where accounts are (%(default)s)")
    add_listening_options(parser, 8004)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two looks (default: %(default)g)")
    options = parser.parse_args()
    if not 1 <= options.every <= 86_400:
        parser.error(f"--every is {options.every:g} and must be 1 to 86400 seconds")
    try:
        store = LocalFinanceStore(options.file)
    except sqlite3.Error as error:
        parser.error(f"{options.file} cannot be used ({error}); name another --file")
    with told_by(parser):
        async with _market() as market:
            server = finance_server(market, store)
            async with server.serving(host=options.host, port=options.port) as url:
                print(f"finance is served at {url}", flush=True)  # noqa: T201 - whoever started it wants to know
                while True:
                    try:
                        await poll(market, store, server.push)
                    except sqlite3.Error:
                        _log.exception(
                            "the watches cannot be read; they are looked at again in %g seconds", options.every
                        )
                    await asyncio.sleep(options.every)


@contextlib.asynccontextmanager
async def _market() -> AsyncIterator[Market]:
    key = os.environ.get("FINNHUB_API_KEY")
    if key is None:
        yield BundledMarket()
        return

    async def known() -> str:
        return key

    async with httpx.AsyncClient(timeout=10.0) as client:
        yield Finnhub(known, client)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
