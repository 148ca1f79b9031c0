"""Large values: they are kept in the blob store under their hash, and a reference stands in their place."""

import asyncio
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..conversation.content import Blob, Document, Image, Part, Text, without_surrogates
from ..conversation.messages import InputMessage, Parts, ToolResult
from ..ports.blobs import BlobStore
from ..ports.queues import MAX_BODY
from .inputs import content_to_json, encode
from .keys import Keyring


async def sendable(message: InputMessage, *, keyring: Keyring | None, blobs: BlobStore, inline_bytes: int) -> str:
    """Return ``message`` as JSON that an input queue takes; with a ``keyring``, it carries our proof.

    Parts over ``inline_bytes`` are put into the blob store, smaller ones too where the whole would not fit, and what
    people would see in place of a result is left out before the result itself is lost.

    Raises:
        StoreUnavailable: the blob store could not be reached.
    """
    large, body = LargeValues(inline_bytes), ""
    for smaller, limit in _ever_smaller(message, inline_bytes):
        large = LargeValues(limit)
        body = encode(large.out_of_message(smaller), keyring)
        if len(body) <= MAX_BODY:
            break
    await large.keep(blobs)
    return body


def _ever_smaller(message: InputMessage, inline_bytes: int) -> Iterator[tuple[InputMessage, int]]:
    # A part just under the limit may take six times its length as escaped JSON, and there may be many parts.
    yield message, inline_bytes
    yield message, inline_bytes // 64
    yield replace(message, display_as=None), inline_bytes // 64
    yield replace(message, display_as=None), 0


class LargeValues:
    """Collects the values over ``limit`` bytes in ``values``, by hash, and leaves references in their places.

    Where many values together are too much for one row, smaller ones are set aside as well.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.values: dict[str, bytes] = {}

    def out_of_message(self, message: InputMessage) -> InputMessage:
        """Return ``message`` with references in place of its large parts."""
        content: Any = message.content
        match content:
            case Parts(parts=parts):
                content = replace(content, parts=self.out_of(parts))
            case ToolResult(content=parts):
                content = replace(content, content=self.out_of(parts))
            case Text() | Image() | Document():
                (content,) = self.out_of((content,))
            case _:
                pass
        return message if content is message.content else replace(message, content=content)

    async def keep(self, blobs: BlobStore) -> None:
        """Put every collected value into the blob store, all at once."""
        await asyncio.gather(*(blobs.put(key, value) for key, value in self.values.items()))

    def out_of(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Return ``parts`` with references in place of the large ones."""
        # Many parts that are small each may still be too much for one row together.
        limit = self._limit if sum(map(_weight, parts)) <= 2 * self._limit else self._limit // len(parts)
        if all(isinstance(part, Blob) or _weight(part) <= limit for part in parts):
            return parts
        return tuple(
            part if isinstance(part, Blob) or _weight(part) <= limit else self._set_aside(part) for part in parts
        )

    def _set_aside(self, part: Part) -> Blob:
        if isinstance(part, Blob):
            return part
        if isinstance(part, Text):
            part = Text(without_surrogates(part.text))
        value = json.dumps(content_to_json(part), separators=(",", ":"), sort_keys=True).encode()
        key = hashlib.sha256(value).hexdigest()
        self.values[key] = value
        return Blob(sha256=key, size=len(value), of=part.type)


def _weight(part: Part) -> int:
    """Return about how many bytes ``part`` takes in a row."""
    if isinstance(part, Blob):
        return 0
    if not isinstance(part, Text):
        return len(part.data)
    # As it is in most texts, a character is a byte. Escaped, a control character is six, and any other up to four.
    return len(part.text) if part.text.isascii() and part.text.isprintable() else len(json.dumps(part.text))
