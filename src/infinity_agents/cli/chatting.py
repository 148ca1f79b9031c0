"""``infinity chat``: this process hosts the file where nobody else does, and follows it where somebody does."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

from ..errors import AlreadyHosted, Misconfigured
from ..local.wiring import LocalAgent
from ..ports.observer import Observer
from .chat import Chat
from .config import AgentConfig
from .opening import Agent, hosting, log_to_stderr, visiting
from .rendering import note, put, stdout
from .screens import Documents, Lines, terminal

_TRY_TO_HOST_EVERY = 1.0


async def run_chat(config: AgentConfig, thread_id: str, *, as_json: bool) -> int:
    """Talk with the agent in ``thread_id`` until the person leaves, or standard input ends; return the exit code.

    It is 1 where lines of standard input were said, and a message was set aside. ``as_json`` is for those alone.

    Raises:
        InfinityError: the agent cannot be opened or hosted.
    """
    console = stdout()
    # What fails is shown in the conversation; a line in the midst of it helps nobody.
    log_to_stderr(logging.CRITICAL)
    if config.stack is not None and as_json:
        raise Misconfigured(
            "chat --json prints the log of outputs, which a deployed agent sends to its output queue; "
            "use `infinity send` and `infinity tail --json`"
        )
    async with AsyncExitStack() as stack:
        agent: Agent
        host: LocalAgent | None = None
        if config.stack is None:
            agent = host = await stack.enter_async_context(hosting(config))
        else:
            agent = await stack.enter_async_context(visiting(config))
        can_draw = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        if as_json or not can_draw:
            lines = Documents(console) if as_json else Lines(console)
            chat = Chat(agent, thread_id, lines)
            await _converse(chat, partial(lines.talk, chat), host)
            return int(chat.has_set_aside)
        with terminal(console) as screen:
            chat = Chat(agent, thread_id, screen)
            model = f", model {config.model}" if host else ""
            put(console, note(f"{thread_id} in {config.place}{model}. /help lists the commands"))
            await _converse(chat, partial(screen.talk, chat), host)
            goes_on = f" ({chat.status}; that takes a host, such as infinity serve)" if chat.status and host else ""
            put(console, note(f"left; the next chat goes on from here{goes_on}"))
            return 0


async def _converse(chat: Chat, talk: Callable[[], Awaitable[None]], host: LocalAgent | None) -> None:
    """Follow the conversation, hosting it where it is ``host``'s, and ``talk``, until that is over.

    Raises:
        InfinityError: the file cannot be read or written any more, or cannot be hosted for another reason than that
            another process does.
    """
    await chat.begin()
    hosting = asyncio.create_task(_host_when_free(host, chat, chat.tell) if host else _hosted_elsewhere())
    following = asyncio.create_task(chat.follow())
    talking = asyncio.ensure_future(talk())
    try:
        await asyncio.wait({hosting, following, talking}, return_when=asyncio.FIRST_COMPLETED)
        talking.cancel()
        # Slices that run are finished; who does not want to wait for that presses Ctrl-C once more.
        main = asyncio.current_task()
        if main is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, main.cancel)
        if host and chat.news.queued:
            await chat.tell("finishing what runs; Ctrl-C leaves at once, and nothing is lost either way")
        hosting.cancel()
        await asyncio.wait({hosting, talking})
    finally:
        following.cancel()
    for task in (hosting, following, talking):
        if task.done() and not task.cancelled():
            task.result()
    await chat.finish()


async def _hosted_elsewhere() -> None:
    await asyncio.Event().wait()


async def _host_when_free(agent: LocalAgent, observer: Observer, tell: Callable[[str], Awaitable[None]]) -> None:
    """Host the file as soon as nobody else does, until cancelled."""
    other: str | None = None
    while True:
        try:
            async with agent.host(observer) as host:
                if other is not None:
                    await tell("the other host has ended; this chat hosts the file now")
                await host.wait()
        except AlreadyHosted:
            if other is None:
                other = agent.hosted_by or "another process"
                await tell(f"process {other} hosts the file: replies come whole, not as a stream")
            await asyncio.sleep(_TRY_TO_HOST_EVERY)
