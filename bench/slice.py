"""The cost of one slice as a conversation grows: at turn 5, 20 and 200, cold and warm, beside a bare loop.

``python -m bench.slice --turns 200 --json``
``python -m bench.slice --store postgresql --json``

Small messages (200, 100, 300 and 300 characters). *Warm*: the process holds the thread, so only new entries are read.
*Cold*: it has never seen the thread, so all of its history is. On SQLite: CPU of this process, in ms per completion.
On PostgreSQL: completions per second, and per second of this process's CPU; the conversations are in a server, started
here if none is named, and the state, the queues and the timers in memory.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psycopg

from infinity_agents.adapters.dsql import DsqlConversationStore, DsqlDatabase, PostgreSql, migrate
from infinity_agents.adapters.memory import (
    MemoryBlobStore,
    MemoryInputQueue,
    MemoryOutputs,
    MemoryStateStore,
    MemoryTimers,
    OutputData,
    QueueData,
)
from infinity_agents.adapters.sqlite.database import Synchronous
from infinity_agents.adapters.system import FreshIds, SystemClock
from infinity_agents.conversation import ids
from infinity_agents.conversation.content import Text
from infinity_agents.conversation.events import Completed
from infinity_agents.conversation.messages import Delivery, InputMessage
from infinity_agents.errors import Misconfigured
from infinity_agents.local.wiring import LocalAgent
from infinity_agents.runtime import AgentSystem, Services
from infinity_agents.settings import AgentSettings
from infinity_agents.testing import postgres
from infinity_agents.tools import built_in
from infinity_agents.wire.keys import Keyring

from .workload import SMALL, BareLoop, BarePostgresLoop, QueueTool, Spent, WorkloadModel, measured, result_of

AT = (5, 20, 200)
_AROUND = 2
"""Turns before and after the one that is named, over which its cost is averaged."""


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU of one completion around ``turn``, in ms; the ratios are over the bare loop's at the same turn."""

    turn: int
    warm: float
    cold: float
    bare: float
    warm_ratio: float
    cold_ratio: float


@dataclass(frozen=True, slots=True)
class Figures:
    """``warm_growth`` is the warm cost at the last turn over that at turn 5; ``..._by_turn`` are all turns, in ms."""

    agents: int
    synchronous: str
    costs: tuple[Cost, ...]
    warm_growth: float
    warm_by_turn: tuple[float, ...]
    cold_by_turn: tuple[float, ...]
    bare_by_turn: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Rates:
    """Completions per second over the turns ``first`` to ``last``; the ratios are over the bare loop's rate.

    ``..._cpu_ratio`` are of completions per second of this process's CPU, the server's own left out.
    """

    first: int
    last: int
    warm: float
    cold: float
    bare: float
    warm_ratio: float
    cold_ratio: float
    warm_cpu_ratio: float
    cold_cpu_ratio: float


@dataclass(frozen=True, slots=True)
class PostgresFigures:
    """The last of ``rates`` is over all turns, the others around those that ``AT`` names.

    ``is_durable`` tells whether a commit waits for the server's disk, as the started server's do not.
    """

    is_durable: bool
    agents: int
    turns: int
    rates: tuple[Rates, ...]


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite", help="where conversations are")
    parser.add_argument(
        "--database-url", help="an empty database of a PostgreSQL of yours, instead of one started here"
    )
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--turns", type=int, default=200, help="at least 5, the first turn that is reported")
    parser.add_argument("--synchronous", choices=("FULL", "NORMAL", "OFF"), default="FULL", help="of SQLite alone")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if options.agents < 1 or options.turns < AT[0]:
        parser.error(f"{options.agents} agents, {options.turns} turns: there must be an agent and {AT[0]} turns")
    if options.store == "postgresql":
        try:
            url = options.database_url or new_database()
            rates = asyncio.run(run_on_postgres(url, options.agents, options.turns))
        except (Misconfigured, psycopg.OperationalError, postgres.NoPostgres) as error:
            parser.error(str(error))
        _print_rates(rates, options.json)
        return
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(run(Path(folder), options.agents, options.turns, options.synchronous))
    if options.json:
        print(json.dumps(asdict(figures)))
        return
    print(f"{'turn':>6} {'warm ms':>9} {'cold ms':>9} {'bare ms':>9} {'warm/bare':>10} {'cold/bare':>10}")
    for cost in figures.costs:
        print(
            f"{cost.turn:>6} {cost.warm:>9.3f} {cost.cold:>9.3f} {cost.bare:>9.3f}"
            f" {cost.warm_ratio:>10.2f} {cost.cold_ratio:>10.2f}"
        )
    print(f"warm, last over turn 5: {figures.warm_growth:.2f}")


