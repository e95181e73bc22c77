"""New data files of a Delta table: Parquet, named and placed as Delta's writers do, with statistics."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from secrets import choice
from string import ascii_letters, digits
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from inver.domain.delta_actions import Metadata, Words
from inver.domain.delta_rewrites import NewFile
from inver.domain.delta_schema import mapped
from inver.pipeline.tasks.delta_schema import Leaf
from inver.pipeline.tasks.delta_stats import Watched, statistics

ROWS = 1 << 20
"""Of a row group: what is written at once is one, and small ones cost size and time."""

HELD = 128 << 20
"""Bytes of wide rows that wait for a row group."""

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 0x20)}


@dataclass(frozen=True)
class Layout:
    """Where new files lie below the table."""

    random_prefix: int = 0

    @classmethod
    def of(cls, metadata: Metadata) -> Layout:
        # Folders named after columns would keep the names that a mapping is there to hide.
        if not (metadata.enabled("delta.randomizeFilePrefixes") or mapped(metadata)):
            return cls()
        text = metadata.configuration.get("delta.randomPrefixLength") or ""
        return cls(int(text) if text.isdecimal() and 0 < int(text) < 100 else 2)

    def path(self, partition_values: Words, number: int) -> str:
        # By this name `orphans` knows what a rewrite has left that did not come to its end.
        name = f"care-{uuid.uuid4()}-{number:05d}.c000.zstd.parquet"
        if self.random_prefix:
            prefix = "".join(choice(ascii_letters + digits) for _ in range(self.random_prefix))
            return f"{prefix}/{name}"
        folders = [f"{_escaped(key)}={_escaped(value)}" for key, value in partition_values.items()]
        return "/".join([*folders, name])


@dataclass
class FileWriter:
    """One file, which exists once something was written to it."""

    files: Any
    path: str
    schema: pa.Schema
    leaves: list[Leaf]
    partition_values: Words = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    clustering_provider: str | None = None

    def __post_init__(self) -> None:
        self._waiting: list[pa.Table] = []
        self._rows = self._held = 0
        self._writer: Any = None
        self._sink: Any = None
        self._footers: list[Any] = []
        self._watched = Watched(self.leaves)

    def write(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        self._waiting.append(table)
        self._rows += table.num_rows
        self._held += table.nbytes
        if self._rows >= ROWS or self._held >= HELD:
            self._flush()

    @property
    def bytes(self) -> int:
        """What has left for the file so far."""
        return 0 if self._sink is None else self._sink.tell()

    def close(self) -> NewFile | None:
        """The file, or None if there were no rows for one."""
        self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        self._sink.close()
        _sync(self.files, self.path)
        info = self.files.get_file_info(self.path)
        (footer,) = self._footers
        return NewFile(
            path=self.path,
            size=info.size,
            rows=footer.num_rows,
            modification_time=_milliseconds(info.mtime),
            stats=statistics(footer, self.leaves, self._watched),
            partition_values=self.partition_values,
            tags=self.tags,
            clustering_provider=self.clustering_provider,
        )

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting)
        self._waiting, self._rows, self._held = [], 0, 0
        if self._writer is None:
            self._start()
        self._watched.see(table)
        self._writer.write_table(table, row_group_size=ROWS)

    def _start(self) -> None:
        folder = self.path.rpartition("/")[0]
        # Object stores have no folders, and would keep an empty object in its place.
        if folder and self.files.base_fs.type_name == "local":
            self.files.create_dir(folder, recursive=True)
        self._sink = self.files.open_output_stream(self.path)
        self._writer = pq.ParquetWriter(
            self._sink,
            self.schema,
            compression="zstd",
            metadata_collector=self._footers,
            store_schema=False,
            store_decimal_as_integer=True,
        )


def _sync(files: Any, path: str) -> None:
    """A commit that is durable must not name a file that is not."""
    if files.base_fs.type_name != "local":
        return
    while True:
        file = os.open(os.path.join(files.base_path, path), os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
        if not path:
            return
        path = path.rpartition("/")[0]


def _escaped(text: str | None) -> str:
    if not text:
        return _NULL_PARTITION
    return "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in text)


def _milliseconds(moment: datetime | None) -> int:
    return round((moment or datetime.now(UTC)).timestamp() * 1000)
