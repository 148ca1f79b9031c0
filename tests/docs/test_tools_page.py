"""The page about tools names all that the kit offers."""

import re
from pathlib import Path

import pytest

from infinity_agents.rap import server
from infinity_agents.rap.context import ToolContext

PAGE = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")
OFFERED = {
    *server.__all__,
    *(name for kind in (server.ToolServer, ToolContext) for name in vars(kind) if not name.startswith("_")),
    *server.ToolOptions.__annotations__,
}


@pytest.mark.parametrize("name", sorted(OFFERED - {"aclose"}))
def test_what_the_kit_offers_is_named(name):
    assert re.search(rf"\b{name}\b", PAGE)
