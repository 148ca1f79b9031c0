"""The working copies of a directory: one per thread, made from a repository or from another thread's work."""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from .git import Git, GitFailed, checked_revision, clone

KEPT_DAYS = 30
"""Days after which what the threads of a root left is deleted, counted from the last clone among them."""

_LOCK_SECONDS = 0.02
_URL = re.compile(r"https://[A-Za-z0-9.-]+(:\d+)?/[^\s\0]+")
_USER = re.compile(r"https://[^/]*@")


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
        """Where its last snapshot is kept."""
        return f"refs/sandboxes/{self.directory.name}"


class Sandboxes:
    """Keeps the sandboxes below ``root``, those of one conversation apart from those of all others.

    ``allowed`` are the local directories that may be cloned, with what is below them.
    """

    def __init__(self, root: Path, *, allowed: Sequence[Path] = ()) -> None:
        self._root = root.resolve()
        self._allowed = tuple(path.resolve() for path in allowed)

    async def clone(self, url: str, revision: str, thread_id: str, root_id: str) -> Sandbox:
        """Give the thread a fresh working copy of a repository, in place of the one that it has.

        Raises:
            ValueError: the URL or the revision is none that may be cloned.
            GitFailed: git cannot get it.
        """
        source, checked = self._source(url), checked_revision(revision)
        await asyncio.to_thread(self._prune)
        repository = self._repository(root_id, source)
        async with self._locked(root_id):
            await clone(source, repository)
            start = await _commit_of(Git(repository), checked)
            return await self._made(Sandbox(thread_id, source, start, self._directory(root_id, thread_id)), repository)

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
            start = await self.snapshot(below, root_id)
            directory = self._directory(root_id, thread_id)
            sandbox = Sandbox(thread_id, below.url, start, directory, parent=other)
            return await self._made(sandbox, self._repository(root_id, below.url))

    def of(self, thread_id: str, root_id: str) -> Sandbox:
        """Return the thread's sandbox.

        Raises:
            NoSandbox: it has none.
        """
        directory = self._directory(root_id, thread_id)
        try:
            fields = json.loads((directory / "sandbox.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise NoSandbox(f"the thread {thread_id[:128]} has no sandbox; make one with clone_repo") from None
        return Sandbox(**fields, directory=directory)

    def repository(self, sandbox: Sandbox, root_id: str) -> Path:
        """Return the bare repository behind a sandbox."""
        return self._repository(root_id, sandbox.url)

    def git(self, sandbox: Sandbox, root_id: str) -> Git:
        """Return git, on the sandbox's working copy."""
        return Git(self._repository(root_id, sandbox.url) / "worktrees" / sandbox.directory.name, sandbox.tree)

    async def snapshot(self, sandbox: Sandbox, root_id: str) -> str:
        """Return the commit that holds what the working copy holds now, files that git ignores apart."""
        git = self.git(sandbox, root_id)
        last = (await git.run("rev-parse", sandbox.ref)).strip()
        tree = await _tree_of(git, sandbox)
        if tree == (await git.run("rev-parse", f"{last}^{{tree}}")).strip():
            return last
        made = (await git.run("commit-tree", "-p", last, "-m", "snapshot", tree)).strip()
        await git.run("update-ref", sandbox.ref, made, last)
        return made

    async def changes(self, sandbox: Sandbox, root_id: str, *, path: str | None = None, summary: bool = False) -> str:
        """Return what was changed since the sandbox was made, as a unified diff.

        With ``summary``, it begins with the files, and by how many lines each was changed.
        """
        git = self.git(sandbox, root_id)
        tree = await _tree_of(git, sandbox)
        options = ["--patch-with-stat", "--stat=120"] if summary else ["-p"]
        paths = ["--", f":(top,literal){path}"] if path else []
        told = ("-r", "-M", "--no-ext-diff", "--no-textconv", *options)
        return await git.run("diff-tree", *told, sandbox.start, tree, *paths)

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
                    f"the sandbox of {child_id[:128]} was not made on top of this one; only those made with "
                    "clone_repo(on_top_of=this thread) can be squashed into it"
                )
            ours, child = await self.snapshot(mine, root_id), await self.snapshot(theirs, root_id)
            git = self.git(mine, root_id)
            try:
                printed = await git.run("merge-tree", "--write-tree", "--name-only", "--no-messages", ours, child)
            except GitFailed as failure:
                if failure.code != 1:
                    raise
                raise Conflict(str(failure).splitlines()[1:]) from None
            tree = printed.split()[0]
            await self._moved(mine, git, ours, tree)
            made = (await git.run("commit-tree", "-p", ours, "-p", child, "-m", "squash", tree)).strip()
            await git.run("update-ref", mine.ref, made, ours)
            return await git.run("diff-tree", "-r", "-M", "--stat=120", "--no-ext-diff", ours, tree)

    # ------------------------------------------------------------------------------------------- the directory

    def _source(self, url: str) -> str:
        if _URL.fullmatch(url):
            if _USER.match(url):
                raise ValueError("the URL holds a user or a password; give it without")
            return url
        path = Path(url)
        if path.is_absolute() and any(path.resolve().is_relative_to(allowed) for allowed in self._allowed):
            return str(path.resolve())
        allowed = ", ".join(map(str, self._allowed))
        raise ValueError(
            f"{url[:200]!r} cannot be cloned; give a URL that begins with https://"
            + (f", or a directory below {allowed}" if allowed else "")
        )

    async def _made(self, sandbox: Sandbox, repository: Path) -> Sandbox:
        """Make the working copy of ``sandbox`` anew. Its record is written last: without it, there is none."""
        # Git would prune what it keeps of every working copy in which a command has deleted the file ``.git``.
        for old in (sandbox.directory, repository / "worktrees" / sandbox.directory.name):
            await asyncio.to_thread(shutil.rmtree, old, ignore_errors=True)
        sandbox.home.mkdir(parents=True)
        git = Git(repository)
        # Git names what it keeps of a working copy after its last directory, which has to be the thread's.
        named = sandbox.directory / sandbox.directory.name
        await git.run("worktree", "add", "--quiet", "--detach", "--force", str(named), sandbox.start)
        await git.run("worktree", "move", str(named), str(sandbox.tree))
        await git.run("update-ref", sandbox.ref, sandbox.start)
        fields = {name: value for name, value in asdict(sandbox).items() if name != "directory"}
        (sandbox.directory / "sandbox.json").write_text(json.dumps(fields), encoding="utf-8")
        os.utime(sandbox.directory.parent)
        return sandbox

    async def _moved(self, sandbox: Sandbox, git: Git, before: str, after: str) -> None:
        """Have the working copy, which holds ``before``, hold ``after``; ignored files stay where they are."""
        with _scratch_index(sandbox) as index:
            await git.run("read-tree", before, index=index)
            await git.run("update-index", "-q", "--refresh", index=index, fine=(0, 1))
            await git.run("read-tree", "-m", "-u", before, after, index=index)

    def _repository(self, root_id: str, source: str) -> Path:
        return self._root / _name_of(root_id) / f"{_name_of(source)}.git"

    def _directory(self, root_id: str, thread_id: str) -> Path:
        return self._root / _name_of(root_id) / _name_of(thread_id)

    @contextlib.asynccontextmanager
    async def _locked(self, root_id: str) -> AsyncIterator[None]:
        """Be the only one, of all processes, that clones, copies or joins working copies of a conversation."""
        directory = self._root / _name_of(root_id)
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "lock").open("w") as file:
            # Not in a thread: those who wait would take the threads that whoever has the lock needs.
            while not _is_ours(file):  # noqa: ASYNC110 - another process tells nobody when it is done
                await asyncio.sleep(_LOCK_SECONDS)
            yield

    def _prune(self) -> None:
        oldest = time.time() - KEPT_DAYS * 86_400
        with contextlib.suppress(FileNotFoundError):
            for directory in self._root.iterdir():
                if directory.is_dir() and directory.stat().st_mtime < oldest:
                    shutil.rmtree(directory, ignore_errors=True)


