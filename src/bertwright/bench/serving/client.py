"""A client that costs little: on a small machine it computes where the server would.

HTTP as far as our own server speaks it: lengths are stated, connections are kept.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Reply:
    """An answer; ``retry_seconds`` is 0 where it does not say when to come again."""

    status: int
    content: bytes
    retry_seconds: int

    def json(self) -> Any:
        """The content as data."""
        return json.loads(self.content)


class Connection:
    """One connection, over which requests go one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, address: str) -> Self:
        """Errors: OSError where nobody listens."""
        where = urlsplit(address)
        return cls(*await asyncio.open_connection(where.hostname, where.port))

    async def send(self, content: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(content)
        await self._writer.drain()

    async def ask(self, request: bytes) -> Reply:
        """The answer to a request that :func:`post` made.

        Errors: OSError or EOFError where the connection ends instead.
        """
        await self.send(request)
        return await self.reply()

    async def reply(self) -> Reply:
        """The next answer. Errors: as :meth:`ask`."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        content = await self._reader.readexactly(int(fields.get("content-length", 0)))
        return Reply(int(head[0].split()[1]), content, int(fields.get("retry-after", 0)))

    def close(self) -> None:
        """Cut the connection, whatever is on its way."""
        self._writer.transport.abort()


def post(path: str, body: Any) -> bytes:
    """A request with JSON in it, or with bytes that may be anything."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content
