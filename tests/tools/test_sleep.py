"""Sleep: until when, what the clock does to that, and what is said on waking."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from infinity_agents.conversation.ledger import Call, CallState
from infinity_agents.errors import TellModel
from infinity_agents.runtime.arguments import check_arguments
from infinity_agents.testing.doubles import FrozenClock
from infinity_agents.tools import built_in
from infinity_agents.tools.sleep import Sleep, SleepUntil, SleepUntilEventOrInput

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Timers:
    """The part of a dispatched call's context that sleep uses."""

    def __init__(self):
        self.set = []

    async def set_timer(self, call, text):
        self.set.append((call.wakes_at, text))


def call(**arguments):
    return Call("c", "sleep", arguments, CallState.OPEN, NOW, is_passive=True)


async def answered(tool, made):
    return await tool.execute_synchronous(made, None)


async def set_for(tool, made):
    timers = Timers()
    await tool.execute(replace(made, wakes_at=tool.wakes_at(made)), timers)
    return timers.set


def until(date, time, timezone=None, *, now=NOW):
    """Return the tool at ``now``, and a call of it."""
    zone = {} if timezone is None else {"timezone": timezone}
    return SleepUntil(FrozenClock(now)), call(date=date, time=time, **zone)


class TestSleep:
    async def test_it_wakes_after_so_many_seconds(self):
        assert Sleep().wakes_at(call(seconds=90)) == NOW + timedelta(seconds=90)
        assert Sleep().wakes_at(call(seconds=0.5)) == NOW + timedelta(seconds=0.5)
        assert await answered(Sleep(), call(seconds=90)) is None

    async def test_the_timer_says_what_for(self):
        ((at, text),) = await set_for(Sleep(), call(seconds=90, reason="the eggs"))
        assert at == NOW + timedelta(seconds=90)
        assert "90 seconds" in text
        assert "the eggs" in text

    async def test_without_a_reason_it_gives_none(self):
        ((_, text),) = await set_for(Sleep(), call(seconds=90, reason=" "))
        assert "for:" not in text

    @pytest.mark.parametrize("seconds", [0, -1, -0.0, -1e300, -(10**400)])
    async def test_past_already(self, seconds):
        assert Sleep().wakes_at(call(seconds=seconds)) == NOW
        answer = await answered(Sleep(), call(seconds=seconds))
        assert not answer.is_error
        assert "over already" in answer.content[0].text

    @pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e300, 10**400, 6 * 366 * 86400])
    async def test_no_time_that_anybody_could_wait_for(self, seconds):
        with pytest.raises(TellModel):
            Sleep().wakes_at(call(seconds=seconds))
        with pytest.raises(TellModel):
            await answered(Sleep(), call(seconds=seconds))

    @pytest.mark.parametrize(
        "arguments", [{}, {"seconds": "90"}, {"seconds": True}, {"seconds": None}, {"seconds": 1e10}]
    )
    def test_the_schema_refuses(self, arguments):
        with pytest.raises(TellModel):
            check_arguments("sleep", Sleep().spec.input_schema, arguments)


