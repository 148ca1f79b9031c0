"""What all tests share: the sum of the crash points that the run covered, and a PostgreSQL."""

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from infinity_agents.testing.postgres import PostgresServer, start
from tests.databases import TEMPLATE, emptied, make_template

_numbers = itertools.count()


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


@pytest.fixture(scope="session")
def worker_database(postgres: PostgresServer) -> str:
    """Return the connection string of the one database that this worker's tests take turns with."""
    return postgres.create(f"tests_{os.getpid()}", template=TEMPLATE)


@pytest.fixture
def postgres_url(worker_database: str) -> str:
    """Return the connection string of a database that is migrated and empty, with the limits of DSQL."""
    emptied(worker_database)
    return worker_database


@pytest.fixture
def bare_postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """Return the connection string of a database of the test's own, in which there is nothing yet."""
    name = f"bare_{os.getpid()}_{next(_numbers)}"
    yield postgres.create(name)
    postgres.drop(name)
