"""A tool of a tool server, as the runtime calls it."""

import json
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ..conversation.content import JsonObject, shown
from ..conversation.ledger import Call
from ..errors import ToolRefused, ToolUnreachable
from ..ports.clock import Clock
from ..ports.http import HttpClient, HttpResponse, HttpUnreachable
from ..ports.tool import CallContext, SliceContext, ToolSpec
from ..wire import rap
from ..wire.codecs import mended_json
from ..wire.traces import current_trace
from .callbacks import token_in
from .display_script import evaluate

TRIES = 4
FIRST_PAUSE = 0.5
"""Seconds between the first two tries; each further pause is twice as long."""
TIME_BUDGET = 20.0
"""Seconds that all tries together may take."""
TRY_TIMEOUT = 8.0
"""Seconds in which a server must have taken a request: it answers at once and works afterwards."""

CALL_TIMEOUT = timedelta(hours=6)
LONG_CALL_TIMEOUT = timedelta(days=14)
"""For tools that are annotated ``longRunning``."""

_MAX_ANSWER = 64 * 1024
_MAX_DISPLAY = 200

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RapTool:
    """Hands a call to its tool server and returns; the result comes back as a message.

    ``auth`` is as the HTTP port spells it.
    """

    spec: ToolSpec
    tool_set: str
    endpoint: str
    http: HttpClient
    clock: Clock
    auth: str = "none"
    call_timeout: timedelta = CALL_TIMEOUT
    display_script: str | None = None

    @property
    def is_passive(self) -> bool:
        """False: there is always a server at work."""
        return False

    def display(self, arguments: JsonObject) -> str:
        """Return what the tool's ``displayScript`` makes of the arguments, or else ``name(arguments)``."""
        text = evaluate(self.display_script, arguments) if self.display_script else None
        return _one_line(text or "") or _one_line(f"{self.spec.name}({_spelt(arguments)})")

    def wakes_at(self, call: Call) -> None:
        """Return ``None``: only the server's answer ends the call."""

    async def execute_synchronous(self, call: Call, context: SliceContext) -> None:
        """Return ``None``: the call is dispatched after the commit."""

    async def execute(self, call: Call, context: CallContext) -> None:
        """POST the invocation; repeats carry the same ``Idempotency-Key``.

        Raises:
            ToolRefused: the server answered 3xx or 4xx.
            ToolUnreachable: no answer, or 5xx, to the last try.
        """
        thread, callback_url = context.thread, context.callback_url(call)
        invocation = rap.Invocation(
            operation=call.tool,
            arguments=mended_json(dict(call.arguments)),
            id=call.id,
            call_id=call.call_id,
            callback_url=callback_url,
            group_id=thread.id,
            thread_ancestors=thread.ancestors,
            user_id=call.user_id,
        )
        await hand_over(
            f"{call.tool} of the tool set {self.tool_set!r}",
            self.endpoint,
            invocation.to_json(),
            http=self.http,
            clock=self.clock,
            auth=self.auth,
            headers={"Idempotency-Key": f"{thread.id}:{call.id}", **(current_trace() or {})},
            secret=token_in(callback_url),
        )


async def hand_over(
    what: str,
    url: str,
    fields: JsonObject,
    *,
    http: HttpClient,
    clock: Clock,
    auth: str,
    headers: Mapping[str, str] | None = None,
    secret: str | None = None,
) -> None:
    """POST ``fields`` until a server takes them: four tries, 20 seconds.

    ``what`` names the operation in errors; ``secret`` never stands in one, even where the server repeats it.

    Raises:
        ToolRefused: the server answered 3xx or 4xx.
        ToolUnreachable: no answer, or 5xx, to the last try.
    """
    body = json.dumps(fields, separators=(",", ":")).encode()
    started = clock.now()
    failure = ""
    for number in range(1, TRIES + 1):
        left = TIME_BUDGET - (clock.now() - started).total_seconds()
        try:
            answer = await http.request(
                "POST",
                url,
                body=body,
                headers={"Content-Type": "application/json", **(headers or {})},
                auth=auth,
                timeout=max(min(TRY_TIMEOUT, left), 1.0),
                max_bytes=_MAX_ANSWER,
            )
        except HttpUnreachable as error:
            failure = f"no answer ({error})"
        else:
            if answer.status < 300:
                return
            if answer.status < 500:
                raise ToolRefused(f"{what}: the tool server refused with HTTP {answer.status}{excerpt(answer, secret)}")
            failure = f"HTTP {answer.status}{excerpt(answer, secret)}"
        # Many threads may be waiting for the same server: they must not all come back at the same moment.
        pause = FIRST_PAUSE * 2 ** (number - 1) * random.uniform(0.75, 1.25)
        left = TIME_BUDGET - (clock.now() - started).total_seconds()
        _log.info("try %d of %d failed: %s: %s", number, TRIES, what, failure)
        if number == TRIES or pause >= left:
            break
        await clock.sleep(pause)
    raise ToolUnreachable(f"{what}: the tool server could not be reached: {failure}")


def excerpt(answer: HttpResponse, secret: str | None = None) -> str:
    """Return what a server says is wrong, short and on one line, after a colon; nothing where it says nothing."""
    text = answer.body[:4096].decode(errors="replace")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if isinstance(fields, dict):
        said = next((fields[name] for name in ("error", "message", "detail") if fields.get(name)), text)
        text = said if isinstance(said, str) else json.dumps(said)
    line = _one_line(text.replace(secret, "[secret]") if secret else text)
    return f": {line}" if line else ""


def _spelt(arguments: JsonObject) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in arguments.items())


def _value(value: Any) -> str:
    # A megabyte of argument is not spelt out for the sake of its first hundred characters.
    return json.dumps(value[:_MAX_DISPLAY] if isinstance(value, str) else value, ensure_ascii=False, default=str)


def _one_line(text: str) -> str:
    line = " ".join(shown(text[: 10 * _MAX_DISPLAY]).split())
    return line if len(line) <= _MAX_DISPLAY else line[: _MAX_DISPLAY - 1] + "…"
