"""``infinity chat``: the conversation, on the screen that there is."""

import logging
import os
import sys
from functools import partial

from .chat import Chat, converse
from .config import AgentConfig
from .opening import hosting, log_to_stderr
from .rendering import note, put, stdout
from .screens import Lines, terminal


async def run_chat(config: AgentConfig, thread_id: str) -> None:
    """Talk with the agent in ``thread_id`` until the person leaves, or standard input ends.

    Raises:
        InfinityError: the agent cannot be opened or hosted.
    """
    console = stdout()
    # What fails is shown in the conversation; a line in the midst of it helps nobody.
    log_to_stderr(logging.CRITICAL)
    async with hosting(config) as agent:
        if not (sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"):
            lines = Lines(console)
            chat = Chat(agent, thread_id, lines)
            await converse(chat, partial(lines.talk, chat))
            return
        with terminal(console) as screen:
            chat = Chat(agent, thread_id, screen)
            put(console, note(f"{thread_id} in {config.file}, model {config.model}. /help lists the commands"))
            await converse(chat, partial(screen.talk, chat))
            goes_on = f" ({chat.status}; that takes a host, such as infinity serve)" if chat.status else ""
            put(console, note(f"left; the next chat goes on from here{goes_on}"))
