"""The SQL of the package, out of its ``.sql`` files, and the form that ids have there."""

from importlib import resources
from typing import Final

from ...conversation import ids

_LONGEST_KEY: Final = 400
"""In bytes: DSQL's keys hold 1 KiB in all, of which a thread's id takes up to 128 bytes."""


def read_sql(*path: str) -> str:
    """Return the text of one of the package's ``.sql`` files."""
    return resources.files(__package__).joinpath(*path).read_text(encoding="utf-8")


def named_statements(file: str) -> dict[str, bytes]:
    """Return the statements of ``sql/<file>`` by name; each follows a line ``-- name: …``."""
    _, *blocks = read_sql("sql", file).split("-- name: ")
    return {
        name.strip(): statement.strip().rstrip(";").encode()
        for name, _, statement in (block.partition("\n") for block in blocks)
    }


def split_statements(text: str) -> list[str]:
    """Return the statements of a file in which each ends with a semicolon at the end of a line."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    return [statement for part in "\n".join(lines).split(";\n") if (statement := part.strip().rstrip(";"))]


def key(text: str) -> str:
    """Return ``text`` as it is kept in a key: a hash stands for what no key can hold (NUL, half characters, length)."""
    try:
        fits = "\x00" not in text and len(text.encode()) <= _LONGEST_KEY
    except UnicodeEncodeError:
        fits = False
    return text if fits else f"sha256:{ids.digest(text, length=64)}"
