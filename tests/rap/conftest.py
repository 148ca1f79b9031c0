"""Real HTTP over loopback: a server that says what a test tells it to, and a host for ASGI applications."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import uvicorn

from infinity_agents.adapters.httpx_client import HttpxClient
from infinity_agents.conversation.ledger import Call, CallState
from infinity_agents.conversation.threads import Thread, ThreadKind
from infinity_agents.errors import StoreUnavailable
from infinity_agents.rap.asgi import listening_socket
from infinity_agents.rap.callbacks import callback_url
from infinity_agents.rap.server import ToolServer
from infinity_agents.testing.doubles import START, FrozenClock
from infinity_agents.wire.keys import Keyring

MANIFEST_PATH = "/.well-known/rap-toolset"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b'{"ok": true}'
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Any, status: int = 200) -> "Answer":
        return cls(status, json.dumps(value).encode())


HANG = Answer(status=-1)
HANG_UP = Answer(status=-2)


class RawServer:
    """Answers each request with what ``answer`` returns, and remembers it. It judges nothing that it is sent."""

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self._heard = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> "RawServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.close()

    async def heard(self, count: int) -> list[Request]:
        """Return once ``count`` requests have come."""
        async with self._heard:
            await asyncio.wait_for(self._heard.wait_for(lambda: len(self.requests) >= count), 5)
        return self.requests

    def posts(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.method == "POST" and request.path == path]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                request = await self._read(reader)
                answer = self.answer(request)
                self.requests.append(request)
                async with self._heard:
                    self._heard.notify_all()
                if answer == HANG:
                    await asyncio.Event().wait()
                if answer == HANG_UP:
                    break
                head = [f"HTTP/1.1 {answer.status} X", f"Content-Length: {len(answer.body)}"]
                head += [f"{name}: {value}" for name, value in answer.headers.items()]
                writer.write("\r\n".join([*head, "", ""]).encode() + answer.body)
                await writer.drain()
        self._open.discard(writer)
        writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        pairs = (line.split(":", 1) for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, value in pairs}
        return Request(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))


RawServers = Callable[[Callable[[Request], Answer]], Awaitable[RawServer]]


@pytest.fixture
async def raw_server() -> AsyncIterator[RawServers]:
    started: list[RawServer] = []

    async def start(answer: Callable[[Request], Answer]) -> RawServer:
        started.append(await RawServer(answer).start())
        return started[-1]

    yield start
    for server in started:
        await server.stop()


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Any], Awaitable[str]]]:
    """Serves ASGI applications with uvicorn, on free ports; each call returns a base URL."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(app: Any) -> str:
            listening = listening_socket("127.0.0.1", 0)
            config = uvicorn.Config(app, log_level="warning", lifespan="on")
            config.load()
            server = uvicorn.Server(config)
            server.lifespan = config.lifespan_class(config)

            # The server's own loop and shutdown are left out: they wait a tenth of a second each.
            async def stop() -> None:
                for serving in server.servers:
                    serving.close()
                for connection in list(server.server_state.connections):
                    connection.transport.abort()
                await server.lifespan.shutdown()
                listening.close()

            await server.startup(sockets=[listening])
            stack.push_async_callback(stop)
            return f"http://127.0.0.1:{listening.getsockname()[1]}"

        yield start


@pytest.fixture
async def http() -> AsyncIterator[HttpxClient]:
    client = HttpxClient()
    yield client
    await client.aclose()


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def keyring() -> Keyring:
    return Keyring.parse("k1:a-secret-of-some-length")


