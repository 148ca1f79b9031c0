"""Processes that share the links of people: one of them refreshes a token, and one that is killed then harms none."""

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from infinity_agents.mcp.results import McpError
from infinity_agents.mcp.sessions import McpSession
from tests.aws_adapters.conftest import aws, clients, deployed, pauses, running_aws
from tests.mcp.oauth_server import oauth_server
from tests.mcp.refreshing import FastClock, records_at
from tests.mcp.test_mcp_oauth import Setup, linked, served_pages, serving
from tests.rap.conftest import client, invoke, raw_server, receiver

__all__ = [
    "aws", "client", "clients", "deployed", "invoke", "pauses", "raw_server", "receiver", "running_aws",
]  # fmt: skip
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ROUNDS = 10
CALLS = 4


@pytest.fixture(params=["file", "table"])
def place(request, tmp_path):
    """Where the links are: a file of one machine, or a table that processes reach over HTTP."""
    if request.param == "file":
        return f"file:{tmp_path / 'links'}"
    return f"table:{request.getfixturevalue('deployed').table}"


class Process:
    def __init__(self, process):
        self.process = process

    async def call(self, **told):
        self.process.stdin.write((json.dumps(told) + "\n").encode())
        return json.loads(await asyncio.wait_for(self.process.stdout.readline(), 60) or "null")


@asynccontextmanager
async def process(setup, place):
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.mcp.refreshing", setup.server.url, place, setup.base,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Process(started)
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


@asynccontextmanager
async def serving_links_at(place, clock):
    async with oauth_server("told") as (url, provider):
        provider.pause = lambda: asyncio.sleep(0.05)
        setup = Setup(url, provider, records_at(place, clock), clock=clock)
        async with served_pages(setup):
            yield setup


async def test_of_processes_whose_token_ends_one_refreshes_it(place, client, invoke, receiver):
    async with serving_links_at(place, FastClock()) as setup, AsyncExitStack() as stack:
        await linked(setup, client, invoke, receiver, "Ada", "ada", "a")
        both = [await stack.enter_async_context(process(setup, place)) for _ in range(2)]
        at = time.time() + 0.2
        await asyncio.gather(*(each.call(at=at, calls=1) for each in both))
        later = 0.0
        for number in range(ROUNDS):
            if number % 2:
                # Both see by the clock that the token is about to end; otherwise the server says that it ended.
                later += 3600.0
            else:
                setup.provider.expire_access_tokens()
            at = time.time() + 0.1
            said = await asyncio.gather(*(each.call(at=at, calls=CALLS, later=later) for each in both))
            assert said == [["ada"] * CALLS] * 2, (number, len(setup.provider.refreshes), setup.provider.reused)
            assert len(setup.provider.refreshes) == number + 1
        assert setup.provider.reused == []


async def test_one_killed_with_tokens_that_it_did_not_keep_costs_a_new_link_and_no_more(
    place, client, invoke, receiver
):
    clock = FastClock()
    async with serving_links_at(place, clock) as setup, AsyncExitStack() as stack:
        await linked(setup, client, invoke, receiver, "Ada", "ada", "a")
        dying, other = [await stack.enter_async_context(process(setup, place)) for _ in range(2)]
        await asyncio.gather(*(each.call(at=time.time(), calls=1) for each in (dying, other)))
        setup.provider.expire_access_tokens()
        assert await dying.call(at=time.time(), calls=1, dies=True) is None
        assert await dying.process.wait() == -signal.SIGKILL
        assert len(setup.provider.refreshes) == 1
        # Nobody can tell that the tokens are lost before the one that got them had its time.
        assert await other.call(at=time.time(), calls=CALLS, later=46.0) == ["wants a link"] * CALLS
        assert len(setup.provider.reused) == 1
        clock.later = 46.0
        await linked(setup, client, invoke, receiver, "Ada", "ada", "b")
        assert receiver.requests[-1].json["text"] == "ada"
        assert await other.call(at=time.time(), calls=CALLS, later=46.0) == ["ada"] * CALLS
        assert len(setup.provider.refreshes) == 1


async def test_a_call_that_is_given_up_during_a_refresh_loses_no_tokens(client, invoke, receiver):
    async with serving() as setup:
        await linked(setup, client, invoke, receiver, "Ada", "ada", "a")
        session = McpSession(setup.server, auth=setup.links.auth("Ada"))
        await session.call("whoami", {}, seconds=30, is_repeatable=False)
        asked, answer = asyncio.Event(), asyncio.Event()

        async def pause():
            asked.set()
            await answer.wait()

        setup.provider.pause = pause
        setup.provider.expire_access_tokens()
        call = asyncio.create_task(session.call("whoami", {}, seconds=30, is_repeatable=False))
        await asyncio.wait_for(asked.wait(), 10)
        call.cancel()
        await asyncio.wait({call})
        closing = asyncio.create_task(session.aclose())
        await asyncio.sleep(0.1)
        answer.set()
        await closing
        said = await session.call("whoami", {}, seconds=30, is_repeatable=False)
        assert said.content[0].text == "ada"
        assert (len(setup.provider.refreshes), setup.provider.reused) == (1, [])
        await session.aclose()


async def test_a_refresh_that_fails_for_now_wants_no_link_and_ends_no_other_call(client, invoke, receiver, monkeypatch):
    async with serving() as setup:
        await linked(setup, client, invoke, receiver, "Ada", "ada", "a")
        session = McpSession(setup.server, auth=setup.links.auth("Ada"))
        slow = asyncio.create_task(session.call("slow", {}, seconds=30, is_repeatable=False))
        await asyncio.wait_for(setup.provider.begun.wait(), 10)
        setup.provider.expire_access_tokens()
        setup.provider.pause = asyncio.Event().wait
        with monkeypatch.context() as patched:
            patched.setattr("infinity_agents.mcp.links.TIMEOUT", 0.2)
            for each in (session, McpSession(setup.server, auth=setup.links.auth("Ada"))):
                with pytest.raises(McpError, match="cannot be asked for a token: TimeoutError"):
                    await each.call("whoami", {}, seconds=30, is_repeatable=False)
        setup.provider.end.set()
        assert (await slow).content[0].text == "ada"
        setup.provider.pause = lambda: asyncio.sleep(0)
        assert (await session.call("whoami", {}, seconds=30, is_repeatable=False)).content[0].text == "ada"
        assert setup.provider.reused == []
        await session.aclose()
