"""Versions of Delta tables, read from their logs and kept for the next one who asks."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar
from weakref import WeakValueDictionary

from inver.domain.delta_actions import Metadata, TableHead, TableState
from inver.errors import Invalid, NotFound, Unsupported
from inver.formats.delta_log.actions import actions
from inver.formats.delta_log.base import Base
from inver.formats.delta_log.facts import CommitFacts, FactsKept, facts
from inver.formats.delta_log.listing import (
    LOG,
    Checkpoint,
    Listing,
    ListingsKept,
    LogFile,
    Segment,
)
from inver.formats.delta_log.making import BaseMaker
from inver.formats.delta_log.snapshot import Overlay, Snapshot, complete
from inver.formats.delta_log.source import Log, read_all, windows
from inver.formats.delta_log.threads import in_thread
from inver.formats.delta_log.timestamps import History

T = TypeVar("T")
_Key: TypeAlias = tuple[str, int, int | None]

_MAX_SNAPSHOTS = 16
_MAX_LISTED = 100_000
_MAX_OVERLAY = 20_000
_LARGE_COMMIT = 16 << 20
_MAX_BYTES = 16 << 30


@dataclass(slots=True)
class _Kept:
    """A snapshot, and the files that it was made of."""

    snapshot: Snapshot
    segment: Segment


class LogReader:
    """Asynchronous at its edge; whatever takes long runs in a thread."""

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = _MAX_BYTES,
        max_snapshots: int = _MAX_SNAPSHOTS,
        max_overlay: int = _MAX_OVERLAY,
        large_commit: int = _LARGE_COMMIT,
    ) -> None:
        """`folder` is for files that can be made again. `max_overlay` is how many files that commits
        added or removed are kept in memory for one snapshot, or a twentieth of its files if that is
        more. A first commit of more than `large_commit` bytes is never held in memory."""
        self._bases = BaseMaker(folder, max_bytes)
        self._max_snapshots = max_snapshots
        self._max_overlay = max_overlay
        self._large_commit = large_commit
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._facts = FactsKept()
        self._listings = ListingsKept(_MAX_LISTED)
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def listing(self, log: Log) -> Listing:
        """What lies in the log now. NotFound if there is nothing."""
        objects = [info async for info in log.store.list(LOG)]
        found = self._listings.sorted_out(log.table, objects, log.tail, log.latest)
        if found.latest < 0:
            raise NotFound("there is no Delta log at the table's location", kind="log")
        return found

    async def snapshot(
        self, log: Log, version: int | None = None, *, base: int | None = None, listed: Listing | None = None
    ) -> Snapshot:
        """A version of the table, the latest by default.

        `base` asks for the base version that an earlier snapshot of the same version had, so that
        its files come in the same order.
        """
        if version is None:
            version = log.latest
        if log.latest is not None and version is not None and listed is None:
            # Ratified versions never change, so nothing needs to be looked up.
            known = self._kept.get((log.table, version, base))
            if known is not None and version <= log.latest:
                self._kept.move_to_end((log.table, version, base))
                return known.snapshot
        listed = listed or await self.listing(log)
        key = (log.table, listed.latest if version is None else version, base)
        segments = self._sound(log, listed.segments(key[1], base))
        segment = next(segments)
        kept = self._found(key, segment)
        if kept is not None:
            return kept
        lock = self._making.setdefault(log.table, asyncio.Lock())
        async with lock:
            # Whoever waited may find it read.
            kept = self._found(key, segment)
            return kept or await self._read(log, key, segment, segments)

    async def facts(self, log: Log, files: Sequence[LogFile]) -> list[CommitFacts]:
        """What commits say besides their files; each is read once."""
        kept = [self._facts.get(log.table, file) for file in files]
        if None in kept:
            unknown = [file for file, found in zip(files, kept, strict=True) if found is None]
            for window in windows(unknown):
                contents = await read_all(log.store, window)
                scanned = await in_thread(_scan, window, contents)
                for file, found in zip(window, scanned, strict=True):
                    self._facts.put(log.table, file, found)
            kept = [self._facts.get(log.table, file) for file in files]
        known = [each for each in kept if each is not None]
        if len(known) < len(files):
            raise Unsupported(f"{len(files)} commits are too many to look through at once")
        return known

    async def head(self, log: Log, listed: Listing, version: int) -> TableHead:
        """Protocol and metadata of a version, found without reading which files it has."""
        segments = self._sound(log, listed.segments(version))
        segment, state = await self._readable(segments, partial(self._bases.state_of, log))
        protocol, metadata = (None, None) if state is None else (state.protocol, state.metadata)
        for found in await self.facts(log, segment.files):
            protocol, metadata = found.protocol or protocol, found.metadata or metadata
        return complete(protocol, metadata, version)

    async def history(self, log: Log, listed: Listing, metadata: Metadata | None = None) -> History:
        """When the versions of the log were committed; `metadata` is that of the latest, if it is known."""
        if metadata is None:
            metadata = (await self.head(log, listed, listed.latest)).metadata

        async def in_commit(version: int) -> int | None:
            return await self._facts.timestamp(log.store, log.table, listed.commits[version])

        return History(listed, metadata, in_commit)

    def _found(self, key: _Key, segment: Segment) -> Snapshot | None:
        kept = self._kept.get(key)
        if kept is None or not _same_files(kept.segment, segment):
            return None
        self._kept.move_to_end(key)
        return kept.snapshot

    async def _read(self, log: Log, key: _Key, segment: Segment, others: Iterator[Segment]) -> Snapshot:
        before = self._before(log.table, segment)
        if before is not None:
            base, overlay = before.snapshot.base, before.snapshot.overlay.copy()
            files = segment.files[len(before.segment.files) :]
        else:
            segment, base = await self._readable((segment, *others), partial(self._bases.of_checkpoint, log))
            files = segment.files
            if base is None and files[0].info.size > self._large_commit:
                base, files = await self._bases.of_first_commit(log, files[0]), files[1:]
            overlay = Overlay(TableState() if base is None else base.head.state)
        base, overlay = await self._replay(log, segment, files, base, overlay)
        snapshot = await in_thread(Snapshot, segment.version, base, overlay, segment.base_version)
        self._kept[key] = _Kept(snapshot, segment)
        while len(self._kept) > self._max_snapshots:
            self._kept.popitem(last=False)
        return snapshot

    def _sound(self, log: Log, segments: Iterator[Segment]) -> Iterator[Segment]:
        """Those whose checkpoint was not found to be broken before."""
        problem: Invalid | None = None
        found = False
        for segment in segments:
            known = self._bases.broken(log, segment.checkpoint)
            if known is None:
                found = True
                yield segment
            problem = problem or known
        if problem is not None and not found:
            raise problem

    async def _readable(
        self, segments: Iterable[Segment], read: Callable[[Checkpoint], Awaitable[T]]
    ) -> tuple[Segment, T | None]:
        """The first way to read a version whose checkpoint is sound, or what is wrong with the best."""
        problem: Invalid | None = None
        for segment in segments:
            if segment.checkpoint is None:
                return segment, None
            try:
                return segment, await read(segment.checkpoint)
            except Invalid as error:
                problem = problem or error
        assert problem is not None
        raise problem

    def _before(self, table: str, segment: Segment) -> _Kept | None:
        """The newest snapshot that is a beginning of this one."""
        best: _Kept | None = None
        for (owner, _, _), kept in self._kept.items():
            other = kept.segment
            if (
                owner == table
                and other.checkpoint == segment.checkpoint
                and len(other.files) <= len(segment.files)
                and (best is None or other.version > best.segment.version)
                and all(map(_same_file, other.files, segment.files))
            ):
                best = kept
        return best

    async def _replay(
        self, log: Log, segment: Segment, files: Sequence[LogFile], base: Base | None, overlay: Overlay
    ) -> tuple[Base | None, Overlay]:
        for window in windows(files):
            contents = await read_all(log.store, window)
            await in_thread(_apply, overlay, window, contents)
            limit = max(self._max_overlay, 0 if base is None else base.head.files // 20)
            if max(len(overlay.added), len(overlay.gone)) > limit:
                done = segment.files[: segment.files.index(window[-1]) + 1]
                base = await in_thread(self._bases.of_overlay, log, segment, done, base, overlay)
                overlay = Overlay(base.head.state)
        return base, overlay


def _scan(files: Sequence[LogFile], contents: Sequence[bytes]) -> list[CommitFacts]:
    return [facts(data, file.info.path) for file, data in zip(files, contents, strict=True)]


def _apply(overlay: Overlay, files: Sequence[LogFile], contents: Sequence[bytes]) -> None:
    for file, data in zip(files, contents, strict=True):
        overlay.apply(actions(data, file.info.path))


def _same_files(one: Segment, other: Segment) -> bool:
    return (
        one.checkpoint == other.checkpoint
        and len(one.files) == len(other.files)
        and all(map(_same_file, one.files, other.files))
    )


def _same_file(one: LogFile, other: LogFile) -> bool:
    """Publishing copies a staged commit as it is; under one name it must not have been replaced."""
    return (one.first, one.last, one.info.size) == (other.first, other.last, other.info.size) and (
        one.info.path != other.info.path or one.info == other.info
    )
