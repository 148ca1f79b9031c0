"""The command line, ``infinity``: one agent in one file, for people and for scripts."""

import errno
import os
import sys


def main() -> None:
    """Run the command that the process was given."""
    try:
        from .commands import app
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        sys.exit(f"the command line needs {error.name}: pip install 'infinity-agents[local]'")
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # What a terminal or a pipe cannot carry is no reason to stop.
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="infinity")
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        # What is left to be written would fail once more when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(f"error: what is printed cannot be written ({error.strerror}); what was asked for may be done")
