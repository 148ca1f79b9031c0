"""The command line, ``infinity``: one agent in one file, for people and for scripts."""

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
    app(prog_name="infinity")
