"""Delta tables as Delta Sharing tells of them: versions, and the lines of their files and changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from inver.domain.delta_actions import CommitChanges, DataFile, TableHead
from inver.domain.predicates import Filter
from inver.domain.sharing import Capabilities, Moment, ResponseFormat
from inver.errors import Unsupported
from inver.formats.delta_log.changes import ChangePlan, changes, plan_changes
from inver.formats.delta_log.gathered import Adds, Gathered
from inver.formats.delta_log.listing import Listing
from inver.formats.delta_log.reader import LogReader
from inver.formats.delta_log.snapshot import FileBatch, KeepFile, KeepPartition, Snapshot
from inver.formats.delta_log.source import Log
from inver.formats.delta_log.threads import pulled
from inver.formats.sharing_lines import FileLines, HeadLines, Sign, end_line, limited
from inver.ports import ObjectInfo, ObjectStore

Place: TypeAlias = tuple[int, int]
"""A commit of a range, and a file of that commit."""

_CHUNK_FILES = 2_000
"""Changes are gathered until they are about so many files, since most commits have few."""
_FIRST_FILES = 500
_AT_ONCE = 50
"""So few files cost less than handing them to a thread."""


class SharedLogs:
    """Reads logs; `folder` is for files that can be made again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def _reader(self) -> LogReader:
        return LogReader(self._ready())

    @cached_property
    def _gathered(self) -> Gathered:
        return Gathered(self._ready())

    def _ready(self) -> Path:
        if find_spec("pyarrow") is None:
            raise Unsupported(
                "this server cannot read Delta logs", fix="install inver[sharing] where it runs"
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def open(
        self,
        store: ObjectStore,
        table: str,
        latest: int | None = None,
        tail: Mapping[int, ObjectInfo] | None = None,
    ) -> SharedLog:
        return SharedLog(self._reader, Log(store, table, latest, tail or {}))

    async def gathered(self, name: str, version: int, head: TableHead, adds: Adds) -> Snapshot:
        return await self._gathered.snapshot(name, version, head, adds)

    async def totals(self, snapshot: Snapshot, admitted: Filter | None) -> tuple[int, int]:
        return await _totals(snapshot, admitted)

    def changed(
        self,
        commits: Callable[[int], AsyncIterator[CommitChanges]],
        start: int,
        lines: SharedLines,
        admitted: Filter | None,
        **how: Any,
    ) -> AsyncIterator[tuple[bytes, Place | None]]:
        return _changed(commits, start, lines, admitted, **how)

    def lines(
        self,
        form: ResponseFormat,
        asked: Capabilities,
        sign: Sign,
        *,
        expires: int | None,
        vectors: bool,
        history: bool,
        id_hash: ResponseFormat | None = None,
    ) -> SharedLines:
        head = HeadLines(form, asked, vectors=vectors, history=history)
        return SharedLines(head, FileLines(form, sign, expires, id_hash))


class SharedLog:
    """One table, looked at once: what is listed stays the same for the whole request."""

    def __init__(self, reader: LogReader, log: Log) -> None:
        self._reader = reader
        self._log = log
        self._listed: Listing | None = None

    async def latest(self) -> int:
        return self._log.latest if self._log.latest is not None else (await self._listing()).latest

    async def earliest_commit(self) -> int:
        """The oldest version for which changes can be told."""
        listed = await self._listing()
        first = listed.earliest_commit
        return listed.latest + 1 if first is None else first

    async def head(self, version: int) -> TableHead:
        return await self._reader.head(self._log, await self._listing(), version)

    async def first_at_or_after(self, timestamp: int) -> int | None:
        history = await self._reader.history(self._log, await self._listing())
        return await history.first_at_or_after(timestamp)

    async def last_at_or_before(self, timestamp: int) -> int | None:
        history = await self._reader.history(self._log, await self._listing())
        return await history.last_at_or_before(timestamp)

    async def moment(self, version: int | None) -> Moment:
        """Of a version, or of the first that has a time."""
        history = await self._reader.history(self._log, await self._listing())
        return await history.moment(history.earliest if version is None else version)

    async def snapshot(self, version: int | None = None, base: int | None = None) -> Snapshot:
        if self._log.latest is not None and self._listed is None:
            return await self._reader.snapshot(self._log, version, base=base)
        return await self._reader.snapshot(self._log, version, base=base, listed=await self._listing())

    async def totals(self, snapshot: Snapshot, admitted: Filter | None) -> tuple[int, int]:
        return await _totals(snapshot, admitted)

    async def changes(self, start: int, end: int, *, noted: str = "") -> ChangePlan:
        return await plan_changes(self._reader, self._log, await self._listing(), start, end)

    async def _listing(self) -> Listing:
        if self._listed is None:
            self._listed = await self._reader.listing(self._log)
        return self._listed

    def changed(
        self, plan: ChangePlan, lines: SharedLines, admitted: Filter | None, *, change_data: bool, **how: Any
    ) -> AsyncIterator[tuple[bytes, Place | None]]:
        def commits(skip: int) -> AsyncIterator[CommitChanges]:
            return changes(self._reader, plan, change_data=change_data, skip=skip)

        return _changed(commits, plan.start, lines, admitted, **how)


async def _changed(
    commits: Callable[[int], AsyncIterator[CommitChanges]],
    start: int,
    lines: SharedLines,
    admitted: Filter | None,
    *,
    metadata: bool,
    protocol: bool,
    repeated: bool = False,
    skip: Place = (0, 0),
    most: int | None = None,
) -> AsyncIterator[tuple[bytes, Place | None]]:
    """Lines of a range of commits, and with the last of a page where the next one starts."""
    gathered: list[bytes] = []
    count, left, at, most_gathered = 0, most, skip[0], _FIRST_FILES
    async for commit in commits(skip[0]):
        files = [file for file in commit.files if _admitted(file, admitted)]
        passed = skip[1] if at == skip[0] else 0
        if left is not None and left == 0 and len(files) > passed:
            yield b"".join(gathered), (at, passed)
            return
        if not passed and commit.version > start:
            if protocol and commit.protocol is not None:
                gathered.append(lines.protocol(commit.protocol, commit.standing, commit.version))
            if metadata and (repeated or commit.metadata is not None):
                gathered.append(lines.metadata(commit.standing, version=commit.version))
        taken = files[passed:] if left is None else files[passed : passed + left]
        told = msgspec.structs.replace(commit, files=taken)
        if len(taken) > _AT_ONCE:
            gathered.append(await asyncio.to_thread(lines.changes, told))
        else:
            gathered.append(lines.changes(told))
        count += len(taken)
        if left is not None:
            left -= len(taken)
            if passed + len(taken) < len(files):
                yield b"".join(gathered), (at, passed + len(taken))
                return
        at += 1
        if count >= most_gathered:
            yield b"".join(gathered), None
            gathered, count, most_gathered = [], 0, _CHUNK_FILES
    yield b"".join(gathered), None


def _admitted(file: DataFile, admitted: Filter | None) -> bool:
    return admitted is None or admitted.admits_partition(file.partition_values or {})


class SharedLines:
    def __init__(self, head: HeadLines, files: FileLines) -> None:
        self._files = files
        self.protocol = head.protocol
        self.metadata = head.metadata
        self.changes = files.changes
        self.end = end_line

    async def snapshot(
        self,
        snapshot: Snapshot,
        hint: Filter | None,
        admitted: Filter | None,
        *,
        limit: int | None = None,
        skip: int = 0,
        most: int | None = None,
    ) -> AsyncIterator[tuple[bytes, int | None]]:
        """Lines of a version's files, and with the last of a page the place where the next one starts."""
        pages = self._pages(_batches(snapshot, hint, admitted, skip), limit, most)
        async for page in pulled(pages):
            yield page

    def _pages(
        self, batches: Iterator[FileBatch], limit: int | None, most: int | None
    ) -> Iterator[tuple[bytes, int | None]]:
        if limit is not None:
            batches = limited(batches, limit)
        left = most
        for batch in _soon(batches):
            if left is None or len(batch) <= left:
                left = None if left is None else left - len(batch)
                yield self._files.snapshot(batch), None
            elif left == 0:
                yield b"", batch.place(0)
                return
            else:
                yield self._files.snapshot(batch.head(left)), batch.place(left - 1) + 1
                return


def _soon(batches: Iterator[FileBatch]) -> Iterator[FileBatch]:
    """The first ones in a batch of their own, so that the answer begins before all of them are told."""
    for number, batch in enumerate(batches):
        if number == 0 and len(batch) > _FIRST_FILES:
            yield batch.head(_FIRST_FILES)
            kept = None if batch.kept is None else batch.kept.slice(_FIRST_FILES)
            first = batch.first + _FIRST_FILES if kept is None else batch.first
            yield FileBatch(batch.rows.slice(_FIRST_FILES), batch.partitions, first, kept)
        else:
            yield batch


def _batches(
    snapshot: Snapshot, hint: Filter | None, admitted: Filter | None, skip: int = 0
) -> Iterator[FileBatch]:
    keep_partition: KeepPartition | None = None
    keep_file: KeepFile | None = None
    if hint is not None or admitted is not None:

        def keep(values: dict[str, str | None]) -> bool:
            return (admitted is None or admitted.admits_partition(values)) and (
                hint is None or hint.keep_partition(values)
            )

        keep_partition = keep
    if hint is not None and not hint.partitions_only:
        keep_file = hint.keep_file
    return snapshot.batches(keep_partition, keep_file, skip=skip)


async def _totals(snapshot: Snapshot, admitted: Filter | None) -> tuple[int, int]:
    """How many files, and how many bytes, somebody is shown of a version."""
    if admitted is None:
        return snapshot.files, snapshot.bytes
    return await asyncio.to_thread(_count, _batches(snapshot, None, admitted))


def _count(batches: Iterator[FileBatch]) -> tuple[int, int]:
    files = size = 0
    for batch in batches:
        files += len(batch)
        size += sum(batch.rows.column("size").to_pylist())
    return files, size
