"""A table's log where it lies, and its files on their way to a reader."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inver.errors import NotFound, Unavailable
from inver.formats.delta_log.actions import damaged
from inver.formats.delta_log.checkpoints import CheckpointFiles
from inver.formats.delta_log.listing import LOG, SIDECARS, Checkpoint, LogFile
from inver.formats.delta_log.threads import in_thread
from inver.ports import ObjectInfo, ObjectStore

_CHUNK = 8 << 20
_WINDOW_FILES = 64
_WINDOW_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Log:
    """A table's log. `store` has its root at the table, `table` is an id that no other table gets.

    For a table that the catalog manages, `latest` is its ratified version and `tail` are the commits
    that are not published yet, by version, with paths below the table.
    """

    store: ObjectStore
    table: str
    latest: int | None = None
    tail: Mapping[int, ObjectInfo] = field(default_factory=dict)


def windows(files: Sequence[LogFile]) -> Iterator[Sequence[LogFile]]:
    """Files that are read together: not too many, and not too much of them."""
    start = size = 0
    for at, file in enumerate(files):
        size += file.info.size
        if at > start and (at - start == _WINDOW_FILES or size > _WINDOW_BYTES):
            yield files[start:at]
            start, size = at, file.info.size
    if start < len(files):
        yield files[start:]


async def read_all(store: ObjectStore, files: Sequence[LogFile]) -> list[bytes]:
    return await asyncio.gather(*(_read(store, file) for file in files))


async def _read(store: ObjectStore, file: LogFile) -> bytes:
    try:
        return await store.get(file.info.path)
    except NotFound:
        published = f"{LOG}/{file.last:020d}.json"
        if file.info.path == published or file.first != file.last:
            raise gone(file.info.path) from None
    # A staged commit that was published, and cleaned away, since the catalog was asked for it.
    try:
        return await store.get(published)
    except NotFound:
        raise gone(file.info.path) from None


def gone(path: str) -> Unavailable:
    """It was there when the log was listed: whoever cleans the log was faster."""
    return Unavailable(f"{path} was removed while the table's log was read")


async def checkpoint_files(log: Log, checkpoint: Checkpoint, folder: Path) -> CheckpointFiles:
    paths = [folder / info.path.rpartition("/")[2] for info in checkpoint.files]
    for info, path in zip(checkpoint.files, paths, strict=True):
        await spool(log.store, info, path)
    return await in_thread(CheckpointFiles, paths)


async def sidecar_files(log: Log, checkpoint: Checkpoint, files: CheckpointFiles, folder: Path) -> list[Path]:
    paths = []
    for number, name in enumerate(files.sidecars):
        info = await log.store.head(f"{SIDECARS}/{name}")
        if info is None:
            raise damaged(f"the checkpoint of version {checkpoint.version} has lost its sidecar {name}")
        paths.append(await spool(log.store, info, folder / f"sidecar-{number}.parquet"))
    return paths


async def spool(store: ObjectStore, info: ObjectInfo, target: Path) -> Path:
    """A copy on local disk, made without holding all of it in memory."""
    with target.open("wb") as file:
        for start in range(0, info.size, _CHUNK):
            try:
                data = await store.get_range(info.path, start, min(_CHUNK, info.size - start))
            except NotFound:
                raise gone(info.path) from None
            await in_thread(file.write, data)
    return target
