"""A response body that comes in pieces, no faster than its client takes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import monotonic

from inver.protocols.http import Pieces, Request
from inver.server.application import log_failure
from inver.server.wire import LAST_CHUNK, chunk

_TOGETHER = 256 * 1024
"""Of what is there already, so much is given to the transport before others have their turn."""


class Valve:
    """Whether a transport takes more bytes, and when it last took some."""

    __slots__ = ("_opened", "moved", "open")

    def __init__(self) -> None:
        self.open = True
        self.moved = monotonic()
        self._opened: asyncio.Future[None] | None = None

    def shut(self) -> None:
        self.open = False

    def release(self) -> None:
        self.open = True
        self.moved = monotonic()
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    async def wait(self) -> None:
        self._opened = asyncio.get_running_loop().create_future()
        await self._opened


async def pour(
    first: bytes | None,
    pieces: AsyncIterator[bytes],
    transport: asyncio.Transport,
    valve: Valve,
    chunked: bool,
) -> None:
    piece = first
    while piece is not None:
        if piece:  # an empty chunk would be the last one
            transport.write(chunk(piece) if chunked else piece)
        if not chunked and isinstance(pieces, Pieces) and (more := pieces.take(_TOGETHER)):
            transport.writelines(more)
        valve.moved = monotonic()
        if valve.open:
            # An iterator that never has to wait must not keep the loop from everybody else.
            await asyncio.sleep(0)
        else:
            await valve.wait()
        piece = await anext(pieces, None)
    if chunked:
        transport.write(LAST_CHUNK)


async def dispose(pieces: AsyncIterator[bytes], request: Request) -> None:
    """Let an iterator release what it holds, also when it was never begun."""
    close = getattr(pieces, "aclose", None)
    if close is not None:
        try:
            await close()
        except Exception as error:  # the answer is out; only the operator can still be told
            log_failure(error, request, "the end of a streamed answer")
