"""The commands that send and read: through the file, whoever hosts it."""

import asyncio
import json
from collections import deque

from rich.text import Text

from ..conversation.content import shown
from ..conversation.outputs import Output
from ..errors import InfinityError
from ..ports.conversations import NO_ENTRIES, LoadRequest
from ..wire import history as stored
from ..wire import outputs as wire_outputs
from .config import AgentConfig, Stack
from .opening import Agent, deployed, visiting
from .rendering import entry_text, hanging, note, put, put_json, stderr, stdout, thread_json, thread_label, thread_trees
from .waiting import counted, state_of, states

_LOOK_EVERY = 0.2
_LAST = 10
_LONG_POLL = 3
"""Seconds that SQS waits for an output: less than the client waits for an answer."""
_LET_OTHERS = 1.0
"""Seconds for which what is for other threads is left to other readers."""


class NotThere(InfinityError):
    """What a command was asked for is not in the file."""


async def say(config: AgentConfig, thread_id: str, text: str, message_id: str | None, *, as_json: bool) -> None:
    """Put ``text`` on the queue, and say who will hear it.

    Raises:
        Reject: no queue takes ``thread_id``, or the message is too large.
    """
    async with visiting(config, makes=True) as agent:
        sent = await agent.send(thread_id, text, message_id=message_id)
        host = agent.hosted_by
        if as_json:
            put_json({"thread_id": thread_id, "message_id": sent, "hosted_by": host})
        else:
            # Whether the id was used before, the queue and the thread find out, each in its own time.
            how = "is on the queue for" if message_id is None else "is sent, unless its id was used before, to"
            put(stdout(), Text(f"message {sent} {how} {shown(thread_id)}"))
        if host is None:
            put(stderr(), note(f"nobody hosts {config.place} now: `infinity serve` or `infinity chat` does"))


async def print_outputs(
    config: AgentConfig, thread_id: str | None, since: int | None, *, follows: bool, as_json: bool
) -> None:
    """Print what people were told from behind the place ``since`` on, or else the last ten; then what they are told."""
    if config.stack is not None:
        await _take_outputs(config.stack, thread_id, follows=follows, as_json=as_json)
        return
    console = stdout()
    async with visiting(config) as agent:
        place = await _ten_before_the_end(agent, thread_id) if since is None else since
        while True:
            version = agent.database.data_version()
            page = await agent.outputs(after=place)
            for place, output in page:
                if thread_id not in {None, output.group_id, output.thread_id}:
                    continue
                if as_json:
                    put_json({"place": place, **wire_outputs.to_json(output)})
                elif output.text:
                    put(console, _output_line(place, output))
            if page:
                continue
            if not follows:
                return
            while agent.database.data_version() == version:  # noqa: ASYNC110 - who writes is another process
                await asyncio.sleep(_LOOK_EVERY)


async def _take_outputs(stack: Stack, thread_id: str | None, *, follows: bool, as_json: bool) -> None:
    """Print what is on the output queue, and take it off; what is for other threads stays."""
    console, printed = stdout(), set[str]()
    async with deployed(stack) as agent:
        while True:
            page = await agent.told.receive(wait=_LONG_POLL if follows else 1)
            wanted = [one for one in page if thread_id in {None, one[1].group_id, one[1].thread_id}]
            for _, output in wanted:
                # A standard queue may deliver twice.
                if output.output_id in printed:
                    continue
                printed.add(output.output_id)
                if as_json:
                    put_json(wire_outputs.to_json(output))
                elif output.text:
                    put(console, _output_line(None, output))
            await agent.told.take([receipt for receipt, _ in wanted])
            others = [receipt for receipt, output in page if all(output is not mine for _, mine in wanted)]
            await agent.told.leave(others)
            if not wanted and not follows:
                return
            if others and not wanted:
                await asyncio.sleep(_LET_OTHERS)


