"""What the tests of the step share: worlds whose adapters are counted or fail, and deliveries made by hand."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from infinity_agents.conversation import ids
from infinity_agents.conversation.content import Text
from infinity_agents.conversation.events import StepFinished, StepOutcome
from infinity_agents.conversation.messages import Delivery, InputMessage, SubscriptionEvent, ToolResult
from infinity_agents.ports.clock import Clock
from infinity_agents.ports.conversations import LoadRequest, Snapshot
from infinity_agents.testing.scenarios import by_last_words
from infinity_agents.testing.scripted_model import Reply, Rule, Script, ScriptedModel
from infinity_agents.testing.world import TOOL_SET, Adapters, OpenAdapters, World
from tests.embeddings import in_memory

_numbers = itertools.count(1)


class Trips:
    """Counts the calls to each adapter, from outside, and which of them were in flight together."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.together: set[frozenset[str]] = set()
        self.loads: list[tuple[LoadRequest, Snapshot | None]] = []
        self._flying: Counter[str] = Counter()

    def open_adapters(self, opening: OpenAdapters) -> OpenAdapters:
        """Return the way to open adapters that are counted here."""

        async def opened(clock: Clock) -> Adapters:
            adapters = await opening(clock)
            roles = ("conversations", "state", "inputs", "outputs", "timers", "blobs")
            return replace(adapters, **{role: _Watched(getattr(adapters, role), role, self) for role in roles})

        return opened

    def forget(self) -> None:
        self.calls.clear()
        self.together.clear()
        self.loads.clear()

    def by_port(self) -> dict[str, int]:
        ports: Counter[str] = Counter()
        for name, count in self.calls.items():
            ports[name.partition(".")[0]] += count
        return dict(ports)

    async def pass_through(self, name: str, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self.calls[name] += 1
        self._flying[name] += 1
        # Whoever means to be in flight at the same time gets the chance to set out.
        for _ in range(3):
            await asyncio.sleep(0)
        self.together.add(frozenset(+self._flying))
        result = await method(*args, **kwargs)
        self._flying[name] -= 1
        if name == "conversations.load":
            self.loads.append((args[0], result))
        return result


class _Watched:
    def __init__(self, port: Any, role: str, trips: Trips) -> None:
        self._port, self._role, self._trips = port, role, trips

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def watched(*args: Any, **kwargs: Any) -> Any:
            return await self._trips.pass_through(f"{self._role}.{name}", found, args, kwargs)

        return watched


def with_adapters(opening: OpenAdapters, **changed: Callable[[Any], Any]) -> OpenAdapters:
    """Return the way to open adapters some of which are replaced by what ``changed`` makes of them, by role."""

    async def opened(clock: Clock) -> Adapters:
        adapters = await opening(clock)
        return replace(adapters, **{role: make(getattr(adapters, role)) for role, make in changed.items()})

    return opened


async def a_world(
    script: dict[str, Rule] | Script | Sequence[Reply],
    *tools: str,
    opening: OpenAdapters | None = None,
    settings: Any = None,
    **model: Any,
) -> World:
    """Return a world that is up; a dictionary is a script that goes by the last thing heard."""
    spoken = by_last_words(script) if isinstance(script, dict) else script
    world = World(opening or in_memory(), ScriptedModel(spoken, **model), tools=tools, settings=settings)
    await world.boot()
    return world


def rescript(world: World, script: dict[str, Rule] | Script | Sequence[Reply]) -> None:
    """Have the model go by another script from now on."""
    spoken = by_last_words(script) if isinstance(script, dict) else script
    world.model._script = spoken


def person(text: str, thread_id: str = "t", **fields: Any) -> Delivery:
    """Return a delivery of what a person says."""
    return Delivery(InputMessage(Text(text), thread_id, **fields), f"queue-{next(_numbers)}")


def sent(content: Any, thread_id: str = "t", **fields: Any) -> Delivery:
    """Return a delivery of anything else that a person may send."""
    return Delivery(InputMessage(content, thread_id, **fields), f"queue-{next(_numbers)}")


def ours(content: Any = None, thread_id: str = "t", *, message_id: str | None = None, **fields: Any) -> Delivery:
    """Return a delivery that one of our functions wrote; without ``content``, of blank text."""
    number = next(_numbers)
    content = Text("") if content is None else content
    message = InputMessage(content, thread_id, message_id=message_id or f"ours-{number}", **fields)
    return Delivery(message, f"queue-{number}", proven=True)


def result(call_id: str, *content: Any, thread_id: str = "t", subscription: bool = False, **fields: Any) -> Delivery:
    """Return a delivery of the tool server's answer to a call."""
    parts = tuple(Text(part) if isinstance(part, str) else part for part in content)
    fields = {"tool_set": TOOL_SET, **fields}
    return ours(
        ToolResult(call_id, parts, **fields),
        thread_id,
        message_id=ids.message_id("result", thread_id, call_id),
        subscription=subscription,
    )


def event(call_id: str, text: str, *, thread_id: str = "t", associative: bool = False, final: bool = False) -> Delivery:
    """Return a delivery of an event of a subscription."""
    tag = SubscriptionEvent(call_id, associative=associative, final=final, tool_set=TOOL_SET)
    return ours(Text(text), thread_id, synthetic=tag)


async def step(world: World, *deliveries: Delivery, **more: Any) -> StepOutcome:
    """Step the one thread that ``deliveries`` are for, and return its outcome; nothing else is taken off the queue."""
    (outcome,) = (await world.system.step(deliveries, world.events, **more)).values()
    return outcome


def finished(world: World) -> StepFinished:
    """Return the last ``StepFinished`` that was observed."""
    return [event for event in world.events.events if isinstance(event, StepFinished)][-1]


async def texts(world: World, kind: str = "message", thread_id: str | None = None) -> list[str]:
    """Return what people were told, without repeats."""
    outputs = (await world.outputs()).values()
    return [output.text for output in outputs if output.type == kind and thread_id in {None, output.thread_id}]


async def states(world: World, thread_id: str = "t") -> dict[str, str]:
    """Return the state of each call of the thread's ledger, by tool; of several, the last."""
    return {call.tool: str(call.state) for call in await world.adapters.conversations.calls(thread_id)}


async def kinds(world: World, thread_id: str = "t") -> list[str]:
    return [entry.kind for entry in await world.history(thread_id)]
