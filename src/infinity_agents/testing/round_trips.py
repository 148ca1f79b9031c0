"""A proxy in front of a server that counts round trips at the socket, and can lose an answer on its way."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class CountingProxy:
    """Listens on a port of 127.0.0.1 and passes everything on to the Unix socket ``target``, and back.

    A round trip is what the client sends before it hears something, and what it hears before it sends again.
    """

    target: Path
    port: int = 0
    trips: int = 0
    sent: int = 0
    """The bytes that clients sent."""
    loses_next_answer: bool = False
    """Whether the connection is cut when the next thing sent has been answered, before the answer gets through."""
    drops_next_request: bool = False
    """Whether the connection is cut when the next thing is sent, before it gets through."""
    _server: asyncio.Server | None = None
    _connections: "set[asyncio.Task[None]]" = field(default_factory=set)

    async def open(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening, and cut every connection."""
        if self._server is not None:
            self._server.close()
        await self.cut()

    async def cut(self) -> None:
        """Cut every connection; new ones are welcome."""
        connections = tuple(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.ensure_future(self._pass(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(str(self.target))
        heard = True

        async def pass_on() -> None:
            nonlocal heard
            while data := await reader.read(1 << 16):
                if self.drops_next_request:
                    self.drops_next_request = False
                    break
                self.trips += heard
                self.sent += len(data)
                heard = False
                far_writer.write(data)
                await far_writer.drain()

        async def pass_back() -> None:
            nonlocal heard
            while data := await far_reader.read(1 << 16):
                if self.loses_next_answer:
                    # Everything is answered once nothing more comes: the answer ends what was sent together.
                    while not _is_whole(data):
                        data += await far_reader.read(1 << 16)
                    self.loses_next_answer = False
                    break
                heard = True
                writer.write(data)
                await writer.drain()

        passing = [asyncio.ensure_future(pass_on()), asyncio.ensure_future(pass_back())]
        try:
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in passing:
                task.cancel()
            writer.close()
            far_writer.close()


def _is_whole(answer: bytes) -> bool:
    """Tell whether ``answer`` ends with PostgreSQL's ReadyForQuery."""
    return answer[-6:-1] == b"Z\x00\x00\x00\x05"
