"""Reads of small files, handed to a thread many at a time.

To hand one read to a thread and to be woken by it costs more than the read. So what is asked for
while a batch is being read waits for it to end, and is then read as one batch. A batch that takes
long (a large file, a slow disk) does not hold up the others: the next one starts beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeAlias
from weakref import WeakKeyDictionary

_MAX_BATCH = 64
_MAX_BESIDE = 4
_PATIENCE_S = 0.005

Read: TypeAlias = Callable[[], bytes]
_Waiting: TypeAlias = tuple[Read, asyncio.Future[bytes]]


def read(work: Read) -> asyncio.Future[bytes]:
    """Do a blocking read in a thread, together with the others of this event loop."""
    loop = asyncio.get_running_loop()
    reader = _readers.get(loop)
    if reader is None:
        reader = _readers[loop] = BatchReader()
    return reader.read(work, loop)


class BatchReader:
    """The reads of one event loop, and used only in its thread. It does not keep the loop alive."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._running = 0
        self._due = False

    def read(self, work: Read, loop: asyncio.AbstractEventLoop) -> asyncio.Future[bytes]:
        future: asyncio.Future[bytes] = loop.create_future()
        self._waiting.append((work, future))
        if not self._due:
            self._due = True
            if self._running == 0:
                # Not at once, so that what the same turn of the loop asks for comes along.
                loop.call_soon(self._start, loop)
            else:
                loop.call_later(_PATIENCE_S, self._start, loop)
        return future

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = False
        if not self._waiting or self._running == _MAX_BESIDE:
            return
        batch, self._waiting = self._waiting[:_MAX_BATCH], self._waiting[_MAX_BATCH:]
        self._running += 1
        _threads().submit(self._do, batch, loop)

    def _do(self, batch: Sequence[_Waiting], loop: asyncio.AbstractEventLoop) -> None:
        """In a thread."""
        outcomes: list[bytes | Exception] = []
        for work, future in batch:
            try:
                outcomes.append(b"" if future.cancelled() else work())
            except Exception as error:
                outcomes.append(error)
        loop.call_soon_threadsafe(self._end, batch, outcomes, loop)

    def _end(
        self,
        batch: Sequence[_Waiting],
        outcomes: Sequence[bytes | Exception],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._running -= 1
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if future.done():
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        self._start(loop)


_readers: WeakKeyDictionary[asyncio.AbstractEventLoop, BatchReader] = WeakKeyDictionary()


@cache
def _threads() -> ThreadPoolExecutor:
    """Their own, so that reads never wait for writes, each of which waits for a disk."""
    return ThreadPoolExecutor(_MAX_BESIDE, thread_name_prefix="inver-read")
