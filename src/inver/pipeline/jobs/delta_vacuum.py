"""VACUUM of Delta tables whose commits the catalog decides, and of what never became part of one.

Lite deletes what the log knows to have been removed. Full compares the table's folder with what
retained versions need, and finds also what the log has forgotten or never knew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from inver.clock import SystemClock
from inver.domain.care import Outcome, Pin, Result
from inver.domain.delta import STAGED_FOLDER
from inver.domain.delta_actions import DeletionVector, decoded
from inver.domain.delta_schema import physical_partition_columns
from inver.domain.delta_vacuum import (
    Keep,
    Listed,
    is_hidden,
    is_left_behind,
    is_rewritten,
    is_underway,
    keep,
    nested_table,
    own_path,
    staged_ms,
    unneeded,
)
from inver.domain.locations import Location
from inver.formats.delta_log.actions import actions
from inver.formats.delta_log.listing import LogFile
from inver.formats.delta_log.removals import Removal, removals, vector_file
from inver.formats.delta_log.snapshot import Snapshot
from inver.formats.delta_log.source import read_all
from inver.pipeline.delta.logs import SHOWN, Opened, delete_all, opened
from inver.pipeline.delta.ratified import ratified
from inver.pipeline.work import Work
from inver.ports import ObjectStore

MANY_FILES = 100_000
"""Folders with fewer live files are listed here; a cluster lists larger ones in its tasks."""
HEADS_AT_ONCE = 32


def vacuum(work: Work) -> Result:
    return asyncio.run(_vacuum(work))


def orphans(work: Work) -> Result:
    return asyncio.run(_orphans(work))


@dataclass
class Needed:
    """Paths below the table that something refers to, and those that nothing retained does any more."""

    table: Location
    keep: Keep
    paths: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    """Some of them may be needed all the same."""
    dead: int = 0
    """Bytes of files that are live no more, and still needed."""

    def add(self, *paths: str | None) -> None:
        self.paths.update(self._own(paths))

    def note(self, removal: Removal) -> None:
        if not self.keep.needs(removal.at, removal.version):
            self.removed.update(self._own((removal.path, removal.vector)))
            return
        known = len(self.paths)
        self.add(removal.path)
        if len(self.paths) > known:
            self.dead += removal.size or 0
        self.add(removal.vector)

    def _own(self, paths: Iterable[str | None]) -> Iterator[str]:
        for path in paths:
            own = None if path is None else own_path(path, self.table)
            if own is not None:
                yield own


async def _vacuum(work: Work) -> Result:
    async with opened(work) as table:
        ticket = work.ticket
        now = SystemClock().now_ms()
        kept = keep(ticket.options, table.configuration, ticket.pinned_from, now)
        work.tell(0.0, "reading the log")
        snapshot = await table.reader.snapshot(table.log, table.ratified.latest, listed=table.listed)
        needed = await _needed(table, snapshot, kept)
        columns = _partition_columns(table)
        if ticket.options.full:
            work.tell(0.0, "listing the table's folder")
            doomed = [
                file
                for file in await _of_listing(table, needed, columns)
                if file.path in needed.removed or not is_underway(file, now)
            ]
        else:
            doomed = await _of_log(table, needed, columns)
        result = await _deleted(table, doomed)
        told = {} if ticket.dry_run else _told(snapshot, needed)
        pins = _pinned(ticket.pins, kept)
        message = f"{result.message}; {pins}" if pins else result.message
        return msgspec.structs.replace(result, message=message, after={**result.after, **told})


def _told(snapshot: Snapshot, needed: Needed) -> dict[str, float]:
    """What is now known of the table."""
    numbers = {"version": snapshot.version, "files": snapshot.files, "bytes": snapshot.bytes}
    return {name: float(number) for name, number in {**numbers, "dead_bytes": needed.dead}.items()}


async def _needed(table: Opened, snapshot: Snapshot, kept: Keep) -> Needed:
    """Everything that a retained version reads."""
    needed = Needed(Location.parse(table.work.ticket.location), kept)
    for path in _live(snapshot):
        needed.add(path)
    async for some in removals(table.log, table.listed):
        for removal in some:
            needed.note(removal)
    return needed


def _live(snapshot: Snapshot) -> Iterator[str | None]:
    for batch in snapshot.batches():
        yield from batch.rows.column("path").to_pylist()
        for row in batch.rows.column("deletionVector").drop_null().to_pylist():
            yield vector_file(msgspec.convert(row, DeletionVector))


async def _of_log(table: Opened, needed: Needed, columns: Collection[str]) -> list[Listed]:
    """Files that the log knows to have been removed, and that are still there."""
    gone = [path for path in needed.removed if path not in needed.paths and not is_hidden(path, columns)]
    found = []
    for start in range(0, len(gone), HEADS_AT_ONCE):
        heads = await asyncio.gather(
            *(table.objects.head(path) for path in gone[start : start + HEADS_AT_ONCE])
        )
        found += [Listed(info.path, info.size, info.modified_ms) for info in heads if info is not None]
    return [file for file in found if file.modified < needed.keep.since]


async def _of_listing(table: Opened, needed: Needed, columns: Collection[str]) -> list[Listed]:
    if len(needed.paths) >= MANY_FILES:
        spark = table.work.spark()
        if not str(spark.conf.get("spark.master", "local")).startswith("local"):
            return _listed_by(spark, table, needed, columns)
    nested: set[str] = set()
    found: list[Listed] = []
    async for some in _chunks(table.objects):
        nested.update(folder for each in some if (folder := nested_table(each.path)) is not None)
        found += unneeded(some, needed.paths, needed.keep.since, columns)
    return unneeded(found, (), needed.keep.since, columns, nested)


def _listed_by(spark: object, table: Opened, needed: Needed, columns: Collection[str]) -> list[Listed]:
    import pyarrow as pa

    from inver.pipeline.tasks.listing import unneeded_files

    paths = pa.table({"path": pa.array(needed.paths, pa.string())})
    found = unneeded_files(spark, table.work.place, paths, needed.keep.since, list(columns)).to_pylist()
    nested = {row["path"] for row in found if row["nested"]}
    files = [Listed(row["path"], row["size"], row["modified"]) for row in found if not row["nested"]]
    return unneeded(files, needed.paths, needed.keep.since, columns, nested)


async def _chunks(objects: ObjectStore, folder: str = "", size: int = 10_000) -> AsyncIterator[list[Listed]]:
    some: list[Listed] = []
    async for info in objects.list(folder):
        some.append(Listed(info.path, info.size, info.modified_ms))
        if len(some) == size:
            yield some
            some = []
    yield some


async def _deleted(table: Opened, doomed: Sequence[Listed]) -> Result:
    sizes = {file.path: file.size for file in doomed}
    if not doomed:
        return Result(outcome=Outcome.NOTHING, message="every file is needed or too young")
    before = {"needless_files": float(len(sizes)), "needless_bytes": float(sum(sizes.values()))}
    if table.work.ticket.dry_run:
        shown = tuple(sorted(sizes)[:SHOWN])
        message = f"{len(sizes)} files could be deleted"
        return Result(outcome=Outcome.DONE, message=message, before=before, after=before, files=shown)
    again = _Readded(table)
    deleted = await delete_all(table.work, table.objects, sorted(sizes), again.without)
    freed = sum(sizes[path] for path in deleted)
    return Result(
        outcome=Outcome.DONE,
        message=f"deleted {len(deleted)} files",
        before=before,
        after={
            "needless_files": before["needless_files"] - len(deleted),
            "needless_bytes": before["needless_bytes"] - freed,
        },
        measured={"files_deleted": float(len(deleted)), "bytes_deleted": float(freed)},
    )


class _Readded:
    """Files that commits brought back since the table was read, as a RESTORE does."""

    def __init__(self, table: Opened) -> None:
        self._table = table
        self._version = table.ratified.latest
        self._needed = Needed(Location.parse(table.work.ticket.location), Keep(since=0))

    async def without(self, batch: Sequence[str]) -> Sequence[str]:
        state = ratified(self._table.work.client, self._table.work.ticket)
        if state.latest > self._version:
            log = state.log(self._table.objects, self._table.log.table)
            listed = await self._table.reader.listing(log)
            files = [LogFile(at, at, listed.commits[at]) for at in range(self._version + 1, state.latest + 1)]
            for file, data in zip(files, await read_all(self._table.objects, files), strict=True):
                for action in actions(data, file.info.path):
                    if action.add is not None:
                        self._needed.add(decoded(action.add.path), vector_file(action.add.deletion_vector))
            self._version = state.latest
        return [path for path in batch if path not in self._needed.paths]


# --- what never became part of the table ---


async def _orphans(work: Work) -> Result:
    async with opened(work) as table:
        now = SystemClock().now_ms()
        before = now - staged_ms(work.ticket.options)
        doomed = await _staged_leftovers(table, before)
        work.tell(0.0, "listing the table's folder")
        rewritten = await _rewritten_leftovers(table, before)
        doomed += [file for file in rewritten if not is_underway(file, now)]
        return await _deleted(table, doomed)


async def _staged_leftovers(table: Opened, before: int) -> list[Listed]:
    unpublished = {commit.file_name for commit in table.ratified.commits}
    found: list[Listed] = []
    async for some in _chunks(table.objects, STAGED_FOLDER):
        found += [
            file
            for file in some
            if file.modified < before
            and is_left_behind(file.path.rpartition("/")[2], table.ratified.latest, unpublished)
        ]
    return found


async def _rewritten_leftovers(table: Opened, before: int) -> list[Listed]:
    """What rewrites wrote that were stopped before they could commit, or lost their race."""
    snapshot = await table.reader.snapshot(table.log, table.ratified.latest, listed=table.listed)
    known = await _needed(table, snapshot, Keep(since=0))
    columns = _partition_columns(table)
    found: list[Listed] = []
    async for listed in _chunks(table.objects):
        rewritten = [file for file in listed if is_rewritten(file.path)]
        found += unneeded(rewritten, known.paths, before, columns)
    return found


def _partition_columns(table: Opened) -> set[str]:
    return {*table.metadata.partition_columns, *physical_partition_columns(table.metadata)}


def _pinned(pins: Sequence[Pin], kept: Keep) -> str:
    reasons = [pin.reason for pin in pins if pin.version == kept.version and not pin.alone]
    return f"kept from version {kept.version} on for {', '.join(reasons)}" if reasons else ""
