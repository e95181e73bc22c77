"""Requests over asyncio streams: connections are kept and reused, one request at a time on each."""

from __future__ import annotations

import asyncio
import http.client
import io
from collections import deque
from time import monotonic
from typing import TypeAlias

from inver.client.core import NoAnswer, Request, Response
from inver.client.transport import IDLE_S, Address

Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_LARGEST_HEAD = 256 * 2**10
_BROKEN = (OSError, EOFError, ValueError, asyncio.LimitOverrunError, http.client.HTTPException)


class Streams:
    """Belongs to the event loop that first uses it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: deque[tuple[Connection, float]] = deque()

    async def send(self, request: Request) -> Response:
        connection = await self._take(request.timeout)
        reader, writer = connection
        keep = False
        try:
            async with asyncio.timeout(request.timeout):
                writer.write(self._encode(request))
                await writer.drain()
                response, keep = await _read(reader, request.method)
        except _BROKEN as error:
            reason = (
                "it took too long" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
            )
            raise NoAnswer(reason, sent=True) from error
        finally:
            if keep:
                self._idle.append((connection, monotonic()))
            else:
                writer.close()
        return response

    async def close(self) -> None:
        while self._idle:
            (_, writer), _ = self._idle.pop()
            await _end(writer)

    async def _take(self, timeout: float) -> Connection:
        while self._idle:
            (reader, writer), since = self._idle.pop()
            if monotonic() - since < IDLE_S and not reader.at_eof() and not writer.is_closing():
                return reader, writer
            await _end(writer)
        address = self._address
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.open_connection(
                    address.host, address.port, ssl=address.context, limit=_LARGEST_HEAD
                )
        except OSError as error:
            raise NoAnswer(error.strerror or str(error) or type(error).__name__, sent=False) from error

    def _encode(self, request: Request) -> bytes:
        body = request.body or b""
        lines = [f"{request.method} {self._address.prefix}{request.target} HTTP/1.1"]
        lines.append(f"Host: {self._address.authority}")
        lines.extend(f"{name}: {value}" for name, value in request.headers.items())
        if request.body is not None or request.method not in ("GET", "HEAD", "DELETE"):
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("ascii") + body


async def _read(reader: asyncio.StreamReader, method: str) -> tuple[Response, bool]:
    """A response, and whether the connection may be used again."""
    status = 100
    while 100 <= status < 200:
        head = await reader.readuntil(b"\r\n\r\n")
        line, _, fields = head.partition(b"\r\n")
        protocol, _, rest = line.decode("latin-1").partition(" ")
        status = int(rest[:3])
        message = http.client.parse_headers(io.BytesIO(fields))
    headers = {name.lower(): value for name, value in message.items()}
    keep = protocol == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    body = b""
    if method == "HEAD" or status in (204, 304):
        pass
    elif headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _chunks(reader)
    elif "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    else:
        body, keep = await reader.read(), False
    return Response(status, headers, body), keep


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    pieces: list[bytes] = []
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # trailers
    return b"".join(pieces)


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        await writer.wait_closed()
    except OSError:
        return  # the other side ended it first
