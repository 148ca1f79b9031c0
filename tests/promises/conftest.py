"""What the tests of the promises share."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from infinity_agents.testing.world import OpenAdapters
from tests.embeddings import in_a_file


@pytest.fixture
def in_files(tmp_path: Path) -> Callable[[], OpenAdapters]:
    """Return an embedding that has a new file each time; only one of them is there at a time."""
    numbers = count()

    def embedding() -> OpenAdapters:
        for old in tmp_path.iterdir():
            old.unlink()
        return in_a_file(tmp_path / f"{next(numbers)}.db")

    return embedding
