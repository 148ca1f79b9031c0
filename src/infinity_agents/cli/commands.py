"""The commands of ``infinity``. Each imports what it runs when it runs, so that ``--help`` is there at once."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from ..errors import InfinityError, Misconfigured
from .options import (
    BaseUrlOption,
    ConfigOption,
    FileOption,
    JsonOption,
    ModelOption,
    PromptOption,
    ToolServerOption,
)

_EPILOG = "Exit codes: 0 done, 1 not done, 2 wrong usage or configuration, 130 stopped by Ctrl-C."