async def _ten_before_the_end(agent: Agent, thread_id: str | None) -> int:
    if thread_id is None:
        return max(await agent.outputs_log.last_place() - _LAST, 0)
    snapshot = await agent.services.conversations.load(LoadRequest(thread_id, known_to=NO_ENTRIES))
    places: deque[int] = deque([0], maxlen=_LAST + 1)
    while page := await agent.outputs(after=places[-1], group_id=snapshot.thread.root_id if snapshot else thread_id):
        places.extend(place for place, output in page if thread_id in {output.group_id, output.thread_id})
        if places[-1] != page[-1][0]:
            places.append(page[-1][0])
    return places[0]


_STYLES = {"tool_call": "cyan", "error": "red", "oauth_required": "yellow", "user_choice_required": "yellow"}


def _output_line(place: int | None, output: Output) -> Text:
    text = shown(output.text).removeprefix(f"[{output.thread_id}] ").replace("\n", "\n    ")
    line = Text(f"{'' if place is None else f'{place} '}{shown(output.thread_id)} ", style="dim")
    return line.append(f"{output.type} ", style=_STYLES.get(output.type, "bold")).append(text, style="not dim")


async def print_threads(config: AgentConfig, thread_id: str | None, limit: int, *, as_json: bool) -> None:
    """Print the threads, of one conversation or of all.

    Raises:
        NotThere: there is no such conversation.
    """
    console = stdout()
    async with visiting(config) as agent:
        found = await states(agent, thread_id, limit=limit)
        if thread_id is not None and not found:
            raise NotThere(_no_thread(thread_id, config))
        begun = {state.thread.id for state in found}
        queued = {} if thread_id else await agent.queue.outstanding()
        unheard = {name: count for name, count in queued.items() if name not in begun}
        host = agent.hosted_by
        if as_json:
            put_json(
                {
                    "hosted_by": host,
                    "threads": [thread_json(state) for state in found],
                    "not_begun": [{"id": name, "queued": count} for name, count in unheard.items()],
                }
            )
            return
        for tree in thread_trees(found, agent.services.clock.now()):
            console.print(tree, soft_wrap=not console.is_terminal)
        for name, count in unheard.items():
            put(console, Text(f"{shown(name)}  not begun: {count} on the queue"))
        if not found and not unheard:
            put(console, note("there are no threads yet: `infinity chat` begins one"))
        if len(found) == limit:
            put(stderr(), note(f"these are the first {limit}; --limit shows more"))
        if host is None and (unheard or any(state.waits for state in found)):
            put(stderr(), note(f"nobody hosts {config.place} now, so nothing goes on: `infinity serve` hosts it"))


async def print_transcript(config: AgentConfig, thread_id: str, at: int | None, *, raw: bool, as_json: bool) -> None:
    """Print the thread's own entries with their positions, up to the position ``at``.

    Raises:
        NotThere: there is no such thread.
    """
    console = stdout()
    async with visiting(config) as agent:
        conversations = agent.services.conversations
        snapshot = await conversations.load(LoadRequest(thread_id, known_to=NO_ENTRIES))
        if snapshot is None:
            raise NotThere(_no_thread(thread_id, config))
        state = state_of(snapshot, await agent.queue.outstanding())
        entries = [
            (place, entry) for place, entry in await conversations.history(thread_id) if at is None or place <= at
        ]
        documents = [{"position": place, **json.loads(stored.entries.encode(entry))} for place, entry in entries]
        if raw:
            for document in documents:
                put_json(document)
            return
        if as_json:
            put_json({**thread_json(state), "entries": documents})
            return
        put(console, thread_label(state, agent.services.clock.now()))
        if state.thread.base:
            before = counted(state.thread.base, "entry", "entries")
            put(console, note(f"before these: {before} of {' and '.join(state.thread.ancestors)}"))
        for place, entry in entries:
            put(console, Text(f"{place:>4} ", style="dim").append(hanging(entry_text(entry, whole=True), 5)))


def _no_thread(thread_id: str, config: AgentConfig) -> str:
    return f"there is no thread {thread_id!r} in {config.place}; `infinity threads` lists what there is"
