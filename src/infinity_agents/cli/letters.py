"""What the ``dead-letters`` commands do."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from rich.text import Text

from ..conversation.content import shown
from ..ports.queues import DeadLetter
from .config import AgentConfig
from .opening import Agent, visiting
from .reading import NotThere
from .rendering import clock_time, note, put, put_json, stderr, stdout
from .waiting import counted

_ALL = 2**31 - 1


async def print_letters(config: AgentConfig, *, as_json: bool) -> None:
    """Print every dead letter, oldest first."""
    console = stdout()
    async with visiting(config) as agent:
        letters = await agent.queue.dead_letters(limit=_ALL)
        if as_json:
            put_json([_document(letter) for letter in letters])
            return
        for letter in letters:
            put(console, _line(letter, agent))
        if not letters:
            put(console, note("there are no dead letters"))


async def print_letter(config: AgentConfig, queue_id: str, *, as_json: bool) -> None:
    """Print one dead letter, its message included.

    Raises:
        NotThere: there is no such dead letter.
    """
    console = stdout()
    async with visiting(config) as agent:
        letters = {letter.queue_id: letter for letter in await agent.queue.dead_letters(limit=_ALL)}
        if queue_id not in letters:
            raise _not_there(queue_id, config)
        letter = letters[queue_id]
        if as_json:
            put_json({**_document(letter), "body": letter.body})
            return
        put(console, _line(letter, agent))
        put(console, Text(shown(_pretty(letter.body))))


async def put_back(config: AgentConfig, queue_ids: Sequence[str]) -> None:
    """Put these dead letters on the queue again, in this order.

    Raises:
        NotThere: there is no such dead letter; those before it are on the queue.
    """
    async with visiting(config) as agent:
        await _each(config, queue_ids, agent.queue.redrive, "is on the queue again")
        if agent.hosted_by is None:
            put(stderr(), note(f"nobody hosts {config.place} now: `infinity serve` or `infinity chat` does"))


async def forget(config: AgentConfig, queue_ids: Sequence[str]) -> None:
    """Forget these dead letters.

    Raises:
        NotThere: there is no such dead letter; those before it are forgotten.
    """
    async with visiting(config) as agent:
        await _each(config, queue_ids, agent.queue.discard, "is forgotten")


async def _each(
    config: AgentConfig, queue_ids: Sequence[str], act: Callable[[str], Awaitable[None]], done: str
) -> None:
    for queue_id in queue_ids:
        try:
            await act(queue_id)
        except KeyError as error:
            raise _not_there(queue_id, config) from error
        put(stdout(), Text(f"{shown(queue_id)} {done}"))


def _not_there(queue_id: str, config: AgentConfig) -> NotThere:
    return NotThere(f"there is no dead letter {queue_id!r} in {config.place}; `infinity dead-letters list` lists them")


def _line(letter: DeadLetter, agent: Agent) -> Text:
    tries = counted(letter.receive_count, "try", "tries")
    when = clock_time(letter.parked_at, agent.services.clock.now())
    return Text.assemble(
        (letter.queue_id, "bold"),
        f"  {shown(letter.group_id)}  {when}, after {tries}\n",
        (f"    {shown(letter.reason)}", "red"),
    )


def _document(letter: DeadLetter) -> Mapping[str, Any]:
    return {
        "id": letter.queue_id,
        "thread_id": letter.group_id,
        "reason": letter.reason,
        "parked_at": letter.parked_at.isoformat(),
        "tries": letter.receive_count,
        "noticed": letter.noticed,
    }


def _pretty(body: str) -> str:
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except ValueError:
        return body
