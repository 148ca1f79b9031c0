"""The little of ASGI that tool servers and their checks need: bodies with a limit, and answers in JSON."""

import asyncio
import contextlib
import errno
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from ..errors import Misconfigured
from ..wire.traces import trace_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


_SHUTDOWN_SECONDS = 3


class Refused(Exception):
    """The request is answered with ``status`` and the reason; ``allow`` is the method that would be right."""

    def __init__(self, status: int, reason: str, *, allow: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.allow = allow


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on ``host``, IPv4 or IPv6; port 0 is any free port.

    Raises:
        OSError: the port is taken or no number from 0 to 65535, or the host is none of this machine's.
    """
    if not host:
        raise OSError(errno.EINVAL, "a host is not empty; 0.0.0.0 is every interface")
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OverflowError:
        raise OSError(errno.EINVAL, "a port is a number from 0 to 65535") from None
    except UnicodeError:
        raise OSError(errno.EINVAL, "that is no host's name") from None
    # Connections inherit it. Without it, the second half of each answer waits 40 ms for the first to be acknowledged.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


@contextlib.asynccontextmanager
async def serving(application: Application, host: str, port: int) -> AsyncIterator[str]:
    """Serve ``application`` while the context is open, and give its base URL; what has begun is finished at its end.

    Raises:
        Misconfigured: uvicorn is not installed.
        OSError: the port is taken, or the host is none of this machine's.
    """
    try:
        import uvicorn  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise Misconfigured("serving needs uvicorn: pip install 'infinity-agents[local]'") from error
    with listening_socket(host, port) as listening:
        # No access log: the URLs hold secret tokens. The signals of the process are its owner's business.
        server = uvicorn.Server(
            uvicorn.Config(application, log_config=None, access_log=False, timeout_graceful_shutdown=_SHUTDOWN_SECONDS)
        )
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield url_of(listening)
        finally:
            server.should_exit = True
            await task


def url_of(listening: socket.socket) -> str:
    """Return the base URL at which ``listening`` is reached."""
    host, port, *_ = listening.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def body_of(receive: Receive, most: int) -> bytes:
    """Return the body; what goes over ``most`` bytes is read and dropped, so that the sender gets to the answer.

    Raises:
        Refused: 413 over ``most``; 400 where the sender hung up.
    """
    body, size = bytearray(), 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the request was not finished")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size <= most:
            body += chunk
        if not message.get("more_body", False):
            break
    if size > most:
        raise Refused(413, f"the body has {size} bytes, and {most} are allowed; send less")
    return bytes(body)


def trace_in(scope: Scope) -> Mapping[str, str] | None:
    """Return the trace context that the headers of a request say."""
    return trace_of({name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]})


async def answer(send: Send, fields: Mapping[str, Any]) -> None:
    """Answer 200 with ``fields``."""
    await _send(send, 200, fields, [])


async def refuse(send: Send, refusal: Refused) -> None:
    """Answer with the refusal's status and reason."""
    headers = [(b"allow", refusal.allow.encode())] if refusal.allow else []
    await _send(send, refusal.status, {"error": str(refusal)}, headers)


async def _send(send: Send, status: int, fields: Mapping[str, Any], headers: list[tuple[bytes, bytes]]) -> None:
    body = json.dumps(fields).encode()
    headers = [*headers, (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
