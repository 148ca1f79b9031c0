"""The pieces that messages, results and entries are made of."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text."""

    text: str
    type: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class Image:
    """A picture: ``data`` is base64, ``media_type`` such as ``image/png``."""

    data: str
    media_type: str
    type: Literal["image"] = "image"


@dataclass(frozen=True, slots=True)
class Document:
    """A file: ``data`` is base64."""

    data: str
    media_type: str
    name: str
    type: Literal["document"] = "document"


@dataclass(frozen=True, slots=True)
class Blob:
    """Stands for a large value: the JSON of a content of type ``of``, kept in the blob store under its hash.

    ``size`` is the length of that JSON in bytes.
    """

    sha256: str
    size: int
    of: str
    type: Literal["blob"] = "blob"


Part = Text | Image | Document | Blob


def mended(text: str) -> str:
    """Return ``text`` without what a model cannot take: NUL becomes U+FFFD, so does a lone surrogate."""
    return without_surrogates(text).replace("\x00", "\N{REPLACEMENT CHARACTER}")


def is_mended(text: str) -> bool:
    """Tell whether ``mended`` would change nothing."""
    return "\x00" not in text and (text.isascii() or _SURROGATE.search(text) is None)


_SURROGATE = re.compile("[\ud800-\udfff]")


def without_surrogates(text: str) -> str:
    """Return ``text`` with each lone surrogate replaced by U+FFFD: no encoding of text can carry one."""
    if text.isascii():
        return text
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


# C0 and C1 controls except tab and newline, and the bidirectional overrides that make text lie to its reader.
_UNSAFE_TO_SHOW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_TERMINAL_ESCAPE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\\]|\x9d).*?(?:\x07|\x1b\\\\|\x9c|$)|\x1b[@-Z\\\\^_]", re.DOTALL
)


def shown(text: str) -> str:
    """Return ``text`` as people may see it: terminal escapes and control characters are taken out."""
    if text.isprintable():
        return text
    return _UNSAFE_TO_SHOW.sub("", _TERMINAL_ESCAPE.sub("", without_surrogates(text).replace("\r\n", "\n")))


def plain_text(parts: Iterable[Part]) -> str:
    """Return what ``parts`` say to a reader of text, with a note in place of everything else."""
    return "\n".join(part.text if isinstance(part, Text) else note_of(part) for part in parts)


def note_of(part: Image | Document | Blob) -> str:
    """Return the text note that stands for a part which its reader cannot take."""
    match part:
        case Image():
            return f"[image, {part.media_type}]"
        case Document():
            return f"[document {part.name!r}, {part.media_type}]"
        case Blob():
            return f"[{part.of}, {part.size} bytes]"
