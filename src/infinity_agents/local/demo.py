"""The main job, shown on this machine in half a minute: ``python -m infinity_agents.local.demo``.

Every process is real: two tool servers over HTTP, and a host that is killed in the middle of a call. Whether a part
has happened is read from the database, by another process than the one that did it.
"""

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..conversation.content import plain_text, shown
from ..conversation.history import (
    AssistantEntry,
    Entry,
    EventEntry,
    ToolCallEntry,
    ToolResultEntry,
    UserEntry,
    faults,
)
from ..conversation.ledger import CallState
from ..conversation.outputs import Output
from ..conversation.threads import ThreadKind
from .wiring import LocalAgent

CONVERSATION = "my-conversation"
KILLED = "killed-conversation"
_PATIENCE = 20.0
"""Seconds that each part may take."""
_PACKAGE = "infinity_agents"


class Missing(Exception):
    """Something did not happen; the text says what."""


@dataclass
class Stage:
    """The demo's processes, and the database that they share."""

    agent: LocalAgent
    path: Path
    tool_servers: list[str]
    host: "Process"
    seen: int = 0
    """The place in the output log up to which outputs were looked at."""

    async def say(self, text: str, thread_id: str = CONVERSATION) -> None:
        """Put the JSON on the queue that a person would send with the command line of AWS."""
        body = json.dumps({"content": {"type": "text", "text": text}, "group_id": thread_id})
        _print(f"\nyou put on the queue: {body}")
        await self.agent.queue.send(body, group_id=thread_id, dedup_id=f"demo-{time.monotonic_ns()}")

    async def hear(self, what: str, wanted: Callable[[Output], bool]) -> Output:
        """Return the next output that is ``wanted``.

        Raises:
            Missing: it does not come in time, or the host is dead.
        """
        give_up = time.monotonic() + _PATIENCE
        while time.monotonic() < give_up:
            for place, output in await self.agent.outputs(after=self.seen):
                self.seen = place
                _show(output)
                if wanted(output):
                    return output
            if self.host.code is not None:
                raise Missing(f"{what}: the host has died with code {self.host.code}")
            await asyncio.sleep(0.05)
        raise Missing(f"{what}: not within {_PATIENCE:g} seconds")

    async def hear_text(self, text: str, thread_id: str = CONVERSATION) -> Output:
        """Return the next message in which the agent says ``text``."""
        return await self.hear(
            f"the agent says {text!r}",
            lambda output: output.type == "message" and text in output.text and output.group_id == thread_id,
        )

    async def hear_call(self, tool: str, thread_id: str = CONVERSATION) -> Output:
        """Return the next output that tells of a call of ``tool``."""
        return await self.hear(
            f"a call of {tool}",
            lambda output: (output.details or {}).get("tool") == tool and output.group_id == thread_id,
        )

    async def history(self, thread_id: str = CONVERSATION) -> list[Entry]:
        return [entry for _, entry in await self.agent.services.conversations.history(thread_id)]

    async def state_of(self, tool: str, thread_id: str = CONVERSATION) -> CallState | None:
        """Return the state of the thread's last call of ``tool``."""
        calls = await self.agent.services.conversations.calls(thread_id)
        return next((call.state for call in reversed(calls) if call.tool == tool), None)

    async def children(self, kind: ThreadKind, *, closed: bool) -> int:
        threads = await self.agent.services.conversations.threads()
        return sum(overview.thread.kind is kind and overview.thread.closed is closed for overview in threads)


# The parts. Each does something as a person would, waits for what people see, and then reads what is stored.


async def ask_the_time(stage: Stage) -> None:
    """A message goes in, a tool server answers over HTTP, the reply comes out."""
    await stage.say("What time is it in Tokyo?")
    await stage.hear_text("Asia/Tokyo")
    kinds = [entry.kind for entry in await stage.history()]
    _require(kinds == ["user", "tool_call", "tool_result", "assistant"], f"the stored history is {kinds}")


async def sleep_and_wake(stage: Stage) -> None:
    """The agent sleeps, at no cost, and wakes by itself."""
    began = time.monotonic()
    await stage.say("Remind me in 2 seconds to stretch")
    await stage.hear_text("Woke up after 2 seconds (for: stretch)")
    _require(time.monotonic() - began >= 2, "it woke too early")
    _require(await stage.state_of("sleep") is CallState.ANSWERED, "the sleep is not answered in the ledger")


async def two_children(stage: Stage) -> None:
    """Two child threads work by themselves, report and close."""
    await stage.say("Ask two children: what time is it in Paris; what time is it in New York")
    reports = 0
    while reports < 2:
        output = await stage.hear_text("A child reports: ")
        reports += output.text.count("A child reports: ")
    events = [entry for entry in await stage.history() if isinstance(entry, EventEntry)]
    said = " ".join(plain_text(event.result.content) for event in events)
    _require(len({event.child_thread_id for event in events}) == 2, "the reports are not of two children")
    _require("Europe/Paris" in said and "America/New_York" in said, f"the children reported {said!r}")
    await _until("two children are closed", lambda: stage.children(ThreadKind.CHILD, closed=True), 2)


