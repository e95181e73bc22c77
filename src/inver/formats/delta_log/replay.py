"""One version of a log, told in full: every live file, every tombstone, and the state besides.

Commits are gone through from the newest to the oldest, and what a newer one has said of a file silences
the older ones. So only the files of commits after the last checkpoint are ever remembered.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from inver.domain.delta_actions import Add, FileKey, Remove, TableState, file_key
from inver.formats.delta_log.actions import Action, actions, note
from inver.formats.delta_log.checkpoints import CheckpointFiles
from inver.formats.delta_log.listing import Segment
from inver.formats.delta_log.rows import ROWS, from_actions, from_checkpoint, keys_of
from inver.formats.delta_log.source import Log, checkpoint_files, sidecar_files, spool

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 16
_FIRST_KEY = re.compile(rb'\s*\{\s*"(\w+)"')


@dataclass
class Replay:
    """`commits` are names and files, oldest first. `state` is complete when all batches are taken.

    Tombstones of files that were removed before `expire_before` are left out.
    """

    commits: Sequence[tuple[str, Path]]
    checkpoint: CheckpointFiles | None = None
    sidecars: Sequence[Path] = ()
    expire_before: int = 0
    state: TableState = field(default_factory=TableState)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """In the columns of `rows.file_schema`."""
        seen: set[FileKey] = set()
        others: list[list[Action]] = []
        for number, (name, path) in reversed(list(enumerate(self.commits))):
            remember = number > 0 or self.checkpoint is not None
            yield from self._commit(name, path, seen, others, remember)
        if self.checkpoint is not None:
            self.state = self.checkpoint.state
            for path in [*self.checkpoint.files, *self.sidecars]:
                for batch in from_checkpoint(path):
                    yield from self._left(batch, seen)
        for said in reversed(others):
            for action in said:
                note(self.state, action)

    def _commit(
        self, name: str, path: Path, seen: set[FileKey], others: list[list[Action]], remember: bool
    ) -> Iterator[pa.RecordBatch]:
        removed: dict[FileKey, Remove] = {}
        said: list[Action] = []
        for action in _without_adds(path, name):
            if action.remove is not None:
                removed[file_key(action.remove)] = action.remove
            elif action.cdc is None and action.commit_info is None:
                said.append(action)
        others.append(said)
        adds = self._adds(name, path, seen, removed, remember)
        while some := list(islice(adds, ROWS)):
            yield from_actions(some, ())
        tombstones = iter([each for key, each in removed.items() if key not in seen and self._lasts(each)])
        seen.update(removed)
        while left := list(islice(tombstones, ROWS)):
            yield from_actions((), left)

    def _adds(
        self, name: str, path: Path, seen: set[FileKey], removed: dict[FileKey, Remove], remember: bool
    ) -> Iterator[Add]:
        """What the commit adds and nobody has spoken of since. It wins over what the commit removes."""
        for action in _only(path, name, b"add"):
            if action.add is None:
                continue
            key = file_key(action.add)
            removed.pop(key, None)
            if key not in seen:
                if remember:
                    seen.add(key)
                yield action.add

    def _lasts(self, remove: Remove) -> bool:
        return (remove.deletion_timestamp or 0) >= self.expire_before

    def _left(self, batch: pa.RecordBatch, seen: set[FileKey]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        removed = batch.column("remove")
        times = pc.fill_null(removed.field("deletionTimestamp"), 0)
        kept = pc.or_(removed.is_null(), pc.greater_equal(times, self.expire_before))
        for name in ("add", "remove") if seen else ():
            files = batch.column(name)
            rows = pc.indices_nonzero(files.is_valid()).to_pylist()
            gone = [row for row, key in zip(rows, keys_of(files, rows), strict=True) if key in seen]
            mask = bytearray(b"\x01") * len(batch)
            for row in gone:
                mask[row] = 0
            whole = pa.Array.from_buffers(pa.uint8(), len(batch), [None, pa.py_buffer(mask)])
            kept = pc.and_(kept, whole.cast(pa.bool_()))
        batch = batch.filter(kept)
        if len(batch):
            yield batch


async def replay(log: Log, segment: Segment, folder: Path, expire_before: int = 0) -> Replay:
    """A segment of a log, brought to local disk."""
    commits = [(file.info.path, folder / f"{number}.json") for number, file in enumerate(segment.files)]
    for start in range(0, len(commits), _AT_ONCE):
        some = zip(segment.files[start : start + _AT_ONCE], commits[start : start + _AT_ONCE], strict=True)
        await asyncio.gather(*(spool(log.store, file.info, path) for file, (_, path) in some))
    if segment.checkpoint is None:
        return Replay(commits, expire_before=expire_before)
    files = await checkpoint_files(log, segment.checkpoint, folder)
    sidecars = await sidecar_files(log, segment.checkpoint, files, folder)
    return Replay(commits, files, sidecars, expire_before)


def _only(path: Path, name: str, kind: bytes) -> Iterator[Action]:
    """Lines of one kind; the others are not decoded."""
    with path.open("rb") as lines:
        for line in lines:
            found = _FIRST_KEY.match(line)
            if found is None or found[1] == kind:
                yield from actions(line, name)


def _without_adds(path: Path, name: str) -> Iterator[Action]:
    with path.open("rb") as lines:
        for line in lines:
            found = _FIRST_KEY.match(line)
            if found is not None and found[1] != b"add":
                yield from actions(line, name)
