"""What people are called: their display names, each looked up once."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from ..ports.slack import SlackLimited, SlackRefused, SlackUnavailable, SlackWeb

_log = logging.getLogger(__name__)

_LONGEST = 80
_MOST = 10
"""How many people are looked up for one message."""


class SlackNames:
    """Knows what people are called, for as long as the process lives; whom Slack does not name has no name."""

    def __init__(self) -> None:
        self._lookups: dict[str, asyncio.Task[str | None]] = {}

    async def of(self, users: Iterable[str], web: SlackWeb, *, seconds: float) -> Mapping[str, str]:
        """Return the names of ``users`` that are known within ``seconds``, by user id.

        A name holds nothing that could end it: neither a line break, nor a colon, nor a bracket.
        """
        lookups = {user: self._lookup(user, web) for user in [*dict.fromkeys(users)][:_MOST]}
        if lookups:
            # What takes longer goes on, for the next message.
            await asyncio.wait(lookups.values(), timeout=seconds)
        return {user: name for user, task in lookups.items() if task.done() and (name := task.result())}

    def _lookup(self, user: str, web: SlackWeb) -> "asyncio.Task[str | None]":
        if user not in self._lookups:
            self._lookups[user] = asyncio.create_task(self._looked_up(user, web))
        return self._lookups[user]

    async def _looked_up(self, user: str, web: SlackWeb) -> str | None:
        try:
            return _name_in((await web.call("users.info", user=user)).get("user"))
        except SlackRefused as error:
            # It would be refused again.
            _log.warning("the name of %s is not to be had: %s", user, error)
        except (SlackLimited, SlackUnavailable) as error:
            _log.warning("the name of %s was not to be had: %s", user, error)
            del self._lookups[user]
        return None


def _name_in(user: Any) -> str | None:
    if not isinstance(user, Mapping):
        return None
    profile = user.get("profile")
    told = profile if isinstance(profile, Mapping) else {}
    for name in (told.get("display_name"), told.get("real_name"), user.get("real_name"), user.get("name")):
        if isinstance(name, str):
            cleaned = "".join(each if each.isprintable() and each not in "<>|:" else " " for each in name)
            if cleaned.strip():
                return " ".join(cleaned.split())[:_LONGEST]
    return None
