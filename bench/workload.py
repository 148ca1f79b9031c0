"""The work that is measured: for this runtime, and for a bare hand-written loop in the same database."""

import json
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import psycopg

from infinity_agents.adapters.sqlite.database import Synchronous
from infinity_agents.conversation import ids
from infinity_agents.conversation.content import JsonObject, Text
from infinity_agents.conversation.events import AgentEvent, Completed, StepFinished
from infinity_agents.conversation.history import UserEntry
from infinity_agents.conversation.ledger import Call
from infinity_agents.conversation.messages import InputMessage, ToolResult
from infinity_agents.conversation.turn import ArgumentsDelta, CallFinished, CallStarted, ModelEvent, Stopped, TextDelta
from infinity_agents.errors import Misconfigured
from infinity_agents.ports.model import ModelRequest
from infinity_agents.ports.queues import InputSender
from infinity_agents.ports.tool import CallContext, SliceContext, ToolAnswer, ToolSpec
from infinity_agents.wire.inputs import encode
from infinity_agents.wire.keys import Keyring


@dataclass(frozen=True, slots=True)
class Workload:
    """The sizes of one turn, in characters: a message, a completion with a call, a result, a second completion."""

    name: str
    message: int
    chunks: int
    chunk: int
    result: int
    last: tuple[int, int]

    @property
    def first_text(self) -> str:
        return "c" * (self.chunks * self.chunk)

    @property
    def last_text(self) -> str:
        return "d" * (self.last[0] * self.last[1])


SCALE = Workload("agent_scale", message=120, chunks=12, chunk=96, result=350, last=(12, 96))
SMALL = Workload("slice", message=200, chunks=1, chunk=100, result=300, last=(1, 300))


class WorkloadModel:
    """Says what the workload says: text and a call after a message, text alone after a result."""

    name = "workload"

    def __init__(self, work: Workload) -> None:
        self._work = work

    def context_window(self, model: str) -> int:
        return 100_000_000

    def reads_images(self, model: str) -> bool:
        return False

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the workload's chunks."""
        work = self._work
        calls = isinstance(request.entries[-1], UserEntry)
        chunks, size = (work.chunks, work.chunk) if calls else work.last
        piece = ("c" if calls else "d") * size
        for _ in range(chunks):
            yield TextDelta(piece)
        if calls:
            yield CallStarted("look_up", "model-call")
            yield ArgumentsDelta('{"q":"x"}')
            yield CallFinished()
        yield Stopped()


