"""The step in a program of one's own: its loop, its queue, its screen, its tool; the conversation is kept in a file."""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from infinity_agents.adapters.demo_model import DemoModel
from infinity_agents.adapters.memory import MemoryTimers
from infinity_agents.adapters.sqlite import SqliteBlobStore, SqliteConversationStore, SqliteDatabase, SqliteStateStore
from infinity_agents.adapters.system import FreshIds, SystemClock
from infinity_agents.conversation import ids
from infinity_agents.conversation.content import Text
from infinity_agents.conversation.events import AgentEvent, CallMade, Failed, StepFinished
from infinity_agents.conversation.ledger import Call
from infinity_agents.conversation.messages import Delivery, InputMessage, ToolResult
from infinity_agents.conversation.outputs import Output
from infinity_agents.ports.queues import refuse_unsendable
from infinity_agents.ports.tool import CallContext, SliceContext, ToolAnswer, ToolSpec
from infinity_agents.runtime import AgentSystem, InMemoryDeferQueue, Services
from infinity_agents.tools.synchronous import BuiltIn, described, object_schema
from infinity_agents.wire.inputs import decode, encode
from infinity_agents.wire.keys import Keyring

KEYRING = Keyring.parse("k1:in earnest read this secret from where secrets are kept")
TRIES = 3


class Inbox:
    """Where messages wait: an ``InputSender``. It lives in memory, so what waits in it dies with the program."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[Delivery] = asyncio.Queue()

    async def send(self, body: str, *, group_id: str, dedup_id: str) -> None:
        refuse_unsendable(body, group_id=group_id, dedup_id=dedup_id)
        # Reading it checks the proof of origin: only what we wrote ourselves may be a result, a report or a timer.
        self.waiting.put_nowait(decode(body, keyring=KEYRING, queue_id=dedup_id, group_id=group_id))


class Screen:
    """What people see: an ``OutputSender``. After a crash an output may come again; its id tells."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    async def send(self, output: Output) -> None:
        if output.output_id not in self.seen and output.type == "message":
            print(f"agent:    {output.text}".replace("\n", "\n          "))
        self.seen.add(output.output_id)


class Watch:
    """Sees each step as it goes: an ``Observer``."""

    def observe(self, event: AgentEvent) -> None:
        match event:
            case CallMade(display=display):
                print(f"  step:   calls {display}")
            case StepFinished(heard=heard, outcome=outcome):
                print(f"  step:   heard {', '.join(heard)}; {type(outcome).__name__}")
            case _:
                pass


class Held(InMemoryDeferQueue):
    """What happens to an event that meets a running call: it is held until that call has its result, and we say so."""

    def hold(self, thread_id: str, deliveries: Sequence[Delivery]) -> None:
        super().hold(thread_id, deliveries)
        for delivery in deliveries:
            print(f"  held:   {delivery.identity}")


class Bake(BuiltIn):
    """A tool that takes its time: the step hands the call over, and its result comes as a message."""

    spec = ToolSpec(
        "bake",
        "Bake something in the oven.",
        object_schema(
            {"what": described("string", "What to bake."), "seconds": described("number", "How long.")},
            required=("what", "seconds"),
        ),
    )

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self.baking: dict[str, asyncio.Task[None]] = {}

    async def execute_synchronous(self, call: Call, context: SliceContext) -> ToolAnswer | None:
        return None

    async def execute(self, call: Call, context: CallContext) -> None:
        # After a crash the same call may come again. One in hand goes on.
        if call.id not in self.baking:
            self.baking[call.id] = asyncio.create_task(self._bake(call, context.thread.id))

    async def _bake(self, call: Call, thread_id: str) -> None:
        await asyncio.sleep(call.arguments["seconds"])
        result = InputMessage(
            ToolResult(id=call.id, call_id=call.call_id, content=(Text(f"the {call.arguments['what']} is done"),)),
            group_id=thread_id,
            message_id=ids.message_id("result", thread_id, call.id),
        )
        await self.inbox.send(encode(result, KEYRING), group_id=thread_id, dedup_id=f"baked-{call.id}")
        del self.baking[call.id]


class Kitchen:
    def __init__(self, file: Path) -> None:
        clock, self.inbox, self.screen = SystemClock(), Inbox(), Screen()
        self.database, self.bake, self.held = SqliteDatabase(file, clock), Bake(self.inbox), Held()
        self.system = AgentSystem(
            Services(
                conversations=SqliteConversationStore(self.database),
                state=SqliteStateStore(self.database),
                blobs=SqliteBlobStore(self.database),
                model=DemoModel(),
                inputs=self.inbox,
                outputs=self.screen,
                timers=MemoryTimers(self.inbox),  # none of these tools sleeps
                tools=[self.bake],
                clock=clock,
                ids=FreshIds(),
                keyring=KEYRING,
            )
        )

    def say(self, thread_id: str, text: str) -> None:
        print(f"person:   {text}")
        message = InputMessage(Text(text), thread_id)
        self.inbox.waiting.put_nowait(Delivery(message, queue_id=self.system.services.ids.fresh()))

    async def run(self) -> None:
        """Take message after message, until none waits and nothing bakes."""
        while self.bake.baking or not self.inbox.waiting.empty():
            delivery = await self.inbox.waiting.get()
            await self.step(delivery.thread_id, [delivery])

    async def step(self, thread_id: str, deliveries: Sequence[Delivery]) -> None:
        """The two halves of ``thread.step(deliveries, observer, defer)``, so that one can act in between."""
        thread = await self.system.thread(thread_id)
        batch = await thread.filter_deferrable(deliveries, self.held)
        tries = 0
        while batch and isinstance(outcome := await thread.step_no_defer(batch, Watch()), Failed):
            tries += 1
            if tries == TRIES:
                # People are told, and the messages are given up: a queue of one's own would keep them aside.
                await self.system.tell_failure(thread_id, batch, outcome.error)
                return
            await asyncio.sleep(tries)


async def main(file: Path) -> None:
    kitchen = Kitchen(file)
    kitchen.say("dinner", 'call bake {"what": "bread", "seconds": 0.5}')
    kitchen.say("dinner", 'call bake {"what": "cake", "seconds": 1}')
    await kitchen.run()
    kitchen.database.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, default="kitchen.db", help="where the conversation is kept")
    asyncio.run(main(parser.parse_args().file))
