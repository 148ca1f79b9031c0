"""The benchmarks run, do all of the work that they claim, and write their page. Their figures are not judged here."""

from dataclasses import replace

import psycopg
import pytest
from bench.workload import SCALE, SMALL, BareLoop, on_disk

from bench import agent_scale, report
from bench import slice as slices
from infinity_agents.errors import Misconfigured


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


async def test_slices_on_postgresql_do_all_of_their_turns(bare_postgres_url):
    figures = await slices.run_on_postgres(bare_postgres_url, agents=2, turns=6)
    assert (figures.agents, figures.turns, figures.is_durable) == (2, 6, False)
    assert [(rates.first, rates.last) for rates in figures.rates] == [(3, 6), (1, 6)]
    for rates in figures.rates:
        assert rates.warm_ratio == rates.warm / rates.bare
        assert rates.cold_ratio == rates.cold / rates.bare
        assert min(rates.warm_cpu_ratio, rates.cold_cpu_ratio) > 0
    with psycopg.connect(bare_postgres_url) as connection:
        bare = connection.execute("SELECT agent, count(*) FROM bare_entries GROUP BY 1 ORDER BY 1").fetchall()
        ours = connection.execute("SELECT thread_id, count(*) FROM infinity.entries GROUP BY 1 ORDER BY 1").fetchall()
    # In each turn a message, a completion, a result and a completion; ours has the call as an entry of its own.
    assert bare == [("agent-0", 24), ("agent-1", 24)]
    assert ours == [("cold-0", 30), ("cold-1", 30), ("warm-0", 30), ("warm-1", 30)]


async def test_a_database_that_is_in_use_is_left_alone(bare_postgres_url):
    with psycopg.connect(bare_postgres_url) as connection:
        connection.execute("CREATE TABLE orders (id int)")
    with pytest.raises(Misconfigured, match=r"public\.orders, 1 in all.*empty one"):
        await slices.run_on_postgres(bare_postgres_url, agents=1, turns=5)
    with psycopg.connect(bare_postgres_url) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname IN ('public', 'infinity')")
        assert found.fetchall() == [("orders",)]


async def test_the_page_tells_every_figure(tmp_path, bare_postgres_url):
    scale = await agent_scale.run(tmp_path, agents=4, turns=1, synchronous="OFF", bare_agents=4)
    (tmp_path / "slices").mkdir()
    costs = await slices.run(tmp_path / "slices", agents=1, turns=20, synchronous="OFF")
    rates = await slices.run_on_postgres(bare_postgres_url, agents=1, turns=5)
    page = report.document([scale], costs, [rates, replace(rates, is_durable=True)])
    assert "throughput, ours over bare" in page
    assert "commits wait for no disk" in page
    assert "commits wait for its disk" in page
    for one in rates.rates:
        assert f"| {one.first} to {one.last} | {one.warm_ratio:.2f} | {one.cold_ratio:.2f} |" in page
    assert "{" not in page


def test_the_page_says_where_the_aim_is_met_and_where_it_is_missed():
    met = slices.Rates(3, 7, *[0.5] * 7)
    missed = replace(met, first=1, last=20, warm_ratio=0.49)
    assert (
        report.aim((met, missed)) == "The aim is met over the turns 3 to 7. The aim is missed over the turns 1 to 20."
    )
    assert report.aim((missed,)) == "The aim is missed over the turns 1 to 20."
