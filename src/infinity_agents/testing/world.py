"""A whole agent in a box: the runtime over any adapters, with a queue loop that does one thing at a time.

What happens is the same on every run, so that a run with a crash in it can be compared with one without.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ..conversation import ids
from ..conversation.content import JsonObject, Part, Text
from ..conversation.events import Failed, StepOutcome
from ..conversation.history import Entry, faults
from ..conversation.ledger import Call
from ..conversation.messages import (
    Delivery,
    InputMessage,
    SubscriptionEvent,
    ToolResult,
    UserChoiceRequired,
)
from ..conversation.outputs import Output
from ..errors import Reject, ToolRefused
from ..ports.blobs import BlobStore
from ..ports.clock import Clock
from ..ports.conversations import ConversationStore
from ..ports.model import Model
from ..ports.queues import DeferQueue, LocalInputQueue, OutputLog, Received
from ..ports.state import StateStore
from ..ports.timer import LocalTimers
from ..ports.tool import CallContext, SliceContext, ToolAnswer, Toolset, ToolSpec
from ..runtime import AgentSystem, EventCollector, Services
from ..runtime.keeper import Keeper, Swept
from ..settings import AgentSettings
from ..tools import built_in
from ..wire.inputs import decode, encode
from ..wire.keys import Keyring
from .doubles import CountingIds, FrozenClock
from .faults import FaultInjector

KEYRING = Keyring({"test": b"a secret of more than 16 characters"})
TOOL_SET = "remote"


@dataclass(frozen=True, slots=True)
class Adapters:
    """One process's adapters, open over data that outlives it."""

    conversations: ConversationStore
    state: StateStore
    inputs: LocalInputQueue
    outputs: OutputLog
    timers: LocalTimers
    blobs: BlobStore
    close: Callable[[], Awaitable[None]]


OpenAdapters = Callable[[Clock], Awaitable[Adapters]]
"""Opens fresh adapters over the surviving data: what a restarted process does."""


@dataclass(slots=True)
class RecordingToolServer:
    """A tool server in a process of its own: it outlives crashes, and does each call once, by its id."""

    calls: dict[str, tuple[str, Call]] = field(default_factory=dict)
    """(thread id, call) of each invocation, by call id, in the order in which they came first."""
    invocations: list[str] = field(default_factory=list)
    """The call id of every invocation, repeats included."""
    cancelled: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    answers: list[tuple[str, int]] = field(default_factory=list)
    """(call id, selected) of each answer to a choice that was posted."""

    def last(self, tool: str) -> str:
        """Return the id of the last call of ``tool``."""
        return [call.id for _, call in self.calls.values() if call.tool == tool][-1]


@dataclass(frozen=True, slots=True)
class RemoteTool:
    """A tool of the tool server; ``refuses`` makes the server say no."""

    name: str
    server: RecordingToolServer
    refuses: str | None = None
    error: Exception | None = None
    call_timeout: timedelta | None = None
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    is_passive: bool = False
    tool_set: str | None = TOOL_SET

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, f"The tool {self.name}.", self.schema)

    def display(self, arguments: JsonObject) -> str:
        return f"{self.name}({len(arguments)})"

    def wakes_at(self, call: Call) -> datetime | None:
        return None

    async def execute_synchronous(self, call: Call, context: SliceContext) -> ToolAnswer | None:
        return None

    async def execute(self, call: Call, context: CallContext) -> None:
        """Take the invocation; a repeat is the same invocation."""
        if self.refuses is not None:
            raise ToolRefused(self.refuses)
        if self.error is not None:
            raise self.error
        self.server.invocations.append(call.id)
        self.server.calls.setdefault(call.id, (context.thread.id, call))


@dataclass(frozen=True, slots=True)
class RemoteTools:
    """The ``ToolServers`` of a world."""

    tools: Mapping[str, RemoteTool]
    server: RecordingToolServer

    async def load(self, session_id: str) -> Toolset:
        return Toolset(self.tools)

    async def call_cancelled(self, session_id: str, thread_id: str, call_id: str, tool_set: str | None) -> None:
        self.server.cancelled.append(call_id)

    async def thread_closed(self, session_id: str, thread_id: str) -> None:
        self.server.closed.append(thread_id)

    async def answer_choice(self, tool_set: str | None, response_url: str, call_id: str, selected: int) -> None:
        self.server.answers.append((call_id, selected))


