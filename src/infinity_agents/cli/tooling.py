"""What the ``tools`` commands do: a tool server, without an agent."""

import asyncio
import contextlib
import json
import logging
import secrets
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from ..adapters.httpx_client import HttpxClient
from ..adapters.memory import MemoryBlobStore, MemoryStateStore
from ..adapters.system import FreshIds, SystemClock
from ..conversation.content import Blob, JsonObject, Part, plain_text, shown
from ..conversation.messages import InputMessage, OauthRequired, SubscriptionEvent, ToolResult, UserChoiceRequired
from ..errors import InfinityError, Misconfigured
from ..local.callbacks import HOST, PATH, serving
from ..local.wiring import environment_secret
from ..rap import conformance
from ..rap.asgi import listening_socket
from ..rap.callbacks import callback_url, token_in
from ..rap.tool import hand_over
from ..rap.toolsets import RapToolServers, ToolSetConfig
from ..receiving import MAX_CALLBACK, CallbackReceiver
from ..runtime.arguments import check_arguments
from ..wire import rap
from ..wire.inputs import content_from_json, content_to_json, decode
from ..wire.keys import Keyring
from .config import AgentConfig, Flags, configured
from .mcp_servers import Offered, offered
from .opening import log_to_stderr
from .rendering import call_text, hanging, note, one_line, put, put_json, question, stderr, stdout

_THREAD = "infinity-tools-call"


class NotOffered(InfinityError):
    """The server does not offer what was asked for, or cannot be asked."""


@dataclass(frozen=True)
class Server:
    """One tool server, asked once: its manifest, or what is wrong."""

    config: ToolSetConfig
    tools: RapToolServers
    manifest: rap.Manifest | None
    problem: str | None


def server_at(config: AgentConfig, url: str) -> ToolSetConfig:
    """Return the server of that URL as it is configured, else with nothing but the URL.

    Raises:
        Misconfigured: ``url`` is no URL of a tool server.
    """
    known = {server.server_url: server for server in config.tool_servers}
    return known.get(url.rstrip("/")) or configured(Flags(tool_servers=[url])).tool_servers[0]


async def asked(config: ToolSetConfig, http: HttpxClient) -> Server:
    """Return what the server says of itself."""
    state = MemoryStateStore()
    tools = RapToolServers([config], http=http, state=state, clock=SystemClock())
    toolset = await tools.load(_THREAD)
    fields = (await state.manifests(_THREAD) or {}).get(config.id)
    manifest = None if fields is None else rap.read_manifest(fields, config.server_url)
    return Server(config, tools, manifest, "; ".join(toolset.problems) or None)


@contextlib.asynccontextmanager
async def client() -> AsyncIterator[HttpxClient]:
    """Give an HTTP client whose bearer tokens are in the environment."""
    http = HttpxClient(bearer=environment_secret)
    try:
        yield http
    finally:
        await http.aclose()


# List.


async def print_tools(config: AgentConfig, url: str | None, *, as_json: bool) -> int:
    """Print what the server at ``url`` offers, or each configured one, those of MCP included.

    Returns 1 where one cannot be asked.

    Raises:
        Misconfigured: there is no server to ask.
    """
    servers = [server_at(config, url)] if url else list(config.tool_servers)
    if not servers and not config.mcp_servers:
        raise Misconfigured(
            "no tool server is configured; name a URL, or add [[tool_servers]] or [[mcp_servers]] to infinity.toml"
        )
    # What fails is printed with its server; a line about it besides helps nobody.
    log_to_stderr(logging.CRITICAL)
    async with client() as http:
        found = await asyncio.gather(*(asked(server, http) for server in servers))
    from_mcp = [] if url else await offered(config)
    code = int(any([*(server.problem for server in found), *(each.problem for each in from_mcp)]))
    if as_json:
        put_json(
            {"servers": [_document(server) for server in found], "mcp_servers": [_of_mcp(each) for each in from_mcp]}
        )
        return code
    for server in found:
        name = shown(server.manifest.name) if server.manifest else server.config.id
        tools = server.manifest.tools if server.manifest else ()
        _print_server(name, server.config.server_url, server.problem, tools)
    for each in from_mcp:
        _print_server(each.name, f"MCP over {each.transport}", each.problem, each.tools)
    return code


def _document(server: Server) -> Mapping[str, Any]:
    return {
        "id": server.config.id,
        "url": server.config.server_url,
        "problem": server.problem,
        "tools": [tool.to_json() for tool in server.manifest.tools] if server.manifest else [],
    }


