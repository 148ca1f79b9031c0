"""The main job, shown on this machine in half a minute: ``python -m infinity_agents.local.demo``.

Every process is real: two tool servers over HTTP, and a host that is killed in the middle of a call. Whether a part
has happened is read from the database, by another process than the one that did it.
"""

import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..conversation.content import plain_text, shown
from ..conversation.history import AssistantEntry, Entry, EventEntry, ToolCallEntry, ToolResultEntry, UserEntry, faults
from ..conversation.ledger import CallState
from ..conversation.outputs import Output
from ..conversation.threads import ThreadKind
from ..errors import InfinityError
from .demo_processes import Process, tool_server
from .wiring import LocalAgent

CONVERSATION = "my-conversation"
KILLED = "killed-conversation"
_PATIENCE = 20.0
"""Seconds for which the demo waits for any one thing."""


class Missing(InfinityError):
    """Something did not happen; the text says what."""


@dataclass(slots=True)
class Stage:
    """The demo's host, and the file that it works on, as another process sees it."""

    agent: LocalAgent
    tool_servers: tuple[str, ...]
    ends: contextlib.AsyncExitStack
    host: Process
    seen: int = 0

    @classmethod
    async def set(cls, path: Path, ends: contextlib.AsyncExitStack) -> "Stage":
        """Start everything; ``ends`` stops it."""
        servers = [
            await ends.enter_async_context(tool_server(module))
            for module in ("infinity_agents.toolsets.get_time", "infinity_agents.local.demo_tools")
        ]
        agent = LocalAgent.open(path)
        ends.push_async_callback(agent.aclose)
        return cls(agent, tuple(servers), ends, await _host(path, servers, ends))

    async def next_host(self) -> None:
        """Start a host in the place of the dead one."""
        self.host = await _host(self.agent.database.path, self.tool_servers, self.ends)

    async def say(self, text: str, thread_id: str = CONVERSATION) -> None:
        """Put the JSON on the queue that a person would send with the command line of AWS."""
        body = json.dumps({"content": {"type": "text", "text": text}, "group_id": thread_id})
        _print(f"put on the queue: {body}")
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
                if output.type != "status":
                    _print(f"came out ({output.type}): {output.text}")
                if wanted(output):
                    return output
            if self.host.code is not None:
                raise Missing(f"{what}: the host has ended, with code {self.host.code}")
            await asyncio.sleep(0.05)
        raise Missing(f"{what}: not within {_PATIENCE:g} seconds")

    async def hear_text(self, text: str, thread_id: str = CONVERSATION) -> Output:
        """Return the next message of the agent that has ``text`` in it."""
        return await self.hear(
            f"a message with {text!r}",
            lambda output: output.type == "message" and text in output.text and output.thread_id == thread_id,
        )

    async def hear_call(self, tool: str, thread_id: str = CONVERSATION) -> Output:
        """Return the next output that tells of a call of ``tool``."""
        return await self.hear(
            f"a call of {tool}",
            lambda output: (output.details or {}).get("tool") == tool and output.thread_id == thread_id,
        )

    async def history(self, thread_id: str = CONVERSATION) -> list[Entry]:
        """Return what is stored of a thread."""
        return [entry for _, entry in await self.agent.services.conversations.history(thread_id)]

    async def state_of(self, tool: str, thread_id: str = CONVERSATION) -> CallState | None:
        """Return what the ledger says of the thread's last call of ``tool``."""
        calls = await self.agent.services.conversations.calls(thread_id)
        return next((call.state for call in reversed(calls) if call.tool == tool), None)

    async def closed(self, kind: ThreadKind, wanted: int) -> None:
        """Return once ``wanted`` threads of this kind are closed, and none is open."""
        give_up = time.monotonic() + _PATIENCE
        while True:
            threads = await self.agent.services.conversations.threads()
            states = [overview.thread.closed for overview in threads if overview.thread.kind is kind]
            if states == [True] * wanted:
                return
            _require(time.monotonic() < give_up, f"of {len(states)} {kind} threads, {sum(states)} are closed")
            await asyncio.sleep(0.05)


async def _host(path: Path, servers: Sequence[str], ends: contextlib.AsyncExitStack) -> Process:
    host = await Process.start("infinity_agents.local.demo_host", str(path), *servers)
    ends.push_async_callback(host.ended)
    ends.callback(host.terminate)
    return host


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Missing(otherwise)


# The parts: each does what a person would do, waits for what people see, and then reads what is stored.


async def ask_the_time(stage: Stage) -> None:
    """A message goes in, a tool server answers over HTTP, the reply comes out."""
    await stage.say("What time is it in Tokyo?")
    await stage.hear_text("Asia/Tokyo")
    kinds = [entry.kind for entry in await stage.history()]
    _require(kinds == ["user", "tool_call", "tool_result", "assistant"], f"the stored history is {kinds}")


async def sleep_and_wake(stage: Stage) -> None:
    """The agent sleeps, which costs nothing, and wakes by itself."""
    began = time.monotonic()
    await stage.say("Remind me in 2 seconds to stretch")
    await stage.hear_text("Woke up after 2 seconds (for: stretch)")
    _require(time.monotonic() - began >= 2, "it woke too early")
    _require(await stage.state_of("sleep") is CallState.ANSWERED, "the sleep is not answered in the ledger")


async def two_children(stage: Stage) -> None:
    """Two child threads work by themselves, report, and close."""
    await stage.say("Ask two children: what time is it in Paris; what time is it in New York")
    reported = 0
    while reported < 2:
        reported += (await stage.hear_text("A child reports: ")).text.count("A child reports: ")
    events = [entry for entry in await stage.history() if isinstance(entry, EventEntry)]
    said = " ".join(plain_text(event.result.content) for event in events)
    _require(len({event.child_thread_id for event in events}) == 2, "the reports are not of two children")
    _require("Europe/Paris" in said and "America/New_York" in said, f"the children reported {said!r}")
    await stage.closed(ThreadKind.CHILD, 2)


