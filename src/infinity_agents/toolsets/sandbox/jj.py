"""Versions kept by jj: each working copy is a workspace over one store, whose commits are those of a git repository."""

import os
import re
import shutil
from pathlib import Path

from .git import Git, in_the_way, safe_environment
from .programs import VersionControlFailed, locked, printed_by
from .version_control import Conflict, Sandbox
from .worktrees import GitWorktrees

_SAFE = (
    "aliases={}",
    "fsmonitor.backend=none",
    "git.abandon-unreachable-commits=false",  # a branch that is gone at the origin would take its sandboxes with it
    "git.colocate=false",
    "signing.behavior=drop",
    "snapshot.auto-track=all()",
    "snapshot.auto-update-stale=true",
    "snapshot.max-new-file-size=0",  # without a limit: what is over it would be left out of a child's work
    "ui.paginate=never",
    "user.name=Infinity Agents",
    "user.email=agents@localhost",
    "working-copy.eol-conversion=none",
)
"""What no store and no workspace may decide for itself."""
_COMMIT = re.compile("[0-9a-f]{40}")


class JjWorkspaces:
    """Keeps the versions with jj. Differences and searches are git's, which has the same commits."""

    leads = (".git", ".jj")

    def __init__(self) -> None:
        self._git = GitWorktrees()

    async def make(self, sandbox: Sandbox, repository: Path) -> None:
        # For the git of commands, and for grep.
        await self._git.make(sandbox, repository, checkout=False)
        async with locked(repository / "jj.lock"):
            store = _store_of(repository)
            if not (store / ".jj" / "working_copy" / "checkout").exists():
                shutil.rmtree(store, ignore_errors=True)
                await _run("git", "init", "--git-repo", str(repository), str(store), directory=repository)
                (repository / "info").mkdir(exist_ok=True)
                (repository / "info" / "exclude").write_text("/.jj/\n", encoding="utf-8")
            if sandbox.parent is None:
                # What no branch has, such as a detached HEAD, would not be known to jj.
                await Git(repository).run("update-ref", f"refs/heads/sandboxes/{sandbox.start}", sandbox.start)
                await _jj(store, "git", "import")
            made = await _added(sandbox, store, sandbox.start)
        (sandbox.tree / ".git").rename(made / ".git")
        sandbox.tree.rmdir()
        made.rename(sandbox.tree)
        git = self._git.git(sandbox, repository)
        await git.run("read-tree", sandbox.start)
        await git.run("update-index", "-q", "--refresh", fine=(0, 1))

    async def snapshot(self, sandbox: Sandbox, repository: Path) -> str:
        async with locked(repository / "jj.lock"):
            return await _snapshot(sandbox, repository)

    async def content(self, sandbox: Sandbox, repository: Path) -> str:
        async with locked(repository / "jj.lock"):
            await _mended(sandbox, repository)
            return await _commit(sandbox.tree, "@")

    async def join(self, mine: Sandbox, theirs: Sandbox, repository: Path) -> tuple[str, str]:
        store = _store_of(repository)
        async with locked(repository / "jj.lock"):
            ours, child = await _snapshot(mine, repository), await _snapshot(theirs, repository)
            if await _commits(store, f"{child} & ::{ours}"):
                return ours, ours
            await _jj(store, "new", "--no-edit", "-m", "squash", ours, child)
            joined = await _commit(store, f"latest({ours}+ & {child}+)")
            told = await _jj(store, "file", "list", "-r", joined, "-T", r'if(conflict, path ++ "\0")')
            conflicts = [*_split(told), *await in_the_way(Git(repository), mine.tree, ours, joined)]
            if conflicts:
                await _jj(store, "abandon", joined)
                raise Conflict(conflicts)
            # What a command writes meanwhile is on top of it then.
            await _jj(mine.tree, "rebase", "-s", "@", "-d", joined)
            return ours, joined


