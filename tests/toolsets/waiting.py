"""Tool sets that answer later: their server on loopback, and a runtime that takes what they post."""

import json
from contextlib import asynccontextmanager

import httpx

from infinity_agents.adapters.httpx_client import HttpxClient
from infinity_agents.rap.asgi import Refused, answer, body_of, refuse, serving
from infinity_agents.rap.conformance import check


class Runtime:
    """Takes callbacks; ``statuses`` says with what each of the next ones is refused."""

    def __init__(self):
        self.callbacks, self.statuses, self.url = [], [], ""

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        callback = json.loads(await body_of(receive, 8_000_000))
        if self.statuses:
            await refuse(send, Refused(self.statuses.pop(0), "not now"))
            return
        self.callbacks.append(callback)
        await answer(send, {"ok": True})

    def told(self, kind):
        return [callback for callback in self.callbacks if callback["type"] == kind]


@asynccontextmanager
async def running(server):
    """Give the runtime, and what posts to the server: ``call(operation, arguments)`` and ``notice(path, fields)``."""
    runtime = Runtime()
    async with serving(runtime, "127.0.0.1", 0) as runtime.url, server.serving() as url, httpx.AsyncClient() as client:

        async def notice(path, **fields):
            posted = await client.post(url + path, json=fields)
            assert posted.status_code == 200
            await server.settled()

        async def call(operation, call_id="call-1", thread="thread-1", /, **arguments):
            await notice(
                "/invoke",
                operation=operation,
                arguments=arguments,
                id=call_id,
                call_id="model-1",
                callback_url=f"{runtime.url}/token",
                group_id=thread,
            )
            while server._running:
                await client.get(url + "/.well-known/rap-toolset")

        yield runtime, call, notice


async def conforms(server, examples, failing=()):
    """Assert that the server, on loopback, breaks no rule of the protocol, with each of its tools called.

    Those in ``failing`` answer with an error.
    """
    http = HttpxClient()
    async with server.serving() as url:
        findings = await check(url, http=http, examples=examples, settle=0.05)
    await http.aclose()
    all_called(findings, {tool.name for tool in server.offered}, failing)


def all_called(findings, tools, failing=()):
    """Assert that no rule is broken, and that each of the tools was called and answered once."""
    assert [finding for finding in findings if finding.verdict == "broken"] == []
    called = {seen.partition(":")[0]: seen for seen in (f.seen for f in findings if f.rule == "done-once")}
    assert set(called) == tools
    assert {name for name, seen in called.items() if "an error" in seen} == set(failing), called
    kept = {"discovery", "manifest", "input-schemas", "accepted", "unknown-tool", "bad-arguments", "callbacks"}
    assert kept - {finding.rule for finding in findings if finding.verdict == "ok"} == set()
