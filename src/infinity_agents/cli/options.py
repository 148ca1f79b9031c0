"""The flags that several commands have."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from .config import AgentConfig, Flags

FileOption = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="The agent's file; agent.db where nothing names one.", show_default=False),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="What the agent needs; infinity.toml where that is there.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="demo, openai:NAME, anthropic:NAME or bedrock:NAME; for new threads.", show_default=False
    ),
]
BaseUrlOption = Annotated[
    str | None,
    typer.Option("--base-url", help="The model's endpoint, such as http://127.0.0.1:11434/v1.", show_default=False),
]
ToolServerOption = Annotated[
    list[str] | None,
    typer.Option("--tool-server", "-t", help="The base URL of a tool server; may be given again.", show_default=False),
]
PromptOption = Annotated[str | None, typer.Option("--prompt", help="The agent's system prompt.", show_default=False)]


def flags_of(
    file: Path | None,
    config: Path | None,
    *,
    model: str | None = None,
    base_url: str | None = None,
    tool_servers: Sequence[str] | None = None,
    prompt: str | None = None,
) -> "Flags":
    """Return what the command line says."""
    from .config import Flags

    return Flags(config, file, model=model, base_url=base_url, tool_servers=tool_servers or (), prompt=prompt)


def agent_config(
    file: Path | None,
    config: Path | None,
    *,
    model: str | None = None,
    base_url: str | None = None,
    tool_servers: Sequence[str] | None = None,
    prompt: str | None = None,
) -> "AgentConfig":
    """Return what the command line and the configuration file say together.

    Raises:
        Misconfigured: the file cannot be read, or says what it cannot.
    """
    from .config import configured

    return configured(flags_of(file, config, model=model, base_url=base_url, tool_servers=tool_servers, prompt=prompt))


def version_of(package: str) -> str | None:
    """Return the version of an installed package, ``None`` where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
