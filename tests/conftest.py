"""What all tests share: the sum of the crash points that the run covered, and a PostgreSQL."""

import os
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from infinity_agents.testing.postgres import PostgresServer, start
from tests.databases import TEMPLATE, make_template

_numbers = count()


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


@pytest.fixture(scope="session")
def postgres() -> PostgresServer:
    """Return the run's PostgreSQL, which all its workers share, with the template of the tests' databases in it."""
    server = start(os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid()}"))
    with server.alone():
        if not server.has(TEMPLATE):
            make_template(server)
    return server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """Return the connection string of a database of the test's own: migrated, empty, with the limits of DSQL."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    yield postgres.create(name, template=TEMPLATE)
    postgres.drop(name)
