"""``infinity init``: a new project."""

import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from rich.text import Text

from ..errors import Misconfigured
from .rendering import put, stdout

_NAME = re.compile(r"[A-Za-z](?:-?[A-Za-z0-9]){0,127}")
_SUFFIX = ".txt"
"""Behind the name of each file here: what is written is no module of this package."""


def write_project(directory: Path) -> None:
    """Write a project into ``directory``, and say what to do with it. The agent is called as the directory is.

    Raises:
        Misconfigured: something is there already, no stack can be called so, or it cannot be written.
    """
    name = directory.resolve().name
    if not _NAME.fullmatch(name):
        raise Misconfigured(
            f"{name!r} cannot be the name of a stack: that has letters, digits and single hyphens, 128 at most, and "
            "begins with a letter; name another directory"
        )
    class_name = "".join(part[0].upper() + part[1:] for part in name.split("-"))
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise Misconfigured(f"{directory} is not empty; name a directory that is, or a new one")
        for path, text in _files(resources.files(__package__).joinpath("new_project")):
            place = directory / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text.replace("@NAME@", name).replace("@CLASS@", class_name), encoding="utf-8")
    except OSError as error:
        raise Misconfigured(
            f"{directory} cannot be written ({error.strerror}); name a directory that you may write"
        ) from error
    put(stdout(), Text(f"{directory} holds a new agent, {class_name}. Its README.md tells what to do next."))


def _files(place: Traversable, path: Path = Path()) -> Iterator[tuple[Path, str]]:
    for child in sorted(place.iterdir(), key=lambda child: child.name):
        if child.is_dir():
            yield from _files(child, path / child.name)
        elif child.name.endswith(_SUFFIX):
            name = child.name.removesuffix(_SUFFIX)
            yield path / (".gitignore" if name == "gitignore" else name), child.read_text(encoding="utf-8")
