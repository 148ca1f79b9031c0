"""The commands of ``infinity``. Each imports what it runs when it runs, so that ``--help`` is there at once."""

import asyncio
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import InfinityError, Misconfigured
from .letter_commands import app as dead_letters
from .options import (
    BaseUrlOption,
    ConfigOption,
    FileOption,
    JsonOption,
    ModelOption,
    PromptOption,
    ToolServerOption,
    agent_config,
    flags_of,
    version_of,
)
from .tool_commands import app as tools


class Commands(TyperGroup):
    """Turns what goes wrong into one message on standard error and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; exit with 2 where a setting must be mended, with 1 where something else failed."""
        try:
            return super().invoke(ctx)
        except InfinityError as error:
            from .rendering import complain

            complain(str(error))
            raise typer.Exit(2 if isinstance(error, Misconfigured) else 1) from error


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A durable agent in one SQLite file: talk to it, host it, look into it.",
    epilog="Exit codes: 0 done, 1 not done, 2 wrong usage or configuration, 130 stopped by Ctrl-C.",
)
app.add_typer(tools, name="tools")
app.add_typer(dead_letters, name="dead-letters")

ThreadArgument = Annotated[str, typer.Argument(help="The conversation.", metavar="THREAD")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_of("infinity-agents") or "from its source")
        raise typer.Exit


@app.callback()
def _infinity(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def chat(
    thread: Annotated[
        str, typer.Argument(help="The conversation; main where none is named.", metavar="[THREAD]")
    ] = "main",
    *,
    file: FileOption = None,
    config: ConfigOption = None,
    model: ModelOption = None,
    base_url: BaseUrlOption = None,
    tool_server: ToolServerOption = None,
    prompt: PromptOption = None,
    as_json: JsonOption = False,
) -> None:
    """Talk to the agent. Leave at any moment: the next chat goes on where this one was.

    This process hosts the file where nobody else does. Without a terminal, each line of standard input is said, and
    its answer printed, one after the other; exits with 1 where a message was set aside.
    """
    from .chatting import run_chat

    needs = agent_config(file, config, model=model, base_url=base_url, tool_servers=tool_server, prompt=prompt)
    try:
        code = asyncio.run(run_chat(needs, thread, as_json=as_json))
    except asyncio.CancelledError as error:
        # A second Ctrl-C, while what runs was being finished.
        raise typer.Exit(130) from error
    raise typer.Exit(code)


@app.command()
def serve(
    *,
    file: FileOption = None,
    config: ConfigOption = None,
    model: ModelOption = None,
    base_url: BaseUrlOption = None,
    tool_server: ToolServerOption = None,
    prompt: PromptOption = None,
    as_json: JsonOption = False,
) -> None:
    """Host the file without a terminal, one line for each slice, until SIGTERM or Ctrl-C."""
    from .serving import run_host

    needs = agent_config(file, config, model=model, base_url=base_url, tool_servers=tool_server, prompt=prompt)
    asyncio.run(run_host(needs, as_json=as_json))


@app.command()
def send(
    thread: ThreadArgument,
    text: Annotated[str, typer.Argument(help="What to say; - reads it from standard input.", metavar="TEXT")],
    *,
    message_id: Annotated[
        str | None, typer.Option("--id", help="The message's id: sent again under it, it is heard once.")
    ] = None,
    file: FileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say something to the agent and do not wait. Whoever hosts the file answers; tail shows it."""
    from .reading import say

    said = sys.stdin.read().strip() if text == "-" else text
    if not said.strip():
        raise typer.BadParameter("there is nothing to say; give a text, or - and a text on standard input")
    asyncio.run(say(agent_config(file, config), thread, said, message_id, as_json=as_json))


@app.command()
def tail(
    thread: Annotated[
        str | None, typer.Argument(help="The conversation; all of them where none is named.", metavar="[THREAD]")
    ] = None,
    *,
    since: Annotated[
        int | None,
        typer.Option(min=0, help="Begin behind this place of the log, 0 for all of it; else with the last ten."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for more, or end with what is there.")
    ] = True,
    file: FileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what people are told: place, thread, kind, text."""
    from .reading import print_outputs

    asyncio.run(print_outputs(agent_config(file, config), thread, since, follows=follow, as_json=as_json))


@app.command()
def threads(
    thread: Annotated[
        str | None, typer.Argument(help="The conversation; all of them where none is named.", metavar="[THREAD]")
    ] = None,
    *,
    limit: Annotated[int, typer.Option(min=1, help="The most threads to show.")] = 1000,
    file: FileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the threads as trees: state, and what each waits for and since when."""
    from .reading import print_threads

    asyncio.run(print_threads(agent_config(file, config), thread, limit, as_json=as_json))


@app.command()
def show(
    thread: ThreadArgument,
    *,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the entries as they are stored, one JSON for each.")
    ] = False,
    at: Annotated[int | None, typer.Option(min=0, help="Only the entries up to this position.")] = None,
    file: FileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the transcript of a thread, with the position of each entry."""
    from .reading import print_transcript

    asyncio.run(print_transcript(agent_config(file, config), thread, at, raw=raw, as_json=as_json))


@app.command()
def doctor(
    *,
    file: FileOption = None,
    config: ConfigOption = None,
    model: ModelOption = None,
    base_url: BaseUrlOption = None,
    tool_server: ToolServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check what the agent needs, and say how to mend what is missing. Exits with 1 if anything is."""
    from .doctor import examine
    from .doctor import report as tell

    findings = asyncio.run(examine(flags_of(file, config, model=model, base_url=base_url, tool_servers=tool_server)))
    raise typer.Exit(tell(findings, as_json=as_json))