class TestSleepUntil:
    @pytest.mark.parametrize(
        ("date", "time", "timezone", "moment"),
        [
            ("2026-06-01", "09:00", None, datetime(2026, 6, 1, 9, tzinfo=UTC)),
            ("2026-06-01", "09:00:30", "UTC", datetime(2026, 6, 1, 9, 0, 30, tzinfo=UTC)),
            ("2026-06-01", "09:00", "Europe/Berlin", datetime(2026, 6, 1, 7, tzinfo=UTC)),
            ("2026-12-01", "09:00", "Europe/Berlin", datetime(2026, 12, 1, 8, tzinfo=UTC)),
            ("2026-06-01", "09:00", "Asia/Kolkata", datetime(2026, 6, 1, 3, 30, tzinfo=UTC)),
            ("2028-02-29", "00:00", "America/New_York", datetime(2028, 2, 29, 5, tzinfo=UTC)),
        ],
    )
    async def test_a_time_on_the_wall(self, date, time, timezone, moment):
        tool, made = until(date, time, timezone)
        assert tool.wakes_at(made) == moment
        assert await answered(tool, made) is None
        ((at, text),) = await set_for(tool, made)
        assert at == moment
        assert date in text
        assert time in text
        assert "(The clock" not in text
        assert "twice" not in text

    @pytest.mark.parametrize(
        ("date", "time", "timezone", "moment", "local"),
        [
            ("2026-03-29", "02:00", "Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC), "03:00"),
            ("2026-03-29", "02:30", "Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC), "03:00"),
            ("2026-03-29", "02:59:59", "Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC), "03:00"),
            ("2026-03-08", "02:30", "America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC), "03:00"),
            ("2026-10-04", "02:10", "Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC), "02:30"),
        ],
    )
    async def test_a_time_that_the_clock_skips(self, date, time, timezone, moment, local):
        tool, made = until(date, time, timezone)
        assert tool.wakes_at(made) == moment
        ((at, text),) = await set_for(tool, made)
        assert at == moment
        assert "first instant after the gap" in text
        assert local in text

    async def test_a_day_that_the_calendar_skips(self):
        # Samoa went from Thursday, 29 December 2011 to Saturday, 31 December.
        tool, made = until("2011-12-30", "10:00", "Pacific/Apia", now=datetime(2011, 12, 1, tzinfo=UTC))
        assert tool.wakes_at(made) == datetime(2011, 12, 30, 10, tzinfo=UTC)
        ((_, text),) = await set_for(tool, made)
        assert "2011-12-31 00:00" in text

    @pytest.mark.parametrize(
        ("date", "time", "timezone", "moment"),
        [
            ("2026-10-25", "02:00", "Europe/Berlin", datetime(2026, 10, 25, 0, tzinfo=UTC)),
            ("2026-10-25", "02:30", "Europe/Berlin", datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
            ("2026-11-01", "01:30", "America/New_York", datetime(2026, 11, 1, 5, 30, tzinfo=UTC)),
        ],
    )
    async def test_a_time_that_comes_twice_is_the_first(self, date, time, timezone, moment):
        tool, made = until(date, time, timezone)
        assert tool.wakes_at(made) == moment
        ((_, text),) = await set_for(tool, made)
        assert "the first" in text

    @pytest.mark.parametrize(
        ("date", "time"),
        [("2026-03-29", "01:59:59"), ("2026-03-29", "03:00"), ("2026-10-25", "01:59"), ("2026-10-25", "03:00")],
    )
    async def test_times_beside_a_change_are_ordinary(self, date, time):
        ((_, text),) = await set_for(*until(date, time, "Europe/Berlin"))
        assert "gap" not in text
        assert "twice" not in text

    @pytest.mark.parametrize(
        ("date", "time", "timezone"),
        [
            ("2026-03-01", "12:00", None),
            ("2026-02-28", "23:00", None),
            ("0001-01-02", "00:00", "UTC"),
            ("2026-03-01", "12:59", "Europe/Berlin"),
        ],
    )
    async def test_a_time_that_is_past(self, date, time, timezone):
        answer = await answered(*until(date, time, timezone))
        assert not answer.is_error
        assert "past already" in answer.content[0].text
        assert "2026-03-01 12:00:00 UTC" in answer.content[0].text

    async def test_a_time_that_was_skipped_and_is_past_says_both(self):
        tool, made = until("2026-03-29", "02:30", "Europe/Berlin", now=datetime(2026, 4, 1, tzinfo=UTC))
        text = (await answered(tool, made)).content[0].text
        assert "past already" in text
        assert "gap" in text

    @pytest.mark.parametrize(
        ("date", "time"),
        [
            ("2026-02-30", "09:00"),
            ("2026-13-01", "09:00"),
            ("tomorrow", "09:00"),
            ("", ""),
            ("2026-06-01", "25:00"),
            ("2026-06-01", "9 o'clock"),
            ("2026-06-01", "09:00:61"),
            ("0000-01-01", "09:00"),
            ("10000-01-01", "09:00"),
            ("2026-06-01\x00", "09:00"),
        ],
    )
    def test_nonsense_is_told_with_the_spelling_that_is_meant(self, date, time):
        tool, made = until(date, time)
        with pytest.raises(TellModel, match="YYYY-MM-DD"):
            tool.wakes_at(made)

    @pytest.mark.parametrize("time", ["09:00+02:00", "09:00Z"])
    def test_a_time_with_an_offset(self, time):
        tool, made = until("2026-06-01", time)
        with pytest.raises(TellModel, match="timezone"):
            tool.wakes_at(made)

    @pytest.mark.parametrize(
        "timezone",
        [
            "Europe/Atlantis",
            "",
            "Europe",
            "CEST+1x",
            "../../etc/passwd",
            "/etc/localtime",
            "a\x00b",
            "\ud800",
            "x" * 5000,
        ],
    )
    def test_an_unknown_zone(self, timezone):
        tool, made = until("2026-06-01", "09:00", timezone)
        with pytest.raises(TellModel, match="is unknown"):
            tool.wakes_at(made)

    @pytest.mark.parametrize(
        ("date", "time", "timezone"),
        [("9999-12-31", "23:00", "America/New_York"), ("0001-01-01", "00:00", "Asia/Tokyo")],
    )
    def test_times_that_no_calendar_has(self, date, time, timezone):
        tool, made = until(date, time, timezone)
        with pytest.raises(TellModel, match="out of range"):
            tool.wakes_at(made)

    async def test_a_time_that_is_too_far_away(self):
        with pytest.raises(TellModel, match="too far away"):
            await answered(*until("2099-01-01", "00:00"))


class TestSleepUntilEventOrInput:
    async def test_only_what_arrives_wakes_it(self):
        tool, made = SleepUntilEventOrInput(), call()
        assert tool.wakes_at(made) is None
        assert await answered(tool, made) is None
        timers = Timers()
        await tool.execute(made, timers)
        assert timers.set == []


def test_only_the_sleep_family_is_passive():
    tools = built_in(FrozenClock())
    assert {tool.spec.name for tool in tools if tool.is_passive} == {
        "sleep",
        "sleep_until",
        "sleep_until_event_or_input",
    }
    assert {tool.spec.name for tool in tools if not tool.is_passive} == {
        "spawn_thread",
        "report_to_parent",
        "send_message_to_child",
        "close_thread",
        "cancel_tool_call",
        "cancel_subscription",
    }
    assert all(tool.tool_set is None for tool in tools)


@pytest.mark.parametrize("tool", built_in(FrozenClock()), ids=lambda tool: tool.spec.name)
def test_a_call_is_shown_in_one_line_whatever_its_arguments(tool):
    for arguments in ({}, {"seconds": "\x1b[31m", "thread_id": "a\nb", "date": 7}, dict.fromkeys("abc", "x" * 999)):
        assert tool.display(arguments)
