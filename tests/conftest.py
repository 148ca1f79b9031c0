"""What all tests share: the sum of the crash points that the run covered."""

from collections import Counter
from typing import Any

import pytest


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many crash points and interleavings were covered, by embedding."""
    covered: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", []):
            if name.startswith("covered: "):
                covered[name.removeprefix("covered: ")] += value
    for name, count in sorted(covered.items()):
        terminalreporter.write_line(f"covered: {count} {name}")


@pytest.fixture
def covered(record_property: Any) -> Any:
    """Return the way to tell how many points of what kind a test covered."""

    def tell(what: str, count: int) -> None:
        record_property(f"covered: {what}", count)

    return tell
