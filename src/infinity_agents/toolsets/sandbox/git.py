"""Git as the sandbox server uses it: on repositories of its own, whatever commands leave in the working copies."""

import asyncio
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_GIT_SECONDS = 600.0
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


class GitFailed(Exception):
    """Git could not do it; the text is what git says of it."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


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
            GitFailed: it ended with another code than those that are ``fine``, or took ten minutes.
        """
        environment = _environment()
        environment["GIT_DIR"] = str(self.git_dir)
        if self.tree is not None:
            environment["GIT_WORK_TREE"] = str(self.tree)
        if index is not None:
            environment["GIT_INDEX_FILE"] = str(index)
        code, text, told = await _run(arguments, environment, self.tree or self.git_dir.parent, given)
        if code not in fine:
            raise GitFailed((told or text).strip()[-2_000:] or f"git {arguments[0]} ended with {code}", code)
        return text


async def clone(url: str, git_dir: Path) -> None:
    """Make the bare repository ``git_dir`` of the one at ``url``, or bring it up to date.

    Raises:
        GitFailed: the repository cannot be had.
    """
    git = Git(git_dir)
    if not (git_dir / "HEAD").exists():
        await git.run("init", "--quiet", "--bare", str(git_dir))
    await git.run(
        "fetch", "--quiet", "--force", "--prune", "--no-recurse-submodules", "--", url,
        "+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*", "+HEAD:refs/remotes/origin/HEAD",
    )  # fmt: skip


def checked_revision(revision: str) -> str:
    """Return the name of a branch, a tag or a commit as it is.

    Raises:
        ValueError: it is none.
    """
    if not _REVISION.fullmatch(revision):
        raise ValueError(f"{revision[:200]!r} is no name of a branch, a tag or a commit")
    return revision


def _environment() -> dict[str, str]:
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


async def _run(
    arguments: tuple[str, ...], environment: Mapping[str, str], directory: Path, given: str
) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        "git",
        *arguments,
        cwd=directory,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_GIT_SECONDS):
            printed, told = await process.communicate(given.encode("utf-8", "surrogateescape"))
    except TimeoutError:
        raise GitFailed(f"git {arguments[0]} took longer than {_GIT_SECONDS:.0f} seconds", -1) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, printed.decode("utf-8", "surrogateescape"), told.decode(errors="replace")
