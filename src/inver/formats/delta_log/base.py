"""All live files of one version, in a file of Arrow batches that readers map into memory.

A base is made once, never changed, and shared by every process that maps it. Its name is a digest
of everything that it was made of, so one that is there is right.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from inver.domain.delta_actions import TableState, Words
from inver.formats.delta_log.columns import Partitions, schema

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 8_192
"""So many files are a good deal for those who read them one batch after the other."""
_FILES = "files.arrow"
_HEAD = "head.json"
_MAKING = ".making-"
_ABANDONED_S = 24 * 3600


class Head(msgspec.Struct, kw_only=True):
    version: int
    state: TableState
    partitions: list[Words]
    files: int
    bytes: int
    vectors: int
    """How many of the files have a deletion vector."""


class Base:
    """An open base. Its batches stay usable for as long as somebody holds them."""

    def __init__(self, folder: Path) -> None:
        import pyarrow as pa

        self.name = folder.name
        self.head = msgspec.json.decode((folder / _HEAD).read_bytes(), type=Head)
        with (folder / _FILES).open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._reader = pa.ipc.open_file(pa.py_buffer(self._map))

    def __len__(self) -> int:
        return int(self._reader.num_record_batches)

    def batch(self, number: int) -> pa.RecordBatch:
        return self._reader.get_batch(number)

    def forget_pages(self) -> None:
        """Give back the memory that reading took; what is still in use comes back by itself."""
        with suppress(OSError):
            self._map.madvise(mmap.MADV_DONTNEED)


class BaseFolder:
    """Bases on local disk, the least recently used ones removed when there are too many bytes."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def open(self, name: str) -> Base | None:
        folder = self._folder / name
        try:
            base = Base(folder)
            os.utime(folder)
            return base
        except FileNotFoundError:
            return None

    def scratch(self) -> tempfile.TemporaryDirectory[str]:
        """A folder for files on their way."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix=_MAKING, dir=self._folder)

    def make(
        self,
        name: str,
        version: int,
        state: TableState,
        batches: Callable[[Partitions], Iterable[pa.RecordBatch]],
        partitions: Partitions | None = None,
    ) -> Base:
        """Write a base and give it its name in one step."""
        import pyarrow as pa

        partitions = partitions or Partitions()
        with self.scratch() as scratch:
            making = Path(scratch) / "base"
            making.mkdir()
            head = Head(version=version, state=state, partitions=[], files=0, bytes=0, vectors=0)
            with pa.ipc.new_file(str(making / _FILES), schema()) as writer:
                for batch in batches(partitions):
                    count(head, batch)
                    for start in range(0, len(batch), BATCH_ROWS):
                        writer.write_batch(batch.slice(start, BATCH_ROWS))
            head.partitions = partitions.values
            (making / _HEAD).write_bytes(msgspec.json.encode(head))
            # Somebody else may have made the same one meanwhile.
            with suppress(OSError):
                making.rename(self._folder / name)
        pa.default_memory_pool().release_unused()
        self._evict(name)
        base = self.open(name)
        assert base is not None
        return base

    def _evict(self, keep: str) -> None:
        total = 0
        for left in self._folder.glob(_MAKING + "*"):
            if _used(left) < time.time() - _ABANDONED_S:
                shutil.rmtree(left, ignore_errors=True)
        for folder in sorted(self._bases(), key=lambda each: -_used(each)):
            total += sum(file.stat().st_size for file in folder.glob("*"))
            if total > self._max_bytes and folder.name != keep:
                # Who has mapped it goes on reading; only its name is gone.
                shutil.rmtree(folder, ignore_errors=True)

    def _bases(self) -> Iterator[Path]:
        return (each for each in self._folder.iterdir() if not each.name.startswith("."))


def count(head: Head, batch: pa.RecordBatch) -> None:
    import pyarrow.compute as pc

    head.files += len(batch)
    head.bytes += pc.sum(batch.column("size")).as_py() or 0
    head.vectors += len(batch) - batch.column("deletionVector").null_count


def _used(folder: Path) -> float:
    with suppress(FileNotFoundError):
        return folder.stat().st_mtime
    return 0.0