class World:
    """An agent, its queue, its tool server and its clock. ``crashed`` starts it anew over what survived."""

    def __init__(
        self,
        open_adapters: OpenAdapters,
        model: Model,
        *,
        tools: Sequence[str] = (),
        settings: AgentSettings | None = None,
    ) -> None:
        self.open_adapters = open_adapters
        self.model = model
        self.server = RecordingToolServer()
        self.tools = {name: RemoteTool(name, self.server) for name in tools}
        self.settings = settings or AgentSettings()
        self.clock = FrozenClock()
        self.events = EventCollector()
        self.outcomes: list[tuple[str, StepOutcome]] = []
        self.defer: DeferQueue | None = None
        self.loses_acknowledgements = False
        """Whether messages end among the dead letters although they were handled."""
        self._boots = 0
        self.in_hand: list[Received] = []
        """The messages that the process has received and not yet given back."""
        self._said = 0

    async def boot(self, faults: FaultInjector | None = None) -> None:
        """Start the process, whose ports pass the boundaries of ``faults``."""
        self._boots += 1
        faults = faults or FaultInjector()
        self.adapters = await self.open_adapters(self.clock)
        # A dead process holds nothing: what it had in hand is visible again.
        await self.adapters.inputs.release(self.in_hand, delay=0)
        self.in_hand = []
        self.faults = faults
        self._queue = faults.wrap(self.adapters.inputs, "queue", only=lambda name: name == "delete")
        self.system = self.system_with(faults)

    def system_with(self, faults: FaultInjector) -> AgentSystem:
        """Return another agent system over the same adapters, as a second process would have one."""
        return AgentSystem(self.services(faults))

    def services(self, faults: FaultInjector) -> Services:
        """Return the services of one process over the world's adapters, each port with the boundaries of ``faults``."""
        wrap = faults.wrap
        return Services(
            conversations=wrap(self.adapters.conversations, "conversations"),
            state=wrap(self.adapters.state, "state"),
            model=wrap(self.model, "model"),
            inputs=wrap(self.adapters.inputs, "inputs"),
            outputs=wrap(self.adapters.outputs, "outputs"),
            timers=wrap(self.adapters.timers, "timers"),
            blobs=wrap(self.adapters.blobs, "blobs"),
            tools=built_in(self.clock),
            tool_servers=wrap(
                RemoteTools({name: wrap(tool, "tool") for name, tool in self.tools.items()}, self.server),
                "tool_servers",
                only=lambda name: name != "load",
            ),
            callback_urls=lambda thread_id, call_id, tool_set: f"http://127.0.0.1/{thread_id}/{call_id}/{tool_set}",
            clock=self.clock,
            ids=CountingIds(f"writer-{self._boots}-{ids.digest(str(id(faults)), length=6)}"),
            keyring=KEYRING,
            settings=self.settings,
        )

    async def crashed(self) -> None:
        """Start a fresh process over what the dead one left."""
        await self.adapters.close()
        await self.boot()

    # What comes from outside.

    async def say(self, thread_id: str, text: str, *, metadata: JsonObject | None = None) -> None:
        """Have a person say something."""
        await self.person_sends(InputMessage(content=Text(text), group_id=thread_id, metadata=metadata))

    async def person_sends(self, message: InputMessage) -> None:
        """Put a person's message on the queue, as the AWS command line would: without id and proof."""
        self._said += 1
        await self.adapters.inputs.send(encode(message, None), group_id=message.group_id, dedup_id=f"cli-{self._said}")

    async def post(self, message: InputMessage) -> None:
        """Put a proven message on the queue, as a receiver would."""
        self._said += 1
        dedup_id = message.message_id or f"post-{self._said}"
        await self.adapters.inputs.send(encode(message, KEYRING), group_id=message.group_id, dedup_id=dedup_id)

    async def answer(
        self, call_id: str, *content: str | Part, is_error: bool = False, subscription: bool = False
    ) -> None:
        """Have the tool server answer a call that it was sent."""
        thread_id, call = self.server.calls[call_id]
        await self.post(
            InputMessage(
                content=ToolResult(
                    id=call_id,
                    call_id=call.call_id,
                    content=tuple(Text(part) if isinstance(part, str) else part for part in content),
                    is_error=is_error,
                    tool_set=call.tool_set,
                ),
                group_id=thread_id,
                message_id=ids.message_id("result", thread_id, call_id),
                subscription=subscription,
            )
        )

    async def event(
        self, call_id: str, text: str, *, event_id: str, associative: bool = False, final: bool = False
    ) -> None:
        """Have the tool server post an event of a subscription."""
        thread_id, call = self.server.calls[call_id]
        await self.post(
            InputMessage(
                content=Text(text),
                group_id=thread_id,
                message_id=ids.message_id("event", thread_id, call_id, event_id),
                synthetic=SubscriptionEvent(call_id, associative=associative, final=final, tool_set=call.tool_set),
            )
        )

    async def ask(self, call_id: str, prompt: str, choices: Sequence[str]) -> None:
        """Have the tool server ask a person."""
        thread_id, call = self.server.calls[call_id]
        await self.post(
            InputMessage(
                content=UserChoiceRequired(
                    id=call_id,
                    prompt=prompt,
                    choices=tuple(choices),
                    default=0,
                    response_url="http://127.0.0.1/choice",
                    tool_set=call.tool_set,
                ),
                group_id=thread_id,
                message_id=ids.message_id("choice", thread_id, call_id, prompt),
            )
        )

    # What the process does.

    async def settle(self, *, most: int = 200) -> None:
        """Take steps until the queue holds nothing that can be had now."""
        for _ in range(most):
            if not await self.turn():
                return
        raise AssertionError(f"the queue is not empty after {most} rounds")

    async def turn(self) -> bool:
        """Receive once and handle what came; tell whether anything did."""
        await self.adapters.timers.fire_due(self.clock.now())
        groups = await self.adapters.inputs.receive(groups=10, batch=10, visibility=300)
        received = [message for group in groups for message in group]
        if not received:
            return False
        self.in_hand = received
        deliveries = []
        for message in received:
            try:
                deliveries.append(
                    decode(
                        message.body,
                        keyring=KEYRING,
                        queue_id=message.queue_id,
                        group_id=message.group_id,
                        dedup_id=message.dedup_id,
                        sent_at=message.sent_at,
                    )
                )
            except Reject as error:
                await self.adapters.inputs.park(message, error.reason)
        outcomes = await self.system.step(deliveries, self.events, self.defer)
        self.outcomes.extend(outcomes.items())
        for group in groups:
            outcome = outcomes.get(group[0].group_id)
            if self.loses_acknowledgements:
                for message in group:
                    await self.adapters.inputs.park(message, "not acknowledged in time")
            elif isinstance(outcome, Failed):
                await self._fail(group, [item for item in deliveries if item.thread_id == group[0].group_id], outcome)
            else:
                await self._queue.delete(group)
        self.in_hand = []
        # Every round takes a little while, or nothing would ever come before or after anything else.
        self.clock.advance(0.001)
        return True

    async def _fail(self, group: Sequence[Received], deliveries: Sequence[Delivery], outcome: Failed) -> None:
        if group[0].receive_count >= 3:
            await self.system.tell_failure(group[0].group_id, deliveries, outcome.error)
            for message in group:
                await self.adapters.inputs.park(message, str(outcome.error))
            return
        await self.adapters.inputs.release(group, delay=0)

    async def sweep(self) -> Swept:
        """Have the keeper look once."""
        adapters = self.adapters
        keeper = Keeper(
            adapters.conversations,
            adapters.state,
            adapters.inputs,
            adapters.outputs,
            adapters.inputs,
            KEYRING,
            self.clock,
        )
        return await keeper.sweep()

    # What is left of it all.

    async def history(self, thread_id: str) -> list[Entry]:
        """Return a thread's own entries."""
        return [entry for _, entry in await self.adapters.conversations.history(thread_id)]

    async def outputs(self) -> Mapping[str, Output]:
        """Return what a reader sees who drops repeats, by ``output_id``."""
        return {output.output_id: output for _, output in await self.adapters.outputs.outputs(limit=100_000)}

    async def state(self) -> dict[str, Any]:
        """Return everything that a crash must not change: histories, ledgers, outputs, timers, tool calls, threads."""
        threads = await self.adapters.conversations.threads(limit=100_000)
        result: dict[str, Any] = {
            "outputs": {
                output_id: (output.type, output.text, output.seq)
                for output_id, output in (await self.outputs()).items()
            },
            "invoked": sorted(self.server.calls),
            "cancelled": sorted(set(self.server.cancelled)),
            "closed": sorted(set(self.server.closed)),
            "answers": sorted(set(self.server.answers)),
            "next timer": _to_the_second(await self.adapters.timers.next_due_at()),
            "dead letters": [letter.body for letter in await self.adapters.inputs.dead_letters()],
        }
        for overview in sorted(threads, key=lambda overview: overview.thread.id):
            thread = overview.thread
            entries = await self.history(thread.id)
            broken = list(faults(entries))
            if broken:
                raise AssertionError(f"{thread.id}: {broken}")
            result[f"thread {thread.id}"] = (thread.kind, thread.closed, thread.paused_at is None, overview.deferred)
            result[f"history {thread.id}"] = entries
            result[f"ledger {thread.id}"] = {
                call.id: (call.tool, call.state, dict(call.arguments))
                for call in await self.adapters.conversations.calls(thread.id)
            }
        return result


def _to_the_second(moment: datetime | None) -> datetime | None:
    """A crash may cost a round, and each round takes a little while."""
    return (moment + timedelta(seconds=0.5)).replace(microsecond=0) if moment else None
