"""The conversation that a thread in Slack is."""

import re
from dataclasses import dataclass

from ..conversation.content import JsonObject

_ROOT_ID = re.compile(r"slack-([A-Z0-9]{2,24})-([0-9]{1,12}\.[0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class SlackThread:
    """A thread in Slack, which is one conversation: its channel, and the timestamp of its first message."""

    channel: str
    ts: str

    @property
    def id(self) -> str:
        """The id of the conversation's root thread."""
        return f"slack-{self.channel}-{self.ts}"

    @classmethod
    def of(cls, root_id: str) -> "SlackThread | None":
        """Return the thread that a root thread's id names; ``None`` where the conversation is not in Slack."""
        found = _ROOT_ID.fullmatch(root_id)
        return cls(found[1], found[2]) if found else None


@dataclass(frozen=True, slots=True)
class SlackUser:
    """A person in Slack: ids are unique in a team only."""

    team: str
    id: str

    @property
    def user_id(self) -> str:
        """The person as the runtime knows them."""
        return f"slack:{self.team}:{self.id}"

    @classmethod
    def of(cls, user_id: str | None) -> "SlackUser | None":
        """Return the person whom a ``user_id`` names; ``None`` where it is nobody in Slack."""
        kind, team, user = [*(user_id or "").split(":"), "", ""][:3]
        return cls(team, user) if kind == "slack" and team and user else None


def metadata_of(thread: SlackThread, user: SlackUser) -> JsonObject:
    """Return the metadata of a message that ``user`` said in ``thread``."""
    return {
        "channel": thread.channel,
        "thread_ts": thread.ts,
        "team": user.team,
        "user": user.id,
        "user_id": user.user_id,
    }
