"""What the stand-ins share: an ASGI application that reads, judges, asks the script, and streams in small pieces."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ...errors import (
    ContextTooLong,
    ModelError,
    ModelForbidden,
    ModelInterrupted,
    ModelInvalid,
    ModelOverloaded,
    ModelThrottled,
)
from ...ports.model import ModelRequest
from ..scripted_model import Reply, Script

KEY = "a-key-for-tests"

Fault = int | Literal["no final event", "two calls", "not a stream", "garbage", "hang up", "no usage"]
"""What goes wrong with one answer: a status, or what the stream does."""

_STATUSES: Mapping[type[BaseException], int] = {
    ContextTooLong: 400,
    ModelThrottled: 429,
    ModelInterrupted: 500,
    ModelOverloaded: 503,
    ModelInvalid: 400,
    ModelForbidden: 403,
}
_PIECE = 61
"""Bytes that are sent at once: no divisor of anything, so that every kind of boundary falls into every place."""


@dataclass(frozen=True)
class Refused(Exception):
    """The service refuses the request. ``code`` and ``param`` go into the answer of a protocol that has these."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None

    @property
    def is_too_long(self) -> bool:
        return self.code == "context_length_exceeded"


def require(
    true: object, message: str, *, status: int = 400, code: str | None = None, param: str | None = None
) -> None:
    """Refuse the request unless ``true``."""
    if not true:
        raise Refused(status, message, code, param)


class WireProtocol(Protocol):
    """One model protocol, as its service reads and writes it."""

    media_type: str
    """What a stream is labelled as."""

    def read(self, path: str, headers: Mapping[str, str], body: Any) -> ModelRequest:
        """Return what was asked.

        Raises:
            Refused: the real service would refuse it.
        """
        ...

    def models(self, path: str, headers: Mapping[str, str]) -> Any:
        """Return the JSON that lists the models."""
        ...

    def spell(self, reply: Reply, asked: Any, fault: Fault | None) -> Iterator[str] | Iterator[bytes]:
        """Yield the events that answer the JSON ``asked``; where the reply breaks, up to there."""
        ...

    def spell_error(self, refused: Refused) -> str | bytes:
        """Return the event that tells of an error inside a stream."""
        ...

    def refusal(self, refused: Refused) -> Any:
        """Return the JSON of an answer that is an error."""
        ...


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ModelServer:
    """An ASGI application that answers by ``script`` under the rules of ``protocol``.

    ``faults`` are taken from the front, one by each request; ``None`` is none. ``requests`` are those that were
    accepted, as the protocol told them, ``bodies`` all that came, ``refused`` is what the rules
    had against the others.
    """

    def __init__(self, protocol: WireProtocol, script: Script) -> None:
        self.protocol = protocol
        self.script = script
        self.faults: list[Fault | None] = []
        self.requests: list[ModelRequest] = []
        self.bodies: list[Any] = []
        self.refused: list[str] = []
        self.failures: list[BaseException] = []
        """What the script itself raised: the fault of the test."""
        self.url = ""
        """Where it is served."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        body = await _body(receive)
        try:
            if scope["method"] == "GET":
                await _answer(send, 200, json.dumps(self.protocol.models(scope["path"], headers)))
                return
            reply, asked, fault = self._decide(scope["path"], headers, body)
        except Refused as refused:
            await _answer(send, refused.status, json.dumps(self.protocol.refusal(refused)))
            return
        if fault == "not a stream":
            await _answer(send, 200, "<html>It works!</html>", media_type="text/html")
            return
        await send(_start(200, self.protocol.media_type))
        for event in self.protocol.spell(reply, asked, fault):
            await _send_pieces(send, event)
        if fault == "hang up":
            raise ConnectionResetError("the stand-in hangs up, as it was told")
        if reply.error is not None:
            await _send_pieces(send, self.protocol.spell_error(_refusal_of(reply.error)))
        await send({"type": "http.response.body", "body": b""})

    def _decide(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[Reply, Any, Fault | None]:
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, int):
            raise Refused(fault, f"this is a {fault}")
        try:
            asked = json.loads(body)
        except ValueError as error:
            raise Refused(400, f"the body is not JSON: {error}") from error
        self.bodies.append(asked)
        try:
            request = self.protocol.read(path, headers, asked)
        except Refused as refused:
            self.refused.append(refused.message)
            raise
        self.requests.append(request)
        try:
            reply = self.script(request)
        except BaseException as error:
            self.failures.append(error)
            raise Refused(500, f"the script failed: {error!r}") from error
        if reply.error is not None and not reply.text:
            raise _refusal_of(reply.error)
        return reply, asked, fault


def _refusal_of(error: BaseException) -> Refused:
    status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), None)
    if status is None:
        raise TypeError(f"no service answers {error!r}: a script breaks with one of {[*_STATUSES]}")
    code = "context_length_exceeded" if isinstance(error, ContextTooLong) else None
    return Refused(status, str(error) if isinstance(error, ModelError) else repr(error), code)


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


def _start(status: int, media_type: str) -> MutableMapping[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": [(b"content-type", media_type.encode())]}


async def _answer(send: Send, status: int, body: str, *, media_type: str = "application/json") -> None:
    await send(_start(status, media_type))
    await send({"type": "http.response.body", "body": body.encode()})


async def _send_pieces(send: Send, event: str | bytes) -> None:
    data = event.encode() if isinstance(event, str) else event
    # A large event goes out in larger pieces: it is there for its size.
    piece = max(_PIECE, len(data) // 50)
    for start in range(0, len(data), piece):
        await send({"type": "http.response.body", "body": data[start : start + piece], "more_body": True})


@contextlib.asynccontextmanager
async def serving(server: ModelServer) -> AsyncIterator[str]:
    """Serve on a free port of loopback while the context is open; yield the URL.

    Raises:
        AssertionError: the script failed while it was asked.
    """
    import uvicorn  # noqa: PLC0415 - an optional extra
    from uvicorn.server import ServerState  # noqa: PLC0415

    # Not uvicorn's own server: it looks ten times a second whether it should end, and takes as long to do so.
    config = uvicorn.Config(server, log_config=None, access_log=False, lifespan="off")
    config.load()
    state = ServerState()
    listening = await asyncio.get_running_loop().create_server(
        lambda: config.http_protocol_class(config=config, server_state=state, app_state={}),  # type: ignore[call-arg]
        "127.0.0.1",
        0,
    )
    try:
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server.url
    finally:
        listening.close()
        for connection in list(state.connections):
            connection.shutdown()
    if server.failures:
        raise AssertionError(f"the script failed: {server.failures}") from server.failures[0]
