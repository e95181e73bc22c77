"""The log of a Delta table: checkpoints, compactions, and the end of what is past its retention.

All of it is about published versions alone, and changes nothing that a reader sees. A log file is deleted
only when a checkpoint that was read from end to end stands for it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from inver.clock import SystemClock
from inver.domain.care import HOUR_MS, Outcome, Result
from inver.domain.delta import published_name
from inver.domain.delta_actions import TableState
from inver.domain.delta_logs import cleanable, compaction_range, cut_of
from inver.domain.delta_vacuum import FILE_RETENTION, interval_ms, log_retention_ms
from inver.errors import Broken, Invalid
from inver.formats.delta_checkpoint import Made, make, write_classic, write_v2
from inver.formats.delta_compaction import compacted
from inver.formats.delta_log.actions import actions
from inver.formats.delta_log.listing import LOG, SIDECARS, LogFile, Segment, listing
from inver.formats.delta_log.reader import LogReader
from inver.formats.delta_log.replay import replay
from inver.formats.delta_log.snapshot import Overlay, Snapshot
from inver.formats.delta_log.source import checkpoint_files, read_all
from inver.formats.delta_log.threads import in_thread
from inver.pipeline.delta.logs import SHOWN, Opened, delete_all, opened
from inver.pipeline.work import Work
from inver.ports import ObjectInfo

V2 = "v2Checkpoint"
CLEANUP = "delta.enableExpiredLogCleanup"
MOST_COMPACTED = 64 << 20
TOMBSTONE_HOURS = 168
SIDECAR_HOURS = 24
"""Younger sidecars may belong to a checkpoint that somebody is about to write."""


def checkpoint(work: Work) -> Result:
    return asyncio.run(_checkpoint(work))


def log(work: Work) -> Result:
    return asyncio.run(_log(work))


# --- checkpoints ---


async def _checkpoint(work: Work) -> Result:
    async with opened(work) as table:
        version = table.ratified.published
        newest = max((each for each in table.listed.checkpoints if each <= version), default=-1)
        before = {"commits": float(table.ratified.latest - newest)}
        if newest == version:
            after = {**before, "version": float(table.ratified.latest), "checkpoint_version": float(version)}
            message = f"version {version} has a checkpoint"
            return Result(outcome=Outcome.NOTHING, message=message, before=before, after=after)
        info = table.listed.commits.get(version)
        if info is None or info.path != published_name(version):
            raise Broken(f"{published_name(version)} is not there, though version {version} is published")
        work.tell(0.1, f"reading version {version}")
        expected = await table.reader.snapshot(table.log, version, listed=table.listed)
        made = await _made(table, version)
        _compare(made, expected)
        message = f"checkpoint of version {version}"
        if work.ticket.dry_run:
            return Result(outcome=Outcome.DONE, message=message, before=before)
        work.tell(0.7, f"writing the checkpoint of version {version}")
        await _write(table, made)
        after = {"commits": float(table.ratified.latest - version), **_told(made)}
        return Result(outcome=Outcome.DONE, message=message, before=before, after=after)


def _told(made: Made) -> dict[str, float]:
    """What is now known of the table."""
    numbers = {
        "version": made.version,
        "checkpoint_version": made.version,
        "files": made.files,
        "bytes": made.bytes,
        "files_with_deletes": made.vectors,
        "deleted_rows": made.deleted_rows,
        "tombstones": made.tombstones,
    }
    return {name: float(number) for name, number in numbers.items()}


async def _made(table: Opened, version: int) -> Made:
    """From the newest checkpoint that can be read."""
    problem: Invalid | None = None
    for number, segment in enumerate(table.listed.segments(version)):
        folder = table.folder / f"segment-{number}"
        folder.mkdir()
        try:
            return await _made_of(table, segment, folder)
        except Invalid as error:
            problem = problem or error
    assert problem is not None
    raise problem


async def _made_of(table: Opened, segment: Segment, folder: Path) -> Made:
    told = await replay(table.log, segment, folder, SystemClock().now_ms() - _tombstone_ms(table))
    if V2 in (table.protocol.writer_features or ()):
        return await in_thread(make, told, segment.version, folder)
    return await in_thread(make, told, segment.version, folder, sidecar_rows=None)


def _tombstone_ms(table: Opened) -> int:
    hours = max(TOMBSTONE_HOURS, table.work.ticket.options.retention_hours)
    configured = table.configuration.get(FILE_RETENTION)
    return max(int(hours * HOUR_MS), 0 if configured is None else interval_ms(configured))


def _compare(made: Made, expected: Snapshot) -> None:
    """Two ways to read the same version must agree before one of them stands for the other."""
    state = made.state
    if (
        (made.files, made.bytes, made.vectors) != (expected.files, expected.bytes, expected.vectors)
        or (state.protocol, state.metadata) != (expected.protocol, expected.metadata)
        or (state.domains, state.transactions) != (expected.domains, expected.transactions)
    ):
        raise Broken(f"version {made.version} reads differently from different ends of its log")


async def _write(table: Opened, made: Made) -> None:
    if V2 in (table.protocol.writer_features or ()):
        await write_v2(table.objects, made, SystemClock().now_ms())
    else:
        await write_classic(table.objects, made)


# --- compaction and cleanup ---


async def _log(work: Work) -> Result:
    async with opened(work) as table:
        compaction = await _compact(table)
        deleted, kept = await _clean(table)
        done = [text for text in (compaction, f"deleted {len(deleted)} files" if deleted else "") if text]
        return Result(
            outcome=Outcome.DONE if done else Outcome.NOTHING,
            message="; ".join(done) or "nothing in the log is due",
            before={"log_files": float(kept + len(deleted))},
            after={"log_files": float(kept)},
            measured={"files_deleted": float(len(deleted))},
            files=tuple(deleted[:SHOWN]) if work.ticket.dry_run else (),
        )


async def _compact(table: Opened) -> str:
    version = table.ratified.published
    segment = next(table.listed.segments(version))
    due = compaction_range(segment.base_version, version, len(segment.files))
    if due is None:
        return ""
    first, last = due
    files = [LogFile(each, each, table.listed.commits[each]) for each in range(first, last + 1)]
    if sum(file.info.size for file in files) > MOST_COMPACTED:
        return ""
    name = f"{first:020d}.{last:020d}.compacted.json"
    if not table.work.ticket.dry_run:
        contents = await read_all(table.objects, files)
        data = await in_thread(_verified, files, contents)
        table.work.tell(0.2, f"writing {name}")
        await table.objects.put_if_absent(f"{LOG}/{name}", data, whole=True)
    return f"compacted versions {first} to {last}"


def _verified(files: Sequence[LogFile], contents: Sequence[bytes]) -> bytes:
    data = compacted([(file.info.path, content) for file, content in zip(files, contents, strict=True)])
    one, other = Overlay(TableState()), Overlay(TableState())
    for file, content in zip(files, contents, strict=True):
        one.apply(actions(content, file.info.path))
    other.apply(actions(data, "the compaction"))
    if (one.added, one.gone, one.state) != (other.added, other.gone, other.state):
        raise Broken(f"versions {files[0].first} to {files[-1].last} read differently when they are one file")
    return data


async def _clean(table: Opened) -> tuple[list[str], int]:
    """What was deleted, and how many files the log still has."""
    objects = [info async for info in table.objects.list(LOG)]
    doomed = await _expired(table, [info.path for info in objects])
    left = [info for info in objects if info.path not in set(doomed)]
    doomed += await _unreferenced(table, left)
    if not table.work.ticket.dry_run:
        await delete_all(table.work, table.objects, doomed)
    return doomed, len(objects) - len(doomed)


async def _expired(table: Opened, paths: Sequence[str]) -> list[str]:
    if (table.configuration.get(CLEANUP) or "true").lower() == "false":
        return []
    ticket = table.work.ticket
    until = SystemClock().now_ms() - log_retention_ms(ticket.options, table.configuration)
    history = await table.reader.history(table.log, table.listed, table.metadata)
    past = await history.last_at_or_before(until)
    cut = cut_of(table.listed.checkpoints.keys(), past, ticket.pinned_from)
    if cut is None:
        return []
    doomed = cleanable((path.removeprefix(f"{LOG}/") for path in paths), cut)
    if doomed:
        # Whoever reads the log later has nothing but this checkpoint to go by.
        fresh = LogReader(table.folder / "proof")
        await fresh.snapshot(table.log, cut, base=cut, listed=table.listed)
    return [f"{LOG}/{name}" for name in doomed]


async def _unreferenced(table: Opened, left: Sequence[ObjectInfo]) -> list[str]:
    """Sidecars of checkpoints that are gone, or that were never finished."""
    before = SystemClock().now_ms() - SIDECAR_HOURS * HOUR_MS
    old = [info.path for info in left if info.path.startswith(f"{SIDECARS}/") and info.modified_ms < before]
    if not old:
        return []
    named: set[str] = set()
    for same_version in listing(left).checkpoints.values():
        for each in same_version:
            with tempfile.TemporaryDirectory(dir=table.folder) as scratch:
                try:
                    files = await checkpoint_files(table.log, each, Path(scratch))
                except Invalid:
                    # Which sidecars it needs cannot be told, so it may be any of them.
                    return []
                named.update(f"{SIDECARS}/{name}" for name in files.sidecars)
    return [path for path in old if path not in named]
