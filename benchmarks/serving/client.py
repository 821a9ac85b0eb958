"""A cheap HTTP client: on a small machine it shares the cores with the server.

It supports what the server uses: content lengths and persistent connections.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(frozen=True)
class HttpReply:
    """A reply; ``retry_seconds`` is 0 without a Retry-After header."""

    status: int
    content: bytes
    retry_seconds: int

    def json(self) -> Any:
        """Return the parsed content."""
        return json.loads(self.content)


class HttpConnection:
    """A connection that sends one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, address: str) -> Self:
        """Connect to a server. Errors: OSError if it does not listen."""
        url = urlsplit(address)
        return cls(*await asyncio.open_connection(url.hostname, url.port))

    async def send(self, content: bytes) -> None:
        """Send raw bytes."""
        self._writer.write(content)
        await self._writer.drain()

    async def request(self, request: bytes) -> HttpReply:
        """Return the reply to a request of :func:`build_post`.

        Errors: OSError or EOFError if the connection ends.
        """
        await self.send(request)
        return await self.read_reply()

    async def read_reply(self) -> HttpReply:
        """Return the next reply. Errors: as :meth:`request`."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        content = await self._reader.readexactly(int(fields.get("content-length", 0)))
        return HttpReply(int(head[0].split()[1]), content, int(fields.get("retry-after", 0)))

    def close(self) -> None:
        """Abort the connection."""
        self._writer.transport.abort()


def build_post(path: str, body: Any) -> bytes:
    """Return a POST request with a JSON body, or with raw bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content
