"""Runs the benchmarks, and writes the table and the plot that the documents show: ``make bench``.

``python -m bench.report --agents 1000 --out docs``
"""

import argparse
import asyncio
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from . import agent_scale
from . import slice as slices


def main() -> None:
    """Run the benchmarks and write ``benchmarks.md`` and ``images/benchmarks.png`` under ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--slice-agents", type=int, default=20)
    parser.add_argument("--database-url", help="measure on this PostgreSQL too, in an empty database")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    options = parser.parse_args()
    scales = []
    for synchronous in ("FULL", "OFF"):
        print(f"{options.agents} agents, synchronous={synchronous}...", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            scales.append(asyncio.run(agent_scale.run(Path(folder), options.agents, 20, synchronous, options.agents)))
    print(f"{options.slice_agents} agents, 200 turns...", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        costs = asyncio.run(slices.run(Path(folder), options.slice_agents, 200, "FULL"))
    print(f"{options.slice_agents} agents, 200 turns, on PostgreSQL...", file=sys.stderr)
    urls = [slices.new_database(), *filter(None, [options.database_url])]
    rates = [asyncio.run(slices.run_on_postgres(url, options.slice_agents, 200)) for url in urls]
    (options.out / "images").mkdir(parents=True, exist_ok=True)
    plot(costs, options.out / "images" / "benchmarks.png")
    (options.out / "benchmarks.md").write_text(document(scales, costs, rates), encoding="utf-8")


_PAGE = """\
# Benchmarks

Written by `make bench`. What counts are the ratios: both sides ran in one process, one after the other or by turns,
in the same database at the same durability. The absolute figures are of one machine on one day and prove nothing.

{machine}

## Many agents

`bench/agent_scale.py`: {agents:,} agents, {turns} turns each. A turn is a message of 120 characters, a completion of
12 chunks of 96 characters with a tool call, a result of 350 characters through the queue, and a second completion of
12 chunks. The bare loop is what one would write by hand: for each completion it reads the history, parses it, and
appends two rows in one transaction. It has no queue, no tools and no log of outputs, and nothing brings it back when
it dies between its two completions.

{scale}

Resident memory is what the process grew by, over the number of agents: nearly all of it is the cache of the 64
histories that were last used, which does not grow with the number of agents.

## One slice, as the conversation grows

`bench/slice.py`: small messages (200, 100, 300 and 300 characters). *Warm*: the process holds the thread and reads
only what is new. *Cold*: it reads the whole history. CPU per completion.

![CPU per completion over turns](images/benchmarks.png)

{slices}

Warm, at turn {last} over turn {first}: {growth:.2f}.

## One slice on PostgreSQL

`python -m bench.slice --store postgresql`: the same messages, {slice_agents} agents, with the conversations in a
PostgreSQL on the same machine, and the state, the queues and the timers in memory. The bare loop is psycopg by hand:
for each completion one statement reads the history and one appends two rows. Ours makes as many round trips, but
writes more: the thread, what was heard, the calls, the commit and its effects. CPU is that of this process, without the
server's. The longer a conversation is, the better the ratio: the bare loop reads all of it for each completion, a warm
process only what is new. The aim is half of the bare loop's completions per second, warm.

{servers}
"""

_AIM = 0.5
"""What a warm slice on PostgreSQL should reach of the bare loop's completions per second."""

_FAST = """\
On the server of the tests, whose commits wait for no disk, so that a round trip costs the bare loop next to nothing:"""
_DURABLE = "On a server whose commits wait for its disk, as one in production does (`--database-url`):"