async def _snapshot(sandbox: Sandbox, repository: Path) -> str:
    """Return the commit of what the working copy holds; no later change goes into it, so others can build on it."""
    await _mended(sandbox, repository)
    below = await _commits(sandbox.tree, "@ & empty() ~ merges()", "parents.map(|each| each.commit_id())")
    if below:
        return below[0]
    await _jj(sandbox.tree, "new")
    return await _commit(_store_of(repository), f"{_workspace(sandbox)}-")


async def _mended(sandbox: Sandbox, repository: Path) -> None:
    """See that the working copy leads to our store. A command that is not confined may have put anything there."""
    leads, store = sandbox.tree / ".jj", _store_of(repository)
    if _is_ours(leads, store, sandbox):
        return
    known = await _is_known(sandbox, store)
    made = await _added(sandbox, store, await _commit(store, _workspace(sandbox)) if known else sandbox.start)
    if leads.is_dir() and not leads.is_symlink():
        shutil.rmtree(leads)
    else:
        leads.unlink(missing_ok=True)
    (made / ".jj").rename(leads)
    shutil.rmtree(made)


def _is_ours(leads: Path, store: Path, sandbox: Sandbox) -> bool:
    try:
        return (
            not any(place.is_symlink() for place in (leads, leads / "working_copy"))
            and all((leads / name).is_file() for name in ("repo", "working_copy/type", "working_copy/checkout"))
            and (leads / "repo").read_text(encoding="utf-8") == str(store / ".jj" / "repo")
            and (leads / "working_copy" / "type").read_text(encoding="utf-8") == "local"
            and sandbox.directory.name.encode() in (leads / "working_copy" / "checkout").read_bytes()
        )
    except (OSError, UnicodeDecodeError):
        return False


async def _added(sandbox: Sandbox, store: Path, commit: str) -> Path:
    """Make the workspace of ``sandbox`` anew, on top of ``commit``, and return where it is for now."""
    place, name = sandbox.directory / "workspace", sandbox.directory.name
    shutil.rmtree(place, ignore_errors=True)
    if await _is_known(sandbox, store):
        await _jj(store, "workspace", "forget", name)
    await _jj(store, "workspace", "add", "--name", name, "-r", commit, str(place))
    return place


async def _is_known(sandbox: Sandbox, store: Path) -> bool:
    return sandbox.directory.name in _split(await _jj(store, "workspace", "list", "-T", r'name ++ "\0"'))


async def _commit(place: Path, revset: str) -> str:
    found = await _commits(place, revset)
    if len(found) != 1:
        raise VersionControlFailed(f"jj has {len(found)} commits for {revset}, and one is needed; clone anew", 1)
    return found[0]


async def _commits(place: Path, revset: str, shown: str = "commit_id") -> list[str]:
    told = (await _jj(place, "log", "--no-graph", "-r", revset, "-T", rf'{shown} ++ "\n"')).split()
    # A store can say what words of a template mean, and what is printed here goes to git.
    wrong = next((each for each in told if not _COMMIT.fullmatch(each)), None)
    if wrong is not None:
        raise VersionControlFailed(f"jj named {wrong[:100]!r} for a commit; clone anew", 1)
    return told


async def _jj(place: Path, *arguments: str) -> str:
    # With the place named, it does not look for a repository in the directories above.
    return await _run(*arguments, "--repository", str(place), directory=place)


async def _run(*arguments: str, directory: Path) -> str:
    environment = {**safe_environment(), "JJ_CONFIG": os.devnull}
    options = ["--color=never", "--no-pager", "--quiet", *(word for each in _SAFE for word in ("--config", each))]
    return await printed_by("jj", *arguments, *options, environment=environment, directory=directory)


def _store_of(repository: Path) -> Path:
    return repository / "jj"


def _workspace(sandbox: Sandbox) -> str:
    return f'"{sandbox.directory.name}"@'


def _split(told: str) -> list[str]:
    return [each for each in told.split("\0") if each]
