"""How a tool server's callbacks reach the runtime: tried again until they are taken, and by handles that last."""

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import httpx
from pydantic import BaseModel, ValidationError

from ..conversation.content import without_surrogates
from ..wire import rap
from ..wire.callbacks import ChoiceCallback, EventCallback, OauthCallback, ResultCallback, ViewCallback
from ..wire.traces import current_trace
from .results import Event, succeeded_call

MAX_CALLBACK = 5_500_000
"""The largest callback that is posted, in bytes: Lambda takes 6 MB, in which JSON is escaped once more."""
PATIENCE = 240.0
"""Seconds for which a callback is tried again while whoever sends it waits."""
FIRST_PAUSE = 0.5
"""Seconds between the first two tries; each further pause is twice as long, up to ``LONGEST_PAUSE``."""
LONGEST_PAUSE = 60.0
CALLBACK_TIMEOUT = 30.0
"""Seconds that the runtime has to take a callback."""

Sign = Callable[[str, str, Mapping[str, str], bytes], Mapping[str, str]]
"""Returns the headers that sign (method, URL, headers, body); none where the URL wants no signature."""
Outgoing = ResultCallback | EventCallback | OauthCallback | ChoiceCallback | ViewCallback

# A proxy of the environment is for the world, not for this machine.
_UNPROXIED = {"all://localhost": None, "all://127.0.0.1": None, "all://[::1]": None}

# What httpx lets through beside its own: a host that is no name, a port that is no port, a group of these.
_FAILURES = (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, OverflowError, ExceptionGroup)

# httpx logs the URL of every request, and a callback's is a secret.
if logging.getLogger("httpx").level == logging.NOTSET:
    logging.getLogger("httpx").setLevel(logging.WARNING)


class Undelivered(Exception):
    """The runtime did not take a callback; ``status`` is its HTTP status, ``None`` where there was no answer."""

    def __init__(self, text: str, status: int | None) -> None:
        super().__init__(text)
        self.status = status


class CallbackSender:
    """Posts callbacks over one long-lived client, which is opened at the first one; ``sign`` signs each of them."""

    def __init__(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep, sign: Sign | None = None) -> None:
        self._sleep = sleep
        self.sign = sign
        self._client: httpx.AsyncClient | None = None

    async def post(self, url: str, callback: Outgoing, *, patience: float = PATIENCE) -> None:
        """POST ``callback`` until the runtime takes it, pausing for about ``patience`` seconds in all.

        Raises:
            Undelivered: it was refused (4xx other than 429), or not taken in the last try.
            ValueError: it is larger than 5.5 MB.
        """
        body = json.dumps(callback.to_json()).encode()
        if len(body) > MAX_CALLBACK:
            raise ValueError(
                f"the {callback.type} has {len(body)} bytes, and {MAX_CALLBACK} are allowed; send less, "
                "or keep it elsewhere and send a link"
            )
        pauses = _pauses(patience)
        while True:
            status, text = await self._try(url, body)
            if status is not None and status < 300:
                return
            is_passing = status is None or status >= 500 or status == 429
            pause = next(pauses, None)
            if pause is None or not is_passing:
                raise Undelivered(f"the runtime did not take a {callback.type}: {text}", status)
            await self._sleep(pause)

    async def aclose(self) -> None:
        """Close the connections; a later callback opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _try(self, url: str, body: bytes) -> tuple[int | None, str]:
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=CALLBACK_TIMEOUT, follow_redirects=False, mounts=_UNPROXIED)
        headers = {"Content-Type": "application/json", **(current_trace() or {})}
        if self.sign is not None:
            headers |= self.sign("POST", url, headers, body)
        try:
            async with self._client.stream("POST", url, content=body, headers=headers) as answer:
                text = await anext(answer.aiter_text(500), "")
                return answer.status_code, f"HTTP {answer.status_code} {text[:500]}".strip()
        except _FAILURES as error:
            return None, type(error).__name__  # its text may hold the URL, which is a secret


async def push(
    handle: str,
    text: str,
    *,
    final: bool = False,
    associative: bool = False,
    event_id: str | None = None,
) -> None:
    """Tell the conversation of an event of the subscription behind ``handle``, from any process.

    ``final``, ``associative`` and ``event_id`` are those of ``Event``.

    Raises:
        Undelivered: the runtime did not take it, in some four minutes.
        ValueError: the handle is none, or the text is larger than 5.5 MB.
    """
    sender = CallbackSender()
    try:
        await push_with(sender, handle, Event(text, associative, final, event_id))
    finally:
        await sender.aclose()


async def answer_with(
    sender: CallbackSender, handle: str, value: Any, *, is_error: bool = False, patience: float = PATIENCE
) -> None:
    """Post ``value`` as the result of the call behind ``handle``; ``is_error`` says that it is what went wrong.

    Raises:
        Undelivered: the runtime did not take it, in ``patience`` seconds of pauses.
        ValueError: the handle is none, or the value has no JSON form or is larger than 5.5 MB.
    """
    about = _read(handle)
    result = succeeded_call(about.group_id, about.tool_call_id, about.call_id, value)
    await sender.post(about.callback_url, result.model_copy(update={"is_error": is_error}), patience=patience)


async def push_with(sender: CallbackSender, handle: str, event: Event, *, patience: float = PATIENCE) -> None:
    """Post ``event`` over ``sender``; raises what ``push`` does."""
    about = _read(handle)
    callback = EventCallback(
        group_id=about.group_id,
        tool_call_id=about.tool_call_id,
        text=without_surrogates(event.text),
        associative=event.associative,
        final=event.final,
        # Without an id of the author's, the tries of this one event still count as one.
        event_id=event.event_id or secrets.token_hex(16),
    )
    await sender.post(about.callback_url, callback, patience=patience)


def handle_of(invocation: rap.Invocation) -> str:
    """Return the text by which the call can be answered and its events pushed; a secret, as its callback URL is."""
    return _Handle(
        callback_url=invocation.callback_url,
        group_id=invocation.group_id,
        tool_call_id=invocation.id,
        call_id=invocation.call_id,
    ).model_dump_json()


class _Handle(BaseModel):
    callback_url: str
    group_id: str
    tool_call_id: str
    call_id: str | None = None


def _read(handle: str) -> _Handle:
    try:
        return _Handle.model_validate_json(handle)
    except ValidationError as error:
        # Its text would repeat the handle, which is a secret.
        raise ValueError("this is not a handle of a call; pass the text that ctx.handle gave") from error


def _pauses(patience: float) -> Iterator[float]:
    pause, paused = FIRST_PAUSE, 0.0
    while paused < patience:
        yield pause
        paused += pause
        pause = min(2 * pause, LONGEST_PAUSE)
