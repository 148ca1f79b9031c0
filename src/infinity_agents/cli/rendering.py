"""What people see: every text from outside is stripped of terminal escapes here, and styled."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, assert_never

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from ..conversation.content import plain_text, shown
from ..conversation.history import (
    AssistantEntry,
    Entry,
    EventEntry,
    ToolCallEntry,
    ToolResultEntry,
    UserEntry,
)
from ..conversation.outputs import Output
from .waiting import ThreadState, Wait, counted

PROMPT = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
"""Stands before what people say."""
_LONGEST_LINE = 300
_LINK = re.compile(r"https?://\S+")


def stdout() -> Console:
    """Return the console for what was asked for: coloured on a terminal alone, and never wrapped for a pipe."""
    return Console(highlight=False, emoji=False, markup=False)


def stderr() -> Console:
    """Return the console for what is said besides."""
    return Console(stderr=True, highlight=False, emoji=False, markup=False)


def complain(text: str) -> None:
    """Say on standard error what is wrong."""
    lines = "\n".join(shortened(line, 10 * _LONGEST_LINE) for line in shown(text).split("\n"))
    stderr().print(Text("error: ", style="bold red").append(lines, style="not bold default"), soft_wrap=True)


def put(console: Console, text: Text) -> None:
    """Print ``text``, wrapped at words on a terminal. A link that is longer than a row stays whole."""
    too_long = any(len(link) > console.width for link in _LINK.findall(text.plain))
    if too_long or not console.is_terminal:
        console.print(text, soft_wrap=True)
        return
    for line in text.split("\n", allow_blank=True):
        console.print(*_rows(line, console), sep="\n")


def _rows(line: Text, console: Console) -> Iterator[Text]:
    """Yield the rows of one line; where it is set in, those after the first are set in further."""
    inset = len(line.plain) - len(line.plain.lstrip(" "))
    inset = min(inset + 2 if inset else 0, console.width // 2)
    rows = line.wrap(console, console.width - inset)
    yield from rows[:1] or [Text()]
    for row in rows[1:]:
        yield Text(" " * inset).append(row)


def put_json(value: Any) -> None:
    """Print one JSON document on a line of standard output."""
    print(json.dumps(value), flush=True)


# Text of the model's.


class Prose:
    """Styles what a model says, line by line: headings, code, bold, links. The words stay as they were said."""

    def __init__(self) -> None:
        self._in_code = False
        self._begun = ""

    @property
    def rest(self) -> Text:
        """What has come of the last row, which is not full yet."""
        return self._styled(self._begun)

    def feed(self, piece: str, console: Console) -> Iterator[Text]:
        """Take what has come, and give the rows that are full."""
        *whole, self._begun = (self._begun + piece.replace("\t", "    ")).split("\n")
        for line in whole:
            yield from self.line(line).wrap(console, console.width)
        for row in self.rest.wrap(console, console.width)[:-1]:
            self._begun = self._begun[len(row.plain) :].lstrip(" ")
            yield row

    def close(self) -> Text:
        """Give what is left, and begin anew."""
        rest, self._begun, self._in_code = self.rest, "", False
        return rest

    def line(self, line: str) -> Text:
        """Return a whole line."""
        styled = self._styled(line)
        self._in_code ^= line.lstrip().startswith("```")
        return styled

    def _styled(self, line: str) -> Text:
        if self._in_code or line.lstrip().startswith("```"):
            return Text(line, style="cyan")
        text = Text(line, style="bold" if re.match(r"#{1,6} ", line) else "")
        text.highlight_regex(r"`[^`]+`", "cyan")
        text.highlight_regex(r"\*\*[^*]+\*\*", "bold")
        text.highlight_regex(_LINK, "underline")
        return text


def prose(text: str) -> Text:
    """Return a whole text of the model's."""
    styling = Prose()
    return Text("\n").join(styling.line(line) for line in shown(text).split("\n"))


# Entries and outputs.


def entry_text(entry: Entry, *, whole: bool = False) -> Text:
    """Return how people see ``entry``; ``whole`` where what tools and events say is not cut to a line."""
    match entry:
        case UserEntry(content=parts):
            return said(plain_text(parts))
        case AssistantEntry():
            return prose(entry.text)
        case ToolCallEntry(call=call):
            return call_text(entry.display_as or call.name)
        case ToolResultEntry(result=result):
            return came(plain_text(result.content), is_error=result.is_error, whole=whole)
        case EventEntry(invocation=invocation, result=result):
            tool = invocation.arguments.get("original_tool_name", "an event")
            whose = f"[{entry.child_thread_id}] reports" if entry.child_thread_id else tool
            return came(f"{whose}: {plain_text(result.content)}", is_error=result.is_error, whole=whole)
        case _:
            assert_never(entry)


def said(text: str) -> Text:
    """Return what a person says."""
    return Text(f"{PROMPT} ", style="bold green").append(_hanging(shown(text), 2), style="bold")


def call_text(display: str) -> Text:
    """Return a call that the model makes."""
    return Text(f"  → {one_line(display)}", style="cyan")


def came(text: str, *, is_error: bool, whole: bool = False) -> Text:
    """Return what came of a call; ``whole`` where it is not cut to a line."""
    told = _hanging(shown(text), 4) if whole else one_line(text)
    return Text(f"  ← {told}", style="red" if is_error else "dim")


