"""The runner itself: what a seed decides, what it finds, what it keeps; and a few cases of each target."""

import json
from contextlib import asynccontextmanager
from random import Random

import pytest

from tests.fuzz.__main__ import main
from tests.fuzz.decoders import MESSAGES
from tests.fuzz.model_streams import TARGETS as STREAMS
from tests.fuzz.mutation import Verbatim, mutated, spelt
from tests.fuzz.running import STEPS_PER_BYTE, Run, Target, kept_input
from tests.fuzz.targets import TARGETS

SEED = 7


@pytest.mark.parametrize(
    ("target", "cases"),
    # The SDKs of models take seconds to import.
    [pytest.param(each, 3, id=each.name, marks=[pytest.mark.slow] if each in STREAMS else []) for each in TARGETS],
)
async def test_the_first_cases_of_each_target_break_no_promise(target, cases):
    run = Run([target], SEED)
    await run.for_cases(cases)
    assert run.cases == {target.name: cases}
    assert [fault.told for fault in run.faults.values()] == []


def test_the_inputs_of_a_seed_are_always_the_same():
    for target in TARGETS:
        made = [Run([target], seed).made(target, number) for seed, number in ((1, 0), (1, 0), (1, 1), (2, 0))]
        assert made[0] == made[1]
    assert len({mutated(Random(number), MESSAGES[0]) for number in range(50)}) > 25


def test_a_value_is_spelt_as_json_would_not_be():
    assert spelt({"a": [Verbatim("NaN"), "x"], "b": Verbatim('1,"b":2')}) == '{"a": [NaN, "x"], "b": 1,"b":2}'


def target(check):
    @asynccontextmanager
    async def opened():
        yield check

    return Target("a_target", lambda random: "x" * random.randrange(10, 99), opened)


async def test_a_broken_promise_is_told_once_with_its_smallest_input_and_kept(tmp_path):
    def check(text):
        raise KeyError(text)

    run = Run([target(check)], SEED, tmp_path)
    await run.for_cases(30)
    (fault,) = run.faults.values()
    assert (fault.error, fault.count) == ("KeyError", 30)
    made = [run.made(run.targets[0], number) for number in range(30)]
    assert fault.made == min(made, key=len)
    assert made[fault.number] == fault.made
    (kept,) = tmp_path.glob("*.input")
    assert kept_input(kept) == fault.made
    again = Run(run.targets, SEED)
    await again.with_input(kept_input(kept))
    assert len(again.faults) == 1


async def test_a_handler_of_errors_does_not_hide_what_costs_too_many_steps(monkeypatch):
    monkeypatch.setattr("tests.fuzz.running.MOST_STEPS", 1_000)

    def check(text):
        try:
            for _ in range(2_000 + 99 * STEPS_PER_BYTE):
                len(text)
        except Exception:  # noqa: BLE001 - as a thread's edge does
            return

    run = Run([target(check)], SEED)
    await run.for_cases(1)
    assert [fault.error for fault in run.faults.values()] == ["TooManySteps"]


def test_the_command_reports_as_json_and_says_by_its_code_whether_all_is_well(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("logging.disable", lambda level: None)
    words = ["fuzz", "--seed", "7", "--case", "3", "--target", "traces", "--keep", str(tmp_path), "--json"]
    monkeypatch.setattr("sys.argv", words)
    assert main() == 0
    assert json.loads(capsys.readouterr().out) == {"seed": 7, "cases": {"traces": 1}, "faults": []}
    monkeypatch.setattr("sys.argv", ["fuzz", "--target", "nothing"])
    assert main() == 2
    assert "input_messages" in capsys.readouterr().out.split()
