"""The torture's tool server, in a process of its own: it writes down what it is asked to do, and what it does."""

import argparse
import asyncio
import random
from pathlib import Path
from typing import Any

from infinity_agents.rap.server import ToolContext, ToolServer
from infinity_agents.wire.rap import INVOKE_PATH


class RecordingServer(ToolServer):
    """Adds a line to ``record`` for each invocation, by its Idempotency-Key, and for each time that a tool runs."""

    record: Path

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == INVOKE_PATH:
            key = dict(scope["headers"]).get(b"idempotency-key", b"none").decode()
            self.note(f"invoked {key}")
        await super().__call__(scope, receive, send)

    def note(self, line: str) -> None:
        with self.record.open("a") as record:
            record.write(f"{line}\n")


server = RecordingServer(name="torture-tools")


@server.tool
async def lookup(number: int, context: ToolContext) -> str:
    """Look up the value of a number."""
    server.note(f"ran {context.thread_id}:{context.call_id}")
    await asyncio.sleep(random.uniform(0, 0.3))
    return f"value {number * 7}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--record", type=Path, required=True)
    options = parser.parse_args()
    server.record = options.record
    server.run(port=options.port)


if __name__ == "__main__":
    main()
