"""A durable agent runtime: an agent is a conversation in a database, and a message wakes it for one short step.

The two front doors are ``LocalAgent``, an agent in one SQLite file, and ``ToolServer``, for whoever writes tools.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .local.wiring import LocalAgent
    from .rap.server import ToolServer

__all__ = ["LocalAgent", "ToolServer"]

_DOORS = {"LocalAgent": ".local.wiring", "ToolServer": ".rap.server"}


def __getattr__(name: str) -> Any:
    # Imported when asked for: a function that needs neither must not pay for them at its cold start.
    if name not in _DOORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_DOORS[name], __name__), name)
