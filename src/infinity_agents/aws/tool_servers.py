"""A tool server as a Lambda function: what comes in by its URL is checked, and carried out by a second invocation.

Managed Python cannot answer first and work on. So the function hands each call to itself, asynchronously, and answers.
What the second invocation does not survive, the platform tries twice again; then the function of ``tool_failures``
answers the call with an error.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ..adapters.dynamo_records import DynamoRecords
from ..adapters.s3 import S3BlobStore
from ..adapters.sigv4 import SigV4Signer, is_aws_url
from ..adapters.system import SystemClock
from ..aws_clients import AwsClients
from ..conversation.ids import digest
from ..errors import InfinityError, Misconfigured, StoreUnavailable
from ..ports.blobs import BlobStore
from ..ports.records import RecordTable
from ..rap.asgi import Refused
from ..rap.posting import Sign
from ..rap.server import ToolServer, Undelivered
from ..settings.tool_servers import ToolServerEnvironment
from ..wire import rap
from ..wire.addresses import origin
from ..wire.traces import current_trace, following, trace_of
from .http_events import BadBody, HttpRequest, NoRequest, request_of, seen
from .sandbox import Sandbox

MAX_PAYLOAD = 1024 * 1024
"""The largest payload of an asynchronous invocation, in bytes."""
HANDED_OVER = "tool_invocation"
"""The ``type`` of the event by which a function hands a call to itself."""
CLAIMS_KEPT = timedelta(days=1)
"""How long a call that comes again is known: a runtime posts it again for minutes, the platform tries for 6 hours."""

_CANCEL_POLL = 2.0
_LAST_SECONDS = 8.0
"""Seconds before the invocation's end at which a call is cut off, so that this can be said."""

_log = logging.getLogger(__name__)

Handler = Callable[[Mapping[str, Any], Any], Any]


def tool_handler(server: ToolServer | Callable[[], ToolServer | Awaitable[ToolServer]]) -> Handler:
    """Return the handler of a Lambda function that serves ``server`` by its function URL; or what it builds, once.

    ``ToolServerEnvironment`` says what the function is told, ``docs/tools.md`` what it may do.
    """

    async def build() -> ToolFunction:
        environment, clients, clock = ToolServerEnvironment.read(os.environ), AwsClients(), SystemClock()
        table, bucket = environment.claims_table_name, environment.payload_bucket
        made = server if isinstance(server, ToolServer) else server()
        return ToolFunction(
            await made if isinstance(made, Awaitable) else made,
            name=os.environ.get("AWS_LAMBDA_FUNCTION_NAME", ""),
            clients=clients,
            claims=DynamoRecords(clients, table, clock) if table else None,
            payloads=S3BlobStore(clients, bucket) if bucket else None,
        )

    sandbox = Sandbox(build)

    def handler(event: object, context: Any) -> Any:
        seconds = context.get_remaining_time_in_millis() / 1000
        return sandbox.run(lambda function: function.handle(event, seconds=seconds))

    return handler


