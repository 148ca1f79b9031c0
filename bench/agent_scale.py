"""Many agents, 20 turns each: throughput, CPU, memory per idle agent and disk per agent, beside a bare loop.

``python -m bench.agent_scale --agents 1000 --turns 20 --json``
"""

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from infinity_agents.adapters.sqlite.database import Synchronous
from infinity_agents.local.wiring import LocalAgent

from .workload import (
    SCALE,
    BareLoop,
    Counter,
    QueueTool,
    Spent,
    WorkloadModel,
    measured,
    on_disk,
    resident,
    without_outputs,
)

_REPORT_EVERY = 10.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What the run gave. Ratios are this runtime's figure over the bare loop's (throughput: the other way is worse)."""

    agents: int
    turns: int
    synchronous: str
    completions: int
    completions_per_second: float
    cpu_ms_per_completion: float
    resident_bytes_per_idle_agent: float
    disk_bytes_per_agent: float
    bare_completions_per_second: float
    bare_cpu_ms_per_completion: float
    bare_disk_bytes_per_agent: float
    throughput_ratio: float
    cpu_ratio: float
    disk_ratio: float
    disk_ratio_without_outputs: float


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--synchronous", choices=("FULL", "NORMAL", "OFF"), default="FULL")
    parser.add_argument("--bare-agents", type=int, default=1000, help="agents of the bare loop, at most --agents")
    parser.add_argument("--directory", type=Path, default=None, help="where the databases are made")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    bare_agents = min(options.bare_agents, options.agents)
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        figures = asyncio.run(run(Path(folder), options.agents, options.turns, options.synchronous, bare_agents))
    if options.json:
        print(json.dumps(asdict(figures)))
    else:
        for name, value in asdict(figures).items():
            print(f"{name:32} {value:>14,.2f}" if isinstance(value, float) else f"{name:32} {value:>14}")


async def run(folder: Path, agents: int, turns: int, synchronous: Synchronous, bare_agents: int) -> Figures:
    """Do the work twice, by this runtime and by hand, and return what both took."""
    bare = Spent()
    loop = BareLoop(folder / "bare.db", SCALE, synchronous)
    with measured(bare):
        for _ in range(turns):
            for number in range(bare_agents):
                loop.turn(f"agent-{number}")
    loop.close()
    bare_disk = on_disk(folder / "bare.db") / bare_agents

    ours, idle = Spent(), 0.0
    counter = Counter()
    agent = LocalAgent.open(folder / "agent.db", model=WorkloadModel(SCALE), synchronous=synchronous)
    tool = QueueTool(agent.services.inputs, agent.services.keyring, "b" * SCALE.result)
    agent = replace(agent, services=replace(agent.services, tools=(*agent.services.tools, tool)))
    async with agent.host(counter):
        await _turn(agent, counter, agents=min(100, agents), turn=0)
        gc.collect()
        before = resident()
        for turn in range(1, turns + 1):
            with measured(ours):
                await _turn(agent, counter, agents=agents, turn=turn)
        gc.collect()
        idle = (resident() - before) / agents
    await agent.aclose()
    completions = agents * turns * 2
    bare_completions = bare_agents * turns * 2
    disk = on_disk(folder / "agent.db") / agents
    return Figures(
        agents=agents,
        turns=turns,
        synchronous=synchronous,
        completions=completions,
        completions_per_second=completions / ours.wall,
        cpu_ms_per_completion=ours.cpu / completions * 1000,
        resident_bytes_per_idle_agent=idle,
        disk_bytes_per_agent=disk,
        bare_completions_per_second=bare_completions / bare.wall,
        bare_cpu_ms_per_completion=bare.cpu / bare_completions * 1000,
        bare_disk_bytes_per_agent=bare_disk,
        throughput_ratio=(completions / ours.wall) / (bare_completions / bare.wall),
        cpu_ratio=(ours.cpu / completions) / (bare.cpu / bare_completions),
        disk_ratio=disk / bare_disk,
        disk_ratio_without_outputs=without_outputs(folder / "agent.db") / agents / bare_disk,
    )


async def _turn(agent: LocalAgent, counter: Counter, *, agents: int, turn: int) -> None:
    """Say something to every agent, and return when each has answered."""
    done = asyncio.Event()
    counter.goal, counter.at_goal = counter.completions + agents * 2, done.set
    said_at = time.monotonic()
    for number in range(agents):
        await agent.send(f"agent-{number}", "a" * SCALE.message, message_id=f"{turn}")
        if number % 64 == 63:
            # The host works while the others are being said.
            await asyncio.sleep(0)
    while not done.is_set():
        try:
            async with asyncio.timeout(_REPORT_EVERY):
                await done.wait()
        except TimeoutError:
            left = counter.goal - counter.completions
            print(f"turn {turn}: {left} completions left after {time.monotonic() - said_at:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
