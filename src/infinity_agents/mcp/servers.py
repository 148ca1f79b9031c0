"""Which MCP server is meant."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TypeAlias
from urllib.parse import urlsplit

from ..errors import Misconfigured, without_user
from ..wire.addresses import secure_url


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A program that speaks MCP on its standard input and output.

    It sees ``env`` and a few harmless variables of ours, such as ``PATH``, and nothing else.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server that speaks Streamable HTTP at ``url``; ``headers`` go with every request to it, and nowhere else."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        try:
            secure_url(self.url)
        except ValueError as error:
            raise Misconfigured(f"the MCP server {without_user(self.url)!r}: {error}") from error


McpServer: TypeAlias = StdioServer | HttpServer


def server_of(text: str) -> McpServer:
    """Return the server that ``text`` means: a URL, or a command as a shell has it.

    Raises:
        Misconfigured: it is neither.
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        return HttpServer(text)
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise Misconfigured(f"the MCP server {text!r} is no command: {error}; quote it as in a shell") from error
    if not command or "\0" in text:
        raise Misconfigured(f"the MCP server {text!r} is neither a URL nor a command; write 'uvx some-server'")
    return StdioServer(command)


def name_of(server: McpServer) -> str:
    """Return a short name for a server that has none: of its host, or of its program."""
    if isinstance(server, HttpServer):
        said = urlsplit(server.url).hostname or "mcp"
    else:
        words = [word for word in server.command if not word.startswith("-")]
        said = words[1] if len(words) > 1 and PurePath(words[0]).name in _RUNNERS else words[0] if words else "mcp"
        said = PurePath(said.rpartition("@")[0] or said).stem
    return valid_name(re.sub(r"^(mcp-)?(server-)?", "", said))[:24] or "mcp"


def valid_name(text: str) -> str:
    """Return ``text`` with an underscore for whatever cannot stand in the name of a tool."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")


_RUNNERS = {"uvx", "npx", "bunx", "pipx", "python", "python3", "node", "deno"}