def _of_mcp(server: Offered) -> Mapping[str, Any]:
    return {
        "name": server.name,
        "transport": server.transport,
        "problem": server.problem,
        "tools": [tool.to_json() for tool in server.tools],
    }


def _print_server(name: str, place: str, problem: str | None, tools: Sequence[rap.OfferedTool]) -> None:
    console = stdout()
    put(console, Text(name, style="bold").append(f"  {place}", style="not bold dim"))
    if problem:
        put(stderr(), Text(f"  ! {shown(problem)}", style="red"))
    for tool in tools:
        marks = [mark for mark, is_set in tool.annotations.model_dump().items() if is_set]
        line = Text(f"  {tool.name}", style="cyan")
        line.append(f"  {' '.join(mark.replace('_', '-') for mark in marks)}" if marks else "", style="yellow")
        put(console, line.append(hanging(Text(f"\n{shown(tool.description)}", style="default"), 4)))
        for argument in _arguments(tool.input_schema):
            put(console, Text(f"      {argument}", style="dim"))


def _arguments(schema: JsonObject) -> Sequence[str]:
    told = []
    for name, property_ in schema.get("properties", {}).items():
        details = property_ if isinstance(property_, dict) else {}
        kind = details.get("type") or ("one of several" if details else "anything")
        if "enum" in details:
            kind = " | ".join(map(json.dumps, details["enum"]))
        need = "required" if name in schema.get("required", ()) else f"default {json.dumps(details.get('default'))}"
        text = f": {details['description']}" if details.get("description") else ""
        told.append(one_line(f"{name} ({kind}, {need}){text}"))
    return told


# Call.


@dataclass
class _Inbox:
    """Takes what the server posts back; the same callback posted twice counts once."""

    keyring: Keyring
    blobs: MemoryBlobStore
    arrived: asyncio.Queue[InputMessage] = field(default_factory=asyncio.Queue)
    seen: set[str] = field(default_factory=set)

    async def send(self, body: str, *, group_id: str, dedup_id: str) -> None:
        if dedup_id not in self.seen:
            self.seen.add(dedup_id)
            delivery = decode(body, keyring=self.keyring, queue_id=dedup_id, group_id=group_id)
            await self.arrived.put(delivery.message)

    async def whole(self, part: Part) -> Part:
        if not isinstance(part, Blob):
            return part
        value: Part = content_from_json(json.loads(await self.blobs.get(part.sha256)))
        return value


async def call_tool(config: AgentConfig, url: str, name: str, arguments: str, *, as_json: bool) -> int:
    """Call the tool, and print what it posts back until it is done; return 1 where its result is an error.

    Raises:
        Misconfigured: ``url`` or ``arguments`` cannot be used.
        NotOffered: the server cannot be asked, or has no such tool.
        TellModel: the arguments do not fit, or the server does not take the call.
    """
    server_config, read = server_at(config, url), _read(arguments)
    log_to_stderr(logging.CRITICAL)
    async with client() as http:
        server = await asked(server_config, http)
        if server.manifest is None:
            raise NotOffered(server.problem or f"{url} says nothing of itself")
        tools = {tool.name: tool for tool in server.manifest.tools}
        if name not in tools:
            raise NotOffered(f"{url} has no tool {name!r}; it has {', '.join(tools)}")
        check_arguments(name, tools[name].input_schema, read)
        clock, blobs = SystemClock(), MemoryBlobStore()
        inbox = _Inbox(Keyring.parse(f"call:{secrets.token_hex(32)}"), blobs)
        receiver = CallbackReceiver(inbox.keyring, inbox, MemoryStateStore(), blobs, clock, MAX_CALLBACK)
        with listening_socket(HOST, 0) as free:
            port = free.getsockname()[1]
        call_id = f"call-{FreshIds().fresh()}"
        async with serving(receiver, port):
            back = callback_url(f"http://{HOST}:{port}{PATH}", inbox.keyring, _THREAD, call_id, server_config.id)
            await hand_over(
                f"{name} of {url}",
                server.manifest.endpoint,
                rap.Invocation(
                    operation=name, arguments=read, id=call_id, callback_url=back, group_id=_THREAD
                ).to_json(),
                http=http,
                clock=clock,
                auth=server_config.auth,
                headers={"Idempotency-Key": f"{_THREAD}:{call_id}"},
                secret=token_in(back),
            )
            if not as_json:
                put(stderr(), call_text(f"{name} {json.dumps(read, ensure_ascii=False)}"))
            is_over, code = False, 0
            try:
                while not is_over:
                    is_over, code = await _heard(await inbox.arrived.get(), inbox, server, as_json=as_json)
            finally:
                if not is_over:
                    await server.tools.call_cancelled(_THREAD, _THREAD, call_id, server_config.id)
    return code


