"""Files of a sandbox by the paths that a model gives: no path, link or race leads out of the tree."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

MAX_FILE = 8 * 1024 * 1024
"""The largest file that is read or written, in bytes."""
_LONGEST_PATH = 4_095
"""In bytes, as Linux has it."""
_REMEDY = "find it with execute_command and ls, or with grep"
OURS = frozenset({".git", ".jj"})
"""What is git's and jj's own in a working copy, in any directory."""


class OutsideSandbox(ValueError):
    """A path leads out of the sandbox, or to what is git's or jj's own there."""


def resolved(tree: Path, path: str) -> Path:
    """Return where ``path`` leads within ``tree``, links followed; absolute paths are as commands print them.

    Raises:
        OutsideSandbox: it leads anywhere else.
        ValueError: it is no path.
    """
    if not path or "\0" in path:
        raise ValueError(f"{path[:200]!r} is no path; name a file below the repository's root, such as src/app.py")
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise ValueError(f"{path[:200]!r}… has over {_LONGEST_PATH} bytes, and no path has; shorten it")
    found = Path(os.path.realpath(tree / path))
    if not found.is_relative_to(tree):
        raise OutsideSandbox(f"{path[:200]!r} leads out of the sandbox; paths are below the repository's root")
    if (OURS | {"git~1"}) & {part.casefold() for part in found.relative_to(tree).parts}:
        raise OutsideSandbox(f"{path[:200]!r} is git's own or jj's; use describe_changes to see what changed")
    return found


def existing(tree: Path, path: str) -> Path:
    """Return where the file or the directory ``path`` is.

    Raises:
        OutsideSandbox: the path leads out of the tree.
        ValueError: there is none.
    """
    found = resolved(tree, path)
    if not os.path.lexists(found):
        raise ValueError(f"there is no file {path[:200]!r}; {_REMEDY}")
    return found


def read(tree: Path, path: str) -> bytes:
    """Return the content of a file.

    Raises:
        OutsideSandbox: the path leads out of the tree.
        ValueError: there is no such file, it is no regular one, or it is larger than 8 MiB.
    """
    found = resolved(tree, path)
    with _told(path, "read"), os.fdopen(_opened(tree, found, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise ValueError(
                f"{path[:200]!r} is a directory or no regular file; list directories with execute_command and ls"
            )
        if about.st_size > MAX_FILE:
            raise ValueError(
                f"{path[:200]!r} has {about.st_size} bytes, and {MAX_FILE} are read; use grep or execute_command"
            )
        return file.read(MAX_FILE)


def write(tree: Path, path: str, data: bytes, *, new: bool = False) -> None:
    """Write a file whole, the directories above it too; a ``new`` one must not be there yet.

    Raises:
        OutsideSandbox: the path leads out of the tree.
        ValueError: the content is larger than 8 MiB, or the file cannot be written.
        FileExistsError: the ``new`` file is there already.
    """
    if len(data) > MAX_FILE:
        raise ValueError(f"the content has {len(data)} bytes, and {MAX_FILE} are written; write it in parts")
    found = resolved(tree, path)
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if new else os.O_TRUNC)
    with _told(path, "written"), os.fdopen(_opened(tree, found, flags, makes=new), "wb") as file:
        file.write(data)


@contextlib.contextmanager
def _told(path: str, done: str) -> Iterator[None]:
    """Say which path it is that the system refuses, and what to do."""
    try:
        yield
    except FileExistsError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        remedy = _REMEDY if done == "read" else "a file is where its directory would be"
        raise ValueError(f"there is no file {path[:200]!r}; {remedy}") from error
    except OSError as error:
        raise ValueError(
            f"{path[:200]!r} cannot be {done}: {error.strerror}; name another file, or look with execute_command"
        ) from error


def _opened(tree: Path, found: Path, flags: int, *, makes: bool = False) -> int:
    """Open a resolved path step by step: a link that was put there meanwhile is not followed."""
    *above, name = found.relative_to(tree).parts or (".",)
    directory = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in above:
            if makes:
                _make(directory, part)
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            os.close(directory)
            directory = inner
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=directory)
    finally:
        os.close(directory)


def _make(directory: int, name: str) -> None:
    try:
        os.mkdir(name, dir_fd=directory)
    except FileExistsError:
        return
