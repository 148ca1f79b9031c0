"""``infinity init``: a new project."""

import json
import keyword
import re
from collections.abc import Iterator
from importlib import resources
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources.abc import Traversable
from pathlib import Path

from rich.text import Text

from ..errors import Misconfigured
from .rendering import put, shortened, stdout

_NAME = re.compile(r"[A-Za-z](?:-?[A-Za-z0-9]){0,127}")
_SUFFIX = ".txt"
"""Behind the name of each file here: what is written is no module of this package."""
_PACKAGE = "infinity-agents"
_CHECKOUT = Path(__file__).parents[3]


def write_project(directory: Path) -> None:
    """Write a project into ``directory``, and say what to do with it. The agent is called as the directory is.

    Its requirement is this package from where it was installed from here: an index, a repository or a directory.

    Raises:
        Misconfigured: something is there already, no stack can be called so, or it cannot be written.
    """
    place = shortened(str(directory))
    try:
        name = directory.resolve().name
        if not _NAME.fullmatch(name):
            raise Misconfigured(
                f"{shortened(name)!r} cannot be the name of a stack: that has letters, digits and single hyphens, 128 "
                "at most, and begins with a letter; name another directory"
            )
        if name.lower() == _PACKAGE:
            raise Misconfigured(f"{name!r} is what the project needs, and cannot be its name; name another directory")
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise Misconfigured(f"{place} is not empty; name a directory that is, or a new one")
        files = list(_files(resources.files(__package__).joinpath("new_project")))
        words = {"@NAME@": name, "@CLASS@": _class_name(name, files), "@REQUIREMENT@": _requirement()}
        for path, text in files:
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            filled = re.sub("|".join(words), lambda found: words[found[0]], text)
            (directory / path).write_text(filled, encoding="utf-8")
    except OSError as error:
        raise Misconfigured(f"{place} cannot be written ({error.strerror}); name a directory that you may write") from (
            error
        )
    put(stdout(), Text(f"{place} holds a new agent, {words['@CLASS@']}. Its README.md tells what to do next."))


def _class_name(name: str, files: list[tuple[Path, str]]) -> str:
    """Return the name in the way of classes; a word that the project's modules use already is none."""
    class_name = "".join(part[0].upper() + part[1:] for part in name.split("-"))
    modules = "".join(text for path, text in files if path.suffix == ".py")
    is_taken = keyword.iskeyword(class_name) or re.search(rf"\b{class_name}\b", modules)
    return f"{class_name}Agent" if is_taken else class_name


def _requirement() -> str:
    """Return this package as pip asks for it, with what the project needs of it."""
    source = _source()
    return f"{_PACKAGE}[local,aws,cdk]" + (f" @ {source}" if source else "")


def _source() -> str | None:
    """Return the URL of what is installed here; ``None`` where that is an index, which needs no URL."""
    try:
        told = distribution(_PACKAGE).read_text("direct_url.json")
    except PackageNotFoundError:
        return _CHECKOUT.as_uri()
    if told is None:
        return None
    origin = json.loads(told)
    url, version_control = str(origin["url"]), origin.get("vcs_info")
    below = f"#subdirectory={origin['subdirectory']}" if origin.get("subdirectory") else ""
    return (f"{version_control['vcs']}+{url}@{version_control['commit_id']}" if version_control else url) + below


def _files(place: Traversable, path: Path = Path()) -> Iterator[tuple[Path, str]]:
    for child in sorted(place.iterdir(), key=lambda child: child.name):
        if child.is_dir():
            yield from _files(child, path / child.name)
        elif child.name.endswith(_SUFFIX):
            name = child.name.removesuffix(_SUFFIX)
            yield path / (".gitignore" if name == "gitignore" else name), child.read_text(encoding="utf-8")