async def _commit_of(git: Git, revision: str) -> str:
    for name in (f"refs/remotes/origin/{revision}", f"refs/tags/{revision}", revision):
        with contextlib.suppress(GitFailed):
            return (await git.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")).strip()
    raise ValueError(f"the repository has no branch, tag or commit {revision!r}")


async def _tree_of(git: Git, sandbox: Sandbox) -> str:
    with _scratch_index(sandbox) as index:
        await git.run("read-tree", sandbox.ref, index=index)
        others = await git.run("ls-files", "--others", "--exclude-standard", "-z", index=index)
        # Of a repository within the working copy, git would keep the name of its commit and none of its files.
        nested = [name.rstrip("/") for name in others.split("\0") if name.endswith("/")]
        await git.run("add", "--all", "--", ".", *(f":(top,exclude,literal){name}" for name in nested), index=index)
        if nested:
            await git.run("update-index", "--add", "-z", "--stdin", index=index, given=await _files_in(git, nested))
        return (await git.run("write-tree", index=index)).strip()


async def _files_in(git: Git, directories: Sequence[str]) -> str:
    """Return the files of repositories within a working copy that are not ignored, each followed by a NUL."""
    tree = git.tree
    assert tree is not None  # noqa: S101 - what has directories has a working copy
    found = await asyncio.to_thread(_walked, tree, directories)
    given = "".join(f"{path}\0" for path in found)
    ignored = set((await git.run("check-ignore", "-z", "--stdin", given=given, fine=(0, 1))).split("\0"))
    return "".join(f"{path}\0" for path in found if path not in ignored)


def _walked(tree: Path, directories: Sequence[str]) -> list[str]:
    return [
        os.path.relpath(Path(place) / name, tree)
        for directory in directories
        for place, inner, names in os.walk(tree / directory)
        if ".git" not in Path(place).relative_to(tree).parts
        for name in (*names, *(each for each in inner if (Path(place) / each).is_symlink()))
        if name != ".git"
    ]


@contextlib.contextmanager
def _scratch_index(sandbox: Sandbox) -> Iterator[Path]:
    index = sandbox.directory / f"index-{os.urandom(8).hex()}"
    try:
        yield index
    finally:
        index.unlink(missing_ok=True)
        index.with_name(index.name + ".lock").unlink(missing_ok=True)


def _is_ours(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _name_of(text: str) -> str:
    """Return a directory's name for an id or a URL, whatever characters those have."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