async def talk_while_a_tool_runs(stage: Stage) -> None:
    """A question is answered while a slow tool runs, and the tool's result comes later, as an event."""
    await stage.say("Run the slow job for 3 seconds")
    await stage.hear_call("slow_job")
    await stage.say("What time is it in Berlin?")
    await stage.hear_text("Europe/Berlin")
    _require(await stage.state_of("slow_job") is CallState.DETACHED, "the slow job is not detached in the ledger")
    await stage.hear_text("Meanwhile, slow_job says: the job is done")
    _require(await stage.state_of("slow_job") is CallState.ANSWERED, "the slow job is not answered in the ledger")
    history = await stage.history()
    calls = [entry.call.id for entry in history if isinstance(entry, ToolCallEntry) and entry.call.name == "slow_job"]
    late = [entry for entry in history if isinstance(entry, EventEntry) and entry.tool_call_id in calls]
    _require(len(calls) == len(late) == 1, f"{len(calls)} calls of the slow job have {len(late)} late results")


async def subscribe(stage: Stage) -> None:
    """A subscription's event gets a thread of its own, which reports."""
    await stage.say("Watch the weather")
    await stage.hear_text("something happened to the weather")
    _require(await stage.state_of("watch") is CallState.ENDED, "the subscription did not end with its final event")
    await stage.closed(ThreadKind.EVENT, 1)


async def kill_the_host(stage: Stage) -> None:
    """The host is killed with SIGKILL in the middle of a tool call, and its successor finishes the conversation."""
    await stage.say("Run the slow job for 3 seconds", KILLED)
    await stage.hear_call("slow_job", KILLED)
    stage.host.kill()
    code = await stage.host.ended()
    _print(f"the host (process {stage.host.pid}) is killed with SIGKILL while the slow job runs")
    _require(code == -9, f"the host was to be killed, and ended with code {code}")
    _require(await stage.state_of("slow_job", KILLED) is CallState.OPEN, "the call was not open when the host died")
    await stage.next_host()
    _print(f"its successor (process {stage.host.pid}) starts")
    await stage.hear_text("slow_job says: the job is done", KILLED)
    kinds = [entry.kind for entry in await stage.history(KILLED)]
    _require(kinds == ["user", "tool_call", "tool_result", "assistant"], f"the stored history is {kinds}")


async def nothing_is_lost_or_doubled(stage: Stage) -> None:
    """The host stops gracefully; every history is valid, nothing was set aside, and nobody was told of an error."""
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


PARTS: tuple[Callable[[Stage], Awaitable[None]], ...] = (
    ask_the_time,
    sleep_and_wake,
    two_children,
    talk_while_a_tool_runs,
    subscribe,
    kill_the_host,
    nothing_is_lost_or_doubled,
)


# The whole.


async def show(path: Path) -> bool:
    """Run all parts over the file ``path``, print what happens, and tell whether all of it did."""
    checks: list[str] = []
    began = time.monotonic()
    async with contextlib.AsyncExitStack() as ends:
        _end_on_sigterm()
        stage = await Stage.set(path, ends)
        _print(f"a host (process {stage.host.pid}) and tool servers at {' and '.join(stage.tool_servers)}, file {path}")
        for part in PARTS:
            _print(f"\n== {part.__doc__}")
            try:
                await part(stage)
            except InfinityError as error:
                checks.append(f"\N{BALLOT X} {part.__doc__} {error}")
                _print(checks[-1])
            else:
                checks.append(f"\N{CHECK MARK} {part.__doc__}")
        await _print_transcript(stage)
    _print("\n== The checks")
    for check in checks:
        _print(check)
    passed = sum(check.startswith("\N{CHECK MARK}") for check in checks)
    _print(f"{passed} of {len(PARTS)} parts happened, in {time.monotonic() - began:.0f} seconds")
    return passed == len(PARTS)


def _end_on_sigterm() -> None:
    # As Ctrl-C does it: in order, so that no process is left behind.
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


async def _print_transcript(stage: Stage) -> None:
    _print("\n== The transcript, as it is stored")
    threads = [overview.thread for overview in await stage.agent.services.conversations.threads()]
    for thread in sorted(threads, key=lambda thread: thread.created_at):
        _print(f"{thread.kind} thread {thread.id}{', closed' if thread.closed else ''}")
        for entry in await stage.history(thread.id):
            _print(f"  {_told(entry)}".replace("\n", "\n           "))


def _told(entry: Entry) -> str:
    match entry:
        case UserEntry(content=parts):
            return f"person:  {plain_text(parts)}"
        case AssistantEntry():
            return f"agent:   {entry.text}"
        case ToolCallEntry(call=call):
            return f"call:    {entry.display_as or call.name}"
        case ToolResultEntry(result=result):
            return f"result:  {plain_text(result.content)}"
        case EventEntry(result=result):
            return f"event:   {plain_text(result.content)}"


def _print(text: str) -> None:
    print("\n".join(shown(text).splitlines()), flush=True)


def main() -> None:
    """Show it; exit with 0 where every part happened, 1 where one did not, 130 where a person stopped it."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        with tempfile.TemporaryDirectory(prefix="infinity-demo-") as directory:
            happened = asyncio.run(show(Path(directory) / "agent.db"))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)
    except InfinityError as error:
        sys.exit(f"the demo could not begin: {error}")
    sys.exit(0 if happened else 1)


if __name__ == "__main__":
    main()
