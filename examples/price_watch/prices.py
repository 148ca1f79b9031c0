"""Prices of two stocks, and a watch that wakes the agent when one falls; the market is replayed from prices.csv."""

import asyncio
import csv
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

from infinity_agents.rap.server import Event, ToolServer

SECONDS_PER_DAY = float(os.environ.get("SECONDS_PER_DAY", "2"))
DAYS = list(csv.DictReader(Path(__file__).with_name("prices.csv").open()))

server = ToolServer(name="price-tools", description="Prices of stocks, and a watch on them.")


@server.tool(read_only=True)
def get_price(symbol: Literal["ACME", "GLOBEX"]) -> str:
    """Tell the first price of a stock in the data.

    Args:
        symbol: Which stock.
    """
    return f"{symbol} stands at {DAYS[0][symbol]} on {DAYS[0]['day']}"


@server.subscription
async def watch_price(symbol: Literal["ACME", "GLOBEX"], below: float) -> AsyncIterator[Event]:
    """Watch a stock, and tell each time that it falls below a price.

    Args:
        symbol: Which stock.
        below: The price, in dollars.
    """
    if below <= 0:
        raise ValueError(f"no price is below {below}; give a positive one")
    was_below = False
    for today in DAYS:
        await asyncio.sleep(SECONDS_PER_DAY)
        price = float(today[symbol])
        if price < below and not was_below:
            yield Event(f"{symbol} fell below {below:g}: {price:.2f} on {today['day']}", event_id=today["day"])
        was_below = price < below
    yield Event(f"The data end with {symbol} at {DAYS[-1][symbol]}.", event_id="end", final=True)


if __name__ == "__main__":
    server.run(port=8002)
