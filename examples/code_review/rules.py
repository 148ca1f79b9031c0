"""A model of one's own: whatever has these four members can speak for an agent. This one follows a few rules.

A model holds nothing between two completions. What it has done, and what it has heard, is in the entries that it is
given: the history of its thread, which for a child begins with what was said above it.
"""

import ast
import json
from collections.abc import AsyncIterator, Iterator, Mapping

from infinity_agents.conversation.content import plain_text
from infinity_agents.conversation.history import EventEntry, ToolCallEntry, ToolResultEntry, UserEntry
from infinity_agents.conversation.turn import (
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ModelEvent,
    Stopped,
    TextDelta,
    Usage,
    Used,
)
from infinity_agents.ports.model import ModelRequest

NAME = "rules"
LONGEST = 40


class Rules:
    name = NAME

    def context_window(self, model: str) -> int:
        return 1_000_000

    def reads_images(self, model: str) -> bool:
        return False

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        is_child = len(request.thread_stack) > 1
        text, call = child(request) if is_child else parent(request)
        if text:
            yield TextDelta(text)
        if call:
            tool, arguments = call
            yield CallStarted(tool)
            yield ArgumentsDelta(json.dumps(arguments))
            yield CallFinished()
        yield Used(Usage(output=1))  # a real model tells its tokens; from them the runtime knows when to compact
        yield Stopped()


# What is said next: some text, and at most one call.

Said = tuple[str, tuple[str, Mapping[str, object]] | None]


def parent(request: ModelRequest) -> Said:
    _, *files = asked(request).splitlines()
    spawned = [entry.call for entry in request.entries if isinstance(entry, ToolCallEntry)]
    if len(spawned) < len(files):
        instructions = f"Review {files[len(spawned)]}"
        return "", ("spawn_thread", {"instructions": instructions, "child_of": list(request.thread_stack)})
    reports = [plain_text(entry.result.content) for entry in request.entries if isinstance(entry, EventEntry)]
    if len(reports) < len(files):
        return f"{len(reports)} of {len(files)} files are reviewed.", None
    return "\n".join(sorted(reports)), None


def child(request: ModelRequest) -> Said:
    file = asked(request).removeprefix("Review ")
    last = request.entries[-1]
    if not isinstance(last, ToolResultEntry):
        return "", ("read_file", {"name": file})
    source = plain_text(last.result.content)
    said = [source] if last.result.is_error else findings(source) or ["nothing to say"]
    report = "\n  ".join([f"{file}:", *said])
    return "", ("close_thread", {"thread_id": request.thread_stack[-1], "report_to_parent": report})


def asked(request: ModelRequest) -> str:
    """Return what the thread was told last: the person's words, or the parent's instructions."""
    return next(plain_text(entry.content) for entry in reversed(request.entries) if isinstance(entry, UserEntry))


# The review.


def findings(source: str) -> list[str]:
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return [f"line {error.lineno}: {error.msg}"]
    return [f"line {line}: {text}" for line, text in sorted(found(tree))]


def found(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST:
                    yield node.lineno, f"{node.name} has {lines} lines; split it"
                if ast.get_docstring(node) is None and not node.name.startswith("_"):
                    yield node.lineno, f"{node.name} has no docstring"
                for default in node.args.defaults:
                    if isinstance(default, ast.List | ast.Dict | ast.Set):
                        yield default.lineno, f"{node.name} shares one default value between its calls"
            case ast.ExceptHandler(type=None):
                yield node.lineno, "a bare except also catches Ctrl-C; name the exception"
