"""What an MCP server answers, as a tool of ours returns it."""

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any, assert_never

import mcp_types

from ..rap.results import Image

MAX_RESULT = 4 * 1024 * 1024
"""How much of one result is passed on, in characters and base64 of pictures; a callback takes 5.5 MB."""


class McpError(Exception):
    """The MCP server answered with an error, or not at all; the text is for the model."""


def value_of(result: mcp_types.CallToolResult) -> str | list[str | Image]:
    """Return a result as text, or as texts and pictures; what is over ``MAX_RESULT`` is left out, and said to be.

    Raises:
        McpError: the server says that it is an error.
    """
    parts = _within_limit([part for block in result.content for part in _parts(block)] + _structured(result))
    if result.is_error:
        texts = [part if isinstance(part, str) else f"[a picture, {part.media_type}]" for part in parts]
        raise McpError("\n".join(texts) or "the server says that the call failed, and not why")
    if all(isinstance(part, str) for part in parts):
        return "\n".join(str(part) for part in parts) or "Done."
    return parts


def _parts(block: mcp_types.ContentBlock) -> Iterator[str | Image]:
    match block:
        case mcp_types.TextContent(text=text):
            yield text
        case mcp_types.ImageContent(data=data, mime_type=media_type):
            yield _image(data, media_type, "a picture")
        case mcp_types.AudioContent(data=data, mime_type=media_type):
            yield f"[a sound, {media_type}, {len(data) * 3 // 4} bytes: models here do not hear]"
        case mcp_types.ResourceLink(uri=uri, name=name, description=description):
            yield f"[a resource, {name}: {uri}{f' - {description}' if description else ''}]"
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents(uri=uri, text=text)):
            yield f"[the resource {uri}]\n{text}"
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as blob):
            media_type = blob.mime_type or "of no stated type"
            if media_type.startswith("image/"):
                yield f"[the resource {blob.uri}]"
                yield _image(blob.blob, media_type, "the resource")
            else:
                yield f"[the resource {blob.uri}, {media_type}, {len(blob.blob) * 3 // 4} bytes]"
        case mcp_types.EmbeddedResource():
            yield "[a resource of an unknown kind]"
        case _:
            assert_never(block)


def _image(data: str, media_type: str, what: str) -> str | Image:
    try:
        return Image(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return f"[{what}, {media_type}, which is none that models read: PNG, JPEG, GIF or WebP]"


def _structured(result: mcp_types.CallToolResult) -> list[str | Image]:
    """Return what is told as data and not as text besides, which most servers do."""
    if result.structured_content is None:
        return []
    texts = [block.text for block in result.content if isinstance(block, mcp_types.TextContent)]
    if any(_says(text, result.structured_content) for text in texts):
        return []
    return [json.dumps(result.structured_content, ensure_ascii=False)]


def _says(text: str, data: Any) -> bool:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = text
    # A server that may only answer with an object wraps any other value in one of a single key.
    return bool(said == data or (isinstance(data, dict) and list(data.values()) == [said]))


def _within_limit(parts: list[str | Image]) -> list[str | Image]:
    kept: list[str | Image] = []
    room = MAX_RESULT
    for part in parts:
        size = len(part) if isinstance(part, str) else len(part.data) * 4 // 3
        if size <= room:
            kept.append(part)
        elif isinstance(part, str):
            kept.append(f"{part[:room]}… [{size} characters in all; the rest was too large, ask for less]")
        else:
            kept.append(f"[a picture, {part.media_type}, {len(part.data)} bytes: too large, ask for a smaller one]")
        room = max(room - size, 0)
    return kept
