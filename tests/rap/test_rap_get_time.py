"""The get-time server."""

from datetime import UTC, datetime

import pytest

from infinity_agents.rap.display_script import evaluate
from infinity_agents.toolsets.get_time import get_time, server, time_in

MOMENT = datetime(2026, 11, 29, 9, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("timezone", "said"),
    [
        ("Asia/Tokyo", "2026-11-29 18:04:05 JST (Asia/Tokyo, UTC+09:00)"),
        ("UTC", "2026-11-29 09:04:05 UTC (UTC, UTC+00:00)"),
        ("America/New_York", "2026-11-29 04:04:05 EST (America/New_York, UTC-05:00)"),
        ("Asia/Kathmandu", "2026-11-29 14:49:05 +0545 (Asia/Kathmandu, UTC+05:45)"),
    ],
)
def test_the_clocks_of_a_zone(timezone, said):
    assert time_in(timezone, MOMENT) == said


@pytest.mark.parametrize(
    ("timezone", "remedy"),
    [
        ("Tokyo", "Asia/Tokyo"),
        ("new york", "America/New_York"),
        ("asia/tokyo ", "Asia/Tokyo"),
        ("", "Europe/Berlin"),
        ("Middle Earth", "Europe/Berlin"),
        ("../../etc/passwd", "Europe/Berlin"),
        ("/etc/passwd", "Europe/Berlin"),
        ("America", "America/"),
        ("a\x00b", "Europe/Berlin"),
        ("\ud800", "Europe/Berlin"),
        ("x" * 10_000, "Europe/Berlin"),
    ],
)
def test_an_unknown_zone_names_one_that_there_is(timezone, remedy):
    with pytest.raises(ValueError, match=f"there is no time zone .*; use an IANA name such as .*{remedy}") as caught:
        time_in(timezone, MOMENT)
    assert len(str(caught.value)) < 300


def test_now_by_default_in_utc():
    assert get_time().endswith("UTC (UTC, UTC+00:00)")


def test_how_people_see_it():
    script = server._tools["get_time"].offered.display_script
    assert evaluate(script, {"timezone": "Asia/Tokyo"}) == "Time in Asia/Tokyo"
    assert evaluate(script, {}) == "Time in UTC"
