"""What one agent needs, from ``infinity.toml`` and flags."""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from ..conversation.content import shown
from ..errors import Misconfigured
from ..mcp.servers import HttpServer, McpServer, StdioServer, name_of, server_of, valid_name
from ..rap.toolsets import ToolSetConfig, parse_tools_config
from ..settings import AgentSettings

_LONGEST_NAME = 32

NAME = "infinity.toml"
"""The file that is read where the command line names none."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack of CloudFormation, and which of its agents is meant; ``None`` where it has but one."""

    name: str
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class McpConfig:
    """An MCP server, and the name that its tools begin with."""

    name: str
    server: McpServer


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """One agent: its file, its model, its tool servers, its settings. ``source`` is the file that says so.

    Where there is a ``stack``, the agent is the one deployed by it, and the rest is for the stack to say.
    """

    file: Path = Path("agent.db")
    model: str = "demo"
    base_url: str | None = None
    tool_servers: tuple[ToolSetConfig, ...] = ()
    mcp_servers: tuple[McpConfig, ...] = ()
    settings: AgentSettings = field(default_factory=AgentSettings)
    source: Path | None = None
    stack: Stack | None = None

    @property
    def place(self) -> str:
        """Where the agent lives, as people call it."""
        return str(self.file) if self.stack is None else f"the stack {self.stack.name}"


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line says; what it says wins. Its servers of either kind stand in place of those of the file."""

    config: Path | None = None
    file: Path | None = None
    model: str | None = None
    base_url: str | None = None
    tool_servers: Sequence[str] = ()
    mcp_servers: Sequence[str] = ()
    prompt: str | None = None


def configured(flags: Flags) -> AgentConfig:
    """Return what the file and the flags say together.

    Raises:
        Misconfigured: the file cannot be read, or says what it cannot; the text names file, line, key and remedy.
    """
    source = flags.config or Path(NAME)
    config = read(source) if flags.config is not None or source.exists() else AgentConfig()
    if flags.tool_servers:
        servers = tuple(_server("--tool-server", {"url": url}) for url in flags.tool_servers)
        config = replace(config, tool_servers=_distinct(servers, "--tool-server"))
    if flags.mcp_servers:
        mcp = tuple(_mcp_server("--mcp", _McpServer(server=text)) for text in flags.mcp_servers)
        config = replace(config, mcp_servers=_distinct_mcp(mcp, "--mcp"))
    if flags.prompt is not None:
        config = replace(config, settings=replace(config.settings, system_prompt=flags.prompt))
    return replace(
        config,
        file=flags.file or config.file,
        model=flags.model or config.model,
        base_url=flags.base_url or config.base_url,
    )


def read(source: Path) -> AgentConfig:
    """Return what the file ``source`` says. Paths in it are taken from where it stands.

    Raises:
        Misconfigured: as ``configured`` has it.
    """
    text = ""
    try:
        text = source.read_bytes().decode()
        said = tomllib.loads(text)
    except OSError as error:
        raise Misconfigured(f"{source} cannot be read ({error.strerror}); name another file with --config") from error
    except UnicodeDecodeError as error:
        raise Misconfigured(
            f"{source} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8"
        ) from error
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        raise Misconfigured(f"{source}:{line[1] if line else len(text.splitlines())}: not TOML: {error}") from error
    try:
        file = _File.model_validate(said)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
        raise Misconfigured("\n".join(_told(source, text, problem) for problem in problems)) from error
    return _config(source, text, file)


# What may stand in the file.

_STRICT = ConfigDict(extra="forbid", strict=True)


class _ToolServer(BaseModel):
    model_config = _STRICT

    url: str
    id: str | None = None
    call_timeout: float | None = None
    bearer_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_url(cls, said: Any) -> Any:
        return {"url": said} if isinstance(said, str) else said


class _McpServer(BaseModel):
    model_config = _STRICT

    server: str
    name: str | None = None
    env: list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]] = []
    bearer_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, said: Any) -> Any:
        return {"server": said} if isinstance(said, str) else said


_ALLOWED: dict[Any, Any] = {int: Annotated[int, Field(ge=1)], float: Annotated[float, Field(gt=0)]}
_TYPES = get_type_hints(AgentSettings)
_limits: dict[str, Any] = {
    setting.name: (_ALLOWED.get(_TYPES[setting.name], _TYPES[setting.name]), setting.default)
    for setting in fields(AgentSettings)
    if setting.name != "system_prompt"
}
_limits["compact_at"] = (Annotated[float, Field(gt=0, le=1)], AgentSettings().compact_at)
_Limits = create_model("_Limits", __config__=_STRICT, **_limits)


class _File(BaseModel):
    model_config = _STRICT

    file: str = "agent.db"
    model: str = "demo"
    base_url: str | None = None
    prompt: str | None = None
    prompt_file: str | None = None
    tool_servers: list[_ToolServer] = []
    mcp_servers: list[_McpServer] = []
    limits: _Limits = _Limits()


_KEYS: dict[str, type[BaseModel]] = {
    "": _File,
    "tool_servers": _ToolServer,
    "mcp_servers": _McpServer,
    "limits": _Limits,
}
"""The keys of the file, by the table that they stand in."""


def _config(source: Path, text: str, file: _File) -> AgentConfig:
    servers = tuple(
        _server(f"{source}:{_line(text, ('tool_servers', number, 'url'))}", server.model_dump(exclude_none=True))
        for number, server in enumerate(file.tool_servers)
    )
    return AgentConfig(
        file=source.parent / file.file,
        model=file.model,
        base_url=file.base_url,
        tool_servers=_distinct(servers, str(source)),
        mcp_servers=_distinct_mcp(
            tuple(
                _mcp_server(f"{source}:{_line(text, ('mcp_servers', number, 'server'))}", server)
                for number, server in enumerate(file.mcp_servers)
            ),
            str(source),
        ),
        settings=AgentSettings(system_prompt=_prompt(source, text, file), **file.limits.model_dump()),
        source=source,
    )


def _prompt(source: Path, text: str, file: _File) -> str:
    if file.prompt_file is None:
        return file.prompt or ""
    place = f"{source}:{_line(text, ('prompt_file',))}: prompt_file"
    if file.prompt is not None:
        raise Misconfigured(f"{place}: there is a prompt besides; leave out one of them")
    path = source.parent / file.prompt_file
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise Misconfigured(f"{place}: {path} cannot be read ({error.strerror}); name a file that is there") from error
    except UnicodeDecodeError as error:
        raise Misconfigured(f"{place}: {path} is not UTF-8; save it as UTF-8") from error


def _server(place: str, said: dict[str, Any]) -> ToolSetConfig:
    url = said["url"]
    bearer = said.get("bearer_env")
    tool_set = {
        "type": "toolset_server",
        "server_url": url,
        "id": said.get("id", re.sub(r"^[a-z]+://", "", url).rstrip("/")),
        "auth": {"bearer_secret_arn": bearer} if bearer else "none",
        "call_timeout": said.get("call_timeout"),
    }
    return parse_tools_config(json.dumps({"tool_sets": [tool_set]}), place)[0]


def _distinct(servers: tuple[ToolSetConfig, ...], place: str) -> tuple[ToolSetConfig, ...]:
    ids = [server.id for server in servers]
    for name in ids:
        if ids.count(name) > 1:
            raise Misconfigured(f"{place}: two tool servers have the id {name!r}; give one of them another id")
    return servers


def _mcp_server(place: str, said: _McpServer) -> McpConfig:
    try:
        server = server_of(said.server)
    except Misconfigured as error:
        raise Misconfigured(f"{place}: {error}") from error
    missing = [name for name in (*said.env, said.bearer_env) if name and name not in os.environ]
    if missing:
        raise Misconfigured(f"{place}: the environment variable {missing[0]} is not set; export it")
    if isinstance(server, StdioServer):
        if said.bearer_env:
            raise Misconfigured(f"{place}: bearer_env is for a URL; name the variables that a command sees in env")
        server = StdioServer(server.command, {name: os.environ[name] for name in said.env})
    elif said.env:
        raise Misconfigured(f"{place}: env is for a command; name the variable with a URL's token in bearer_env")
    elif said.bearer_env:
        server = HttpServer(server.url, {"authorization": f"Bearer {os.environ[said.bearer_env]}"})
    name = said.name or name_of(server)
    if valid_name(name) != name or not 0 < len(name) <= _LONGEST_NAME:
        raise Misconfigured(f"{place}: the name {name[:60]!r} must be 1 to {_LONGEST_NAME} of letters, digits, _ and -")
    return McpConfig(name, server)


def _distinct_mcp(servers: tuple[McpConfig, ...], place: str) -> tuple[McpConfig, ...]:
    names = [server.name for server in servers]
    for name in names:
        if names.count(name) > 1:
            raise Misconfigured(f"{place}: two MCP servers have the name {name!r}; give one a name in the file")
    return servers


# What is wrong, and where.


def _told(source: Path, text: str, problem: Any) -> str:
    location: tuple[str | int, ...] = problem["loc"]
    key = ".".join(str(step) for step in location)
    return shown(f"{source}:{_line(text, location)}: {key}: {_wrong(location, problem)}")


def _wrong(location: tuple[str | int, ...], problem: Any) -> str:
    if problem["type"] == "missing":
        return "this key must be there"
    if problem["type"] == "model_type":
        wanted = {"tool_servers": "a URL or a table", "mcp_servers": "a URL, a command or a table"}.get(
            str(location[0]), "a table"
        )
        return f"input should be {wanted}, and this is {str(problem['input'])[:60]!r}"
    if problem["type"] != "extra_forbidden":
        return f"{problem['msg'][0].lower()}{problem['msg'][1:]}, and this is {str(problem['input'])[:60]!r}"
    name = str(location[-1])
    table = str(location[0]) if len(location) > 1 else ""
    known = list(_KEYS[table].model_fields)
    for other, model in _KEYS.items():
        if other != table and name in model.model_fields:
            where = f"below [{other}]" if other == "limits" else f"below [[{other}]]" if other else "at the top"
            return f"this key stands {where}, {'before the first [table]' if not other else 'not here'}"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"unknown key; did you mean {near[0]!r}?" if near else f"unknown key; the keys here are {', '.join(known)}"


def _line(text: str, location: Sequence[str | int]) -> int:
    """Return the number of the line on which the key at ``location`` stands, or else that of its table, or else 1."""
    table, counts, best = "", dict[str, int](), 1
    wanted_table = str(location[0]) if len(location) > 1 else ""
    wanted_index = location[1] if len(location) > 1 and isinstance(location[1], int) else None
    name = str(location[-1])
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([\w-]+)\s*\]+", line):
            table = header[1]
            counts[table] = counts.get(table, -1) + 1
            if [table] == list(location[:1]) and wanted_index in {None, counts[table]}:
                best = number
        here = table == wanted_table and wanted_index in {None, counts.get(table)}
        if here and re.match(rf"""\s*["']?{re.escape(name)}["']?\s*=""", line):
            return number
        # Tables may also be spelt in one line: ``limits.name = 1``, ``limits = { name = 1 }``.
        if not table and wanted_table and re.match(rf"\s*{re.escape(wanted_table)}\b", line):
            best = number
    return best
