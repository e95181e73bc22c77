"""Versions of tables that have no Delta log, made of what somebody tells of their files."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from inver.domain.delta_actions import Add, TableHead, TableState, file_key
from inver.formats.delta_log.base import Base, BaseFolder
from inver.formats.delta_log.columns import Partitions, from_adds
from inver.formats.delta_log.snapshot import Overlay, Snapshot
from inver.formats.delta_log.threads import in_thread

if TYPE_CHECKING:
    import pyarrow as pa

Adds: TypeAlias = Callable[[], AsyncGenerator[list[Add], None]]

_MAX_BYTES = 16 << 30
_MAX_SNAPSHOTS = 16
_MAX_AT_ONCE = 2
_MAX_HELD = 20_000
"""With more files than that, a version is kept in a file that is mapped into memory."""


class Gathered:
    """The last ones are kept, and each is gathered once however many ask for it at the same time."""

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = _MAX_BYTES,
        max_snapshots: int = _MAX_SNAPSHOTS,
        max_held: int = _MAX_HELD,
    ) -> None:
        self._bases = BaseFolder(folder, max_bytes)
        self._max_snapshots = max_snapshots
        self._max_held = max_held
        # A thread of each waits for what the event loop reads.
        self._turn = asyncio.Semaphore(_MAX_AT_ONCE)
        self._kept: OrderedDict[tuple[str, int], Snapshot] = OrderedDict()
        self._making: dict[tuple[str, int], asyncio.Future[Snapshot]] = {}

    async def snapshot(self, name: str, version: int, head: TableHead, adds: Adds) -> Snapshot:
        """`name` is a digest of all that the files follow from, which come in the same order each time."""
        key = name, version
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            return known
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = asyncio.ensure_future(self._made(key, head, adds))
            making.add_done_callback(lambda done: self._end(key, done))
        # Others may wait for it too, so that it goes on when one of them has gone.
        return await asyncio.shield(making)

    def _end(self, key: tuple[str, int], done: asyncio.Future[Snapshot]) -> None:
        del self._making[key]
        if not done.cancelled() and done.exception() is None:
            self._kept[key] = done.result()
            while len(self._kept) > self._max_snapshots:
                self._kept.popitem(last=False)

    async def _made(self, key: tuple[str, int], head: TableHead, adds: Adds) -> Snapshot:
        name, version = key
        overlay = Overlay(TableState(protocol=head.protocol, metadata=head.metadata))
        base = await in_thread(self._bases.open, name)
        if base is None:
            async with aclosing(adds()) as source:
                async for some in source:
                    overlay.added |= {file_key(add): add for add in some}
                    if len(overlay.added) > self._max_held:
                        base = await self._written(name, version, overlay, source)
                        overlay = Overlay(overlay.state)
        return await in_thread(Snapshot, version, base, overlay)

    async def _written(
        self, name: str, version: int, overlay: Overlay, source: AsyncIterator[list[Add]]
    ) -> Base:
        """A base of what was gathered, and of all that is still to come."""
        loop = asyncio.get_running_loop()

        async def following() -> list[Add] | None:
            return await anext(source, None)

        def all_of_them() -> Iterator[Sequence[Add]]:
            yield list(overlay.added.values())
            while (some := asyncio.run_coroutine_threadsafe(following(), loop).result()) is not None:
                yield some

        def batches(partitions: Partitions) -> Iterator[pa.RecordBatch]:
            return (from_adds(some, partitions) for some in all_of_them() if some)

        async with self._turn:
            return await in_thread(self._bases.make, name, version, overlay.state, batches)