def _read(arguments: str) -> dict[str, Any]:
    try:
        read = json.loads(arguments)
    except ValueError as error:
        read = error
    if not isinstance(read, dict):
        raise Misconfigured(
            f'the arguments {arguments[:60]!r} are not a JSON object; quote one for the shell: \'{{"city": "Oslo"}}\''
        )
    return read


async def _heard(message: InputMessage, inbox: _Inbox, server: Server, *, as_json: bool) -> tuple[bool, int]:
    """Show one callback; return whether the call is over, and the exit code if it is."""
    content, console = message.content, stdout()
    match content:
        case ToolResult():
            parts = [await inbox.whole(part) for part in content.content]
            if as_json:
                put_json(
                    {
                        "type": "tool_result",
                        "is_error": content.is_error,
                        "subscription": message.subscription,
                        "content": [content_to_json(part) for part in parts],
                    }
                )
            else:
                put(console, Text(shown(plain_text(parts)), style="red" if content.is_error else ""))
                if message.subscription:
                    put(stderr(), note("subscribed; events follow until the last one, or Ctrl-C"))
            return not message.subscription, int(content.is_error)
        case UserChoiceRequired():
            selected = await _chosen(content)
            await server.tools.answer_choice(server.config.id, content.response_url, content.id, selected)
        case OauthRequired():
            if as_json:
                put_json({"type": "oauth_required", "auth_url": content.auth_url})
            else:
                put(console, Text(f"  ! needs your authorization: {shown(content.auth_url)}", style="bold yellow"))
        case _:
            event = message.synthetic
            is_final = isinstance(event, SubscriptionEvent) and event.final
            text = plain_text([await inbox.whole(content)]) if isinstance(content, Part) else ""
            if as_json:
                put_json({"type": "subscription_event", "text": text, "final": is_final})
            else:
                put(console, Text(f"  ← {shown(text)}", style="yellow"))
            return is_final, 0
    return False, 0


async def _chosen(asked_for: UserChoiceRequired) -> int:
    """Return what the person picks; without a terminal, the default."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        from .screens import picker

        picked = await picker(asked_for.prompt, asked_for.choices, asked_for.default).run_async()
        if isinstance(picked, int):
            return picked
    put(stderr(), question(asked_for.prompt, asked_for.choices))
    put(stderr(), note(f"no terminal to ask on: {asked_for.default + 1}, the default, is taken"))
    return asked_for.default


# Check.


async def check_server(config: AgentConfig, url: str, examples: Sequence[str], *, as_json: bool) -> int:
    """Print what the server at ``url`` keeps and breaks of the protocol; return 1 where it breaks anything.

    Raises:
        Misconfigured: ``url`` or an example cannot be used.
    """
    server = server_at(config, url)
    read = {name: _read(arguments) for name, _, arguments in (example.partition("=") for example in examples)}
    async with client() as http:
        findings = await conformance.check(server.server_url, http=http, auth=server.auth, examples=read)
    broken = sum(finding.verdict == "broken" for finding in findings)
    if as_json:
        put_json(
            {
                "url": server.server_url,
                "broken": broken,
                "findings": [
                    {"rule": f.rule, "verdict": f.verdict, "expected": f.expected, "seen": f.seen} for f in findings
                ],
            }
        )
        return int(broken > 0)
    console = stdout()
    styles = {"ok": "green", "broken": "bold red", "skipped": "dim"}
    for finding in findings:
        line = Text(f"{finding.verdict:<8}", style=styles[finding.verdict]).append(finding.rule, style="bold default")
        if finding.verdict != "ok":
            line.append(f"\n          expected: {finding.expected}", style="not bold default")
            line.append(f"\n          seen: {one_line(finding.seen)}", style="not bold default")
        put(console, line)
    put(console, Text(f"{broken} broken" if broken else "nothing broken", style="bold red" if broken else "bold green"))
    return int(broken > 0)
