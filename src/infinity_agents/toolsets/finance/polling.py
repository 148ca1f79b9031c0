"""Looks at the market for all watches at once, and tells those who wait."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from ...rap.server import Undelivered
from .market import Article, Market
from .store import FinanceStore, Watch

_MOST_SEEN = 100
_log = logging.getLogger(__name__)


class Push(Protocol):
    """Tells a conversation of an event, as ``rap.server.push`` does."""

    async def __call__(self, handle: str, text: str, *, event_id: str | None = None) -> None:
        """Push it; raise ``Undelivered`` where the runtime does not take it."""
        ...


@dataclass(frozen=True, slots=True)
class Polled:
    """What one look at the market came to: what was fetched, told, and what the market or the runtime refused."""

    fetched: int
    told: int
    failed: tuple[str, ...]


async def poll(market: Market, store: FinanceStore, push: Push) -> Polled:
    """Fetch each symbol and each query once, whoever waits for it, and tell of what has changed.

    What fails concerns its own subject alone, and is tried at the next poll. What was told is noted afterwards: a poll
    that dies in between tells again, under the same id, which changes nothing.
    """
    subjects: dict[tuple[str, str], list[Watch]] = {}
    for watch in await store.watches():
        subjects.setdefault((watch.kind, watch.subject), []).append(watch)
    looks = [
        _look_at_price(subject, watches, market, store, push)
        if kind == "price"
        else _look_at_news(subject, watches, market, store, push)
        for (kind, subject), watches in subjects.items()
    ]
    outcomes = await asyncio.gather(*looks, return_exceptions=True)
    failed = []
    for (_, subject), outcome in zip(subjects, outcomes, strict=True):
        if isinstance(outcome, Exception):
            _log.warning("nothing is told of %s: %s", subject, outcome)
            failed.append(subject)
        elif isinstance(outcome, BaseException):
            raise outcome
    return Polled(len(subjects), sum(told for told in outcomes if isinstance(told, int)), tuple(failed))


def side_of(watch: Watch, price: Decimal) -> str:
    """Return where a price is: ``below`` or ``above`` the range that a watch names, or ``inside``."""
    if watch.below is not None and price < watch.below:
        return "below"
    if watch.above is not None and price > watch.above:
        return "above"
    return "inside"


async def _look_at_price(symbol: str, watches: Sequence[Watch], market: Market, store: FinanceStore, push: Push) -> int:
    quote = await market.quote(symbol)
    told = 0
    for watch in watches:
        side = side_of(watch, quote.price)
        if side == watch.seen:
            continue
        moved = {
            "below": f"fell below {watch.below}",
            "above": f"rose above {watch.above}",
            "inside": "is back where you are not to be told of it",
        }[side]
        text = f"{symbol} {moved}: it costs {quote.price} dollars, as of {quote.at:%Y-%m-%d %H:%M} UTC."
        if await _told(push, watch, text, f"{side}-{quote.at.timestamp():.0f}"):
            await store.saw(watch, side)
            told += 1
    return told


async def _look_at_news(query: str, watches: Sequence[Watch], market: Market, store: FinanceStore, push: Push) -> int:
    articles = await market.news(query)
    told = 0
    for watch in watches:
        seen = watch.seen.split(",") if watch.seen else []
        for article in reversed(articles):
            if article.id not in seen and await _told(push, watch, _line(query, article), f"news-{article.id}"):
                seen.append(article.id)
                await store.saw(watch, ",".join(_remembered(seen, articles)))
                told += 1
    return told


def _remembered(seen: Sequence[str], articles: Sequence[Article]) -> list[str]:
    """Return the ids to keep: all that the source still tells of, and some of those that it may tell of again."""
    current = [article.id for article in articles if article.id in seen]
    return current + [known for known in reversed(seen) if known not in current][:_MOST_SEEN]


def _line(query: str, article: Article) -> str:
    return f"News about {query}: {article.headline} ({article.at:%Y-%m-%d %H:%M} UTC) {article.url}"


async def _told(push: Push, watch: Watch, text: str, event_id: str) -> bool:
    try:
        await push(watch.handle, text, event_id=event_id)
    except Undelivered as error:
        _log.warning("call %s of thread %s is not told: %s", watch.call_id, watch.thread_id, error)
        return False
    return True
