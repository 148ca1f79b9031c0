"""A tool that blocks the event loop: it is named while it does, and the calls that came meanwhile are answered."""

import asyncio
import logging
import threading

import pytest


class Noticed(logging.Handler):
    """Releases whoever blocks once the warning is there."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.released = threading.Event()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())
        self.released.set()


@pytest.fixture
def noticed(monkeypatch):
    monkeypatch.setattr("infinity_agents.rap.loop_watch.LOOK_EVERY", 0.01)
    monkeypatch.setattr("infinity_agents.rap.loop_watch.BLOCKED_AFTER", 0.2)
    handler, log = Noticed(), logging.getLogger("infinity_agents.rap.loop_watch")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


async def test_the_tool_is_named_and_no_call_is_lost(kit, serve, invoke, receiver, noticed):
    begun = asyncio.Event()

    @kit.tool
    async def blocks() -> str:
        """Block."""
        begun.set()
        await asyncio.sleep(0.01)
        return "noticed" if noticed.released.wait(5) else "unnoticed"

    @kit.tool
    async def quick() -> str:
        """Be quick."""
        return "quick"

    url = await serve(kit)
    await invoke(url, "blocks", id="call-b")
    await begun.wait()
    await asyncio.gather(*(invoke(url, "quick", id=f"call-{number}") for number in range(5)))
    results = {request.json["id"]: request.json["text"] for request in await receiver.heard(6)}
    assert results.pop("call-b") == "noticed"
    assert results == {f"call-{number}": "quick" for number in range(5)}
    assert noticed.texts[0].startswith("the tool blocks blocks the event loop")


async def test_a_subscription_is_named_too(kit, serve, invoke, receiver, noticed):
    @kit.subscription
    async def watch():
        """Watch it."""
        await asyncio.sleep(0.01)
        yield "noticed" if noticed.released.wait(5) else "unnoticed"

    await invoke(await serve(kit), "watch")
    assert (await receiver.heard(2))[1].json["text"] == "noticed"
    assert noticed.texts[0].startswith("the subscription watch blocks")


async def test_a_tool_that_waits_is_not_named_and_nobody_looks_afterwards(kit, serve, result_of, noticed, monkeypatch):
    monkeypatch.setattr("infinity_agents.rap.loop_watch.BLOCKED_AFTER", 5)

    @kit.tool
    async def waits() -> str:
        """Wait."""
        await asyncio.sleep(0.05)
        return "done"

    await result_of(await serve(kit), "waits")
    looking = [thread for thread in threading.enumerate() if thread.name == "loop-watch"]
    await asyncio.gather(*(asyncio.to_thread(thread.join, 2) for thread in looking))
    assert not any(thread.is_alive() for thread in looking)
    assert noticed.texts == []
