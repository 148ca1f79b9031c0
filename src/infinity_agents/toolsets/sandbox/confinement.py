"""What a command of a sandbox can reach: with bubblewrap its own files and no more, without it whatever we can."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...errors import Misconfigured

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix")
_SETTINGS = (
    "alternatives",
    "ca-certificates",
    "hosts",
    "ld.so.cache",
    "localtime",
    "nsswitch.conf",
    "passwd",
    "pki",
    "resolv.conf",
    "ssl",
)
"""What programs need of /etc; the rest of it is the machine's own business."""
_PYTHON = sorted({Path(sys.prefix), Path(sys.base_prefix)})
"""Where the Python is that runs this: a command may use it."""


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command, and the directories that it works with."""

    text: str
    tree: Path
    """Where it runs, and may write."""
    home: Path
    """Its home directory, which it may write."""
    repository: Path
    """What git reads: it may not write there."""
    leads: tuple[Path, ...]
    """What in its tree leads to the repository: it may not write there either."""

    def environment(self, path: str) -> dict[str, str]:
        """Return the whole environment of the command. Nothing is inherited, so that no credential is."""
        return {
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PATH": path,
            "TERM": "dumb",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
        }


class Confinement(Protocol):
    """Decides what a command can reach."""

    def argv(self, command: Command) -> Sequence[str]:
        """Return the program and the arguments that run ``command``, in its tree."""
        ...

    def environment(self, command: Command) -> dict[str, str]:
        """Return the variables that the program is given."""
        ...


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """A command sees the system's programs, its tree and its home, and neither other files nor other processes.

    It sees the directories ``reads`` too, and programs there if PATH has them. It reaches the network, this machine's
    own services included, only with ``network``. It dies with this process.
    """

    program: str
    network: bool = True
    reads: tuple[Path, ...] = ()

    def argv(self, command: Command) -> Sequence[str]:
        return [
            self.program,
            "--unshare-all",
            *(["--share-net"] if self.network else []),
            "--die-with-parent",
            "--new-session",
            *_bound("--ro-bind-try", (*_SYSTEM, *(f"/etc/{name}" for name in _SETTINGS))),
            *_bound("--ro-bind", [str(path) for path in (*_PYTHON, *self.reads)]),
            *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108 - its own, in memory
            *_bound("--ro-bind", [str(command.repository)]),
            *_bound("--bind", [str(command.home), str(command.tree)]),
            *_bound("--ro-bind", [str(path) for path in command.leads]),
            *("--chdir", str(command.tree), "--clearenv"),
            *(word for name, value in self.environment(command).items() for word in ("--setenv", name, value)),
            "--",
            *_shell(command.text),
        ]

    def environment(self, command: Command) -> dict[str, str]:
        visible = (*_SYSTEM, *map(str, (*_PYTHON, *self.reads)))
        named = [path for path in os.environ.get("PATH", os.defpath).split(os.pathsep) if path.startswith(visible)]
        return command.environment(os.pathsep.join([str(Path(sys.executable).parent), *named]))


@dataclass(frozen=True, slots=True)
class Unconfined:
    """A command can do whatever this process can: only its environment is its own."""

    def argv(self, command: Command) -> Sequence[str]:
        return _shell(command.text)

    def environment(self, command: Command) -> dict[str, str]:
        return command.environment(os.environ.get("PATH", os.defpath))


def confinement(
    *,
    unconfined: bool = False,
    network: bool = True,
    reads: Sequence[Path] = (),
    environ: Mapping[str, str] = os.environ,
) -> Confinement:
    """Return the confinement that this machine has; ``network`` and ``reads`` are those of ``Bubblewrap``.

    Raises:
        Misconfigured: it has none, and nobody said that commands may run without.
    """
    if unconfined:
        return Unconfined()
    program = shutil.which("bwrap", path=environ.get("PATH"))
    if program is None:
        raise Misconfigured(
            "commands of a sandbox are confined by bubblewrap, and there is no bwrap here; install it (on Debian: "
            "apt install bubblewrap), or say --unconfined, and they can do whatever you can"
        )
    return Bubblewrap(program, network, tuple(path.resolve() for path in reads))


def _bound(option: str, paths: Sequence[str]) -> list[str]:
    return [word for path in paths for word in (option, path, path)]


def _shell(text: str) -> list[str]:
    return ["bash" if shutil.which("bash") else "sh", "-c", text]
