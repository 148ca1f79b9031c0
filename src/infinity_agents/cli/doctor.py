"""``infinity doctor``: what is configured, reachable and missing, and how to mend it."""

import asyncio
import logging
import platform
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from rich.text import Text

from ..conversation.content import shown
from ..errors import InfinityError
from ..local.callbacks import HOST
from ..local.models import provider_of
from ..local.wiring import LocalAgent
from ..rap.asgi import listening_socket
from .config import AgentConfig, Flags, configured
from .mcp_servers import offered
from .opening import log_to_stderr, visiting_file
from .options import version_of
from .rendering import duration, put, put_json, stdout
from .tooling import asked, client
from .waiting import counted

_EXTRAS = {"uvicorn": "local", "typer": "local", "rich": "local", "prompt_toolkit": "local"}
_MODEL_SDKS = ("openai", "anthropic")
_MODEL_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; ``remedy`` says what to do where it is not ``ok``."""

    about: str
    verdict: Literal["ok", "warning", "missing"]
    seen: str
    remedy: str = ""


async def examine(flags: Flags) -> Sequence[Finding]:
    """Look at all that the agent needs. Nothing is made or changed."""
    # What fails is a finding; a line about it besides helps nobody.
    log_to_stderr(logging.CRITICAL)
    findings = [_python(), *_packages()]
    try:
        config = configured(flags)
    except InfinityError as error:
        return [
            *findings,
            Finding("configuration", "missing", str(error), "mend it; what follows from it was not checked"),
        ]
    source = str(config.source) if config.source else "no infinity.toml: flags and defaults"
    findings.append(Finding("configuration", "ok", source))
    findings += [finding async for finding in _file(config)]
    findings.append(await _model(config))
    findings += [finding async for finding in _tool_servers(config)]
    return findings


def report(findings: Sequence[Finding], *, as_json: bool) -> int:
    """Print the findings; return 1 where something is missing."""
    code = int(any(finding.verdict == "missing" for finding in findings))
    if as_json:
        put_json(
            {
                "ok": not code,
                "findings": [
                    {"about": f.about, "verdict": f.verdict, "seen": f.seen, "remedy": f.remedy} for f in findings
                ],
            }
        )
        return code
    console = stdout()
    styles = {"ok": "green", "warning": "yellow", "missing": "bold red"}
    for finding in findings:
        line = Text(f"{finding.verdict:<8}", style=styles[finding.verdict])
        line.append(f"{finding.about}: ", style="bold default").append(shown(finding.seen), style="not bold default")
        if finding.remedy:
            line.append(f"\n        -> {shown(finding.remedy)}", style="not bold cyan")
        put(console, line)
    return code


def _python() -> Finding:
    return Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")


def _packages() -> Sequence[Finding]:
    there, missing = [f"infinity-agents {version_of('infinity-agents') or 'from its source'}"], []
    for name, extra in _EXTRAS.items():
        if found := version_of(name):
            there.append(f"{name} {found}")
        else:
            missing.append(Finding(name, "missing", "not installed", f"pip install 'infinity-agents[{extra}]'"))
    there += [f"{name} {found}" for name in _MODEL_SDKS if (found := version_of(name))]
    return [Finding("packages", "ok", ", ".join(there)), *missing]


async def _file(config: AgentConfig) -> AsyncIterator[Finding]:
    if not config.file.parent.is_dir():
        seen = f"there is no directory {config.file.parent}"
        yield Finding("file", "missing", seen, "make it, or name another file with --file")
        return
    if not config.file.exists():
        yield Finding("file", "warning", f"{config.file} is not there yet", "infinity chat, serve or send makes it")
        return
    try:
        async with visiting_file(config) as agent:
            threads = len(await agent.services.conversations.threads())
            size = config.file.stat().st_size
            yield Finding("file", "ok", f"{config.file}, {size // 1024} KB, {counted(threads, 'thread')}")
            async for finding in _host(agent):
                yield finding
            async for finding in _left(agent):
                yield finding
    except InfinityError as error:
        yield Finding("file", "missing", str(error), "mend it, or name another file with --file")


async def _host(agent: LocalAgent) -> AsyncIterator[Finding]:
    host, port = agent.hosted_by, agent.identity.port
    waiting = sum((await agent.queue.outstanding()).values())
    if host is not None:
        yield Finding("host", "ok", f"process {host}")
        yield await _answers(port)
        return
    if waiting:
        yield Finding("host", "warning", f"none, and {counted(waiting, 'message')} on the queue", "infinity serve")
    else:
        yield Finding("host", "ok", "none now; infinity chat and infinity serve host the file")
    try:
        listening_socket(HOST, port).close()
    except OSError as error:
        yield Finding(
            "callback port",
            "missing",
            f"{port} cannot be had ({error.strerror})",
            "stop the program that listens on it",
        )
    else:
        yield Finding("callback port", "ok", f"{port} is free")


async def _answers(port: int) -> Finding:
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError as error:
        return Finding("callback port", "missing", f"the host does not answer on {port} ({error})", "start it again")
    writer.close()
    return Finding("callback port", "ok", f"the host answers on {port}")


async def _left(agent: LocalAgent) -> AsyncIterator[Finding]:
    now = agent.services.clock.now()
    letters = await agent.queue.dead_letters()
    if letters:
        oldest = duration(now - letters[0].parked_at)
        yield Finding(
            "dead letters",
            "warning",
            f"{len(letters)}{' or more' if len(letters) == 100 else ''}, the oldest for {oldest}: {letters[0].reason}",
            "infinity dead-letters list, then redrive or discard",
        )
    else:
        yield Finding("dead letters", "ok", "none")
    late = [
        f"{call.tool} in {thread_id}" for thread_id, call in await agent.services.conversations.overdue_calls(now, 5)
    ]
    if due := await _late_timer(agent, now):
        late.append(f"a timer for {duration(now - due)}")
    if late:
        remedy = "infinity serve" if agent.hosted_by is None else "the host sees to it within 5 minutes"
        yield Finding("overdue", "warning", ", ".join(late), remedy)
    else:
        yield Finding("overdue", "ok", "nothing")


async def _late_timer(agent: LocalAgent, now: datetime) -> datetime | None:
    due = await agent.timers.next_due_at()
    return due if due is not None and due <= now else None


async def _model(config: AgentConfig) -> Finding:
    name = config.model
    try:
        provider = provider_of(name, config.base_url)
        list_models = getattr(provider, "list_models", None)
        if list_models is None:
            return Finding("model", "ok", f"{name}: a few rules; --model names a language model")
        async with asyncio.timeout(_MODEL_PATIENCE):
            names = await list_models()
    except TimeoutError:
        return Finding(
            "model", "missing", f"{name}: no answer within {_MODEL_PATIENCE:g} seconds", "look at its endpoint"
        )
    except InfinityError as error:
        return Finding("model", "missing", f"{name}: {error}", "see above; --model names another")
    if name not in names:
        some = ", ".join(names[:5]) or "none"
        return Finding(
            "model", "warning", f"{name} is not among the {len(names)} that the endpoint lists", f"some are {some}"
        )
    return Finding("model", "ok", f"{name} is there")


async def _tool_servers(config: AgentConfig) -> AsyncIterator[Finding]:
    async with client() as http:
        found, from_mcp = await asyncio.gather(
            asyncio.gather(*(asked(server, http) for server in config.tool_servers)), offered(config)
        )
    for server in found:
        about = f"tool server {server.config.id}"
        if server.problem or server.manifest is None:
            yield Finding(
                about, "missing", server.problem or "no manifest", f"start it, or mend {config.source or 'the flag'}"
            )
        else:
            yield Finding(about, "ok", f"{server.config.server_url}, {counted(len(server.manifest.tools), 'tool')}")
    offerers: dict[str, list[str]] = {}
    for each in from_mcp:
        about = f"MCP server {each.name}"
        if each.problem:
            yield Finding(about, "missing", f"{each.transport}: {each.problem}", f"mend {config.source or 'the flag'}")
        else:
            yield Finding(about, "ok", f"{each.transport}, {counted(len(each.tools), 'tool')}")
        for tool in each.tools:
            offerers.setdefault(tool.name, []).append(about)
    for server in found:
        for tool in server.manifest.tools if server.manifest else ():
            offerers.setdefault(tool.name, []).append(server.config.id)
    twice = [name for name, servers in offerers.items() if len(servers) > 1]
    if twice:
        servers = " and ".join(dict.fromkeys(server for name in twice for server in offerers[name]))
        seen = f"{servers} offer the same, so the agent has none of it: {', '.join(twice)}"
        yield Finding("tools", "missing", seen, "rename them, or leave out a server")
    if not found and not from_mcp:
        yield Finding("tool servers", "ok", "none are configured")
