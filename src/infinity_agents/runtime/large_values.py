"""Large values: they are kept in the blob store under their hash, and a reference stands in their place."""

import asyncio
import hashlib
import json
from dataclasses import replace
from typing import Any

from ..conversation.content import Blob, Document, Image, Part, Text, without_surrogates
from ..conversation.effects import PlannedEffect, SendInput
from ..conversation.history import Entry, EventEntry, ToolResultEntry, UserEntry
from ..conversation.messages import InputMessage, Parts, ToolResult
from ..conversation.slice import Slice
from ..ports.blobs import BlobStore
from ..wire.inputs import content_to_json


class LargeValues:
    """Collects the values over ``limit`` bytes in ``values``, by hash, and leaves references in their places."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.values: dict[str, bytes] = {}

    def out_of_slice(self, slice_: Slice) -> None:
        """Take the large values out of everything that ``slice_`` will write."""
        slice_.new_entries = [self._out_of_entry(entry) for entry in slice_.new_entries]
        slice_.deferred = [
            replace(delivery, message=self.out_of_message(delivery.message)) for delivery in slice_.deferred
        ]
        slice_.effects = [self._out_of_effect(planned) for planned in slice_.effects]

    def out_of_message(self, message: InputMessage) -> InputMessage:
        """Return ``message`` with references in place of its large parts."""
        content: Any = message.content
        match content:
            case Parts(parts=parts):
                content = replace(content, parts=self._out_of(parts))
            case ToolResult(content=parts):
                content = replace(content, content=self._out_of(parts))
            case Text() | Image() | Document():
                (content,) = self._out_of((content,))
            case _:
                pass
        return message if content is message.content else replace(message, content=content)

    async def keep(self, blobs: BlobStore) -> None:
        """Put every collected value into the blob store, all at once."""
        await asyncio.gather(*(blobs.put(key, value) for key, value in self.values.items()))

    def _out_of_effect(self, planned: PlannedEffect) -> PlannedEffect:
        if not isinstance(planned.effect, SendInput):
            return planned
        message = self.out_of_message(planned.effect.message)
        return planned if message is planned.effect.message else replace(planned, effect=SendInput(message))

    def _out_of_entry(self, entry: Entry) -> Entry:
        match entry:
            case UserEntry(content=parts):
                taken = self._out_of(parts)
                return entry if taken is parts else replace(entry, content=taken)
            case ToolResultEntry(result=result) | EventEntry(result=result):
                taken = self._out_of(result.content)
                return entry if taken is result.content else replace(entry, result=replace(result, content=taken))
            case _:
                return entry

    def _out_of(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        if all(self._is_small(part) for part in parts):
            return parts
        return tuple(part if self._is_small(part) else self._set_aside(part) for part in parts)

    def _is_small(self, part: Part) -> bool:
        if isinstance(part, Blob):
            return True
        text = part.text if isinstance(part, Text) else part.data
        # What is not ASCII may take six bytes a character as escaped JSON.
        return len(text) * (1 if text.isascii() else 6) <= self._limit

    def _set_aside(self, part: Part) -> Blob:
        if isinstance(part, Blob):
            return part
        if isinstance(part, Text):
            part = Text(without_surrogates(part.text))
        value = json.dumps(content_to_json(part), separators=(",", ":"), sort_keys=True).encode()
        key = hashlib.sha256(value).hexdigest()
        self.values[key] = value
        return Blob(sha256=key, size=len(value), of=part.type)
