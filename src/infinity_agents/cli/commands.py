"""The commands of ``infinity``. Each imports what it runs when it runs, so that ``--help`` is there at once."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import InfinityError, Misconfigured
from .letter_commands import app as dead_letters
from .options import (
    AgentOption,
    BaseUrlOption,
    ConfigOption,
    FileOption,
    JsonOption,
    McpOption,
    ModelOption,
    PromptOption,
    StackOption,
    ToolServerOption,
    agent_config,
    flags_of,
    path_of,
    text_of,
    thread_of,
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
    help="A durable agent, in one SQLite file or on AWS: talk to it, host it, look into it.",
    epilog="Exit codes: 0 done, 1 not done, 2 wrong usage or configuration, 130 stopped by Ctrl-C.",
)
app.add_typer(tools, name="tools")
app.add_typer(dead_letters, name="dead-letters")

_MOST = 2**31 - 1
"""No agent has so many outputs or threads, and no database takes much larger numbers."""

ThreadArgument = Annotated[str, typer.Argument(parser=thread_of, help="The conversation.", metavar="THREAD")]


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
        str,
        typer.Argument(parser=thread_of, help="The conversation; main where none is named.", metavar="[THREAD]"),
    ] = "main",
    *,
    file: FileOption = None,
    config: ConfigOption = None,
    model: ModelOption = None,
    base_url: BaseUrlOption = None,
    tool_server: ToolServerOption = None,
    mcp: McpOption = None,
    prompt: PromptOption = None,
    stack: StackOption = None,
    agent: AgentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Talk to the agent. Leave at any moment: the next chat goes on where this one was.

    This process hosts the file where nobody else does; with --stack, the agent is on AWS, and its stores are read once
    a second. Without a terminal, each line of standard input is said, and its answer printed, one after the other;
    exits with 1 where a message was set aside.
    """
    from .chatting import run_chat

    needs = agent_config(
        file,
        config,
        model=model,
        base_url=base_url,
        tool_servers=tool_server,
        mcp_servers=mcp,
        prompt=prompt,
        stack=stack,
        agent=agent,
    )
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
    mcp: McpOption = None,
    prompt: PromptOption = None,
    as_json: JsonOption = False,
) -> None:
    """Host the file without a terminal, one line for each slice, until SIGTERM or Ctrl-C."""
    from .serving import run_host

    needs = agent_config(
        file,
        config,
        model=model,
        base_url=base_url,
        tool_servers=tool_server,
        mcp_servers=mcp,
        prompt=prompt,
    )
    asyncio.run(run_host(needs, as_json=as_json))


@app.command()
def slack(
    *,
    is_socket: Annotated[
        bool, typer.Option("--socket", help="By Socket Mode, which needs no URL that Slack can reach.")
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="The id of a user, a channel or a team that may talk to it; may be given again.", show_default=False
        ),
    ] = None,
    is_open: Annotated[bool, typer.Option("--allow-everyone", help="Whoever can write to it may talk to it.")] = False,
    file: FileOption = None,
    config: ConfigOption = None,
    model: ModelOption = None,
    base_url: BaseUrlOption = None,
    tool_server: ToolServerOption = None,
    mcp: McpOption = None,
    prompt: PromptOption = None,
    as_json: JsonOption = False,
) -> None:
    """Host the file, and let people talk to the agent in Slack, until SIGTERM or Ctrl-C.

    SLACK_BOT_TOKEN (xoxb-...) and SLACK_APP_TOKEN (xapp-...) are the tokens of the Slack app: examples/slack_agent has
    its manifest. Behind a URL of your own, the Slack functions on AWS do the same.
    """
    if not is_socket:
        raise typer.BadParameter("on this machine Slack is reached by Socket Mode only; give --socket")
    from ..settings.slack import SlackAccess
    from .slack import run_slack

    access = SlackAccess.parse(",".join(allow or ()), everyone=is_open)
    needs = agent_config(
        file,
        config,
        model=model,
        base_url=base_url,
        tool_servers=tool_server,
        mcp_servers=mcp,
        prompt=prompt,
    )
    asyncio.run(run_slack(needs, access, as_json=as_json))


