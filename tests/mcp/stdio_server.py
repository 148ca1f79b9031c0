"""An MCP server over stdio for the tests: pictures, errors, resources, deaths."""

import asyncio
import base64
import os
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp_types import (
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
server = MCPServer("test-server")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(name="pick.ture")
def picture() -> list[ImageContent | TextContent]:
    """Show a picture."""
    return [
        TextContent(text="here it is"),
        ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png"),
        ImageContent(data=base64.b64encode(b"<svg/>").decode(), mime_type="image/svg+xml"),
    ]


@server.tool()
def resources() -> list[EmbeddedResource]:
    """Give two resources."""
    return [
        EmbeddedResource(resource=TextResourceContents(uri="file:///a.txt", text="the text of a")),
        EmbeddedResource(resource=BlobResourceContents(uri="file:///b.bin", blob="AAAA", mime_type="application/x-b")),
    ]


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no such luck")


@server.tool()
def huge(characters: int) -> str:
    """Say much."""
    return "x" * characters


@server.tool()
def pid() -> str:
    """Tell the process."""
    return str(os.getpid())


@server.tool()
def die(marks: str) -> str:
    """Leave a mark, and die in the middle of the call."""
    with Path(marks).open("a") as file:
        file.write("called\n")
    os._exit(3)


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def die_once(marks: str) -> str:
    """Die at the first call; it does no harm to call again."""
    path = Path(marks)
    path.write_text(path.read_text() + "called\n" if path.exists() else "called\n")
    if path.read_text().count("called") == 1:
        os._exit(3)
    return "alive"


@server.tool()
async def wait() -> str:
    """Wait for long."""
    await asyncio.sleep(3600)
    return "done"


if __name__ == "__main__":
    if "--fail" in sys.argv:
        sys.exit("this server does not start")
    server.run("stdio")