class CountingState:
    """A state store in memory that counts its calls; with ``down``, it cannot be reached."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.sessions: dict[str, Any] = {}
        self.latest: dict[str, Any] = {}
        self.down: set[str] = set()

    def _count(self, name: str) -> None:
        self.calls.append(name)
        if name in self.down:
            raise StoreUnavailable(f"{name}: the store is down")

    async def put_manifests(self, session_id: str, manifests: Any) -> None:
        self._count("put_manifests")
        self.sessions[session_id] = json.loads(json.dumps(manifests))

    async def manifests(self, session_id: str) -> Any:
        self._count("manifests")
        return self.sessions.get(session_id)

    async def put_latest_manifest(self, tool_set: str, manifest: Any) -> None:
        self._count("put_latest_manifest")
        self.latest[tool_set] = json.loads(json.dumps(manifest))

    async def latest_manifest(self, tool_set: str) -> Any:
        self._count("latest_manifest")
        return self.latest.get(tool_set)


@pytest.fixture
def state() -> CountingState:
    return CountingState()


@dataclass(frozen=True)
class FixedContext:
    """The context of a dispatched call."""

    thread: Thread
    base_url: str
    keyring: Keyring

    def callback_url(self, call: Call) -> str:
        return callback_url(self.base_url, self.keyring, self.thread.id, call.id, call.tool_set or "")

    async def set_timer(self, call: Call, text: str) -> None:
        raise AssertionError("a tool server's tool sets no timer")


@pytest.fixture
def context(keyring: Keyring) -> Callable[..., FixedContext]:
    def made(base_url: str = "http://127.0.0.1:9/callback", **thread: Any) -> FixedContext:
        fields = {"id": "thread-1", "kind": ThreadKind.ROOT, "model": "m", "created_at": START, **thread}
        return FixedContext(Thread(**fields), base_url, keyring)

    return made


@pytest.fixture
def call() -> Callable[..., Call]:
    def made(tool: str = "get_weather", arguments: Any = None, **fields: Any) -> Call:
        return Call(
            **{
                "id": "call-1",
                "tool": tool,
                "arguments": arguments or {},
                "state": CallState.OPEN,
                "made_at": START,
                "call_id": "model-1",
                "tool_set": "weather",
                **fields,
            }
        )

    return made


@pytest.fixture
def manifest() -> Callable[..., dict[str, Any]]:
    def made(base_url: str, *tools: str, **fields: Any) -> dict[str, Any]:
        return {
            "name": "weather-tools",
            "description": "Weather",
            "endpoint": f"{base_url}/invoke",
            "tools": [
                {
                    "name": name,
                    "description": f"The tool {name}",
                    "inputSchema": {"type": "object", "properties": {"location": {"type": "string"}}},
                }
                for name in tools or ("get_weather",)
            ],
            **fields,
        }

    return made


@pytest.fixture
def kit(clock, monkeypatch):
    monkeypatch.setattr("infinity_agents.rap.server.SHUTDOWN_GRACE", 0.05)
    return ToolServer(name="test-tools", description="Tools of a test", sleep=clock.sleep)


@pytest.fixture
async def client():
    async with httpx.AsyncClient() as opened:
        yield opened


@pytest.fixture
async def receiver(raw_server):
    """Takes callbacks as the runtime's receiver does."""
    return await raw_server(lambda _: Answer())


@pytest.fixture
def invoke(client, receiver):
    async def post(url, operation, arguments=None, *, headers=None, **fields):
        invocation = {
            "operation": operation,
            "arguments": arguments or {},
            "id": "call-1",
            "call_id": "model-1",
            "callback_url": receiver.url + "/callback/token",
            "group_id": "thread-1",
            **fields,
        }
        return await client.post(url + "/invoke", json=invocation, headers=headers)

    return post


@pytest.fixture
def result_of(invoke, receiver):
    """Invokes a tool and returns the result that is posted back."""

    async def called(url, operation, arguments=None, **fields):
        count = len(receiver.requests)
        answer = await invoke(url, operation, arguments, **fields)
        assert (answer.status_code, answer.json()) == (200, {"ok": True})
        return (await receiver.heard(count + 1))[-1].json

    return called


async def finished(kit):
    """Return once none of the server's calls and subscriptions runs any more."""
    while left := list(kit._running):
        await asyncio.wait(left)