@app.command()
def send(
    thread: ThreadArgument,
    text: Annotated[str, typer.Argument(help="What to say; - reads it from standard input.", metavar="TEXT")],
    *,
    message_id: Annotated[
        str | None,
        typer.Option(
            "--id", parser=text_of, metavar="TEXT", help="The message's id: sent again under it, it is heard once."
        ),
    ] = None,
    file: FileOption = None,
    config: ConfigOption = None,
    stack: StackOption = None,
    agent: AgentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say something to the agent and do not wait. Whoever hosts the file answers; tail shows it."""
    from .reading import say

    said = sys.stdin.read().strip() if text == "-" else text
    if not said.strip():
        raise typer.BadParameter("there is nothing to say; give a text, or - and a text on standard input")
    asyncio.run(say(agent_config(file, config, stack=stack, agent=agent), thread, said, message_id, as_json=as_json))


@app.command()
def tail(
    thread: Annotated[
        str | None,
        typer.Argument(parser=thread_of, help="The conversation; all of them where none is named.", metavar="[THREAD]"),
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
    stack: StackOption = None,
    agent: AgentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what people are told: place, thread, kind, text.

    With --stack, what is printed is taken off the output queue, so that no other reader (such as Slack) gets it too.
    """
    from .reading import print_outputs

    if stack is not None and since is not None:
        raise typer.BadParameter("--since is a place in the log of a file; a queue has none")
    needs = agent_config(file, config, stack=stack, agent=agent)
    asyncio.run(print_outputs(needs, thread, since and min(since, _MOST), follows=follow, as_json=as_json))


@app.command()
def threads(
    thread: Annotated[
        str | None,
        typer.Argument(parser=thread_of, help="The conversation; all of them where none is named.", metavar="[THREAD]"),
    ] = None,
    *,
    limit: Annotated[int, typer.Option(min=1, help="The most threads to show.")] = 1000,
    file: FileOption = None,
    config: ConfigOption = None,
    stack: StackOption = None,
    agent: AgentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the threads as trees: state, and what each waits for and since when."""
    from .reading import print_threads

    needs = agent_config(file, config, stack=stack, agent=agent)
    asyncio.run(print_threads(needs, thread, min(limit, _MOST), as_json=as_json))


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
    stack: StackOption = None,
    agent: AgentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the transcript of a thread, with the position of each entry."""
    from .reading import print_transcript

    needs = agent_config(file, config, stack=stack, agent=agent)
    asyncio.run(print_transcript(needs, thread, at, raw=raw, as_json=as_json))


@app.command()
def migrate(
    *,
    role: Annotated[
        str | None,
        typer.Option(help="The database user of the functions; made where it is missing.", show_default=False),
    ] = None,
    iam_role_arn: Annotated[
        list[str] | None,
        typer.Option(help="An IAM role that may connect as --role; may be given again.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a PostgreSQL or Aurora DSQL database up to date. A repeat changes nothing.

    The database is what the environment names: DATABASE_URL, or DSQL_CLUSTER_ENDPOINT and DSQL_DB_USER, as its admin.
    """
    from .migrating import run_migration

    if iam_role_arn and role is None:
        raise typer.BadParameter("--iam-role-arn needs --role: the database user to connect as")
    asyncio.run(run_migration(role, iam_role_arn or [], as_json=as_json))


@app.command()
def init(
    directory: Annotated[
        Path,
        typer.Argument(parser=path_of, help="Where the project goes; empty, or not there yet.", metavar="DIRECTORY"),
    ],
) -> None:
    """Write a new project: an agent, a tool with its test, and the CDK app that deploys them."""
    from .starting import write_project

    write_project(directory)


@app.command()
def doctor(
    *,
    file: FileOption = None,
    config: ConfigOption = None,
    model: ModelOption = None,
    base_url: BaseUrlOption = None,
    tool_server: ToolServerOption = None,
    mcp: McpOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check what the agent needs, and say how to mend what is missing. Exits with 1 if anything is."""
    from .doctor import examine
    from .doctor import report as tell

    flags = flags_of(file, config, model=model, base_url=base_url, tool_servers=tool_server, mcp_servers=mcp)
    findings = asyncio.run(examine(flags))
    raise typer.Exit(tell(findings, as_json=as_json))
