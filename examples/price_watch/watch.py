"""An agent that watches a price through prices.py, and sleeps in between; at the end, what was said in each thread."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from infinity_agents import LocalAgent
from infinity_agents.conversation.content import plain_text
from infinity_agents.conversation.history import (
    AssistantEntry,
    Entry,
    EventEntry,
    ToolCallEntry,
    ToolResultEntry,
    UserEntry,
)
from infinity_agents.errors import Misconfigured
from infinity_agents.local.models import models_for

CONVERSATION = "prices"


async def main(file: Path, model: str, tool_server: str) -> None:
    agent = LocalAgent.open(file, model=models_for(model), tool_servers=[tool_server])
    async with agent.host():
        # A message that carries an id is heard once, however often the program is started over the same file.
        await agent.send(
            CONVERSATION, "Watch ACME, and tell me whenever it falls below 100 dollars.", message_id="watch-acme"
        )
        async for _, output in agent.follow(CONVERSATION):
            if output.text:
                print(f"{output.type}: {output.text}", flush=True)
    await print_transcript(agent)
    await agent.aclose()


async def print_transcript(agent: LocalAgent) -> None:
    threads = [overview.thread for overview in await agent.services.conversations.threads(root_id=CONVERSATION)]
    for thread in sorted(threads, key=lambda thread: thread.created_at):
        print(f"\n{thread.kind} thread {thread.id}")
        for _, entry in await agent.services.conversations.history(thread.id):
            print(f"  {told(entry)}".replace("\n", "\n          "))


def told(entry: Entry) -> str:
    match entry:
        case UserEntry(content=parts):
            return f"heard:  {plain_text(parts)}"
        case AssistantEntry(text=text):
            return f"said:   {text}"
        case ToolCallEntry(call=call):
            return f"called: {entry.display_as or call.name}"
        case ToolResultEntry(result=result):
            return f"result: {plain_text(result.content)}"
        case EventEntry(result=result):
            return f"event:  {plain_text(result.content)}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, help="the agent's file, to be kept (default: a temporary one)")
    parser.add_argument("--model", default="demo", help="demo, openai:NAME or anthropic:NAME (default: demo)")
    parser.add_argument("--tool-server", default="http://127.0.0.1:8002", help="where prices.py listens")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        try:
            asyncio.run(main(options.file or Path(directory) / "agent.db", options.model, options.tool_server))
        except Misconfigured as error:
            sys.exit(str(error))
