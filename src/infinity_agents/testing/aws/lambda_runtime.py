"""Lambda on one machine: each sandbox is a process that AWS's own runtime client runs, and no Docker is needed.

A ``LambdaFunction`` keeps its sandboxes warm, ends one at its timeout, and starts one anew after a crash. A
``FunctionUrl`` and a ``LambdaService`` stand before functions as the service's own HTTP does.
"""

import base64
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from .server import ACCOUNT, REGION

MAX_SYNCHRONOUS = 6 * 1024 * 1024
MAX_ASYNCHRONOUS = 1024 * 1024
"""The largest payloads that the service takes, in bytes."""
_RETRIES = 2
_POLL_SECONDS = 0.02
_INHERITED = ("PATH", "LANG", "SSL_CERT_FILE", "NO_PROXY")


@dataclass(frozen=True, slots=True)
class Reply:
    """What an invocation came to: the function's answer, or the error that the service reports."""

    payload: bytes
    error: str | None = None
    """``Unhandled`` where the function failed."""

    @property
    def value(self) -> Any:
        """The payload, as JSON has it."""
        return json.loads(self.payload or b"null")


class LambdaFunction:
    """A function whose code is ``handler``, found on ``python_path``, and which is told ``environment`` and no more.

    Sandboxes are made as invocations overlap, and kept. ``timeout`` is in seconds.
    """

    def __init__(
        self,
        name: str,
        handler: str,
        *,
        environment: Mapping[str, str],
        python_path: Sequence[Path | str],
        timeout: float = 30.0,
        python: str = sys.executable,
    ) -> None:
        self.name = name
        self.timeout = timeout
        self.arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}"
        self._handler = handler
        self._environment = dict(environment)
        self._python_path = os.pathsep.join(map(str, python_path))
        self._python = python
        self._idle: list[_Sandbox] = []
        self._all: list[_Sandbox] = []
        self._lock = threading.Lock()

    def invoke(self, event: object) -> Reply:
        """Return what the function makes of ``event``, which JSON can say; a failure is a reply too."""
        payload = json.dumps(event).encode()
        if len(payload) > MAX_SYNCHRONOUS:
            raise ValueError(f"the event has {len(payload)} bytes, and Lambda takes {MAX_SYNCHRONOUS}")
        with self._lock:
            sandbox = self._idle.pop() if self._idle else None
            if sandbox is None:
                sandbox = _Sandbox(self)
                self._all.append(sandbox)
        try:
            return sandbox.invoke(payload, self.timeout)
        finally:
            with self._lock:
                self._idle.append(sandbox)

    def kill(self) -> None:
        """End all sandboxes, whatever they are at, as a fault of the platform does."""
        for sandbox in self._all:
            sandbox.end()

    def close(self) -> None:
        """End all sandboxes for good."""
        for sandbox in self._all:
            sandbox.close()

    @property
    def log(self) -> str:
        """What all sandboxes wrote."""
        return "".join(line for sandbox in self._all for line in sandbox.log)

    def start(self, runtime_api: str) -> subprocess.Popen[str]:
        """Start a process that asks ``runtime_api``, a host and a port, for invocations."""
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        return subprocess.Popen(  # noqa: S603 - our own interpreter, on the handler that the test names
            [self._python, "-m", "awslambdaric", self._handler],
            env={
                **inherited,
                "AWS_REGION": REGION,
                "AWS_DEFAULT_REGION": REGION,
                "AWS_EXECUTION_ENV": "AWS_Lambda_python3.13",
                "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
                "AWS_LAMBDA_FUNCTION_NAME": self.name,
                "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
                "AWS_LAMBDA_RUNTIME_API": runtime_api,
                "PYTHONPATH": self._python_path,
                "TZ": ":UTC",
                "_HANDLER": self._handler,
                **self._environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


class _Sandbox:
    """One process of a function, and the Runtime API that it asks. It is started when there is something to do."""

    def __init__(self, function: LambdaFunction) -> None:
        self._function = function
        self._process: subprocess.Popen[str] | None = None
        self._given: queue.Queue[tuple[str, bytes, float]] = queue.Queue()
        self._answers: queue.Queue[tuple[str, Reply]] = queue.Queue()
        self._server = _served(_runtime_api(self))
        self.log: list[str] = []

    def invoke(self, payload: bytes, seconds: float) -> Reply:
        if self._process is None or self._process.poll() is not None:
            self._process = self._function.start(f"127.0.0.1:{self._server.server_port}")
            threading.Thread(target=self._read_log, args=(self._process,), daemon=True).start()
        request_id, deadline = str(uuid.uuid4()), time.time() + seconds
        self._given.put((request_id, payload, deadline))
        while True:
            with contextlib.suppress(queue.Empty):
                answered, reply = self._answers.get(timeout=_POLL_SECONDS)
                if answered == request_id:
                    return reply
                if answered == "init":
                    return self._failed(reply)
            if self._process.poll() is not None:
                code = self._process.returncode
                return self._failed(_error("Runtime.ExitError", f"Runtime exited with error: exit status {code}"))
            if time.time() > deadline:
                return self._failed(_error("Sandbox.Timedout", f"Task timed out after {seconds:.2f} seconds"))

    def next(self) -> tuple[str, bytes, float] | None:
        """Return what the process is to do next; ``None`` once it is gone."""
        process = self._process
        while process is not None and process.poll() is None:
            with contextlib.suppress(queue.Empty):
                return self._given.get(timeout=_POLL_SECONDS)
        return None

    def answered(self, request_id: str, reply: Reply) -> None:
        self._answers.put((request_id, reply))

    def arn(self) -> str:
        return self._function.arn

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        self.end()
        self._server.shutdown()
        self._server.server_close()

    def _failed(self, reply: Reply) -> Reply:
        self.end()
        for waiting in (self._given, self._answers):  # what the process that is gone was to hear, or said too late
            while not waiting.empty():
                waiting.get_nowait()
        return reply

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None  # noqa: S101 - it was started with a pipe
        self.log.extend(process.stdout)


def _error(kind: str, message: str) -> Reply:
    return Reply(json.dumps({"errorType": kind, "errorMessage": message}).encode(), "Unhandled")


def _runtime_api(sandbox: _Sandbox) -> type["_Handler"]:
    class RuntimeApi(_Handler):
        def do_GET(self) -> None:
            given = sandbox.next()
            if given is None:
                self.close_connection = True
                return
            request_id, payload, deadline = given
            headers = {
                "Lambda-Runtime-Aws-Request-Id": request_id,
                "Lambda-Runtime-Deadline-Ms": str(int(deadline * 1000)),
                "Lambda-Runtime-Invoked-Function-Arn": sandbox.arn(),
            }
            self.answer(200, payload, headers)

        def do_POST(self) -> None:
            body, parts = self.body(), self.path.rstrip("/").split("/")
            request_id = parts[-2] if parts[-3] == "invocation" else "init"
            sandbox.answered(request_id, Reply(body, "Unhandled" if parts[-1] == "error" else None))
            self.answer(202, b"")

    return RuntimeApi


class LambdaService:
    """The Invoke API over ``functions``: a real client reaches them with ``AWS_ENDPOINT_URL_LAMBDA`` set to ``url``.

    An asynchronous invocation is tried three times; after the last failure, the function's destination for failures
    is invoked with the record that the service makes.
    """

    def __init__(self) -> None:
        self._functions: dict[str, LambdaFunction] = {}
        self._on_failure: dict[str, LambdaFunction] = {}
        self._server = _served(_invoke_api(self))
        self._at_work: list[threading.Thread] = []

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def add(self, function: LambdaFunction, *, on_failure: LambdaFunction | None = None) -> None:
        """Have ``function`` invoked by its name or its ARN."""
        self._functions[function.name] = function
        if on_failure is not None:
            self._on_failure[function.name] = on_failure

    def find(self, name_or_arn: str) -> LambdaFunction | None:
        """Return the function of that name or ARN."""
        return self._functions.get(unquote(name_or_arn).rpartition(":")[2])

    def invoke_later(self, function: LambdaFunction, event: object) -> None:
        """Invoke without waiting for what comes of it."""
        working = threading.Thread(target=self._invoked, args=(function, event), daemon=True)
        working.start()
        self._at_work.append(working)  # only now: ``settle``, in another thread, may join it at once

    def settle(self) -> None:
        """Wait until every asynchronous invocation has come to its end."""
        while self._at_work:
            self._at_work.pop().join()

    def close(self) -> None:
        """Stop serving; the functions are their owner's."""
        self._server.shutdown()
        self._server.server_close()

    def _invoked(self, function: LambdaFunction, event: object) -> None:
        reply = function.invoke(event)
        for _ in range(_RETRIES):
            if reply.error is None:
                return
            reply = function.invoke(event)
        if reply.error is None:
            return
        destination = self._on_failure.get(function.name)
        if destination is None:
            return
        record = {
            "version": "1.0",
            "timestamp": datetime.now(UTC).isoformat(),
            "requestContext": {
                "requestId": str(uuid.uuid4()),
                "functionArn": f"{function.arn}:$LATEST",
                "condition": "RetriesExhausted",
                "approximateInvokeCount": 1 + _RETRIES,
            },
            "requestPayload": event,
            "responseContext": {"statusCode": 200, "executedVersion": "$LATEST", "functionError": reply.error},
            "responsePayload": reply.value,
        }
        self.invoke_later(destination, record)


def _invoke_api(service: LambdaService) -> type["_Handler"]:
    class InvokeApi(_Handler):
        def do_POST(self) -> None:
            body, parts = self.body(), urlsplit(self.path).path.strip("/").split("/")
            function = service.find(parts[2]) if len(parts) == 4 and parts[3] == "invocations" else None
            kind = self.headers.get("X-Amz-Invocation-Type", "RequestResponse")
            if function is None:
                return self.refuse(404, "ResourceNotFoundException", f"Function not found: {self.path}")
            if len(body) > (MAX_ASYNCHRONOUS if kind == "Event" else MAX_SYNCHRONOUS):
                return self.refuse(413, "RequestTooLargeException", f"{len(body)} byte payload is too large")
            event = json.loads(body or b"null")
            if kind == "Event":
                service.invoke_later(function, event)
                return self.answer(202, b"")
            reply = function.invoke(event)
            headers = {"X-Amz-Function-Error": reply.error} if reply.error else {}
            return self.answer(200, reply.payload, {**headers, "X-Amz-Executed-Version": "$LATEST"})

        def refuse(self, status: int, code: str, message: str) -> None:
            self.answer(status, json.dumps({"Message": message}).encode(), {"x-amzn-ErrorType": code})

    return InvokeApi


class FunctionUrl:
    """An HTTP server before ``function``, which gives it each request as a function URL or an HTTP API does.

    With ``iam``, a request without a signature is refused; whether that is right is not looked at.
    """

    def __init__(self, function: LambdaFunction, *, iam: bool = True) -> None:
        self._server = _served(_url_of(function, iam=iam))

    @property
    def url(self) -> str:
        """The base URL, with a slash at its end, as the service gives it."""
        return f"http://127.0.0.1:{self._server.server_port}/"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def request_event(method: str, target: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Return the event, in payload format 2.0, for a request; a body that is no text comes in base64."""
    path, _, query = target.partition("?")
    try:
        text, is_base64 = body.decode(), False
    except UnicodeDecodeError:
        text, is_base64 = base64.b64encode(body).decode(), True
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": unquote(path),
        "rawQueryString": query,
        "headers": {name.lower(): value for name, value in headers.items()},
        **({"queryStringParameters": dict(parse_qsl(query))} if query else {}),
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "url",
            "domainName": headers.get("Host", "127.0.0.1"),
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1", "userAgent": ""},
            "requestId": str(uuid.uuid4()),
            "routeKey": "$default",
            "stage": "$default",
            "time": datetime.now(UTC).strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "timeEpoch": int(time.time() * 1000),
        },
        **({"body": text} if body else {}),
        "isBase64Encoded": is_base64,
    }


def _url_of(function: LambdaFunction, *, iam: bool) -> type["_Handler"]:
    class Url(_Handler):
        def do_GET(self) -> None:
            body = self.body()
            if iam and not self.headers.get("Authorization", "").startswith("AWS4-HMAC-SHA256 "):
                return self.answer(403, b'{"Message":"Forbidden"}')
            if len(body) > MAX_SYNCHRONOUS:
                return self.answer(413, b'{"Message":"Request Entity Too Large"}')
            headers = {**dict(self.headers.items()), "X-Forwarded-Proto": "http"}
            reply = function.invoke(request_event(self.command, self.path, headers, body))
            if reply.error is not None:
                return self.answer(502, b"Internal Server Error")
            value = reply.value
            if not isinstance(value, dict) or "statusCode" not in value:
                return self.answer(200, reply.payload)
            text = value.get("body", "")
            data = base64.b64decode(text) if value.get("isBase64Encoded") else text.encode()
            return self.answer(value["statusCode"], data, value.get("headers", {}))

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - the names that the standard library looks for

    return Url


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Say nothing: a test that fails says enough."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, str(value))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)


def _served(handler: type[_Handler]) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=lambda: server.serve_forever(poll_interval=0.05), daemon=True).start()
    return server
