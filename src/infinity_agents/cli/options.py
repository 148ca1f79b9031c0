"""The flags that several commands have."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..conversation import ids
from ..errors import Misconfigured

if TYPE_CHECKING:
    from .config import AgentConfig, Flags


def path_of(text: str) -> Path:
    """Return the path that ``text`` is; an empty one would be the current directory.

    Raises:
        typer.BadParameter: it is empty.
    """
    if not text.strip():
        raise typer.BadParameter("it is empty; give a path, such as one beside you or . for this directory")
    return Path(text)


def text_of(text: str) -> str:
    """Return ``text``, which stands for something: a name, an id, a URL.

    Raises:
        typer.BadParameter: it is empty, or bytes that are no text.
    """
    if not text.strip():
        raise typer.BadParameter("it is empty; give one, or leave the option away")
    if not text.isascii() and text.encode(errors="replace").decode() != text:
        raise typer.BadParameter(f"{text[:100]!r} is no text in UTF-8; give it as that")
    return text


def thread_of(text: str) -> str:
    """Return the name of a thread.

    Raises:
        Misconfigured: no queue takes it.
    """
    if not ids.is_sendable(text):
        raise Misconfigured(
            f"{text[:140]!r} cannot be a thread: its name has 1 to {ids.MAX_ID} letters, digits and punctuation of "
            "ASCII, and no spaces"
        )
    return text


FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        parser=path_of,
        metavar="PATH",
        help="The agent's file; agent.db where nothing names one.",
        show_default=False,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        parser=path_of,
        metavar="PATH",
        help="What the agent needs; infinity.toml where that is there.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        parser=text_of,
        metavar="TEXT",
        help="demo, openai:NAME, anthropic:NAME or bedrock:NAME; for new threads.",
        show_default=False,
    ),
]
BaseUrlOption = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        parser=text_of,
        metavar="TEXT",
        help="The model's endpoint, such as http://127.0.0.1:11434/v1.",
        show_default=False,
    ),
]
ToolServerOption = Annotated[
    list[str] | None,
    typer.Option("--tool-server", "-t", help="The base URL of a tool server; may be given again.", show_default=False),
]
McpOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mcp",
        help="An MCP server: a URL, or a command such as 'uvx mcp-server-time'; may be given again.",
        show_default=False,
    ),
]
PromptOption = Annotated[str | None, typer.Option("--prompt", help="The agent's system prompt.", show_default=False)]

StackOption = Annotated[
    str | None,
    typer.Option(
        "--stack",
        "-s",
        help="An agent on AWS, by its stack; AWS_REGION and AWS_PROFILE say where.",
        show_default=False,
    ),
]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        parser=text_of,
        metavar="TEXT",
        help="Which agent of the stack, where there are several.",
        show_default=False,
    ),
]


def flags_of(
    file: Path | None,
    config: Path | None,
    *,
    model: str | None = None,
    base_url: str | None = None,
    tool_servers: Sequence[str] | None = None,
    mcp_servers: Sequence[str] | None = None,
    prompt: str | None = None,
) -> "Flags":
    """Return what the command line says."""
    from .config import Flags

    return Flags(
        config,
        file,
        model=model,
        base_url=base_url,
        tool_servers=tool_servers or (),
        mcp_servers=mcp_servers or (),
        prompt=prompt,
    )


def agent_config(
    file: Path | None,
    config: Path | None,
    *,
    model: str | None = None,
    base_url: str | None = None,
    tool_servers: Sequence[str] | None = None,
    mcp_servers: Sequence[str] | None = None,
    prompt: str | None = None,
    stack: str | None = None,
    agent: str | None = None,
) -> "AgentConfig":
    """Return what the command line and the configuration file say together; with a ``stack``, no file is asked.

    Raises:
        Misconfigured: the file cannot be read, or says what it cannot, or a flag does not go with ``stack``.
    """
    from .config import AgentConfig, Stack, configured

    if stack is not None:
        given = {"--file": file, "--config": config, "--model": model, "--base-url": base_url, "--prompt": prompt}
        others = [
            name for name, value in {**given, "--tool-server": tool_servers, "--mcp": mcp_servers}.items() if value
        ]
        if others:
            raise Misconfigured(f"{others[0]} is for an agent in a file, and --stack names a deployed one; drop one")
        return AgentConfig(stack=Stack(stack, agent))
    if agent is not None:
        raise Misconfigured("--agent chooses among the agents of a stack; name that with --stack")
    return configured(
        flags_of(
            file,
            config,
            model=model,
            base_url=base_url,
            tool_servers=tool_servers,
            mcp_servers=mcp_servers,
            prompt=prompt,
        )
    )


def version_of(package: str) -> str | None:
    """Return the version of an installed package, ``None`` where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
