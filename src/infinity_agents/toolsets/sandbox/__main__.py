"""``python -m infinity_agents.toolsets.sandbox --root DIRECTORY``."""

import argparse
from pathlib import Path

from ...errors import Misconfigured
from .confinement import confinement
from .server import sandbox_server
from .workspaces import Sandboxes


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m infinity_agents.toolsets.sandbox",
        description="Gives each thread a working copy of a repository: it edits files there and runs commands.",
    )
    parser.add_argument("--root", type=Path, required=True, help="directory for the working copies")
    parser.add_argument(
        "--allow", type=Path, action="append", default=[], metavar="DIRECTORY",
        help="a directory whose repositories may be cloned, beside those behind https; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--read", type=Path, action="append", default=[], metavar="DIRECTORY",
        help="a directory that commands may read, such as one with compilers; may be given again",
    )  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8003, help="port to listen on, 0 for a free one (default: 8003)")
    parser.add_argument("--no-network", action="store_true", help="commands reach no network")
    parser.add_argument(
        "--unconfined", action="store_true", help="run commands without bubblewrap: they can do whatever you can"
    )
    options = parser.parse_args()
    try:
        confined = confinement(unconfined=options.unconfined, network=not options.no_network, reads=options.read)
    except Misconfigured as error:
        parser.error(str(error))
    server = sandbox_server(Sandboxes(options.root, allowed=options.allow), confined)
    server.run(host=options.host, port=options.port)


if __name__ == "__main__":
    main()
