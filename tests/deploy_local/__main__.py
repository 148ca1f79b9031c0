"""``python -m tests.deploy_local``: deploys the minimal agent on this machine, and says hello to it."""

import os
import sys
import tempfile
import time
from pathlib import Path

from infinity_agents.testing.postgres import start
from tests.deploy_local.deploying import ROOT, deployed
from tests.deploy_local.talking import answer_to


def main() -> int:
    """Deploy, ask, print the answer; nothing is left running."""
    began = time.monotonic()

    def say(line: str) -> None:
        sys.stdout.write(f"{time.monotonic() - began:6.1f} s  {line}\n")
        sys.stdout.flush()

    name = f"deploy-local-{os.getpid()}"
    database_url = start(name).create(name)
    with (
        tempfile.TemporaryDirectory() as place,
        deployed(ROOT / "examples" / "minimal_agent", database_url, Path(place), say) as stack,
    ):
        for key, value in sorted(stack.outputs.items()):
            say(f"{key} = {value}")
        say("aws sqs send-message: hello")
        answer = answer_to(stack, "my-conversation", "hello")
        say(f"aws sqs receive-message: {answer}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
