"""What a sandbox is, and what keeps its versions: git, or jj over a store of git's."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class NoSandbox(ValueError):
    """The thread has no sandbox yet."""


class Conflict(ValueError):
    """Two threads changed the same lines; nothing was changed by the attempt to join them."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(
            f"both sides changed {', '.join(paths)}. Nothing was taken over: have one side changed, and try again"
        )
        self.paths = tuple(paths)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A thread's working copy. ``start`` is the commit that its changes are counted from."""

    thread_id: str
    url: str
    start: str
    directory: Path
    parent: str | None = None
    """The thread on top of whose work it was made."""
    vcs: str = "git"
    """What keeps its versions."""

    @property
    def tree(self) -> Path:
        """The working copy."""
        return self.directory / "tree"

    @property
    def home(self) -> Path:
        """The home directory of its commands."""
        return self.directory / "home"

    @property
    def ref(self) -> str:
        """Where git keeps its last snapshot."""
        return f"refs/sandboxes/{self.directory.name}"


class VersionControl(Protocol):
    """Keeps the versions of working copies, as commits of the bare git repository behind them."""

    @property
    def leads(self) -> tuple[str, ...]:
        """What is its own in a working copy. It leads to the repository, and commands may not change it."""
        ...

    async def make(self, sandbox: Sandbox, repository: Path) -> None:
        """Make the working copy of ``sandbox``, whose directory is there, as its start has it."""
        ...

    async def snapshot(self, sandbox: Sandbox, repository: Path) -> str:
        """Return the commit that holds what the working copy holds now, files that are ignored apart."""
        ...

    async def content(self, sandbox: Sandbox, repository: Path) -> str:
        """Return the tree, or a commit of it, that holds what the working copy holds now."""
        ...

    async def join(self, mine: Sandbox, theirs: Sandbox, repository: Path) -> tuple[str, str]:
        """Take what ``theirs`` has into the working copy of ``mine``; return its commits before and after.

        Raises:
            Conflict: both changed the same lines; neither working copy was touched.
        """
        ...
