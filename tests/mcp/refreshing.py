"""A process that calls a protected MCP server for one person, when a line on its standard input says so.

Its arguments are the server's URL, where the links are kept (``table:NAME`` or ``file:PATH``), and the address of the
page. A line is JSON: ``at``, when to begin; ``calls``, how many at once; ``later``, by how many seconds the process's
clock is ahead. It answers by a line of what each call returned. With ``"dies": true``, it is killed before it keeps the
tokens that it got.
"""

import asyncio
import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

from infinity_agents.adapters.dynamo_records import DynamoRecords
from infinity_agents.adapters.sqlite_records import SqliteRecords
from infinity_agents.adapters.system import SystemClock
from infinity_agents.aws_clients import AwsClients
from infinity_agents.mcp.links import Links
from infinity_agents.mcp.servers import HttpServer
from infinity_agents.mcp.sessions import Challenged, McpSession
from infinity_agents.mcp.vault import Vault

SECRET = b"a secret for the tests alone"
USER = "Ada"


class FastClock(SystemClock):
    """This machine's clock, ahead by ``later`` seconds."""

    later = 0.0

    def now(self):
        return super().now() + timedelta(seconds=self.later)


def records_at(place, clock):
    kind, _, name = place.partition(":")
    return DynamoRecords(AwsClients(), name, clock) if kind == "table" else SqliteRecords(Path(name), clock)


class Deadly(Vault):
    """Its process is killed where the tokens of a refresh are about to be kept."""

    dies = False

    async def put(self, group, key, record, *, kept):
        if self.dies and key == "tokens":
            os.kill(os.getpid(), signal.SIGKILL)
        await super().put(group, key, record, kept=kept)


async def called(session):
    try:
        result = await session.call("whoami", {}, seconds=30, is_repeatable=False)
    except Challenged:
        return "wants a link"
    return result.content[0].text


async def main(url, place, callback_url):
    clock = FastClock()
    vault = Deadly(records_at(place, clock), SECRET)
    server = HttpServer(url)
    session = McpSession(server, auth=Links(server, vault=vault, callback_url=callback_url, clock=clock).auth(USER))
    while line := await asyncio.to_thread(sys.stdin.readline):
        told = json.loads(line)
        clock.later, vault.dies = told.get("later", 0.0), told.get("dies", False)
        await asyncio.sleep(told["at"] - time.time())
        said = await asyncio.gather(*(called(session) for _ in range(told["calls"])), return_exceptions=True)
        sys.stdout.write(json.dumps([each if isinstance(each, str) else repr(each) for each in said]) + "\n")
        sys.stdout.flush()
    await session.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