async def talk_while_a_tool_runs(stage: Stage) -> None:
    """A question is answered while a slow tool runs; its result comes later, as an event."""
    await stage.say("Run the slow job for 3 seconds")
    await stage.hear_call("slow_job")
    await stage.say("What time is it in Berlin?")
    await stage.hear_text("Europe/Berlin")
    _require(await stage.state_of("slow_job") is CallState.DETACHED, "the slow job is not detached in the ledger")
    await stage.hear_text("Meanwhile, slow_job says: the job is done")
    _require(await stage.state_of("slow_job") is CallState.ANSWERED, "the slow job is not answered in the ledger")
    history = await stage.history()
    call = next(entry.call for entry in history if isinstance(entry, ToolCallEntry) and entry.call.name == "slow_job")
    events = [entry for entry in history if isinstance(entry, EventEntry) and entry.tool_call_id == call.id]
    _require(len(events) == 1, f"the late result is {len(events)} events in the history")


async def subscribe(stage: Stage) -> None:
    """A subscription's event gets a thread of its own, which reports."""
    await stage.say("Watch the weather")
    await stage.hear_text("something happened to the weather")
    _require(await stage.state_of("watch") is CallState.ENDED, "the subscription has not ended with its final event")
    await _until("the event's thread is closed", lambda: stage.children(ThreadKind.EVENT, closed=True), 1)


async def kill_the_host(stage: Stage) -> None:
    """The host is killed in the middle of a tool call, and its successor finishes the conversation."""
    await stage.say("Run the slow job for 2 seconds", KILLED)
    await stage.hear_call("slow_job", KILLED)
    stage.host.kill()
    await stage.host.ended()
    _print(f"the host, process {stage.host.pid}, was killed with SIGKILL while slow_job runs")
    _require(await stage.state_of("slow_job", KILLED) is CallState.OPEN, "the call was not open when the host died")
    stage.host = await _start_host(stage.path, stage.tool_servers)
    _print(f"a successor, process {stage.host.pid}, takes over")
    await stage.hear_text("slow_job says: the job is done", KILLED)
    kinds = [entry.kind for entry in await stage.history(KILLED)]
    _require(kinds == ["user", "tool_call", "tool_result", "assistant"], f"the stored history is {kinds}")


async def nothing_is_lost_or_doubled(stage: Stage) -> None:
    """Every history is valid, nothing is a dead letter, nobody was told of an error, and the host stops gracefully."""
    stage.host.terminate()
    code = await stage.host.ended()
    _require(code == 0, f"the host ended with code {code}")
    for overview in await stage.agent.services.conversations.threads():
        wrong = list(faults(await stage.history(overview.thread.id)))
        _require(not wrong, f"the history of {overview.thread.id} is not valid: {wrong}")
    letters = await stage.agent.queue.dead_letters()
    _require(not letters, f"there are dead letters: {[letter.reason for letter in letters]}")
    errors = [output.text for _, output in await stage.agent.outputs() if output.type == "error"]
    _require(not errors, f"people were told of errors: {errors}")


PARTS: Sequence[Callable[[Stage], Awaitable[None]]] = (
    ask_the_time,
    sleep_and_wake,
    two_children,
    talk_while_a_tool_runs,
    subscribe,
    kill_the_host,
    nothing_is_lost_or_doubled,
)


def _require(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - it reads as a sentence
    if not holds:
        raise Missing(otherwise)


async def _until(what: str, count: Callable[[], Awaitable[int]], wanted: int) -> None:
    give_up = time.monotonic() + _PATIENCE
    while (found := await count()) != wanted:
        _require(time.monotonic() < give_up, f"{what}: {found} of {wanted} after {_PATIENCE:g} seconds")
        await asyncio.sleep(0.05)


# Processes.


@dataclass
class Process:
    """A child process; it is ended by its own id."""

    running: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self.running.pid

    @property
    def code(self) -> int | None:
        """The exit code, ``None`` while it runs."""
        return self.running.returncode

    def kill(self) -> None:
        """End it with SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self.running.kill()

    def terminate(self) -> None:
        """Ask it to end, with SIGTERM."""
        with contextlib.suppress(ProcessLookupError):
            self.running.terminate()

    async def ended(self) -> int:
        """Return its exit code once it has ended; it is killed if it takes too long."""
        try:
            return await asyncio.wait_for(self.running.wait(), _PATIENCE)
        except TimeoutError:
            self.kill()
            return await self.running.wait()


_processes: list[Process] = field(default_factory=list)