@dataclass(frozen=True, slots=True)
class QueueTool:
    """A tool whose result comes back through the queue, as any tool's does."""

    inputs: InputSender
    keyring: Keyring
    result: str
    is_passive: bool = False
    tool_set: str | None = None
    call_timeout: timedelta | None = None
    spec: ToolSpec = field(
        default_factory=lambda: ToolSpec(
            "look_up",
            "Look something up.",
            {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
        )
    )

    def display(self, arguments: JsonObject) -> str:
        return "look_up"

    def wakes_at(self, call: Call) -> datetime | None:
        return None

    async def execute_synchronous(self, call: Call, context: SliceContext) -> ToolAnswer | None:
        return None

    async def execute(self, call: Call, context: CallContext) -> None:
        """Put the result on the queue."""
        message = result_of(context.thread.id, call.id, call.call_id, self.result)
        body = encode(message, self.keyring)
        await self.inputs.send(body, group_id=message.group_id, dedup_id=message.message_id or call.id)


def result_of(thread_id: str, call_id: str, model_call_id: str | None, text: str) -> InputMessage:
    """Return the message that brings the result of a call."""
    return InputMessage(
        content=ToolResult(id=call_id, call_id=model_call_id, content=(Text(text),)),
        group_id=thread_id,
        message_id=ids.message_id("result", thread_id, call_id),
    )


@dataclass(slots=True)
class Counter:
    """Counts completions, and calls ``at_goal`` when there are as many as wanted."""

    completions: int = 0
    goal: int = 0
    at_goal: Callable[[], None] = lambda: None

    def observe(self, event: AgentEvent) -> None:
        if isinstance(event, StepFinished) and isinstance(event.outcome, Completed):
            self.completions += 1
            if self.completions == self.goal:
                self.at_goal()


@dataclass(slots=True)
class Spent:
    """What a stretch of work took: seconds on the wall, and of this process's CPU."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def measured(into: Spent) -> Iterator[None]:
    """Add what the block takes to ``into``."""
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        into.wall += time.perf_counter() - wall
        into.cpu += time.process_time() - cpu


class BareLoop:
    """What one would write by hand: for each completion read the history, append two rows, in one transaction."""

    def __init__(self, path: Path, work: Workload, synchronous: Synchronous) -> None:
        self._work = work
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {synchronous}")
        self._connection.execute("CREATE TABLE entries (agent TEXT, position INTEGER, body TEXT)")
        self._connection.execute("CREATE UNIQUE INDEX place ON entries (agent, position)")

    def turn(self, agent: str) -> None:
        """Do one turn of ``agent``: two completions."""
        for heard, said in _completions(self._work):
            self._complete(agent, heard, said)

    def _complete(self, agent: str, heard: JsonObject, said: JsonObject) -> None:
        connection = self._connection
        found = connection.execute("SELECT body FROM entries WHERE agent = ? ORDER BY position", (agent,)).fetchall()
        history = [json.loads(body) for (body,) in found]
        end = len(history)
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO entries VALUES (?, ?, ?)",
            [(agent, end, json.dumps(heard)), (agent, end + 1, json.dumps(said))],
        )
        connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


class BarePostgresLoop:
    """The same by hand on PostgreSQL: for each completion one statement reads the history, one appends two rows.

    Raises:
        Misconfigured: there are tables in the database ``url``, which may be somebody's agent.
    """

    def __init__(self, url: str, work: Workload) -> None:
        self._work = work
        self._connection = psycopg.connect(url, autocommit=True)
        tables = self._connection.execute(
            "SELECT schemaname || '.' || tablename FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
        ).fetchall()
        if tables:
            self.close()
            raise Misconfigured(
                f"the database of the benchmark has tables ({tables[0][0]}, {len(tables)} in all); name an empty one, "
                "as CREATE DATABASE makes it"
            )
        self._connection.execute(
            "CREATE TABLE bare_entries (agent text, position bigint, body text, PRIMARY KEY (agent, position))"
        )

    def turn(self, agent: str) -> None:
        """Do one turn of ``agent``: two completions."""
        for heard, said in _completions(self._work):
            self._complete(agent, heard, said)

    def _complete(self, agent: str, heard: JsonObject, said: JsonObject) -> None:
        found = self._connection.execute(
            "SELECT body FROM bare_entries WHERE agent = %s ORDER BY position", (agent,)
        ).fetchall()
        history = [json.loads(body) for (body,) in found]
        end = len(history)
        # A transaction of its own, in one round trip.
        self._connection.execute(
            "INSERT INTO bare_entries VALUES (%s, %s, %s), (%s, %s, %s)",
            (agent, end, json.dumps(heard), agent, end + 1, json.dumps(said)),
        )

    def close(self) -> None:
        self._connection.close()


def _completions(work: Workload) -> Iterator[tuple[JsonObject, JsonObject]]:
    """Yield what is heard and what is said in the two completions of a turn."""
    first = "".join("c" * work.chunk for _ in range(work.chunks))
    last = "".join("d" * work.last[1] for _ in range(work.last[0]))
    call = {"name": "look_up", "arguments": {"q": "x"}}
    yield {"role": "user", "text": "a" * work.message}, {"role": "assistant", "text": first, "call": call}
    yield {"role": "tool", "text": "b" * work.result}, {"role": "assistant", "text": last}


def resident() -> int:
    """Return the resident memory of this process, in bytes."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def without_outputs(path: Path) -> int:
    """Return the bytes of the database ``path`` without the log of what people were told, which it loses by this."""
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM outputs")
    connection.execute("VACUUM")
    connection.close()
    return on_disk(path)


def on_disk(path: Path) -> int:
    """Return the bytes of the database ``path`` once its log is folded in."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path.stat().st_size
