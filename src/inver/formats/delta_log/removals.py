"""What commits took out of a table: removed files, and files that record changes.

They are told one window of the log after the other, so that a log of any length fits into memory.
"""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from inver.domain.delta_actions import DeletionVector, Remove, decoded
from inver.formats import deletion_vectors
from inver.formats.delta_log.actions import actions
from inver.formats.delta_log.listing import Checkpoint, Listing, LogFile
from inver.formats.delta_log.rows import from_checkpoint
from inver.formats.delta_log.source import Log, checkpoint_files, read_all, sidecar_files, spool, windows
from inver.formats.delta_log.threads import in_thread, pulled

LARGE = 16 << 20
_FIRST_KEY = re.compile(rb'\s*\{\s*"(\w+)"')
_TOLD = frozenset({b"remove", b"cdc", b"commitInfo"})


class Removal(msgspec.Struct, frozen=True, gc=False):
    """Paths are as storage knows them, or absolute. `version` is None where only a checkpoint tells of it.

    `vector` is the file of its deletion vector. Change data is what a commit recorded, and was never live.
    """

    path: str
    at: int
    version: int | None = None
    size: int | None = None
    vector: str | None = None
    change_data: bool = False


async def removals(log: Log, listed: Listing) -> AsyncIterator[list[Removal]]:
    """Everything that the log still knows to have been removed, in no order."""
    base = _base(listed)
    if base is not None:
        with tempfile.TemporaryDirectory(prefix="inver-log-") as scratch:
            folder = Path(scratch)
            files = await checkpoint_files(log, base, folder)
            sidecars = await sidecar_files(log, base, files, folder)
            for path in [*files.files, *sidecars]:
                async for found in pulled(_tombstones(path)):
                    yield found
    first = listed.earliest_commit
    if first is None:
        return
    commits = [
        LogFile(version, version, listed.commits[version]) for version in range(first, listed.latest + 1)
    ]
    for window in windows(commits):
        if len(window) == 1 and window[0].info.size > LARGE:
            async for found in _large(log, window[0]):
                yield found
            continue
        contents = await read_all(log.store, window)
        for file, data in zip(window, contents, strict=True):
            yield await in_thread(lambda f, d: list(_of_commit(f, io.BytesIO(d))), file, data)


def vector_file(vector: DeletionVector | None) -> str | None:
    """The file of a deletion vector; None if there is none, or if it needs no file."""
    place = None if vector is None else deletion_vectors.place(vector)
    return None if place is None else place.path


def _base(listed: Listing) -> Checkpoint | None:
    """The oldest checkpoint that has what was removed before the first commit that is still there."""
    first = listed.earliest_commit
    if first == 0:
        return None
    least = listed.latest if first is None else first - 1
    enough = [at for at in listed.checkpoints if at >= least]
    return listed.checkpoints[min(enough)][0] if enough else None


def _tombstones(path: Path) -> Iterator[list[Removal]]:
    for batch in from_checkpoint(path):
        rows = batch.column("remove").drop_null().to_pylist(maps_as_pydicts="strict")
        yield [_tombstone(row) for row in rows]


def _tombstone(row: dict[str, object]) -> Removal:
    vector = row["deletionVector"]
    given = (
        {name: value for name, value in vector.items() if value is not None}
        if isinstance(vector, dict)
        else None
    )
    return Removal(
        path=decoded(str(row["path"])),
        at=msgspec.convert(row["deletionTimestamp"] or 0, int),
        size=msgspec.convert(row["size"], int | None),
        vector=vector_file(msgspec.convert(given, DeletionVector | None)),
    )


async def _large(log: Log, file: LogFile) -> AsyncIterator[list[Removal]]:
    with tempfile.TemporaryDirectory(prefix="inver-log-") as scratch:
        path = await spool(log.store, file.info, Path(scratch) / "commit.json")
        with path.open("rb") as lines:
            async for found in pulled(_some(_of_commit(file, lines))):
                yield found


def _some(found: Iterable[Removal], count: int = 10_000) -> Iterator[list[Removal]]:
    some: list[Removal] = []
    for each in found:
        some.append(each)
        if len(some) == count:
            yield some
            some = []
    yield some


def _of_commit(file: LogFile, lines: BinaryIO) -> Iterator[Removal]:
    at = file.info.modified_ms
    for line in lines:
        kind = _FIRST_KEY.match(line)
        if kind is not None and kind[1] not in _TOLD:
            continue
        for action in actions(line, file.info.path):
            if action.commit_info is not None:
                # Delta wants it to be the first action, so it is known before anything is removed.
                at = action.commit_info.in_commit_timestamp or at
            elif action.remove is not None:
                yield _removal(action.remove, at, file.last)
            elif action.cdc is not None:
                cdc = action.cdc
                yield Removal(decoded(cdc.path), at, file.last, cdc.size, change_data=True)


def _removal(remove: Remove, at: int, version: int) -> Removal:
    return Removal(
        path=decoded(remove.path),
        at=max(at, remove.deletion_timestamp or 0),
        version=version,
        size=remove.size,
        vector=vector_file(remove.deletion_vector),
    )
