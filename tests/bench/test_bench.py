"""The benchmarks run, do all of the work that they claim, and write their page. Their figures are not judged here."""

from bench.workload import SCALE, SMALL, BareLoop, on_disk

from bench import agent_scale, report
from bench import slice as slices


async def test_agents_do_all_of_their_turns(tmp_path):
    figures = await agent_scale.run(tmp_path, agents=12, turns=2, synchronous="OFF", bare_agents=6)
    assert (figures.agents, figures.turns, figures.completions) == (12, 2, 48)
    assert figures.disk_ratio >= figures.disk_ratio_without_outputs > 0
    # The text alone of each agent: two turns, and one more to warm up.
    assert figures.disk_bytes_per_agent > 3 * (SCALE.message + len(SCALE.first_text) + SCALE.result)


async def test_slices_are_measured_at_every_turn(tmp_path):
    figures = await slices.run(tmp_path, agents=2, turns=20, synchronous="OFF")
    assert [cost.turn for cost in figures.costs] == [5, 20]
    assert [len(turns) for turns in (figures.warm_by_turn, figures.cold_by_turn, figures.bare_by_turn)] == [20, 20, 20]


def test_the_bare_loop_keeps_what_it_appends(tmp_path):
    loop = BareLoop(tmp_path / "bare.db", SMALL, "OFF")
    for _ in range(50):
        loop.turn("a")
    loop.close()
    assert on_disk(tmp_path / "bare.db") > 50 * (SMALL.message + SMALL.result)


async def test_the_page_tells_every_figure(tmp_path):
    scale = await agent_scale.run(tmp_path, agents=4, turns=1, synchronous="OFF", bare_agents=4)
    (tmp_path / "slices").mkdir()
    costs = await slices.run(tmp_path / "slices", agents=1, turns=20, synchronous="OFF")
    page = report.document([scale], costs)
    assert "throughput, ours over bare" in page
    assert "{" not in page
