"""P6: ten thousand threads that wait cost the host no task, no memory and no poll of their own."""

import asyncio
from datetime import UTC, datetime, timedelta

from infinity_agents.conversation.content import Text
from infinity_agents.conversation.history import CallBody, ToolCallEntry, UserEntry
from infinity_agents.conversation.ledger import Call, CallState
from infinity_agents.conversation.threads import Thread, ThreadKind
from infinity_agents.ports.conversations import Commit
from infinity_agents.settings import AgentSettings

from .conftest import until

IDLE = 10_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def sleeps(agent, number):
    """Store a thread that sleeps until tomorrow, as a slice would leave it behind."""
    thread_id, wakes_at = f"idle-{number}", datetime.now(UTC) + timedelta(days=1)
    call = Call("call", "sleep", {"seconds": 86400}, CallState.OPEN, NOW, is_passive=True, wakes_at=wakes_at)
    await agent.services.conversations.commit(
        Commit(
            thread=Thread(thread_id, ThreadKind.ROOT, "demo", NOW, version=1, length=2),
            writer=thread_id,
            at=NOW,
            is_new=True,
            first_position=0,
            entries=(UserEntry((Text("sleep"),)), ToolCallEntry(CallBody("call", "sleep", {"seconds": 86400}))),
            calls=(call,),
        )
    )
    await agent.timers.set(f"timer-{number}", wakes_at, "{}", group_id=thread_id, dedup_id=f"timer-{number}")


async def test_p6_ten_thousand_idle_threads_are_one_loop(open_agent):
    agent = open_agent(settings=AgentSettings(cached_threads=8))
    await asyncio.gather(*(sleeps(agent, number) for number in range(IDLE)))
    looks = []
    receive = agent.queue.receive

    async def counted(**options):
        looks.append(options)
        return await receive(**options)

    agent.queue.receive = counted
    async with agent.hosted() as host:

        async def has_looked():
            return bool(looks)

        await until(has_looked)
        await asyncio.sleep(0.05)
        before, seen = len(asyncio.all_tasks()), len(looks)
        # The host's loop, the callback server and this test, whatever the number of threads.
        assert before <= 4
        await asyncio.sleep(1)
        assert len(looks) == seen
        for number in range(0, IDLE, 100):
            await agent.send(f"idle-{number}", "hello")
        await agent.idle()
        assert len(await agent.told()) == IDLE / 100
        assert len(asyncio.all_tasks()) <= before
        assert host._system.cached_threads <= 8
