"""Bases, made of checkpoints, of large commits and of older bases, each once."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from inver.domain.delta_actions import TableState
from inver.errors import Invalid
from inver.formats.delta_log.base import Base, BaseFolder
from inver.formats.delta_log.checkpoints import CommitFile
from inver.formats.delta_log.columns import Partitions
from inver.formats.delta_log.listing import Checkpoint, LogFile, Segment, identity
from inver.formats.delta_log.snapshot import Overlay, Snapshot
from inver.formats.delta_log.source import Log, checkpoint_files, sidecar_files, spool
from inver.formats.delta_log.threads import in_thread
from inver.ports import ObjectInfo

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_FORMAT = 1
"""Of the files in the folder; another number makes them all anew."""
_MAX_REMEMBERED = 256
_MAX_AT_ONCE = 2


class BaseMaker:
    """What is found to be broken is remembered, and not read again."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._bases = BaseFolder(folder, max_bytes)
        # Each takes much memory while it is made.
        self._turn = asyncio.Semaphore(_MAX_AT_ONCE)
        self._states: OrderedDict[str, TableState] = OrderedDict()
        self._broken: OrderedDict[str, Invalid] = OrderedDict()

    def broken(self, log: Log, checkpoint: Checkpoint | None) -> Invalid | None:
        return None if checkpoint is None else self._broken.get(_name(log, checkpoint.files))

    async def of_checkpoint(self, log: Log, checkpoint: Checkpoint) -> Base:
        name = _name(log, checkpoint.files)
        found = await in_thread(self._bases.open, name)
        if found is not None:
            return found
        async with self._turn:
            try:
                return await self._made_of(log, checkpoint, name)
            except Invalid as error:
                _remember(self._broken, name, error)
                raise

    async def state_of(self, log: Log, checkpoint: Checkpoint) -> TableState:
        """What a checkpoint says besides its files, which are not read."""
        name = _name(log, checkpoint.files)
        if name in self._states:
            return self._states[name]
        base = await in_thread(self._bases.open, name)
        if base is not None:
            state = base.head.state
        else:
            try:
                with self._bases.scratch() as scratch:
                    state = (await checkpoint_files(log, checkpoint, Path(scratch))).state
            except Invalid as error:
                _remember(self._broken, name, error)
                raise
        _remember(self._states, name, state)
        return state

    async def of_first_commit(self, log: Log, file: LogFile) -> Base:
        """A base of a first commit that has too many files to hold them all at once."""
        name = _name(log, [file.info])
        found = await in_thread(self._bases.open, name)
        if found is not None:
            return found
        async with self._turn:
            with self._bases.scratch() as scratch:
                path = await spool(log.store, file.info, Path(scratch) / "commit.json")
                commit = CommitFile(path, file.info.path)
                state = await in_thread(commit.state)
                return await in_thread(self._bases.make, name, file.last, state, commit.batches)

    def of_overlay(
        self, log: Log, segment: Segment, files: Sequence[LogFile], base: Base | None, overlay: Overlay
    ) -> Base:
        """A base of an older one and of an overlay that has become too large to keep in memory.

        `files` are those of the segment that have gone into the two.
        """
        checkpoint = () if segment.checkpoint is None else segment.checkpoint.files
        name = _name(log, [*checkpoint, *(file.info for file in files)])
        found = self._bases.open(name)
        if found is not None:
            return found
        snapshot = Snapshot(files[-1].last, base, overlay, segment.base_version)

        def batches(_: Partitions) -> Iterator[pa.RecordBatch]:
            return (batch.rows for batch in snapshot.batches())

        partitions = Partitions(snapshot.partitions)
        return self._bases.make(name, snapshot.version, overlay.state, batches, partitions)

    async def _made_of(self, log: Log, checkpoint: Checkpoint, name: str) -> Base:
        with self._bases.scratch() as scratch:
            folder = Path(scratch)
            files = await checkpoint_files(log, checkpoint, folder)
            sidecars = await sidecar_files(log, checkpoint, files, folder)

            def batches(partitions: Partitions) -> Iterator[pa.RecordBatch]:
                return files.batches(sidecars, partitions)

            return await in_thread(self._bases.make, name, checkpoint.version, files.state, batches)


def _remember(kept: OrderedDict[str, T], name: str, value: T) -> None:
    kept[name] = value
    while len(kept) > _MAX_REMEMBERED:
        kept.popitem(last=False)


def _name(log: Log, infos: Sequence[ObjectInfo]) -> str:
    return hashlib.sha256(msgspec.json.encode([_FORMAT, log.table, identity(infos)])).hexdigest()
