"""The working copies of a directory: one per thread, made from a repository or from another thread's work."""

import asyncio
import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from pathlib import Path

from ...errors import Misconfigured
from .confinement import Command
from .git import Git, checked_revision, clone
from .jj import JjWorkspaces
from .programs import VersionControlFailed, locked
from .version_control import NoSandbox, Sandbox, VersionControl
from .worktrees import GitWorktrees

KEPT_DAYS = 30
"""Days after which what the threads of a root left is deleted, counted from the last clone among them."""

VERSION_CONTROLS: Mapping[str, VersionControl] = {"git": GitWorktrees(), "jj": JjWorkspaces()}
"""What can keep the versions of sandboxes, by the name of its program."""

_URL = re.compile(r"https://[A-Za-z0-9.-]+(:\d+)?/[^\s\0]{1,2000}")
_USER = re.compile(r"https://[^/]*@")


class Sandboxes:
    """Keeps the sandboxes below ``root``, those of one conversation apart from those of all others.

    ``allowed`` are the local directories that may be cloned, with what is below them. ``vcs`` is what keeps the
    versions of new ones: ``git``, or ``jj``. One that is made on top of another is kept as that is.

    Raises:
        Misconfigured: ``vcs`` is neither, or its program is not on PATH.
    """

    def __init__(self, root: Path, *, allowed: Sequence[Path] = (), vcs: str = "git") -> None:
        if vcs not in VERSION_CONTROLS:
            raise Misconfigured(f"{vcs[:100]!r} keeps no versions of sandboxes; say {' or '.join(VERSION_CONTROLS)}")
        if shutil.which(vcs) is None:
            raise Misconfigured(
                f"the versions of sandboxes are to be kept by {vcs}, and there is no {vcs} on PATH; install it"
                + ("" if vcs == "git" else ", or leave it at git")
            )
        self._vcs = vcs
        try:
            self._root = root.resolve()
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Misconfigured(
                f"the sandboxes cannot be kept in {str(root)[:200]!r} ({error.strerror}); name another directory"
            ) from error
        self._allowed = tuple(path.resolve() for path in allowed)

    async def clone(self, url: str, revision: str, thread_id: str, root_id: str) -> Sandbox:
        """Give the thread a fresh working copy of a repository, in place of the one that it has.

        Raises:
            ValueError: the URL or the revision is none that may be cloned.
            VersionControlFailed: git cannot get it.
        """
        source, checked = self._source(url), checked_revision(revision)
        await asyncio.to_thread(self._prune)
        repository = self._repository(root_id, source)
        async with self._locked(root_id):
            await clone(source, repository)
            start = await _commit_of(Git(repository), checked)
            directory = self._directory(root_id, thread_id)
            return await self._made(Sandbox(thread_id, source, start, directory, vcs=self._vcs), repository)

    async def clone_on_top(self, other: str, thread_id: str, root_id: str) -> Sandbox:
        """Give the thread a working copy of what another thread of the conversation has at this moment.

        Raises:
            NoSandbox: that thread has none.
            ValueError: it is the thread itself.
        """
        if other == thread_id:
            raise ValueError("a thread's sandbox cannot be made on top of itself; name another thread")
        async with self._locked(root_id):
            below = self.of(other, root_id)
            repository = self._repository(root_id, below.url)
            start = await VERSION_CONTROLS[below.vcs].snapshot(below, repository)
            directory = self._directory(root_id, thread_id)
            sandbox = Sandbox(thread_id, below.url, start, directory, parent=other, vcs=below.vcs)
            return await self._made(sandbox, repository)

    def of(self, thread_id: str, root_id: str) -> Sandbox:
        """Return the thread's sandbox.

        Raises:
            NoSandbox: it has none.
        """
        directory = self._directory(root_id, thread_id)
        try:
            fields = json.loads((directory / "sandbox.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise NoSandbox(f"the thread {thread_id[:128]!r} has no sandbox; make one with clone_repo") from None
        return Sandbox(**fields, directory=directory)

    def command(self, text: str, sandbox: Sandbox, root_id: str) -> Command:
        """Return a shell command of a sandbox."""
        repository, leads = self._repository(root_id, sandbox.url), VERSION_CONTROLS[sandbox.vcs].leads
        return Command(text, sandbox.tree, sandbox.home, repository, tuple(sandbox.tree / name for name in leads))

    def git(self, sandbox: Sandbox, root_id: str) -> Git:
        """Return git, on the sandbox's working copy."""
        return GitWorktrees().git(sandbox, self._repository(root_id, sandbox.url))

    async def changes(self, sandbox: Sandbox, root_id: str, *, path: str | None = None, summary: bool = False) -> str:
        """Return what was changed since the sandbox was made, as a unified diff.

        With ``summary``, it begins with the files, and by how many lines each was changed.
        """
        repository = self._repository(root_id, sandbox.url)
        content = await VERSION_CONTROLS[sandbox.vcs].content(sandbox, repository)
        options = ["--patch-with-stat", "--stat=120"] if summary else ["-p"]
        paths = ["--", f":(top,literal){path}"] if path else []
        told = ("-r", "-M", "--no-ext-diff", "--no-textconv", *options)
        return await Git(repository).run("diff-tree", *told, sandbox.start, content, *paths)

    async def squash(self, child_id: str, thread_id: str, root_id: str) -> str:
        """Take what a child changed into the thread's own working copy; return which files that touches.

        Raises:
            NoSandbox: one of the two has none.
            ValueError: the child's sandbox was not made on top of this thread's.
            Conflict: both changed the same lines; neither working copy was touched.
        """
        async with self._locked(root_id):
            mine, theirs = self.of(thread_id, root_id), self.of(child_id, root_id)
            if theirs.parent != thread_id:
                raise ValueError(
                    f"the sandbox of {child_id[:128]!r} was not made on top of this one; only those made with "
                    "clone_repo(on_top_of=this thread) can be squashed into it"
                )
            repository = self._repository(root_id, mine.url)
            before, after = await VERSION_CONTROLS[mine.vcs].join(mine, theirs, repository)
            return await Git(repository).run("diff-tree", "-r", "-M", "--stat=120", "--no-ext-diff", before, after)

    # ------------------------------------------------------------------------------------------- the directory

    def _source(self, url: str) -> str:
        if _URL.fullmatch(url):
            if _USER.match(url):
                raise ValueError("the URL holds a user or a password; give it without")
            return url
        path = Path(url)
        if (
            path.is_absolute()
            and "\0" not in url
            and any(path.resolve().is_relative_to(allowed) for allowed in self._allowed)
        ):
            return str(path.resolve())
        allowed = ", ".join(map(str, self._allowed))
        raise ValueError(
            f"{url[:200]!r} cannot be cloned; give a URL that begins with https://"
            + (f", or a directory below {allowed}" if allowed else "")
        )

    async def _made(self, sandbox: Sandbox, repository: Path) -> Sandbox:
        """Make the working copy of ``sandbox`` anew. Its record is written last: without it, there is none."""
        await asyncio.to_thread(shutil.rmtree, sandbox.directory, ignore_errors=True)
        sandbox.home.mkdir(parents=True)
        await VERSION_CONTROLS[sandbox.vcs].make(sandbox, repository)
        fields = {name: value for name, value in asdict(sandbox).items() if name != "directory"}
        (sandbox.directory / "sandbox.json").write_text(json.dumps(fields), encoding="utf-8")
        os.utime(sandbox.directory.parent)
        return sandbox

    def _repository(self, root_id: str, source: str) -> Path:
        return self._root / _name_of(root_id) / f"{_name_of(source)}.git"

    def _directory(self, root_id: str, thread_id: str) -> Path:
        return self._root / _name_of(root_id) / _name_of(thread_id)

    def _locked(self, root_id: str) -> AbstractAsyncContextManager[None]:
        """Be the only one, of all processes, that clones, copies or joins working copies of a conversation."""
        return locked(self._root / _name_of(root_id) / "lock")

    def _prune(self) -> None:
        oldest = time.time() - KEPT_DAYS * 86_400
        with contextlib.suppress(FileNotFoundError):
            for directory in self._root.iterdir():
                # Whatever else is there, such as what somebody keeps in a directory of their own, is not ours.
                if _OURS.fullmatch(directory.name) and directory.is_dir() and directory.stat().st_mtime < oldest:
                    shutil.rmtree(directory, ignore_errors=True)


async def _commit_of(git: Git, revision: str) -> str:
    for name in (f"refs/remotes/origin/{revision}", f"refs/tags/{revision}", revision):
        with contextlib.suppress(VersionControlFailed):
            return (await git.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")).strip()
    raise ValueError(f"the repository has no branch, tag or commit {revision!r}")


_OURS = re.compile("[0-9a-f]{32}")


def _name_of(text: str) -> str:
    """Return a directory's name for an id or a URL, whatever characters those have."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
