"""Many conversations in the embedded host, which is killed at random moments: ``python -m tests.torture``.

Nothing may be lost, and nothing doubled: at the end every conversation's history, ledger, inbox and outputs are
exactly those of a run without kills, and its tool was run once.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infinity_agents.conversation.content import plain_text
from infinity_agents.conversation.history import Entry, EventEntry, ToolCallEntry, ToolResultEntry, UserEntry, faults
from infinity_agents.conversation.outputs import Output
from infinity_agents.local.demo_processes import Process, tool_server
from infinity_agents.local.wiring import LocalAgent

LONGEST_LIFE = 2.0
"""Seconds, at most, from the start of a host (Python's own included) to its death."""
PATIENCE = 180.0


def asked(number: int) -> str:
    return f'call lookup {{"number": {number}}}, then sleep 1 second, then ask a child to report: blue-{number}'


def expected_history(number: int) -> list[tuple[str, str]]:
    return [
        ("user", asked(number)),
        ("tool_call", "lookup"),
        ("tool_result", f"value {number * 7}"),
        ("assistant", f"(demo model) lookup says: value {number * 7}"),
        ("tool_call", "sleep"),
        ("tool_result", "Woke up after 1 seconds."),
        ("assistant", "(demo model) Woke up after 1 seconds."),
        ("tool_call", "spawn_thread"),
        ("tool_result", "Started the child thread CHILD."),
        ("assistant", "(demo model) My children are at work; I shall tell you what they report."),
        ("event", f"blue-{number}"),
        ("assistant", f"(demo model) A child reports: blue-{number}"),
    ]


def expected_child(number: int) -> list[tuple[str, str]]:
    return [
        ("user", f"report: blue-{number}"),
        ("tool_call", "report_to_parent"),
        ("tool_result", "Reported."),
        ("tool_call", "close_thread"),
        ("tool_result", "Closed."),
    ]


def expected_outputs(number: int) -> list[tuple[str, str]]:
    said = [("message", text) for kind, text in expected_history(number) if kind == "assistant"]
    return [("tool_call", f"lookup(number={number})"), said[0], ("tool_call", "sleep 1 s"), *said[1:]]


@dataclass
class Torture:
    """One run over one file."""

    agent: LocalAgent
    tools: str
    record: Path
    conversations: int
    kills: int
    chance: random.Random
    began: float = field(default_factory=time.monotonic)
    sent: int = 0
    finished: set[str] = field(default_factory=set)
    killed: int = 0
    killed_at_work: int = 0
    seen: int = 0

    async def run(self) -> list[str]:
        """Return everything that is wrong at the end."""
        feeding = asyncio.create_task(self.feed())
        telling = asyncio.create_task(self.tell())
        try:
            while self.killed < self.kills:
                host = await self.host()
                try:
                    await asyncio.sleep(self.chance.uniform(0.05, LONGEST_LIFE))
                finally:
                    host.kill()
                    code = await host.ended()
                if code != -9:
                    return [f"a host ended by itself, with code {code}"]
                self.killed += 1
                await self.look()
                self.killed_at_work += self.sent > len(self.finished)
            await feeding
            return await self.finish()
        finally:
            for task in (feeding, telling):
                task.cancel()
            await asyncio.gather(feeding, telling, return_exceptions=True)

    async def host(self) -> Process:
        return await Process.start(
            "infinity_agents.local.demo_host", "--quiet", str(self.agent.database.path), self.tools
        )

    async def feed(self) -> None:
        """Start the conversations one by one, all the time while hosts come and go."""
        pause = self.kills * LONGEST_LIFE / 2 / self.conversations
        for number in range(self.conversations):
            # The same message sent twice is heard once.
            for _ in range(self.chance.choice((1, 1, 2))):
                await self.agent.send(f"c{number}", asked(number), message_id=f"m{number}")
            self.sent += 1
            await asyncio.sleep(self.chance.uniform(0, 2 * pause))

    async def look(self) -> None:
        for place, output in await self.agent.outputs(after=self.seen, limit=100_000):
            self.seen = place
            if "A child reports:" in output.text:
                self.finished.add(output.group_id)

    async def tell(self) -> None:
        while True:
            await self.look()
            self.print_progress(end="\r" if sys.stdout.isatty() else "\n")
            await asyncio.sleep(1 if sys.stdout.isatty() else 5)

    def print_progress(self, end: str = "\n") -> None:
        took = time.monotonic() - self.began
        print(
            f"{took:5.1f} s: {self.killed} of {self.kills} kills, "
            f"{len(self.finished)} of {self.conversations} conversations finished",
            end=end,
            flush=True,
        )

    async def finish(self) -> list[str]:
        """Let a last host finish everything, then look."""
        host = await self.host()
        try:
            give_up = time.monotonic() + PATIENCE
            while len(self.finished) < self.conversations or await self.is_busy():
                if time.monotonic() > give_up or host.code is not None:
                    return [f"not finished within {PATIENCE:g} s (the host's code: {host.code})", *await self.lost()]
                await asyncio.sleep(0.1)
                await self.look()
        finally:
            host.terminate()
            code = await host.ended()
        self.print_progress()
        # It may have been told to end before it had begun to listen to that.
        return [*([f"the last host ended with code {code}"] if code not in (0, -15) else []), *await self.wrongs()]

    async def lost(self) -> list[str]:
        """Return what became of the conversations that are not finished."""
        lost = [f"c{n}" for n in range(self.conversations) if f"c{n}" not in self.finished]
        texts = {thread: [output.text for _, output in await self.agent.outputs(group_id=thread)] for thread in lost}
        return [f"{thread}: people were told {said}" for thread, said in texts.items()]

    async def is_busy(self) -> bool:
        return bool(self.rows("SELECT 1 FROM messages UNION ALL SELECT 1 FROM timers LIMIT 1"))

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        with self.agent.database.read() as connection:
            return connection.execute(sql).fetchall()

    async def wrongs(self) -> list[str]:
        wrong: list[str] = []
        store = self.agent.services.conversations
        threads = [overview.thread for overview in await store.threads(limit=100_000)]
        children = {thread.parent_id: thread.id for thread in threads if thread.parent_id}
        if len(threads) != 2 * self.conversations:
            wrong.append(f"{len(threads)} threads instead of {2 * self.conversations}")
        inbox = Counter(
            str(thread_id) for (thread_id,) in self.rows("SELECT t.id FROM inbox i JOIN threads t ON t.n = i.n")
        )
        outputs: dict[str, list[Output]] = {}
        for _, output in await self.agent.outputs(limit=1_000_000):
            outputs.setdefault(output.thread_id, []).append(output)
        for number in range(self.conversations):
            root = f"c{number}"
            child = children.get(root, "")
            for thread_id, expected, heard in (
                (root, expected_history(number), 4),
                (child, expected_child(number), 1),
            ):
                entries = [entry for _, entry in await store.history(thread_id)] if thread_id else []
                wrong += [f"{thread_id}: {fault}" for fault in faults(entries)]
                found = [told(entry, child) for entry in entries]
                if found != expected:
                    wrong.append(f"{thread_id}: the history is {found}")
                if inbox[thread_id] != heard:
                    wrong.append(f"{thread_id}: the inbox has {inbox[thread_id]} messages instead of {heard}")
                states = {str(call.state) for call in await store.calls(thread_id)}
                if states != {"answered"}:
                    wrong.append(f"{thread_id}: the calls are {states}")
            told_people = sorted(outputs.get(root, []), key=lambda output: output.seq)
            if [(output.type, output.text) for output in told_people] != expected_outputs(number):
                wrong.append(f"{root}: people were told {[(output.type, output.text) for output in told_people]}")
        wrong += [f"dead letter: {letter.reason}" for letter in await self.agent.queue.dead_letters()]
        wrong += self.wrong_invocations()
        return wrong

    def wrong_invocations(self) -> list[str]:
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        invoked = Counter(line.removeprefix("invoked ") for line in lines if line.startswith("invoked "))
        ran = Counter(line.removeprefix("ran ") for line in lines if line.startswith("ran "))
        by_thread = Counter(key.partition(":")[0] for key in invoked)
        self.repeats = invoked.total() - len(invoked)
        wrong = [f"the call {key} ran {count} times" for key, count in ran.items() if count != 1]
        wrong += [f"{thread}: {count} different calls were sent" for thread, count in by_thread.items() if count != 1]
        if set(ran) != set(invoked) or len(by_thread) != self.conversations:
            wrong.append(f"{len(invoked)} calls of {len(by_thread)} conversations were sent, {len(ran)} ran")
        return wrong

    repeats: int = 0


def told(entry: Entry, child: str) -> tuple[str, str]:
    match entry:
        case UserEntry(content=parts):
            return entry.kind, plain_text(parts)
        case ToolCallEntry(call=call):
            return entry.kind, call.name
        case ToolResultEntry(result=result) | EventEntry(result=result):
            text = plain_text(result.content)
            return entry.kind, text.replace(child, "CHILD") if child else text
        case _:
            return entry.kind, entry.text


async def torture(*, conversations: int, kills: int, seed: int) -> list[str]:
    """Return everything that is wrong at the end; print the counts."""
    with tempfile.TemporaryDirectory(prefix="infinity-torture-") as directory:
        record = Path(directory) / "record"
        async with tool_server("tests.torture_tools", "--record", str(record)) as url:
            agent = LocalAgent.open(Path(directory) / "agent.db")
            async with contextlib.aclosing(agent):
                run = Torture(agent, url, record, conversations, kills, random.Random(seed))
                wrong = await run.run()
    print(
        f"seed {seed}: {conversations} conversations, {run.killed} kills ({run.killed_at_work} of them at work), "
        f"{run.repeats} invocations repeated, {len(wrong)} faults, {time.monotonic() - run.began:.0f} s"
    )
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--sample", action="store_true", help="10 conversations and 3 kills")
    options = parser.parse_args(arguments)
    if options.sample:
        options.conversations, options.kills = 10, 3
    print(f"seed {options.seed}", flush=True)
    wrong = asyncio.run(torture(conversations=options.conversations, kills=options.kills, seed=options.seed))
    for fault in wrong[:20]:
        print(fault)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
