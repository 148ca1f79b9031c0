"""What the model reads: history with its large values fetched, pictures described, and nothing too long."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..conversation.content import Blob, Image, Part, Text, note_of
from ..conversation.history import Entry, EventEntry, ToolResultEntry, UserEntry, parts_of, readable
from ..conversation.messages import Parts
from ..wire.inputs import content_from_json
from .services import Run

_CHARACTERS_PER_TOKEN = 3


async def reading(run: Run, entries: Sequence[Entry], special: Iterable[int], *, model: str) -> tuple[Entry, ...]:
    """Return ``entries`` as ``model`` reads them. Only those at the indexes ``special`` can need anything."""
    longest = run.services.model.context_window(model) * _CHARACTERS_PER_TOKEN // 2
    sees = run.services.model.reads_images(model)
    read = list(entries)
    places = list(special)
    if places:
        fetched = await _fetch(run, [read[place] for place in places], sees)
        for place in places:
            read[place] = _read(read[place], fetched, longest, sees)
    return tuple(read)


async def _fetch(run: Run, entries: Sequence[Entry], sees: bool) -> dict[str, tuple[Part, ...]]:
    """Return what the blobs of ``entries`` stand for, all fetched at once; a lost one is left to its note."""
    wanted = {
        part.sha256
        for entry in entries
        for part in parts_of(entry)
        if isinstance(part, Blob) and (sees or part.of != "image")
    }

    async def one(key: str) -> tuple[str, tuple[Part, ...]]:
        held = run.large.get(key)
        if held is not None:
            return key, held
        run.trip("blobs")
        try:
            kept = await run.services.blobs.get(key)
        except KeyError:
            return key, (Text("[a large value that is no longer kept]"),)
        value = content_from_json(json.loads(kept))
        parts = value.parts if isinstance(value, Parts) else (value,)
        run.large.put(key, len(kept), parts)
        return key, parts

    return dict(await asyncio.gather(*(one(key) for key in sorted(wanted))))


def _read(entry: Entry, fetched: dict[str, tuple[Part, ...]], longest: int, sees: bool) -> Entry:
    parts = [
        _shortened(whole, longest, sees)
        for part in parts_of(entry)
        for whole in (fetched.get(part.sha256, (part,)) if isinstance(part, Blob) else (part,))
    ]
    match entry:
        case UserEntry():
            return readable(replace(entry, content=tuple(parts)))
        case ToolResultEntry(result=result) | EventEntry(result=result):
            return readable(replace(entry, result=replace(result, content=tuple(parts))))
        case _:
            return entry


def _shortened(part: Part, longest: int, sees: bool) -> Part:
    match part:
        case Text(text=text) if len(text) > longest:
            half = longest // 2
            return Text(f"{text[:half]}\n[{len(text) - 2 * half} characters are left out here]\n{text[-half:]}")
        case Blob():
            return Text(note_of(part))
        case Image() if not sees:
            return Text(note_of(part))
        case _:
            return part
