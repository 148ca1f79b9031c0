"""What Slack tells of: events and clicks, read from its payloads. What is not for the agent is ``None``."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .threads import SlackThread, SlackUser

_HEARD = {None, "file_share", "me_message", "thread_broadcast"}
"""The subtypes that people say; the others tell of edits, deletions, bots and the channel itself."""
_TS = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")
_ID = re.compile("[A-Z0-9]{2,24}")
_LINK = re.compile(r"<([a-z][a-z0-9+.-]*:[^|>]+)(?:\|([^>]*))?>")
_CHANNEL = re.compile(r"<#([A-Z0-9]+)(?:\|([^>]*))?>")
_PERSON = re.compile(r"<@([A-Z0-9]+)\|[^>]*>")
_SPECIAL = re.compile(r"<!([a-z]+)(?:\^([^|>]*))?(?:\|([^>]*))?>")


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a person.

    ``is_addressed`` tells that it is for the agent whoever else reads along: a mention or a direct message. Any other
    is for the agent only where it takes part in the thread. ``files`` are as Slack describes them.
    """

    thread: SlackThread
    ts: str
    user: SlackUser
    text: str
    is_addressed: bool
    is_direct: bool
    files: Sequence[Mapping[str, Any]] = ()

    @property
    def message_id(self) -> str:
        """The same for every delivery of the message, be it as a mention, as a message, or again."""
        return f"slack:{self.thread.channel}:{self.ts}"


@dataclass(frozen=True, slots=True)
class Opened:
    """Somebody opened the assistant pane; ``thread`` is its new thread."""

    thread: SlackThread
    user: SlackUser


@dataclass(frozen=True, slots=True)
class Clicked:
    """Somebody clicked the button of a choice. ``message_ts`` is the question's message, ``asked`` whom it is for."""

    thread: SlackThread
    message_ts: str
    user: SlackUser
    thread_id: str
    choice_id: str
    selected: int
    asked: str | None


CHOICE = "infinity_choice"
"""How the ids of a choice's buttons begin."""


def read_event(payload: Mapping[str, Any]) -> Said | Opened | None:
    """Return what an ``event_callback`` tells of, ``None`` where that is nothing for the agent."""
    event = payload.get("event")
    if payload.get("type") != "event_callback" or not isinstance(event, Mapping):
        return None
    match event.get("type"):
        case "app_mention" | "message":
            return _said(payload, event)
        case "assistant_thread_started":
            return _opened(payload, event)
        case _:
            return None


def _said(payload: Mapping[str, Any], event: Mapping[str, Any]) -> Said | None:
    user, channel, ts = event.get("user"), event.get("channel"), event.get("ts")
    thread_ts = event.get("thread_ts") or ts
    own = own_user(payload)
    if event.get("subtype") not in _HEARD or event.get("bot_id") or event.get("hidden") or event.get("edited"):
        return None
    if not (_is_id(user) and _is_id(channel) and _is_ts(ts) and _is_ts(thread_ts)) or user == own:
        return None
    text = event["text"] if isinstance(event.get("text"), str) else ""
    text = text or _spelt(event.get("blocks"))
    is_direct = event.get("channel_type") == "im" or str(channel).startswith("D")
    is_mention = event["type"] == "app_mention" or (own is not None and f"<@{own}>" in text)
    if not (is_direct or is_mention or event.get("thread_ts")):
        return None
    files = event.get("files")
    return Said(
        thread=SlackThread(str(channel), str(thread_ts)),
        ts=str(ts),
        user=SlackUser(_team(payload, event), str(user)),
        text=_plain("\n".join(filter(None, (text, *_shared(event)))), own),
        is_addressed=is_direct or is_mention,
        is_direct=is_direct,
        files=[file for file in files if isinstance(file, Mapping)] if isinstance(files, list) else (),
    )


def _opened(payload: Mapping[str, Any], event: Mapping[str, Any]) -> Opened | None:
    told = event.get("assistant_thread")
    if not isinstance(told, Mapping):
        return None
    user, channel, ts = told.get("user_id"), told.get("channel_id"), told.get("thread_ts")
    if not (_is_id(user) and _is_id(channel) and _is_ts(ts)):
        return None
    return Opened(SlackThread(str(channel), str(ts)), SlackUser(_team(payload, event), str(user)))


