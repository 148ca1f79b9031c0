"""``infinity tools``: what a tool server offers, one call of it, and whether it speaks the protocol."""

import asyncio
from typing import Annotated

import typer

from .options import ConfigOption, JsonOption, McpOption, agent_config

app = typer.Typer(no_args_is_help=True, help="What a tool server offers, a call by hand, and a check of any server.")

UrlArgument = Annotated[str, typer.Argument(help="The server's base URL.", metavar="URL")]


@app.command("list")
def list_(
    url: Annotated[
        str | None, typer.Argument(help="The server's base URL; the configured ones where none is.", metavar="[URL]")
    ] = None,
    config: ConfigOption = None,
    mcp: McpOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tools of a server, with their arguments."""
    from .tooling import print_tools

    raise typer.Exit(asyncio.run(print_tools(agent_config(None, config, mcp_servers=mcp), url, as_json=as_json)))


@app.command()
def call(
    url: UrlArgument,
    name: Annotated[str, typer.Argument(help="The tool.", metavar="NAME")],
    arguments: Annotated[str, typer.Argument(help="Its arguments, as a JSON object.", metavar="JSON")] = "{}",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Call a tool, and print its result and its events. Exits with 1 where the result is an error."""
    from .tooling import call_tool

    raise typer.Exit(asyncio.run(call_tool(agent_config(None, config), url, name, arguments, as_json=as_json)))


@app.command("test")
def check(
    url: UrlArgument,
    *,
    example: Annotated[
        list[str] | None,
        typer.Option("--example", help="Arguments to call a tool with, as NAME=JSON; may be given again."),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a server against the protocol, and print what it breaks. Exits with 1 where it breaks anything.

    Tools that say readOnly or idempotent are called, with arguments made from their schemas; others by --example alone.
    """
    from .tooling import check_server

    raise typer.Exit(asyncio.run(check_server(agent_config(None, config), url, example or (), as_json=as_json)))
