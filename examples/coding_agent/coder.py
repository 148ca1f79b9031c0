"""A coding agent: it works on a copy of a repository, has child threads edit side by side, and prints the patch."""

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rehearsal import NAME, Rehearsal

from infinity_agents import LocalAgent
from infinity_agents.errors import Misconfigured
from infinity_agents.local.models import models_for
from infinity_agents.rap.asgi import serving
from infinity_agents.settings import AgentSettings
from infinity_agents.toolsets.sandbox.confinement import Confinement, confinement
from infinity_agents.toolsets.sandbox.server import sandbox_server
from infinity_agents.toolsets.sandbox.workspaces import Sandboxes

PORT = 8003
CONVERSATION = "coding"
TASK = "The tests fail. Mend what they test."
PROMPT = (
    "You are a programmer. Your tools work on a copy of the repository, never on the original. Begin with clone_repo, "
    "then run the tests. Where there is work on several files that do not depend on each other, spawn a child thread "
    "for each: it begins with clone_repo(on_top_of=your thread), makes its change, and closes with a report. When a "
    "child has reported, take over its work with squash_sandbox. Run the tests again at the end, and say what you did."
)


async def main(repository: Path, task: str, model: str, confined: Confinement, directory: Path) -> None:
    sandboxes = Sandboxes(directory / "sandboxes", allowed=[repository])
    async with serving(sandbox_server(sandboxes, confined), "127.0.0.1", PORT) as url:
        agent = LocalAgent.open(
            directory / "agent.db",
            model=Rehearsal() if model == NAME else models_for(model),
            tool_servers=[url],
            settings=AgentSettings(system_prompt=PROMPT),
        )
        async with agent.host():
            await agent.send(CONVERSATION, f"{task}\nThe repository: {repository}", message_id="task")
            async for _, output in agent.follow(CONVERSATION):
                if output.text:
                    print(output.text, flush=True)
        await agent.aclose()
    print(await sandboxes.changes(sandboxes.of(CONVERSATION, CONVERSATION), CONVERSATION))


def rehearsed(directory: Path) -> Path:
    """Make a repository of the little shop beside this file."""
    repository = directory / "shop"
    shutil.copytree(Path(__file__).with_name("shop"), repository, ignore=shutil.ignore_patterns("__pycache__"))
    git = ["git", "-C", str(repository), "-c", "user.name=shop", "-c", "user.email=shop@example.com"]
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "The shop."]):
        subprocess.run([*git, *arguments], check=True)  # noqa: S603 - git, on what stands here
    return repository


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", type=Path, nargs="?", help="a git repository (default: a little shop)")
    parser.add_argument("--task", default=TASK, help="what is to be done (default: %(default)r)")
    parser.add_argument(
        "--model", default=NAME, help="openai:NAME, anthropic:NAME or bedrock:NAME (default: rehearsal)"
    )
    parser.add_argument("--unconfined", action="store_true", help="run commands without bubblewrap, as you could")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        try:
            asyncio.run(
                main(
                    (options.repository or rehearsed(Path(temporary))).resolve(),
                    options.task,
                    options.model,
                    confinement(unconfined=options.unconfined),
                    Path(temporary),
                )
            )
        except Misconfigured as error:
            sys.exit(str(error))
