"""A chat in which reminders fire at their time: while you go on talking, and also after the program was killed."""

import argparse
import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from infinity_agents import LocalAgent
from infinity_agents.conversation.events import AgentEvent, Told
from infinity_agents.errors import Misconfigured
from infinity_agents.local.models import models_for
from infinity_agents.settings import AgentSettings

CONVERSATION = "reminders"
PROMPT = "When somebody wants to be reminded, call sleep_until. Each message begins with the time at which it was said."


class Screen:
    """Prints what people are told, as it happens."""

    def observe(self, event: AgentEvent) -> None:
        if isinstance(event, Told) and event.output.text:
            print(f"{event.output.type}: {event.output.text}", flush=True)


async def main(file: Path, model: str) -> None:
    settings = AgentSettings(system_prompt=PROMPT)
    agent = LocalAgent.open(file, model=models_for(model), settings=settings)
    async with agent.host(Screen()):
        soon = datetime.now(UTC) + timedelta(seconds=30)
        print(f"Try: Remind me on {soon:%Y-%m-%d at %H:%M:%S} UTC to stretch", flush=True)
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        async for line in lines:
            if said := line.decode(errors="replace").strip():
                await agent.send(CONVERSATION, f"[{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC] {said}")
        # Ctrl-D: nothing more is said. Whatever is still to come is waited for.
        async for _ in agent.follow(CONVERSATION):
            pass
    await agent.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, default="reminders.db", help="the agent's file (default: reminders.db)")
    parser.add_argument("--model", default="demo", help="demo, openai:NAME or anthropic:NAME (default: demo)")
    options = parser.parse_args()
    try:
        asyncio.run(main(options.file, options.model))
    except KeyboardInterrupt:
        print("What was asked for is in the file. Start again, and it comes.")
    except Misconfigured as error:
        sys.exit(str(error))
