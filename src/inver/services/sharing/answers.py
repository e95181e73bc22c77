"""Answers in lines: what is the same for snapshots and for changes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from inver.clock import Clock
from inver.domain.sharing import Capabilities, ResponseFormat
from inver.errors import InverError
from inver.services.sharing.files import Files
from inver.services.sharing.logs import Lines, Logs
from inver.services.sharing.tables import Looked


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """How the answer is to look, and under which address the server was reached."""

    asked: Capabilities
    base_url: str
    id_hash: ResponseFormat | None = None
    streaming: bool = False
    """For a stream of Spark, which forgets the metadata of versions that it has gone past."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """An answer in lines. `form` is None where nothing is told yet but that the query goes on."""

    version: int
    form: ResponseFormat | None
    lines: AsyncIterator[bytes]
    ends: bool = False
    """Whether the last line is an `endStreamAction`."""


class Answers:
    def __init__(self, clock: Clock, logs: Logs, files: Files) -> None:
        self._clock = clock
        self._logs = logs
        self._files = files

    async def lines(self, looked: Looked, wanted: Wanted, form: ResponseFormat, *, vectors: bool) -> Lines:
        sign, expires = await self._files.signer(looked, wanted.base_url)
        return self._logs.lines(
            form,
            wanted.asked,
            sign,
            expires=expires,
            vectors=vectors,
            history=looked.shared.history,
            id_hash=wanted.id_hash,
        )

    def expires(self) -> int:
        """When the URLs of an answer that is made now end."""
        return (self._clock.now_ms() // 1000 + self._files.lifetime_s) * 1000


async def whole(pieces: AsyncIterator[bytes], lines: Lines, wanted: Wanted) -> AsyncIterator[bytes]:
    """What goes wrong after the first piece can only be told in a last line, to who reads it.

    For everybody else the answer breaks off, which they take for a failure.
    """
    begun = False
    try:
        async for piece in pieces:
            yield piece
            begun = True
    except InverError as error:
        if not begun or not wanted.asked.end_stream_action:
            raise
        yield lines.end(errorMessage=error.message, httpStatusErrorCode=500)


async def one(data: bytes) -> AsyncIterator[bytes]:
    yield data
