"""The model of the rehearsal: it mends the little shop by a fixed plan, where a language model would think."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence

from infinity_agents.conversation.content import plain_text
from infinity_agents.conversation.history import Entry, EventEntry, ToolCallEntry, ToolResultEntry, UserEntry
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

NAME = "rehearsal"
TESTS = "python3 test_shop.py"
EDITS = {
    "prices.py": ("sum(prices) - discount", "sum(prices) * (1 - discount)"),
    "stock.py": ("stock.get(name, 0) <= count", "stock.get(name, 0) < count"),
}

Said = tuple[str, tuple[str, Mapping[str, object]] | None]


class Rehearsal:
    name = NAME

    def context_window(self, model: str) -> int:
        return 1_000_000

    def reads_images(self, model: str) -> bool:
        return False

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        text, call = child(request) if len(request.thread_stack) > 1 else parent(request)
        if text:
            yield TextDelta(text)
        if call:
            tool, arguments = call
            yield CallStarted(tool)
            yield ArgumentsDelta(json.dumps(arguments))
            yield CallFinished()
        yield Used(Usage(output=1))
        yield Stopped()


def parent(request: ModelRequest) -> Said:
    entries = request.entries
    made = [entry.call.name for entry in entries if isinstance(entry, ToolCallEntry)]
    reports = [entry for entry in entries if isinstance(entry, EventEntry)]
    if not made:
        repository = asked(entries).rpartition("The repository: ")[2]
        return "", ("clone_repo", {"url": repository})
    if len(made) == 1:
        return "", ("execute_command", {"command": TESTS})
    spawned, squashed = made.count("spawn_thread"), made.count("squash_sandbox")
    if spawned < len(EDITS):
        said = f"The tests say: {last_line(entries)}" if spawned == 0 else ""
        file = list(EDITS)[spawned]
        instructions = {"instructions": f"Mend {file}", "child_of": list(request.thread_stack)}
        return said, ("spawn_thread", instructions)
    if squashed < len(reports):
        return "", ("squash_sandbox", {"child_thread_id": reports[squashed].child_thread_id})
    if squashed < len(EDITS):
        return f"{squashed} of {len(EDITS)} children are done.", None
    if made[-1] != "execute_command":
        return "", ("execute_command", {"command": TESTS})
    return f"The tests say: {last_line(entries)}", None


def child(request: ModelRequest) -> Said:
    *above, me = request.thread_stack
    file = asked(request.entries).removeprefix("Mend ")
    old, new = EDITS[file]
    own = len(request.entries) - max(at for at, entry in enumerate(request.entries) if isinstance(entry, UserEntry))
    done = [entry.call.name for entry in request.entries[-own:] if isinstance(entry, ToolCallEntry)]
    if not done:
        return "", ("clone_repo", {"on_top_of": above[-1]})
    if len(done) == 1:
        return "", ("edit_file", {"path": file, "old_text": old, "new_text": new})
    return "", ("close_thread", {"thread_id": me, "report_to_parent": f"{file} is mended"})


def asked(entries: Sequence[Entry]) -> str:
    """Return what the thread was told last: the person's words, or the parent's instructions."""
    return next(plain_text(entry.content) for entry in reversed(entries) if isinstance(entry, UserEntry))


def last_line(entries: Sequence[Entry]) -> str:
    """Return the last line of the last result: of what the tests said."""
    result = next(entry.result for entry in reversed(entries) if isinstance(entry, ToolResultEntry))
    return plain_text(result.content).strip().splitlines()[-1]
