"""Versions kept by git: each working copy is a worktree of one bare repository."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from .git import Git, in_the_way
from .programs import VersionControlFailed
from .version_control import Conflict, Sandbox


class GitWorktrees:
    """Keeps the versions with git."""

    leads = (".git",)

    def git(self, sandbox: Sandbox, repository: Path) -> Git:
        """Return git, on the sandbox's working copy."""
        return Git(repository / "worktrees" / sandbox.directory.name, sandbox.tree)

    async def make(self, sandbox: Sandbox, repository: Path, *, checkout: bool = True) -> None:
        """Make the working copy; without ``checkout``, there is nothing in it but the file ``.git``."""
        name = sandbox.directory.name
        # Git would prune what it keeps of every working copy in which a command has deleted the file ``.git``.
        await asyncio.to_thread(shutil.rmtree, repository / "worktrees" / name, ignore_errors=True)
        git = Git(repository)
        # Git names what it keeps of a working copy after its last directory, which has to be the thread's.
        named = sandbox.directory / name
        options = ["--quiet", "--detach", "--force", *([] if checkout else ["--no-checkout"])]
        await git.run("worktree", "add", *options, str(named), sandbox.start)
        await git.run("worktree", "move", str(named), str(sandbox.tree))
        await git.run("update-ref", sandbox.ref, sandbox.start)

    async def snapshot(self, sandbox: Sandbox, repository: Path) -> str:
        git = self.git(sandbox, repository)
        last = (await git.run("rev-parse", sandbox.ref)).strip()
        tree = await _tree_of(git, sandbox)
        if tree == (await git.run("rev-parse", f"{last}^{{tree}}")).strip():
            return last
        made = (await git.run("commit-tree", "-p", last, "-m", "snapshot", tree)).strip()
        await git.run("update-ref", sandbox.ref, made, last)
        return made

    async def content(self, sandbox: Sandbox, repository: Path) -> str:
        return await _tree_of(self.git(sandbox, repository), sandbox)

    async def join(self, mine: Sandbox, theirs: Sandbox, repository: Path) -> tuple[str, str]:
        ours, child = await self.snapshot(mine, repository), await self.snapshot(theirs, repository)
        git = self.git(mine, repository)
        try:
            printed = await git.run("merge-tree", "--write-tree", "--name-only", "--no-messages", ours, child)
        except VersionControlFailed as failure:
            if failure.code != 1:
                raise
            raise Conflict(str(failure).splitlines()[1:]) from None
        tree = printed.split()[0]
        if conflicts := await in_the_way(git, mine.tree, ours, tree):
            raise Conflict(conflicts)
        with _scratch_index(mine) as index:
            await git.run("read-tree", ours, index=index)
            await git.run("update-index", "-q", "--refresh", index=index, fine=(0, 1))
            await git.run("read-tree", "-m", "-u", ours, tree, index=index)
        made = (await git.run("commit-tree", "-p", ours, "-p", child, "-m", "squash", tree)).strip()
        await git.run("update-ref", mine.ref, made, ours)
        return ours, made


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
