"""The sandbox server as a Lambda function, in a container image with git, over a file system that outlives it.

Nothing but the function itself confines a command here: see ``docs/sandbox.md`` before it is deployed.
"""

import ctypes
import os
from pathlib import Path

from ..rap.server import ToolServer
from ..settings.tool_servers import SandboxEnvironment
from ..toolsets.sandbox.confinement import Unconfined
from ..toolsets.sandbox.server import sandbox_server
from ..toolsets.sandbox.workspaces import Sandboxes
from .tool_servers import tool_handler

_PR_SET_DUMPABLE = 4


def _server() -> ToolServer:
    environment = SandboxEnvironment.read(os.environ)
    # Commands run as the same user. They must not read this process's environment, which holds its credentials.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    sandboxes = Sandboxes(Path(environment.sandbox_root), vcs=environment.sandbox_vcs)
    return sandbox_server(sandboxes, Unconfined())


handler = tool_handler(_server)