def signed(clients: AwsClients) -> Sign:
    """Return what signs requests to function URLs and API Gateway, and leaves all others as they are."""
    signer = SigV4Signer(clients.credentials, SystemClock(), region=clients.region)

    def sign(method: str, url: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        # The signature holds for that host alone, and does not tell the key.
        return signer(method, url, headers, body) if is_aws_url(url) else {}

    return sign


# ------------------------------------------------------------------------------------- what is handed over

_HANDED_FIELDS = {"base_url", "token", "invocation", "sha256"}


@dataclass(frozen=True, slots=True)
class Handed:
    """A call between its two invocations. ``token`` is the same whenever the platform tries the second one again."""

    invocation: rap.Invocation
    base_url: str
    token: str
    trace: Mapping[str, str] | None = None

    async def payload(self, payloads: BlobStore | None) -> bytes:
        """Return the event that says it; what is too large for one is kept in ``payloads``.

        Raises:
            Refused: it is too large, and there is no bucket.
        """
        whole = self._event(invocation=self.invocation.to_json())
        if len(whole) <= MAX_PAYLOAD:
            return whole
        if payloads is None:
            raise Refused(
                413, f"the invocation has {len(whole)} bytes, over {MAX_PAYLOAD}, and PAYLOAD_BUCKET is unset"
            )
        body = json.dumps(self.invocation.to_json()).encode()
        sha256 = hashlib.sha256(body).hexdigest()
        await payloads.put(sha256, body)
        return self._event(sha256=sha256)

    def _event(self, **what: Any) -> bytes:
        fields = {"type": HANDED_OVER, "base_url": self.base_url, "token": self.token, "trace": self.trace, **what}
        return json.dumps(fields).encode()


async def handed(event: object, payloads: BlobStore | None) -> Handed:
    """Return what ``event`` says.

    Raises:
        NoRequest: it is no call that was handed over.
        Misconfigured: it is kept in a bucket, and none is named.
        KeyError: it is not there any more.
    """
    if not isinstance(event, Mapping) or not {"base_url", "token"} < event.keys() & _HANDED_FIELDS:
        raise NoRequest(f"a call that was handed over is wanted, and this event {seen(event)}; call the function's URL")
    if "invocation" in event:
        invocation = rap.Invocation.model_validate(event["invocation"])
    elif payloads is None:
        raise Misconfigured("a call was handed over by a bucket; set PAYLOAD_BUCKET")
    else:
        invocation = rap.parse_invocation(await payloads.get(event["sha256"]))
    return Handed(invocation, event["base_url"], event["token"], trace_of(event.get("trace")))


# --------------------------------------------------------------------------------------------- the function


class ToolFunction:
    """Both invocations of a tool server's function, named ``name``.

    Raises:
        Misconfigured: a tool that must not run twice is offered, and there are no ``claims``.
    """

    def __init__(
        self,
        server: ToolServer,
        *,
        name: str,
        clients: AwsClients,
        claims: RecordTable | None,
        payloads: BlobStore | None,
    ) -> None:
        self._server = server
        self._name = name
        self._clients = clients
        self._claims = claims
        self._payloads = payloads
        self._repeatable = {
            tool.name for tool in server.offered if tool.annotations.idempotent or tool.annotations.read_only
        }
        once = next((tool.name for tool in server.offered if tool.name not in self._repeatable), None)
        if once is not None and claims is None:
            raise Misconfigured(
                f"the tool {once} must not run twice for one call; set CLAIMS_TABLE_NAME, or say that it is idempotent"
            )
        server.host(take=self._take, sign=signed(clients))
        server.on_cancel(self._mark_cancelled)
        server.on_close(self._mark_closed)

    async def handle(self, event: object, *, seconds: float) -> Any:
        """Answer a request of the function's URL, or carry out what one has handed over; ``seconds`` are left.

        Raises:
            NoRequest: the event is neither.
            InfinityError: the call could not be carried out; the platform tries again.
            Undelivered: its result was not taken; as above.
        """
        if isinstance(event, Mapping) and event.get("type") == HANDED_OVER:
            call = await handed(event, self._payloads)
            with following(call.trace):
                return await self._carry_out(call, seconds)
        return await self._answered(request_of(event))

    # ------------------------------------------------------------ the first one

    async def _answered(self, request: HttpRequest) -> dict[str, Any]:
        status, headers, body = 0, [], b""

        async def receive() -> dict[str, Any]:
            try:
                return {"type": "http.request", "body": request.body}
            except BadBody as error:
                raise Refused(400, str(error)) from error

        async def send(message: Mapping[str, Any]) -> None:
            nonlocal status, headers, body
            if message["type"] == "http.response.start":
                status, headers = message["status"], message["headers"]
            else:
                body += message["body"]

        scope = {
            "type": "http",
            "method": request.method,
            "path": request.path,
            "scheme": request.headers.get("x-forwarded-proto", "https"),
            "headers": [
                (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
                for name, value in request.headers.items()
            ],
        }
        await self._server(scope, receive, send)
        # Whatever is not done when the answer is given stands still.
        await self._server.settled()
        return {
            "statusCode": status,
            "headers": {name.decode(): value.decode() for name, value in headers},
            "body": body.decode(),
        }

    async def _take(self, invocation: rap.Invocation, base_url: str) -> None:
        try:
            handed_over = Handed(invocation, base_url, secrets.token_hex(16), current_trace())
            payload = await handed_over.payload(self._payloads)
            await self._clients.call(
                "lambda", "invoke", FunctionName=self._name, InvocationType="Event", Payload=payload
            )
        except StoreUnavailable as error:
            _log.warning("call %s was not handed over: %s", invocation.id, error)
            raise Refused(503, "the call could not be handed over; post it again") from error
        except InfinityError as error:
            _log.exception("call %s cannot be handed over", invocation.id)
            raise Refused(500, "the call could not be handed over; the server's log says why") from error

    # ----------------------------------------------------------- the second one

    async def _carry_out(self, call: Handed, seconds: float) -> None:
        invocation = call.invocation
        claim = await self._claim(call)
        if claim in {"done", "another's"}:
            return
        if await self._is_unwanted(invocation):
            return
        if claim == "ours" and invocation.operation not in self._repeatable:
            text = f"{invocation.operation} broke off, and may be done in part. Look before you call it again."
            await self._delivered(self._server.refuse(invocation, text), invocation)
        else:
            left = max(seconds - min(_LAST_SECONDS, seconds / 3), 0.0)
            carrying_out = self._server.carry_out(invocation, call.base_url, seconds=left)
            await self._while_wanted(self._delivered(carrying_out, invocation), invocation)
        await self._finish(call)

    async def _delivered(self, answering: Awaitable[None], invocation: rap.Invocation) -> None:
        try:
            await answering
        except Undelivered as error:
            if error.status is None or error.status >= 500 or error.status == 429:
                raise
            # Whoever refuses it now will refuse it again.
            _log.error("the result of call %s is lost: %s", invocation.id, error)

    async def _claim(self, call: Handed) -> str:
        """Return whose the call is: ``new``, ``ours`` from a try that broke off, ``done``, or ``another's``."""
        if self._claims is None:
            return "new"
        mine = {"token": call.token, "done": False}
        there = await self._claims.put_new(*_claim_key(call.invocation), mine, kept=CLAIMS_KEPT)
        if there is None:
            return "new"
        if there["done"]:
            return "done"
        # Another one, who has not said that it is done, still ends in a result: by its own tries, or after them.
        return "ours" if there["token"] == call.token else "another's"

    async def _finish(self, call: Handed) -> None:
        if self._claims is not None:
            done = {"token": call.token, "done": True}
            await self._claims.put(*_claim_key(call.invocation), done, kept=CLAIMS_KEPT)

    # -------------------------------------------------------- what nobody wants

    async def _mark_cancelled(self, thread_id: str, call_id: str) -> None:
        if self._claims is not None:
            await self._claims.put(_thread_group(thread_id), f"cancelled#{call_id}", {}, kept=CLAIMS_KEPT)

    async def _mark_closed(self, thread_id: str) -> None:
        if self._claims is not None:
            await self._claims.put(_thread_group(thread_id), "closed", {}, kept=CLAIMS_KEPT)

    async def _is_unwanted(self, invocation: rap.Invocation) -> bool:
        if self._claims is None:
            return False
        group = _thread_group(invocation.group_id)
        marks = await asyncio.gather(
            self._claims.get(group, f"cancelled#{invocation.id}"), self._claims.get(group, "closed")
        )
        return any(mark is not None for mark in marks)

    async def _while_wanted(self, work: Awaitable[None], invocation: rap.Invocation) -> None:
        """Do ``work``, and cancel it once nobody wants the call any more: that is told to another sandbox."""
        working = asyncio.ensure_future(work)
        while not (await asyncio.wait([working], timeout=_CANCEL_POLL))[0]:
            with contextlib.suppress(StoreUnavailable):
                if await self._is_unwanted(invocation):
                    working.cancel()
        if not working.cancelled():
            working.result()


def _thread_group(thread_id: str) -> str:
    return f"thread#{thread_id}"


def _claim_key(invocation: rap.Invocation) -> tuple[str, str]:
    # A call is another's, whatever its ids, if its answer is wanted at another place.
    return _thread_group(invocation.group_id), f"call#{digest(origin(invocation.callback_url), invocation.id)}"
