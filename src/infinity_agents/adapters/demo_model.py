"""The demo model: a small rule-based stand-in for a language model, which says so wherever it speaks.

It makes a plan of what people ask for: a list of calls, by the table ``RULES``. It holds nothing between two
completions: how far the plan has come is read from the history, as a language model would read it.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..conversation.content import JsonObject, plain_text
from ..conversation.folding import COMPACTION_PROMPT
from ..conversation.history import (
    AssistantEntry,
    Entry,
    EventEntry,
    ResultBody,
    ToolCallEntry,
    ToolResultEntry,
    UserEntry,
)
from ..conversation.slice import size_of
from ..conversation.turn import (
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ModelEvent,
    Stopped,
    TextDelta,
    Usage,
    Used,
)
from ..ports.model import ModelRequest
from ..ports.tool import ToolSpec

NAME = "demo"
_WINDOW = 100_000
_CHARACTERS_PER_TOKEN = 4


class DemoModel:
    """Answers by rules, the same words for the same history, and never calls a tool that it was not given."""

    name = NAME

    def context_window(self, model: str) -> int:
        """Return the pretended window."""
        return _WINDOW

    def reads_images(self, model: str) -> bool:
        """Return ``False``: rules read words."""
        return False

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield what the rules say, word by word."""
        text, call = _answer(request)
        for words in re.findall(r"\s*\S+\s*", text):
            yield TextDelta(words)
        arguments = json.dumps(call.arguments) if call else ""
        if call is not None:
            yield CallStarted(call.tool, f"demo-{len(request.entries)}")
            yield ArgumentsDelta(arguments)
            yield CallFinished()
        read = sum(map(size_of, request.entries)) + len(request.system) // _CHARACTERS_PER_TOKEN
        yield Used(Usage(input=read, output=(len(text) + len(arguments)) // _CHARACTERS_PER_TOKEN + 1))
        yield Stopped("tool_use" if call else "end_turn")


# The plan.


@dataclass(frozen=True, slots=True)
class _Call:
    """Call ``tool`` and wait for what comes of it."""

    tool: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class _Reports:
    """Wait until ``count`` children have reported."""

    count: int


@dataclass(frozen=True, slots=True)
class _Impossible:
    """Say why there is nothing to be done."""

    why: str


_Move = _Call | _Reports | _Impossible


@dataclass(frozen=True, slots=True)
class _Scene:
    """What a rule may look at, besides the words that it matched."""

    entries: Sequence[Entry]
    tools: Mapping[str, ToolSpec]
    stack: tuple[str, ...]


_Rule = Callable[[re.Match[str], _Scene], Sequence[_Move]]

CITIES = {
    "amsterdam": "Europe/Amsterdam",
    "auckland": "Pacific/Auckland",
    "bangalore": "Asia/Kolkata",
    "beijing": "Asia/Shanghai",
    "berlin": "Europe/Berlin",
    "cairo": "Africa/Cairo",
    "chicago": "America/Chicago",
    "delhi": "Asia/Kolkata",
    "denver": "America/Denver",
    "dubai": "Asia/Dubai",
    "hong kong": "Asia/Hong_Kong",
    "istanbul": "Europe/Istanbul",
    "johannesburg": "Africa/Johannesburg",
    "kathmandu": "Asia/Kathmandu",
    "lagos": "Africa/Lagos",
    "lisbon": "Europe/Lisbon",
    "london": "Europe/London",
    "los angeles": "America/Los_Angeles",
    "madrid": "Europe/Madrid",
    "mexico city": "America/Mexico_City",
    "moscow": "Europe/Moscow",
    "mumbai": "Asia/Kolkata",
    "nairobi": "Africa/Nairobi",
    "new york": "America/New_York",
    "paris": "Europe/Paris",
    "rome": "Europe/Rome",
    "san francisco": "America/Los_Angeles",
    "sao paulo": "America/Sao_Paulo",
    "seattle": "America/Los_Angeles",
    "seoul": "Asia/Seoul",
    "shanghai": "Asia/Shanghai",
    "singapore": "Asia/Singapore",
    "stockholm": "Europe/Stockholm",
    "sydney": "Australia/Sydney",
    "tokyo": "Asia/Tokyo",
    "toronto": "America/Toronto",
    "vienna": "Europe/Vienna",
    "zurich": "Europe/Zurich",
}
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
_MOST_CHILDREN = 5


def _time(found: re.Match[str], _: _Scene) -> Sequence[_Move]:
    city = re.sub(r"\b(?:right )?now\b|\bplease\b", "", found["city"] or "UTC", flags=re.IGNORECASE).strip()
    zone = CITIES.get(city.casefold(), city.replace(" ", "_"))
    return [_Call("get_time", {"timezone": zone})]


def _sleep(found: re.Match[str], _: _Scene) -> Sequence[_Move]:
    reason = (found["reason"] or "").strip(" .!")
    seconds = float(found["number"]) * (60 if found["unit"].startswith("m") else 1)
    arguments: JsonObject = {"seconds": int(seconds) if seconds.is_integer() else seconds}
    return [_Call("sleep", {**arguments, "reason": reason} if reason else arguments)]


def _sleep_until(found: re.Match[str], _: _Scene) -> Sequence[_Move]:
    given = {name: text.strip(" .!") for name, text in found.groupdict().items() if text}
    return [_Call("sleep_until", given)]


def _children(found: re.Match[str], scene: _Scene) -> Sequence[_Move]:
    """Give each child its instruction; they are parted by semicolons, and the last one serves for all that follow."""
    word = found["count"].casefold()
    count = min(_NUMBERS.get(word) or int(word), _MOST_CHILDREN)
    given = [text.strip() for text in (found["instructions"] or "").split(";") if text.strip()]
    given = given or [f"report: child {number} says hello" for number in range(1, count + 1)]
    given += [given[-1]] * (count - len(given))
    stack = list(scene.stack)
    spawned = [_Call("spawn_thread", {"instructions": text, "child_of": stack}) for text in given[:count]]
    return [*spawned, _Reports(count)]


def _slow(found: re.Match[str], scene: _Scene) -> Sequence[_Move]:
    return _like(scene, ("slow",), found[0])


def _watch(found: re.Match[str], scene: _Scene) -> Sequence[_Move]:
    return _like(scene, ("subscribe", "watch"), found["what"])


def _cancel(_: re.Match[str], scene: _Scene) -> Sequence[_Move]:
    """Cancel the last call that is still running, or else the last subscription."""
    results = {entry.result.id: entry.result for entry in scene.entries if isinstance(entry, ToolResultEntry)}
    calls = [entry.call for entry in scene.entries if isinstance(entry, ToolCallEntry)]
    heard = {entry.tool_call_id for entry in scene.entries if isinstance(entry, EventEntry)}
    for call in reversed(calls):
        result = results.get(call.id)
        if result is not None and _is_running(result) and call.id not in heard:
            return [_Call("cancel_tool_call", {"tool_call_id": call.id})]
        if any(word in call.name for word in ("subscribe", "watch")):
            return [_Call("cancel_subscription", {"tool_call_id": call.id})]
    return [_Impossible("there is nothing that could be cancelled")]


def _named(found: re.Match[str], _: _Scene) -> Sequence[_Move]:
    try:
        arguments = json.loads(found["arguments"] or "{}")
    except ValueError as error:
        return [_Impossible(f"the arguments are not JSON ({error})")]
    return [_Call(found["tool"], arguments)]


RULES: Mapping[str, _Rule] = {
    r"^call (?P<tool>[\w-]+)\s*(?P<arguments>\{.*\})?$": _named,
    r"(?:ask|spawn|start) (?P<count>\d|an?|one|two|three|four|five) (?:child(?:ren)?|threads?)\b"
    r"(?: threads?)?(?:\s*(?::|to)\s*(?P<instructions>.+))?": _children,
    r"\bslow\b.*": _slow,
    r"\b(?:watch|subscribe(?: to)?)\s+(?P<what>.+)": _watch,
    r"\bcancel\b": _cancel,
    r"(?:sleep(?: for)?|(?:wake|remind) me in|wait) (?P<number>\d+(?:\.\d+)?) ?"
    r"(?P<unit>s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?)\b"
    r"(?:\s*(?:to|for|because) (?P<reason>.+))?": _sleep,
    r"(?:sleep until|(?:wake|remind) me on) (?P<date>\d{4}-\d\d-\d\d) (?:at )?(?P<time>\d\d:\d\d(?::\d\d)?)"
    r"(?: (?P<timezone>[A-Z]\w+/\w+|UTC))?(?:\s*(?:to|for|because) (?P<reason>.+))?": _sleep_until,
    r"what(?:'s| is)? (?:the )?time\b(?: is it)?(?: in (?P<city>[^?.!,;]+))?": _time,
}
"""What people may ask for, and the calls that it takes. The first pattern that is found decides."""

_EVENT_THREAD = re.compile(
    r"You are a thread of your own, made to handle .*?The (?:event|events, oldest first):\s*", re.DOTALL
)
_THEN = re.compile(r"[\s,.;?!]*\b(?:and )?then\b[\s,]*", re.IGNORECASE)


def _plan(text: str, scene: _Scene) -> list[_Move]:
    """Return what ``text`` asks for. Steps are parted by "then"; a child reports when all is done, and closes."""
    is_child = len(scene.stack) > 1
    event = _EVENT_THREAD.match(text)
    if event is not None and is_child:
        # What an event says is information, and never a rule's business.
        return [_close(scene, report=text[event.end() :])]
    moves: list[_Move] = []
    for step in _THEN.split(text):
        moves += (_if_offered(move, scene) for move in _step(step.strip(), scene))
    if not is_child:
        return moves
    possible = [move for move in moves if not isinstance(move, _Impossible)]
    asked = re.search(r"\breport:\s*(.+)", text, re.DOTALL)
    impossible = " ".join(f"I cannot do that: {move.why}." for move in moves if isinstance(move, _Impossible))
    report = asked[1] if asked else f"{_told_so_far(scene)} {impossible}".strip() or "done"
    return [*possible, _Call("report_to_parent", {"report": report}), _close(scene)]


def _if_offered(move: _Move, scene: _Scene) -> _Move:
    if isinstance(move, _Call) and move.tool not in scene.tools:
        return _Impossible(f"I have no tool {move.tool!r}")
    return move


def _step(step: str, scene: _Scene) -> Sequence[_Move]:
    for pattern, rule in RULES.items():
        found = re.search(pattern, step, re.IGNORECASE | re.DOTALL)
        if found is not None:
            return rule(found, scene)
    return []


def _close(scene: _Scene, report: str | None = None) -> _Call:
    return _Call("close_thread", {"thread_id": scene.stack[-1], **({"report_to_parent": report} if report else {})})


def _like(scene: _Scene, words: Sequence[str], asked: str) -> Sequence[_Move]:
    """Return a call of the first tool whose name has one of ``words``, its arguments filled from what was asked."""
    for name, spec in scene.tools.items():
        if any(word in name for word in words):
            return [_Call(name, _filled(spec.input_schema, asked))]
    return [_Impossible(f"I have no tool to {words[-1]} with")]


def _filled(schema: Mapping[str, Any], asked: str) -> JsonObject:
    number = re.search(r"\d+(?:\.\d+)?", asked)
    arguments: dict[str, Any] = {}
    for name, property_ in schema.get("properties", {}).items():
        match property_.get("type"):
            case "number" if number:
                arguments[name] = float(number[0])
            case "integer" if number:
                arguments[name] = int(float(number[0]))
            case "string" if named := [choice for choice in property_.get("enum", ()) if choice in asked]:
                arguments[name] = named[0]
            case "string" if name in schema.get("required", ()):
                arguments[name] = asked.strip(" .!?")
            case _:
                pass
    return arguments


# How far the plan has come, and what is said.


def _answer(request: ModelRequest) -> tuple[str, _Call | None]:
    """Return what is said, and the next call of the plan."""
    asked_at = max((i for i, entry in enumerate(request.entries) if isinstance(entry, UserEntry)), default=-1)
    asked = request.entries[asked_at] if asked_at >= 0 else None
    text = plain_text(asked.content) if isinstance(asked, UserEntry) else ""
    if text == COMPACTION_PROMPT:
        return f"(demo model) {_summary(request)}", None
    since = request.entries[asked_at + 1 :]
    scene = _Scene(request.entries, {tool.name: tool for tool in request.tools}, request.thread_stack)
    plan = _plan(text, scene)
    said = _news(request.entries)
    has_failed = any(isinstance(entry, ToolResultEntry) and entry.result.is_error for entry in since)
    # A child goes on after a failure: its last moves are to report and to close.
    is_over = has_failed and len(scene.stack) == 1
    next_move = None if is_over else _next(plan, since)
    if isinstance(next_move, _Call) and next_move.tool in scene.tools:
        return (f"(demo model) {said}" if said else ""), next_move
    if isinstance(next_move, _Impossible) and not isinstance(request.entries[-1], EventEntry):
        said = f"{said} I cannot do that: {next_move.why}.".strip()
    if isinstance(next_move, _Reports) and not said:
        said = "My children are at work; I shall tell you what they report."
    return f"(demo model) {said or (_fallback(text) if not since else 'I wait.')}", None


def _next(plan: Sequence[_Move], since: Sequence[Entry]) -> _Move | None:
    """Return the first move that is not made, or that must be waited for; ``None`` where all is done."""
    calls = iter([entry.call.id for entry in since if isinstance(entry, ToolCallEntry)])
    results = [entry.result for entry in since if isinstance(entry, ToolResultEntry)]
    settled = {result.id for result in results if not _is_running(result)}
    settled |= {entry.tool_call_id for entry in since if isinstance(entry, EventEntry)}
    reports = sum(isinstance(entry, EventEntry) and entry.child_thread_id is not None for entry in since)
    for move in plan:
        match move:
            case _Call():
                made = next(calls, None)
                if made is None:
                    return move
                if made not in settled:
                    return None
            case _Reports(count=count):
                if reports < count:
                    return move
                reports -= count
            case _Impossible():
                return move
    return None


def _is_running(result: ResultBody) -> bool:
    return plain_text(result.content).startswith(("Still running", "Interrupted by"))


def _news(entries: Sequence[Entry]) -> str:
    """Return what has come in since the model spoke last, as it tells it."""
    told: list[str] = []
    names = {entry.call.id: entry.call.name for entry in entries if isinstance(entry, ToolCallEntry)}
    for entry in reversed(entries):
        match entry:
            case ToolResultEntry(result=result):
                told.append(_told(names.get(result.id, "a tool"), result))
            case EventEntry():
                told.append(_told_event(entry))
            case _:
                break
    return "\n".join(text for text in reversed(told) if text)


_SILENT = {"spawn_thread", "report_to_parent", "close_thread", "sleep_until_event_or_input"}


def _told(tool: str, result: ResultBody) -> str:
    text = plain_text(result.content).strip()
    if result.is_error:
        return f"{tool} failed: {text}"
    if tool in _SILENT or _is_running(result):
        return ""
    if tool == "get_time":
        return f"It is {text}."
    return text if tool.startswith(("sleep", "cancel")) else f"{tool} says: {text}"


def _told_event(event: EventEntry) -> str:
    text = plain_text(event.result.content).strip()
    if event.child_thread_id is not None:
        return f"A child reports: {text}"
    tool = event.invocation.arguments.get("original_tool_name", "something")
    if event.result.is_error:
        return f"{tool} failed: {text}"
    return text if str(tool).startswith("sleep") else f"Meanwhile, {tool} says: {text}"


def _told_so_far(scene: _Scene) -> str:
    """Return what was said since the person's (or the parent's) last words."""
    said: list[str] = []
    for entry in reversed(scene.entries):
        if isinstance(entry, UserEntry):
            break
        if isinstance(entry, AssistantEntry):
            said.append(entry.text.removeprefix("(demo model) "))
    return " ".join([*reversed(said), _news(scene.entries)]).strip()


def _summary(request: ModelRequest) -> str:
    asked = [plain_text(entry.content) for entry in request.entries[:-1] if isinstance(entry, UserEntry)]
    before = f"{request.summary} " if request.summary else ""
    said = "; ".join(asked)[-500:] or "nothing"
    return f"{before}Summary of {len(request.entries) - 1} entries. People said: {said}."


def _fallback(text: str) -> str:
    words = text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"
    return (
        f'You said: "{words}". I only follow rules. Try: "What time is it in Tokyo?", "remind me in 5 seconds to '
        'stretch", "ask two children", "watch the weather", "run the slow job for 5 seconds", "cancel".'
    )
