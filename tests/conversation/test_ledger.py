"""The ledger: what is still expected of a call, and how long."""

from datetime import timedelta

import pytest

from infinity_agents.conversation.ledger import ACTIVE_STATES, CallState
from tests.conversation.building import HOUR, NOW, a_slice, call, effects, nap, timed_nap


def test_something_is_expected_of_calls_that_run_and_of_subscriptions():
    assert {str(state) for state in ACTIVE_STATES} == {"open", "detached", "subscribed"}


@pytest.mark.parametrize("state", CallState)
def test_only_what_runs_has_a_deadline(state):
    row = call("c", deadline_at=NOW).now(state)
    assert row.state is state
    assert (row.deadline_at == NOW) is (state in {CallState.OPEN, CallState.DETACHED})
    stopped = call("c", deadline_at=NOW).with_clock_stopped(NOW).now(state)
    assert (stopped.time_left is not None) is (state in {CallState.OPEN, CallState.DETACHED})


class TestTheClock:
    def test_it_stops_and_runs_again(self):
        row = call("c", deadline_at=NOW + HOUR).with_clock_stopped(NOW)
        assert (row.deadline_at, row.time_left) == (None, HOUR)
        row = row.with_clock_running(NOW + 5 * HOUR)
        assert (row.deadline_at, row.time_left) == (NOW + 6 * HOUR, None)

    def test_stopping_it_twice_loses_nothing(self):
        row = call("c", deadline_at=NOW + HOUR).with_clock_stopped(NOW).with_clock_stopped(NOW + HOUR)
        assert row.time_left == HOUR

    def test_running_it_twice_changes_nothing(self):
        row = call("c", deadline_at=NOW + HOUR)
        assert row.with_clock_running(NOW + 9 * HOUR) is row

    def test_a_call_without_one(self):
        assert nap("n").with_clock_stopped(NOW) == nap("n")

    def test_time_that_is_over(self):
        assert call("c", deadline_at=NOW - HOUR).with_clock_stopped(NOW).time_left == timedelta()


class TestCancelling:
    @pytest.mark.parametrize(
        ("row", "told"),
        [
            (call("c", "detached"), ["cancel notice for c"]),
            (call("c", "subscribed"), ["cancel notice for c", "drop subscription"]),
            (timed_nap("c", "detached"), ["cancel timer of c"]),
            (nap("c"), []),
        ],
    )
    def test_whoever_works_on_it_is_told(self, row, told):
        slice_ = a_slice(calls=[row])
        slice_.cancel(row)
        assert effects(slice_) == told
        assert slice_.calls["c"].state == "cancelled"