_ROWS = (
    ("throughput, ours over bare", "throughput_ratio", "{:.2f}"),
    ("CPU per completion, ours over bare", "cpu_ratio", "{:.1f}"),
    ("bytes on disk per agent, ours over bare", "disk_ratio", "{:.2f}"),
    ("the same without the log of outputs", "disk_ratio_without_outputs", "{:.2f}"),
    ("resident bytes per idle agent", "resident_bytes_per_idle_agent", "{:,.0f}"),
    ("completions per second, ours", "completions_per_second", "{:,.0f}"),
    ("completions per second, bare", "bare_completions_per_second", "{:,.0f}"),
    ("CPU per completion, ours (ms)", "cpu_ms_per_completion", "{:.3f}"),
    ("CPU per completion, bare (ms)", "bare_cpu_ms_per_completion", "{:.3f}"),
    ("bytes on disk per agent, ours", "disk_bytes_per_agent", "{:,.0f}"),
)


def document(scales: list[agent_scale.Figures], costs: slices.Figures, rates: list[slices.PostgresFigures]) -> str:
    """Return the page: ratios first, absolute figures only beside what they were measured with."""
    machine = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.machine()}."
    return _PAGE.format(
        machine=f"{datetime.now(UTC):%Y-%m-%d}, {machine}",
        agents=scales[0].agents,
        turns=scales[0].turns,
        scale=_table(
            ["", *(f"synchronous={figures.synchronous}" for figures in scales)],
            [[label, *(form.format(getattr(figures, name)) for figures in scales)] for label, name, form in _ROWS],
        ),
        slices=_table(
            ["turn", "warm over bare", "cold over bare", "warm (ms)", "cold (ms)", "bare (ms)"],
            [
                [str(cost.turn)]
                + [f"{ratio:.2f}" for ratio in (cost.warm_ratio, cost.cold_ratio)]
                + [f"{value:.3f}" for value in (cost.warm, cost.cold, cost.bare)]
                for cost in costs.costs
            ],
        ),
        first=costs.costs[0].turn,
        last=costs.costs[-1].turn,
        growth=costs.warm_growth,
        slice_agents=rates[0].agents,
        servers="\n\n".join(map(_server, rates)),
    )


def _server(figures: slices.PostgresFigures) -> str:
    server = _DURABLE if figures.is_durable else _FAST
    table = _table(
        [
            "turns",
            *(f"per second, {side} over bare" for side in ("warm", "cold")),
            *(f"per second of CPU, {side} over bare" for side in ("warm", "cold")),
            *(f"per second, {side}" for side in ("warm", "cold", "bare")),
        ],
        [
            [f"{one.first} to {one.last}"]
            + [f"{one.warm_ratio:.2f}", f"{one.cold_ratio:.2f}"]
            + [f"{one.warm_cpu_ratio:.2f}", f"{one.cold_cpu_ratio:.2f}"]
            + [f"{rate:,.0f}" for rate in (one.warm, one.cold, one.bare)]
            for one in figures.rates
        ],
    )
    return f"{server}\n\n{table}\n\n{aim(figures.rates)}"


def aim(rates: Sequence[slices.Rates]) -> str:
    """Return over which turns the aim is met, and over which it is missed."""
    sides = {
        word: [f"{one.first} to {one.last}" for one in rates if (one.warm_ratio >= _AIM) is is_met]
        for word, is_met in (("met", True), ("missed", False))
    }
    return " ".join(
        f"The aim is {word} over the turns {' and '.join(spans)}." for word, spans in sides.items() if spans
    )


def _table(head: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def plot(costs: slices.Figures, path: Path) -> None:
    """Draw the cost of a completion over the turns."""
    import matplotlib as mpl  # type: ignore[import-not-found, unused-ignore]

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # type: ignore[import-not-found, unused-ignore]

    figure, axes = plt.subplots(figsize=(8, 4.5), dpi=120)
    turns = range(1, len(costs.warm_by_turn) + 1)
    for label, values, colour in (
        ("cold", costs.cold_by_turn, "#b35c00"),
        ("bare loop", costs.bare_by_turn, "#777777"),
        ("warm", costs.warm_by_turn, "#0b6e4f"),
    ):
        axes.plot(turns, values, label=label, color=colour, linewidth=1.6)
    axes.set_xlabel("turn")
    axes.set_ylabel("CPU per completion (ms)")
    axes.set_ylim(bottom=0)
    axes.set_title("One slice, as the conversation grows")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
