"""``python -m infinity_agents.toolsets.sandbox --root DIRECTORY``."""

import argparse

from ...rap.command_line import add_listening_options, directory, named, told_by
from .confinement import confinement
from .server import sandbox_server
from .workspaces import VERSION_CONTROLS, Sandboxes


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m infinity_agents.toolsets.sandbox",
        description="Gives each thread a working copy of a repository: it edits files there and runs commands.",
    )
    parser.add_argument("--root", type=named, required=True, help="directory for the working copies")
    parser.add_argument(
        "--allow", type=directory, action="append", default=[], metavar="DIRECTORY",
        help="a directory whose repositories may be cloned, beside those behind https; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--read", type=directory, action="append", default=[], metavar="DIRECTORY",
        help="a directory that commands may read, such as one with compilers; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--vcs", choices=list(VERSION_CONTROLS), default="git", help="what keeps the versions (default: %(default)s)"
    )
    add_listening_options(parser, 8003)
    parser.add_argument("--no-network", action="store_true", help="commands reach no network")
    parser.add_argument(
        "--unconfined", action="store_true", help="run commands without bubblewrap: they can do whatever you can"
    )
    options = parser.parse_args()
    with told_by(parser):
        confined = confinement(unconfined=options.unconfined, network=not options.no_network, reads=options.read)
        sandboxes = Sandboxes(options.root, allowed=options.allow, vcs=options.vcs)
        sandbox_server(sandboxes, confined).run(host=options.host, port=options.port)


if __name__ == "__main__":
    main()
