"""The Lambda functions: entry points, one short file each, and the wiring that builds the adapters once per sandbox.

``tool_handler`` makes a function of anybody's tool server.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import garbage

if TYPE_CHECKING:
    from .tool_servers import tool_handler

__all__ = ["tool_handler"]

if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
    garbage.spare_cold_start()


def __getattr__(name: str) -> Any:
    # Imported when asked for: the other functions must not pay for it at their cold start.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".tool_servers", __name__), name)
