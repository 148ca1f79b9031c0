"""What people are told, as posts in Slack's blocks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..conversation.outputs import Output
from .events import CHOICE
from .markdown import length, shown_in_slack, split
from .threads import SlackUser

MAX_MARKDOWN = 10_000
"""The longest Markdown of a post. Slack takes 12,000 in a block, less where much of it is markup."""
MAX_TEXT = 3_900
MAX_SECTION = 3_000
MAX_URL = 3_000
_MAX_LABEL = 75
_ROW = 25
_MAX_BUTTONS = 45 * _ROW

EVENT_TYPE = "infinity_output"
"""The type of the metadata that our posts carry."""

Block = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Post:
    """One post: its blocks, what a notification shows of it, and what its metadata say."""

    text: str
    blocks: Sequence[Block]
    metadata: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, int]:
        """What tells this post from all others, over redeliveries."""
        return self.metadata["output_id"], self.metadata["part"]


def posts_of(output: Output) -> list[Post]:
    """Return the posts that show the text of ``output``, and its buttons where it asks for a choice."""
    text, heading = _own_text(output)
    details = output.details or {}
    buttons: Sequence[Block] = ()
    match output.type:
        case "error":
            text = f":warning: {text}"
        case "limit_reached":
            text = f":double_vertical_bar: {text}"
        case "user_choice_required" if {"choices", "prompt", "id"} <= details.keys():
            # A queue that finds an output too long leaves them out: then its text is all there is.
            choices = [str(choice) for choice in details["choices"]]
            text, buttons = _question(output, str(details["prompt"]), choices)
        case _:
            pass
    parts = split(shown_in_slack(text), MAX_MARKDOWN)
    return [
        Post(
            text=notification(part),
            blocks=[
                *(heading if number == 0 else ()),
                {"type": "markdown", "text": part},
                *(buttons if number == len(parts) - 1 else ()),
            ],
            metadata={
                **_metadata(output, number),
                **({"choice_id": details["id"]} if buttons and number == len(parts) - 1 else {}),
            },
        )
        for number, part in enumerate(parts)
    ]


def authorization(output: Output) -> Post:
    """Return the authorization link: for the eyes of one person only."""
    url = str((output.details or {}).get("auth_url", ""))
    text, heading = _own_text(output)
    text = unlinked(text, url)
    if len(url) > MAX_URL:
        blocks: list[Block] = [{"type": "markdown", "text": f"{text}. [Authorize]({url})"}]
    else:
        button = {"type": "button", "text": _plain("Authorize"), "url": url, "action_id": "infinity_authorize"}
        blocks = [_section(f"{escaped(text)}."), {"type": "actions", "elements": [button]}]
    return Post(notification(f"{text}."), [*heading, *blocks], _metadata(output, 0))


def asked_for(output: Output, person: SlackUser) -> Post:
    """Return what everybody in the thread sees of an authorization that ``person`` is asked for."""
    text, heading = _own_text(output)
    text = f"{unlinked(text, str((output.details or {}).get('auth_url', '')))}; the link is shown to you alone."
    told = f"<@{person.id}> {escaped(text)}"
    return Post(told, [*heading, _section(told)], _metadata(output, 0))


def unlinked(text: str, url: str) -> str:
    """Return ``text`` without ``url``, and without what led to it."""
    return text.replace(url, "").rstrip(": ") if url else text.rstrip(": ")


def settled(output: Output) -> tuple[str, list[Block]]:
    """Return what stands in place of a question that is over: its answer, and who gave it."""
    text, heading = _own_text(output)
    person = SlackUser.of((output.details or {}).get("user_id"))
    text = _cut(escaped(_cut(text, MAX_SECTION // 2)), MAX_SECTION - 100)
    return text, [*heading, _section(text + (f"\n_Chosen by <@{person.id}>_" if person else ""))]


def notification(text: str) -> str:
    """Return the start of ``text`` for notifications, where nothing of it is markup."""
    return escaped(text[: MAX_TEXT // 6])


def escaped(text: str) -> str:
    """Return ``text`` as Slack's own markup spells it: it can mention nobody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _metadata(output: Output, part: int) -> Mapping[str, Any]:
    return {
        "output_id": output.output_id,
        "part": part,
        "seq": ".".join(map(str, output.seq)),
        # What went wrong is told when it does: its ``seq`` is that of a commit before.
        **({"thread_id": output.thread_id} if output.type != "error" else {}),
    }


def _own_text(output: Output) -> tuple[str, Sequence[Block]]:
    """Return the text, and the heading that tells which thread speaks, where it is not the conversation's own."""
    if output.thread_id == output.group_id:
        return output.text, ()
    name = output.thread_id.removeprefix(output.group_id).lstrip(".")
    text = output.text.removeprefix(f"[{output.thread_id}] ")
    heading = {"type": "context", "elements": [{"type": "mrkdwn", "text": f"from the sub-thread `{escaped(name)}`"}]}
    return text, [heading]


def _question(output: Output, prompt: str, choices: Sequence[str]) -> tuple[str, list[Block]]:
    """Return the question with its choices, as far as the buttons do not say them whole, and the buttons."""
    person = SlackUser.of((output.details or {}).get("user_id"))
    text = f"<@{person.id}> {prompt}" if person else prompt
    if any(length(choice) > _MAX_LABEL or not choice.strip() for choice in choices):
        text += "\n\n" + "\n".join(f"{number}. {choice}" for number, choice in enumerate(choices, start=1))
        choices = [_cut(f"{number}. {choice}", _MAX_LABEL) for number, choice in enumerate(choices, start=1)]
    buttons = [
        {
            "type": "button",
            "text": _plain(choice),
            "action_id": f"{CHOICE}_{number}",
            "value": json.dumps(
                {
                    "thread": output.thread_id,
                    "choice": (output.details or {})["id"],
                    "selected": number,
                    **({"asked": person.id} if person else {}),
                }
            ),
        }
        for number, choice in enumerate(choices[:_MAX_BUTTONS])
    ]
    rows = [buttons[start : start + _ROW] for start in range(0, len(buttons), _ROW)]
    return text, [{"type": "actions", "elements": row} for row in rows]


def _section(text: str) -> Block:
    return {"type": "section", "text": {"type": "mrkdwn", "text": _cut(text, MAX_SECTION)}}


def _cut(text: str, most: int) -> str:
    """Return the start of ``text`` that has at most ``most`` characters, as Slack counts them."""
    return text if length(text) <= most else text.encode("utf-16-le")[: 2 * most].decode("utf-16-le", "ignore")


def _plain(text: str) -> Block:
    return {"type": "plain_text", "text": text}
