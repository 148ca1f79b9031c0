"""Reviews the Python files of a directory: a child thread reads each, and the parent puts their reports together."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from rules import NAME, Rules

from infinity_agents import LocalAgent
from infinity_agents.conversation.ledger import Call
from infinity_agents.errors import Misconfigured
from infinity_agents.local.models import models_for
from infinity_agents.ports.tool import SliceContext, ToolAnswer, ToolSpec
from infinity_agents.settings import AgentSettings
from infinity_agents.tools.synchronous import BuiltIn, described, object_schema

CONVERSATION = "review"
PROMPT = (
    "You review Python code. If you are a root thread, spawn one child thread for each file, with the instructions "
    "'Review FILE'; when all of them have reported, put their reports together, file by file. If you are a child "
    "thread, read your file with read_file, and close with a report of what is wrong, line by line, and nothing else."
)


class ReadFile(BuiltIn):
    """A tool in the agent's own process: what it returns is there at once, and the model goes on."""

    spec = ToolSpec(
        "read_file",
        "Read a Python file of the directory under review.",
        object_schema({"name": described("string", "The file's name.")}, required=("name",)),
    )

    def __init__(self, directory: Path) -> None:
        self.files = {path.name: path for path in sorted(directory.glob("*.py"))}

    async def execute_synchronous(self, call: Call, context: SliceContext) -> ToolAnswer:
        name = call.arguments["name"]
        if name not in self.files:
            return ToolAnswer.error(f"there is no {name!r}; the files are {', '.join(self.files)}")
        return ToolAnswer.of(await asyncio.to_thread(self.files[name].read_text, errors="replace"))


async def main(directory: Path, file: Path, model: str) -> None:
    reader = ReadFile(directory)
    if not reader.files:
        sys.exit(f"there are no Python files in {directory}; name another directory")
    agent = LocalAgent.open(
        file,
        model=Rules() if model == NAME else models_for(model),
        tools=[reader],
        # Limits stop an agent that runs in circles. Each child takes a round of the parent's first step.
        settings=AgentSettings(
            system_prompt=PROMPT,
            rounds_per_slice=16 + len(reader.files),
            slices_per_hour=200 + 4 * len(reader.files),
        ),
    )
    async with agent.host():
        # A message that carries an id is heard once: a review that was killed goes on where it was.
        await agent.send(CONVERSATION, "\n".join(["Review these files:", *reader.files]), message_id="review")
        async for _, output in agent.follow(CONVERSATION):
            if output.thread_id == CONVERSATION and output.text:
                print(output.text, flush=True)
    await agent.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="where the files are")
    parser.add_argument("--file", type=Path, help="the agent's file, to be kept (default: a temporary one)")
    parser.add_argument("--model", default=NAME, help="rules, openai:NAME or anthropic:NAME (default: rules)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        try:
            asyncio.run(main(options.directory, options.file or Path(temporary) / "agent.db", options.model))
        except Misconfigured as error:
            sys.exit(str(error))
