"""Git as the sandbox server uses it: on repositories of its own, whatever commands leave in the working copies."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from .programs import printed_by

_SAFE = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.symlinks=true",
    "protocol.allow=never",
    "protocol.https.allow=always",
    "protocol.file.allow=always",  # which directories may be cloned is checked before
    "submodule.recurse=false",
    "gc.auto=0",
    "user.name=Infinity Agents",
    "user.email=agents@localhost",
)
"""What no repository may decide for itself."""
_INHERITED = ("PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "https_proxy", "HTTPS_PROXY", "no_proxy")
_REVISION = re.compile(r"(?!-)(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._/+-]{0,200}")


@dataclass(frozen=True, slots=True)
class Git:
    """Runs git on the repository ``git_dir``, and on a working copy of it where one is named.

    The file ``.git`` of a working copy is never read: a command may have put anything there.
    """

    git_dir: Path
    tree: Path | None = None

    async def run(
        self, *arguments: str, index: Path | None = None, given: str = "", fine: tuple[int, ...] = (0,)
    ) -> str:
        """Return what ``git`` with these arguments prints, ``given`` on its standard input.

        Raises:
            VersionControlFailed: it ended with another code than those that are ``fine``, or took ten minutes.
        """
        environment = safe_environment()
        environment["GIT_DIR"] = str(self.git_dir)
        if self.tree is not None:
            environment["GIT_WORK_TREE"] = str(self.tree)
        if index is not None:
            environment["GIT_INDEX_FILE"] = str(index)
        place = self.tree or self.git_dir.parent
        return await printed_by("git", *arguments, environment=environment, directory=place, given=given, fine=fine)


async def clone(url: str, git_dir: Path) -> None:
    """Make the bare repository ``git_dir`` of the one at ``url``, or bring it up to date.

    Raises:
        VersionControlFailed: the repository cannot be had.
    """
    git = Git(git_dir)
    if not (git_dir / "HEAD").exists():
        await git.run("init", "--quiet", "--bare", str(git_dir))
    await git.run(
        "fetch", "--quiet", "--force", "--prune", "--no-recurse-submodules", "--", url,
        "+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*", "+HEAD:refs/remotes/origin/HEAD",
    )  # fmt: skip


async def in_the_way(git: Git, tree: Path, before: str, after: str) -> list[str]:
    """Return the files that ``after`` adds to ``before`` where the working copy has another, which git ignores."""
    added = await git.run("diff-tree", "-r", "-z", "--no-renames", "--name-only", "--diff-filter=A", before, after)
    return [path for path in added.split("\0") if path and _is_taken(tree, path)]


def checked_revision(revision: str) -> str:
    """Return the name of a branch, a tag or a commit as it is.

    Raises:
        ValueError: it is none.
    """
    if not _REVISION.fullmatch(revision):
        raise ValueError(f"{revision[:200]!r} is no name of a branch, a tag or a commit")
    return revision


def safe_environment() -> dict[str, str]:
    """Return the environment in which git does as no repository and no person's settings say."""
    settings = dict(enumerate(_SAFE))
    return {
        **{name: os.environ[name] for name in _INHERITED if name in os.environ},
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_COUNT": str(len(settings)),
        **{f"GIT_CONFIG_KEY_{at}": setting.partition("=")[0] for at, setting in settings.items()},
        **{f"GIT_CONFIG_VALUE_{at}": setting.partition("=")[2] for at, setting in settings.items()},
    }


def _is_taken(tree: Path, path: str) -> bool:
    above = [each for each in (tree / path).parents if each != tree and each.is_relative_to(tree)]
    return os.path.lexists(tree / path) or any(os.path.lexists(each) and not each.is_dir() for each in above)
