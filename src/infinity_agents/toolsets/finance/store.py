"""What the finance server keeps: accounts with what they hold, and the watches that wait for a price or for news."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol


class NoAccount(ValueError):
    """There is no such account, or it is somebody else's."""


class NotEnough(ValueError):
    """The account holds less than the trade takes; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Account:
    """Paper money, and the shares that were bought with it, by symbol."""

    id: str
    owner: str
    cash: Decimal
    shares: Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class Trade:
    """What changes hands at once: ``shares`` of a symbol (sold ones are negative) for ``cost``, which is paid.

    ``id`` is the same on every repeat of the call that made it.
    """

    id: str
    account_id: str
    symbol: str
    shares: Decimal
    price: Decimal
    cost: Decimal


@dataclass(frozen=True, slots=True)
class Watch:
    """A subscription: to a price that leaves the range from ``below`` to ``above``, or to news about ``subject``.

    ``seen`` is what it has told last: ``inside``, ``below`` or ``above``, or the ids of the newest articles, by comma.
    """

    thread_id: str
    call_id: str
    handle: str
    kind: Literal["price", "news"]
    subject: str
    below: Decimal | None = None
    above: Decimal | None = None
    seen: str = ""


class FinanceStore(Protocol):
    """Keeps accounts and watches; all that one method does happens at once, or not at all."""

    async def create_account(self, account: Account) -> None:
        """Keep a new account; one of its id that is there already stays as it is."""
        ...

    async def account(self, account_id: str, owner: str) -> Account:
        """Return an account.

        Raises:
            NoAccount: there is none that is the owner's.
        """
        ...

    async def trade(self, trade: Trade, owner: str) -> Trade:
        """Carry out a trade; of a repeat, return what was carried out the first time.

        Raises:
            NoAccount: there is none that is the owner's.
            NotEnough: it holds less money, or fewer shares, than the trade takes.
        """
        ...

    async def traded(self, account_id: str, trade_id: str) -> Trade | None:
        """Return a trade that was carried out, or ``None``."""
        ...

    async def watch(self, watch: Watch) -> None:
        """Keep a watch, in place of one of the same call."""
        ...

    async def watches(self) -> Sequence[Watch]:
        """Return all watches."""
        ...

    async def saw(self, watch: Watch, seen: str) -> None:
        """Note what a watch has told, unless it is gone."""
        ...

    async def unwatch(self, thread_id: str, call_id: str | None = None) -> None:
        """Delete the watch of a call, or without one all of the thread."""
        ...