def output_text(output: Output) -> Text:
    """Return how people see an output that no entry of the thread's own history stands for."""
    text = shown(output.text)
    match output.type:
        case "message":
            return Text(f"  {_hanging(text, 2)}", style="magenta")
        case "tool_call":
            child, _, call = text.rpartition("] ")
            return Text(f"  {child}{'] ' if child else ''}→ {one_line(call)}", style="magenta")
        case "oauth_required":
            return Text(f"  ! {_hanging(text, 4)}", style="bold yellow")
        case "user_choice_required":
            return question(
                shown(str((output.details or {}).get("prompt", ""))), (output.details or {}).get("choices", ())
            )
        case "user_choice_complete" | "status":
            return Text(f"  · {_hanging(text, 4)}", style="dim")
        case "limit_reached":
            return Text(f"  ! {_hanging(text, 4)}", style="yellow")
        case "error":
            return Text(f"  ! {_hanging(text, 4)}", style="red")
        case _:
            assert_never(output.type)


def question(prompt: str, choices: Sequence[str]) -> Text:
    """Return a question with its choices, numbered from 1."""
    listed = "".join(f"\n    {number}. {shown(choice)}" for number, choice in enumerate(choices, start=1))
    return Text(f"  ? {_hanging(shown(prompt), 4)}", style="bold yellow").append(listed, style="not bold")


def note(text: str) -> Text:
    """Return what the command line itself has to say."""
    return Text(f"  · {shown(text)}", style="dim")


def hanging(text: Text, columns: int) -> Text:
    """Return ``text`` with its further lines set in."""
    return Text("\n" + " " * columns).join(text.split("\n", allow_blank=True))


def _hanging(text: str, columns: int) -> str:
    return text.replace("\n", f"\n{' ' * columns}")


def shortened(text: str, most: int = _LONGEST_LINE) -> str:
    """Return ``text``, without its middle where it is longer than ``most``: the remedy stands at the end."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def one_line(text: str) -> str:
    """Return ``text`` in one line of at most 300 characters."""
    line = " ".join(shown(text[: 10 * _LONGEST_LINE]).split())
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


# Threads.


def thread_trees(found: Sequence[ThreadState], now: datetime) -> Sequence[Tree]:
    """Return a tree for each thread whose parent is not among those ``found``; children in the order of their birth."""
    trees: dict[str, Tree] = {}
    roots = []
    for state in sorted(found, key=lambda state: len(state.thread.ancestors) and state.thread.created_at.timestamp()):
        label = thread_label(state, now)
        parent = trees.get(state.thread.parent_id or "")
        trees[state.thread.id] = parent.add(label) if parent else Tree(label)
        if not parent:
            roots.append(trees[state.thread.id])
    return roots


_STATE_STYLES = {"closed": "dim", "busy": "green", "paused": "yellow", "waiting": "cyan", "idle": ""}


def thread_label(state: ThreadState, now: datetime) -> Text:
    """Return a thread with its state, and a line for each thing that it waits for."""
    thread = state.thread
    label = Text(shown(thread.id), style="dim" if thread.closed else "bold")
    kind = "" if thread.kind == "root" else f" ({thread.kind})"
    label.append(f"{kind}  ", style="not bold").append(state.word, style=f"not bold {_STATE_STYLES[state.word]}")
    label.append(f", {counted(thread.length, 'entry', 'entries')}", style="not bold dim")
    for wait in state.waits:
        label.append(f"\n  {wait_text(wait, now)}", style="not bold")
    return label


def wait_text(wait: Wait, now: datetime) -> str:
    """Return what is waited for, since when and until when, in one line."""
    since = f", since {clock_time(wait.since, now)}" if wait.since else ""
    until = f" until {clock_time(wait.until, now)}" if wait.until and wait.kind == "time" else ""
    what = one_line(wait.what)
    match wait.kind:
        case "slice":
            return f"has {what}"
        case "person" | "limit":
            return f"waits for {what}{since}"
        case "tool":
            return f"waits for {what}{since}"
        case "late_tool":
            return f"meanwhile runs {what}{since}"
        case "time":
            return f"sleeps{until} ({what}){since}"
        case "event":
            return f"sleeps until something arrives{since}"
        case "subscription":
            return f"is subscribed to {what}{since}"
        case _:
            assert_never(wait.kind)


def doing_text(wait: Wait, now: datetime) -> str:
    """Return what is waited for, in the words of whoever talks to the thread."""
    ago = f", {duration(now - wait.since)}" if wait.since else ""
    match wait.kind:
        case "slice":
            return "thinking"
        case "tool":
            return f"{one_line(wait.what)}{ago}"
        case "late_tool":
            return f"meanwhile {wait.what}{ago}"
        case "time":
            return f"asleep until {clock_time(wait.until or now, now)}"
        case "event":
            return "asleep until something arrives"
        case "person":
            return f"waits for you: {wait.what}"
        case "limit":
            return "paused: say something to go on"
        case "subscription":
            return f"subscribed to {wait.what}"
        case _:
            assert_never(wait.kind)


def clock_time(moment: datetime, now: datetime) -> str:
    """Return ``moment`` as this machine's clock shows it; with its date where that is another day than ``now``."""
    local, today = moment.astimezone(), now.astimezone().date()
    return f"{local:%H:%M:%S}" if local.date() == today else f"{local:%Y-%m-%d %H:%M}"


def duration(length: timedelta) -> str:
    """Return a length of time in its largest whole unit."""
    seconds = max(int(length.total_seconds()), 0)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def thread_json(state: ThreadState) -> Mapping[str, Any]:
    """Return a thread as scripts read it."""
    thread = state.thread
    return {
        "id": thread.id,
        "kind": thread.kind,
        "parent": thread.parent_id,
        "state": state.word,
        "model": thread.model,
        "entries": thread.length,
        "created_at": thread.created_at.isoformat(),
        "queued": state.queued,
        "waits": [
            {
                "kind": wait.kind,
                "for": wait.what,
                "call_id": wait.call_id,
                "since": wait.since and wait.since.isoformat(),
                "until": wait.until and wait.until.isoformat(),
            }
            for wait in state.waits
        ],
    }
