"""Where prices and news come from: a port, a bundled market for offline use, and Finnhub."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Protocol

import httpx

SYMBOL = re.compile(r"[A-Z0-9^][A-Z0-9.^=:-]{0,31}")
"""What a symbol looks like: ``ACME``, ``BRK.B``, ``^GSPC``."""
_NEWS_DAYS = 7


class NoQuote(Exception):
    """There is no price of that symbol, or the source does not answer; the text says which."""


@dataclass(frozen=True, slots=True)
class Quote:
    """What a share costs; ``at`` is when that was so."""

    symbol: str
    price: Decimal
    at: datetime


@dataclass(frozen=True, slots=True)
class Article:
    """Something in the news; ``id`` is the same whenever it is found."""

    id: str
    headline: str
    url: str
    at: datetime


class Market(Protocol):
    """Where prices and news come from."""

    async def quote(self, symbol: str) -> Quote:
        """Return the last price.

        Raises:
            NoQuote: there is none, or none at the moment.
        """
        ...

    async def news(self, query: str) -> Sequence[Article]:
        """Return what is new about a symbol or any words, the newest first.

        Raises:
            NoQuote: the source does not answer.
        """
        ...


def checked_symbol(symbol: str) -> str:
    """Return the symbol in capitals.

    Raises:
        ValueError: nothing is traded under such a name.
    """
    found = symbol.strip().upper()
    if not SYMBOL.fullmatch(found):
        raise ValueError(f"{symbol[:50]!r} is no symbol; symbols are such as AAPL or BRK.B")
    return found


class BundledMarket:
    """A market that stands still: the prices and the news of a file, the same at every call."""

    def __init__(self, path: Path | None = None) -> None:
        data = json.loads((path or Path(__file__).with_name("market.json")).read_text(encoding="utf-8"))
        self._at = datetime.fromisoformat(data["at"])
        self._prices: Mapping[str, str] = data["prices"]
        self._news: Sequence[Mapping[str, str]] = data["news"]

    async def quote(self, symbol: str) -> Quote:
        if symbol not in self._prices:
            raise NoQuote(f"there is no price of {symbol} in the bundled market; there are {', '.join(self._prices)}")
        return Quote(symbol, Decimal(self._prices[symbol]), self._at)

    async def news(self, query: str) -> Sequence[Article]:
        words = query.casefold().split()
        found = [item for item in self._news if all(word in item["headline"].casefold() for word in words)]
        return [Article(item["id"], item["headline"], item["url"], self._at) for item in found]


class Finnhub:
    """The prices and the news of Finnhub, for which one needs a key of one's own; ``key`` returns it."""

    def __init__(
        self,
        key: Callable[[], Awaitable[str]],
        client: httpx.AsyncClient,
        *,
        url: str = "https://finnhub.io/api/v1",
    ) -> None:
        self._key = key
        self._client = client
        self._url = url.rstrip("/")

    async def quote(self, symbol: str) -> Quote:
        found = await self._get("quote", symbol=symbol)
        try:
            price, at = Decimal(str(found["c"])), datetime.fromtimestamp(int(found["t"]), UTC)
        except (KeyError, TypeError, ValueError, InvalidOperation, OverflowError) as error:
            raise NoQuote(f"Finnhub's answer about {symbol} holds no price") from error
        if not price.is_finite() or price <= 0:  # what is not known there costs nothing
            raise NoQuote(f"Finnhub knows no price of {symbol}")
        return Quote(symbol, price, at)

    async def news(self, query: str) -> Sequence[Article]:
        today = datetime.now(UTC).date()
        if SYMBOL.fullmatch(query):
            since = (today - timedelta(days=_NEWS_DAYS)).isoformat()
            found = await self._get("company-news", symbol=query, **{"from": since, "to": today.isoformat()})
        else:
            found = await self._get("news", category="general")
        if not isinstance(found, list):
            raise NoQuote("Finnhub's answer holds no news")
        words = [] if SYMBOL.fullmatch(query) else query.casefold().split()
        articles = [_article(item) for item in found if isinstance(item, dict)]
        return [article for article in articles if all(word in article.headline.casefold() for word in words)]

    async def _get(self, path: str, **parameters: str) -> Any:
        key = await self._key()
        try:
            # The key goes into a header: URLs are logged.
            answer = await self._client.get(f"{self._url}/{path}", params=parameters, headers={"X-Finnhub-Token": key})
            answer.raise_for_status()
            return answer.json()
        except httpx.HTTPStatusError as error:
            raise NoQuote(f"Finnhub answers {error.response.status_code} about {path}") from None
        except (httpx.HTTPError, ValueError) as error:
            raise NoQuote(f"Finnhub does not answer about {path} ({type(error).__name__})") from None


def _article(item: Mapping[str, Any]) -> Article:
    at = item.get("datetime")
    return Article(
        str(item.get("id", "")),
        str(item.get("headline", ""))[:500],
        str(item.get("url", ""))[:2_000],
        datetime.fromtimestamp(at if isinstance(at, int | float) else 0, UTC),
    )
