"""``infinity dead-letters``: messages that nobody could handle."""

import asyncio
from typing import Annotated

import typer

from .options import AgentOption, ConfigOption, FileOption, JsonOption, StackOption, agent_config, text_of

app = typer.Typer(no_args_is_help=True, help="Messages that nobody could handle: see why, try again, or forget them.")

LetterArguments = Annotated[list[str], typer.Argument(parser=text_of, help="What `list` calls them.", metavar="ID...")]


@app.command("list")
def list_(
    *,
    file: FileOption = None,
    config: ConfigOption = None,
    stack: StackOption = None,
    agent: AgentOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the dead letters, oldest first: id, thread, when, and why."""
    from .letters import print_letters

    asyncio.run(print_letters(agent_config(file, config, stack=stack, agent=agent), as_json=as_json))


@app.command()
def show(
    letter: Annotated[str, typer.Argument(parser=text_of, help="What `list` calls it.", metavar="ID")],
    *,
    file: FileOption = None,
    config: ConfigOption = None,
    stack: StackOption = None,
    agent: AgentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print one dead letter with the message as it came."""
    from .letters import print_letter

    asyncio.run(print_letter(agent_config(file, config, stack=stack, agent=agent), letter, as_json=as_json))


@app.command()
def redrive(
    letters: LetterArguments,
    *,
    file: FileOption = None,
    config: ConfigOption = None,
    stack: StackOption = None,
    agent: AgentOption = None,
) -> None:
    """Put dead letters back on the queue. What was heard already is not heard again."""
    from .letters import put_back

    asyncio.run(put_back(agent_config(file, config, stack=stack, agent=agent), letters))


@app.command()
def discard(
    letters: LetterArguments,
    *,
    file: FileOption = None,
    config: ConfigOption = None,
    stack: StackOption = None,
    agent: AgentOption = None,
) -> None:
    """Forget dead letters for ever."""
    from .letters import forget

    asyncio.run(forget(agent_config(file, config, stack=stack, agent=agent), letters))