def _print_rates(figures: PostgresFigures, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(figures)))
        return
    print(f"{'turns':>10} {'warm/bare':>11} {'cold/bare':>11} {'warm by CPU':>11} {'cold by CPU':>11} {'bare/s':>8}")
    for rates in figures.rates:
        print(
            f"{f'{rates.first} to {rates.last}':>10} {rates.warm_ratio:>11.2f} {rates.cold_ratio:>11.2f}"
            f" {rates.warm_cpu_ratio:>11.2f} {rates.cold_cpu_ratio:>11.2f} {rates.bare:>8.0f}"
        )


async def run(folder: Path, agents: int, turns: int, synchronous: Synchronous) -> Figures:
    """Let some agents talk for ``turns`` turns, and measure around the turns that are reported."""
    marks = [turn for turn in AT if turn <= turns]
    bare = _bare(folder / "bare.db", agents, turns, synchronous)
    warm = await _ours(folder / "warm.db", agents, turns, synchronous, cached=agents)
    cold = await _ours(folder / "cold.db", agents, turns, synchronous, cached=0)
    costs = tuple(
        Cost(
            turn=mark,
            warm=_around(warm, mark),
            cold=_around(cold, mark),
            bare=_around(bare, mark),
            warm_ratio=_around(warm, mark) / _around(bare, mark),
            cold_ratio=_around(cold, mark) / _around(bare, mark),
        )
        for mark in marks
    )
    growth = costs[-1].warm / costs[0].warm
    return Figures(agents, synchronous, costs, growth, tuple(warm), tuple(cold), tuple(bare))


def _around(per_turn: Sequence[float], turn: int) -> float:
    some = per_turn[max(turn - 1 - _AROUND, 0) : turn + _AROUND]
    return sum(some) / len(some)


def _bare(path: Path, agents: int, turns: int, synchronous: Synchronous) -> list[float]:
    loop = BareLoop(path, SMALL, synchronous)
    per_turn = [_cpu_ms(_bare_turn(loop, agents), agents) for _ in range(turns)]
    loop.close()
    return per_turn


async def _ours(path: Path, agents: int, turns: int, synchronous: Synchronous, *, cached: int) -> list[float]:
    settings = AgentSettings(cached_threads=cached)
    agent = LocalAgent.open(path, model=WorkloadModel(SMALL), settings=settings, synchronous=synchronous)
    system = _system(agent.services)
    per_turn = [_cpu_ms(await _turn(system, "agent", agents, turn), agents) for turn in range(turns)]
    await agent.aclose()
    return per_turn


def _cpu_ms(spent: Spent, agents: int) -> float:
    return spent.cpu / (agents * 2) * 1000


def new_database() -> str:
    """Return the connection string of an empty database, in a server that ends with this process.

    Raises:
        NoPostgres: there is none on this machine; the text has the remedy.
    """
    return postgres.start(f"bench-{os.getpid()}").create("slices")


