"""What the Slack front end can be told: who may talk to the agent, and the environments of its functions."""

import re
from dataclasses import dataclass, field
from typing import ClassVar

from ..errors import Misconfigured
from .environments import Environment

SLACK_API = "https://slack.com/api/"
"""Where Slack's Web API is."""

_SLACK_TOKEN = (("SLACK_BOT_TOKEN_ARN",), ("SLACK_BOT_TOKEN",))
_SLACK_ID = re.compile("[UWCGDTE][A-Z0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class SlackAccess:
    """The ids of users, channels and teams whose people may talk to the agent; ``everyone`` is written out."""

    allowed: frozenset[str] = frozenset()
    everyone: bool = False

    @classmethod
    def parse(cls, allowed: str | None, *, everyone: bool = False) -> "SlackAccess":
        """Return what a list by comma says.

        Raises:
            Misconfigured: it names nobody, or what is no id of Slack's; the text names it.
        """
        ids = [each.strip() for each in (allowed or "").split(",") if each.strip()]
        for each in ids:
            if not _SLACK_ID.fullmatch(each):
                raise Misconfigured(
                    f"{each!r} is no id of a user (U...), a channel (C...) or a team (T...) of Slack; "
                    "copy it from the profile or the channel's details"
                )
        if bool(ids) == everyone:
            raise Misconfigured("say who may talk to the agent in Slack: either ids, or everyone")
        return cls(frozenset(ids), everyone)

    def admits(self, *, user: str, channel: str, team: str) -> bool:
        """Tell whether this user may talk to the agent in this channel."""
        return self.everyone or not self.allowed.isdisjoint((user, channel, team))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackReceiverEnvironment(Environment):
    """What the function is told that takes Slack's requests.

    ``slack_allowed`` are the ids of users, channels and teams who may talk to the agent. The ARNs name secrets; the
    values themselves are for tests.
    """

    FUNCTION: ClassVar[str] = "slack_receiver"
    ALTERNATIVES: ClassVar = (
        _SLACK_TOKEN,
        (("SLACK_SIGNING_SECRET_ARN",), ("SLACK_SIGNING_SECRET",)),
        (("SLACK_ALLOWED",), ("SLACK_ALLOW_EVERYONE",)),
    )

    input_queue_url: str
    dynamodb_table_name: str
    blob_bucket: str
    slack_signing_secret_arn: str | None = None
    slack_signing_secret: str | None = field(default=None, repr=False)
    slack_bot_token_arn: str | None = None
    slack_bot_token: str | None = field(default=None, repr=False)
    slack_allowed: str | None = None
    slack_allow_everyone: str | None = None
    slack_api_url: str = SLACK_API


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackResponderEnvironment(Environment):
    """What the function is told that posts to Slack what the output queue holds."""

    FUNCTION: ClassVar[str] = "slack_responder"
    ALTERNATIVES: ClassVar = (_SLACK_TOKEN,)

    output_queue_url: str
    slack_bot_token_arn: str | None = None
    slack_bot_token: str | None = field(default=None, repr=False)
    slack_api_url: str = SLACK_API