def read_click(payload: Mapping[str, Any]) -> Clicked | None:
    """Return the click that an interaction tells of, ``None`` where it is not on a choice of ours."""
    if payload.get("type") != "block_actions":
        return None
    container, message = payload.get("container"), payload.get("message")
    user, actions = payload.get("user"), payload.get("actions")
    if not (isinstance(container, Mapping) and isinstance(user, Mapping) and isinstance(actions, list) and actions):
        return None
    channel, ts = container.get("channel_id"), container.get("message_ts")
    root = message.get("thread_ts") if isinstance(message, Mapping) else container.get("thread_ts")
    team = user.get("team_id") or (payload.get("team") or {}).get("id")
    action = actions[0]
    if not (isinstance(action, Mapping) and str(action.get("action_id", "")).startswith(CHOICE)):
        return None
    if not (_is_id(channel) and _is_ts(ts) and _is_ts(root or ts) and _is_id(user.get("id")) and _is_id(team)):
        return None
    try:
        value = json.loads(str(action.get("value")))
        thread_id, choice_id, selected = str(value["thread"]), str(value["choice"]), int(value["selected"])
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        return None
    return Clicked(
        thread=SlackThread(str(channel), str(root or ts)),
        message_ts=str(ts),
        user=SlackUser(str(team), str(user["id"])),
        thread_id=thread_id,
        choice_id=choice_id,
        selected=selected,
        asked=value.get("asked"),
    )


def own_user(payload: Mapping[str, Any]) -> str | None:
    """Return the agent's own user id, as the payload of an event names it: a person may have installed it, too."""
    authorizations = payload.get("authorizations")
    if isinstance(authorizations, list) and authorizations and isinstance(authorizations[0], Mapping):
        user = authorizations[0].get("user_id")
        return user if authorizations[0].get("is_bot") is True and isinstance(user, str) else None
    return None


def _team(payload: Mapping[str, Any], event: Mapping[str, Any]) -> str:
    # In a channel that is shared with another team, the person's own team is the event's to say.
    for team in (event.get("user_team"), event.get("team"), payload.get("team_id")):
        if _is_id(team):
            return str(team)
    return "T0"


def _shared(event: Mapping[str, Any]) -> list[str]:
    """Return the texts of the messages that are passed on with this one."""
    attachments = event.get("attachments")
    if not isinstance(attachments, list):
        return []
    return [
        f"> {each['text']}"
        for each in attachments
        if isinstance(each, Mapping) and each.get("is_share") and isinstance(each.get("text"), str)
    ]


def _plain(text: str, own: str | None) -> str:
    """Return what somebody wrote in place of Slack's spelling of it; mentions of people stay ids."""
    if own is not None:
        text = text.replace(f"<@{own}>", "", 1) if text.lstrip().startswith(f"<@{own}>") else text
    text = _LINK.sub(lambda link: f"[{link[2]}]({link[1]})" if link[2] else link[1], text)
    text = _CHANNEL.sub(lambda channel: f"#{channel[2] or channel[1]}", text)
    text = _PERSON.sub(r"<@\1>", text)
    text = _SPECIAL.sub(_special, text)
    return html.unescape(text).strip()


def _special(told: re.Match[str]) -> str:
    if told[1] == "date":
        return told[3] or told[2]
    return f"@{(told[3] or (told[2] if told[1] == 'subteam' else '') or told[1]).lstrip('@')}"


def _spelt(blocks: object) -> str:
    """Return what rich text says, spelt as Slack spells the text of a message."""
    if isinstance(blocks, list):
        return "".join(map(_spelt, blocks))
    if not isinstance(blocks, Mapping):
        return ""
    match blocks.get("type"):
        case "text":
            return html.escape(str(blocks.get("text", "")), quote=False)
        case "user":
            return f"<@{blocks.get('user_id')}>"
        case "channel":
            return f"<#{blocks.get('channel_id')}>"
        case "usergroup":
            return f"<!subteam^{blocks.get('usergroup_id')}>"
        case "broadcast":
            return f"<!{blocks.get('range')}>"
        case "emoji":
            return f":{blocks.get('name')}:"
        case "link":
            label = html.escape(str(blocks.get("text") or ""), quote=False)
            return f"<{html.escape(str(blocks.get('url')), quote=False)}{f'|{label}' if label else ''}>"
        case "rich_text_list":
            items = blocks.get("elements")
            return "".join(f"- {_spelt(item)}" for item in items) if isinstance(items, list) else ""
        case "rich_text_section" | "rich_text_preformatted" | "rich_text_quote":
            return _spelt(blocks.get("elements")) + "\n"
        case _:
            return _spelt(blocks.get("elements"))


def _is_id(value: object) -> bool:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def _is_ts(value: object) -> bool:
    return isinstance(value, str) and _TS.fullmatch(value) is not None