async def run_on_postgres(url: str, agents: int, turns: int) -> PostgresFigures:
    """Let some agents talk for ``turns`` turns in the empty database ``url``, bare, warm and cold by turns.

    Raises:
        Misconfigured: the database is not empty; nothing was written to it.
    """
    bare = BarePostgresLoop(url, SMALL)
    warm, cold = _OnPostgres(url, cached=agents), _OnPostgres(url, cached=0)
    await migrate(warm.database, progress=lambda line: print(line, file=sys.stderr))
    spent: tuple[list[Spent], list[Spent], list[Spent]] = ([], [], [])
    for turn in range(turns):
        spent[0].append(_bare_turn(bare, agents))
        spent[1].append(await warm.turn("warm", agents, turn))
        spent[2].append(await cold.turn("cold", agents, turn))
    settings = await warm.database.rows(b"SELECT current_setting('fsync'), current_setting('synchronous_commit')")
    for side in (warm, cold):
        await side.database.close()
    bare.close()
    spans = [(max(mark - _AROUND, 1), min(mark + _AROUND, turns)) for mark in AT if mark <= turns]
    rates = tuple(_rates(spent, agents, *span) for span in (*spans, (1, turns)))
    return PostgresFigures("off" not in settings[0], agents, turns, rates)


class _OnPostgres:
    """The runtime with its conversations at ``url`` and the rest in memory; ``cached`` threads are held."""

    def __init__(self, url: str, *, cached: int) -> None:
        clock = SystemClock()
        self.database = DsqlDatabase(PostgreSql(url), clock)
        self._inputs, self._outputs = MemoryInputQueue(clock), MemoryOutputs()
        self._system = _system(
            Services(
                conversations=DsqlConversationStore(self.database),
                state=MemoryStateStore(),
                model=WorkloadModel(SMALL),
                inputs=self._inputs,
                outputs=self._outputs,
                timers=MemoryTimers(self._inputs),
                blobs=MemoryBlobStore(),
                clock=clock,
                ids=FreshIds(),
                keyring=Keyring.parse("k1:a secret of more than 16 characters"),
                tools=built_in(clock),
                settings=AgentSettings(cached_threads=cached),
            )
        )

    async def turn(self, prefix: str, agents: int, turn: int) -> Spent:
        spent = await _turn(self._system, prefix, agents, turn)
        # Nobody receives what is sent, and a queue that only grows would be what is measured.
        self._inputs.data, self._outputs.data = QueueData(), OutputData()
        return spent


def _rates(spent: tuple[list[Spent], ...], agents: int, first: int, last: int) -> Rates:
    completions = agents * 2 * (last - first + 1)
    spans = [side[first - 1 : last] for side in spent]
    bare, warm, cold = (completions / sum(one.wall for one in span) for span in spans)
    bare_cpu, warm_cpu, cold_cpu = (completions / sum(one.cpu for one in span) for span in spans)
    return Rates(
        first=first,
        last=last,
        warm=warm,
        cold=cold,
        bare=bare,
        warm_ratio=warm / bare,
        cold_ratio=cold / bare,
        warm_cpu_ratio=warm_cpu / bare_cpu,
        cold_cpu_ratio=cold_cpu / bare_cpu,
    )


def _bare_turn(loop: BareLoop | BarePostgresLoop, agents: int) -> Spent:
    spent = Spent()
    with measured(spent):
        for number in range(agents):
            loop.turn(f"agent-{number}")
    return spent


def _system(services: Services) -> AgentSystem:
    tool = QueueTool(services.inputs, services.keyring, "b" * SMALL.result)
    return AgentSystem(replace(services, tools=(*services.tools, tool)))


async def _turn(system: AgentSystem, prefix: str, agents: int, turn: int) -> Spent:
    """Return what one turn of all agents takes. The step alone is measured: no queue, no host."""
    spent = Spent()
    for number in range(agents):
        thread_id = f"{prefix}-{number}"
        said = Delivery(InputMessage(Text("a" * SMALL.message), thread_id), f"said-{turn}")
        call_id = ids.call_id(thread_id, turn * 2 + 1, 1)
        result = Delivery(
            result_of(thread_id, call_id, "model-call", "b" * SMALL.result), f"result-{turn}", proven=True
        )
        with measured(spent):
            outcomes = [*(await system.step([said])).values(), *(await system.step([result])).values()]
        if not all(isinstance(outcome, Completed) for outcome in outcomes):
            raise RuntimeError(f"{thread_id}, turn {turn}: {outcomes}")
    return spent


if __name__ == "__main__":
    main()
