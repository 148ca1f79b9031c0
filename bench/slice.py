"""The cost of one slice as a conversation grows: at turn 5, 20 and 200, cold and warm, beside a bare loop.

``python -m bench.slice --turns 200 --json``

Small messages (200, 100, 300 and 300 characters). *Warm*: the process holds the thread, so only new entries are read.
*Cold*: it has never seen the thread, so all of its history is. CPU of this process, in ms per completion.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from infinity_agents.adapters.sqlite.database import Synchronous
from infinity_agents.conversation import ids
from infinity_agents.conversation.content import Text
from infinity_agents.conversation.events import Completed
from infinity_agents.conversation.messages import Delivery, InputMessage
from infinity_agents.local.wiring import LocalAgent
from infinity_agents.runtime import AgentSystem
from infinity_agents.settings import AgentSettings

from .workload import SMALL, BareLoop, QueueTool, Spent, WorkloadModel, measured, result_of

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


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--synchronous", choices=("FULL", "NORMAL", "OFF"), default="FULL")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
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
    per_turn = []
    for _ in range(turns):
        spent = Spent()
        with measured(spent):
            for number in range(agents):
                loop.turn(f"agent-{number}")
        per_turn.append(spent.cpu / (agents * 2) * 1000)
    loop.close()
    return per_turn


async def _ours(path: Path, agents: int, turns: int, synchronous: Synchronous, *, cached: int) -> list[float]:
    """Return the cost per completion of each turn. The step alone is measured: no queue, no host."""
    settings = AgentSettings(cached_threads=cached)
    agent = LocalAgent.open(path, model=WorkloadModel(SMALL), settings=settings, synchronous=synchronous)
    services = agent.services
    tool = QueueTool(services.inputs, services.keyring, "b" * SMALL.result)
    system = AgentSystem(replace(services, tools=(*services.tools, tool)))
    per_turn = []
    for turn in range(turns):
        spent = Spent()
        for number in range(agents):
            thread_id = f"agent-{number}"
            said = Delivery(InputMessage(Text("a" * SMALL.message), thread_id), f"said-{turn}")
            call_id = ids.call_id(thread_id, turn * 2 + 1, 1)
            result = Delivery(
                result_of(thread_id, call_id, "model-call", "b" * SMALL.result), f"result-{turn}", proven=True
            )
            with measured(spent):
                outcomes = [*(await system.step([said])).values(), *(await system.step([result])).values()]
            if not all(isinstance(outcome, Completed) for outcome in outcomes):
                raise RuntimeError(f"{thread_id}, turn {turn}: {outcomes}")
        per_turn.append(spent.cpu / (agents * 2) * 1000)
    await agent.aclose()
    return per_turn


if __name__ == "__main__":
    main()
