"""One version of a table: a base, and over it what the commits after the base changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from inver.domain.delta_actions import (
    Add,
    FileKey,
    Metadata,
    Protocol,
    TableHead,
    TableState,
    Words,
    file_key,
)
from inver.errors import Unsupported
from inver.formats.delta_log.actions import Action, damaged, note
from inver.formats.delta_log.base import BATCH_ROWS, Base, Head, count
from inver.formats.delta_log.columns import Partitions, from_adds, row_keys

if TYPE_CHECKING:
    import pyarrow as pa

_PAGES_EVERY = 8

READER_FEATURES = frozenset(
    {
        *("catalogManaged", "catalogOwned-preview", "columnMapping", "deletionVectors", "timestampNtz"),
        *("typeWidening", "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck"),
        *("variantType", "variantType-preview", "variantShredding", "variantShredding-preview"),
        "geospatial",
    }
)
"""What a table may require of its readers: nothing among them changes which files are live."""

KeepPartition = Callable[[Words], bool]
KeepFile = Callable[[Words, str | None], bool]


class Overlay:
    """What commits change, gathered one by one. Nothing of it is shared."""

    def __init__(self, state: TableState) -> None:
        self.state = msgspec.structs.replace(
            state, domains=dict(state.domains), transactions=dict(state.transactions)
        )
        self.added: dict[FileKey, Add] = {}
        self.gone: set[FileKey] = set()
        """Files that the base may have, and that it does not have any more."""

    def copy(self) -> Overlay:
        other = Overlay(self.state)
        other.added = dict(self.added)
        other.gone = set(self.gone)
        return other

    def apply(self, actions: Iterable[Action]) -> None:
        """One commit, whose actions have no order: a file that it removes and adds stays."""
        adds = []
        for action in actions:
            if action.add is not None:
                adds.append(action.add)
            elif action.remove is not None:
                key = file_key(action.remove)
                self.added.pop(key, None)
                self.gone.add(key)
            else:
                note(self.state, action)
        for add in adds:
            key = file_key(add)
            # Behind the others, where a reader that knows the earlier version expects what is new.
            self.added.pop(key, None)
            self.added[key] = add
            self.gone.add(key)


@dataclass(frozen=True, slots=True)
class FileBatch:
    """Some live files. The columns are those of `columns.schema`."""

    rows: pa.RecordBatch
    partitions: Sequence[Words]
    first: int
    """The place of the first one among all live files of the version, before any were left out."""
    kept: pa.Array | None = None
    """If some were left out: how far the others are from the first place."""

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, row: int) -> int:
        """Where a row is among all live files: a page that ends with it goes on one place further."""
        return self.first + (row if self.kept is None else self.kept[row].as_py())

    def head(self, rows: int) -> FileBatch:
        kept = None if self.kept is None else self.kept.slice(0, rows)
        return FileBatch(self.rows.slice(0, rows), self.partitions, self.first, kept)


class Snapshot:
    def __init__(self, version: int, base: Base | None, overlay: Overlay, base_version: int = -1) -> None:
        state = overlay.state
        head = complete(state.protocol, state.metadata, version)
        self.version = version
        self.base_version = base_version
        """The version of the checkpoint, -1 if there is none. With the same one, files keep their order."""
        self.protocol = head.protocol
        self.metadata = head.metadata
        self.domains = state.domains
        self.transactions = state.transactions
        self.base = base
        self.overlay = overlay
        self._dead = _dead_rows(base, overlay.gone) if base is not None and overlay.gone else {}
        partitions = Partitions([] if base is None else base.head.partitions)
        added = list(overlay.added.values())
        self._added = [
            from_adds(added[start : start + BATCH_ROWS], partitions)
            for start in range(0, len(added), BATCH_ROWS)
        ]
        self.partitions: Sequence[Words] = partitions.values
        self._totals = self._count()

    @property
    def files(self) -> int:
        return self._totals.files

    @property
    def bytes(self) -> int:
        return self._totals.bytes

    @property
    def vectors(self) -> int:
        """How many files have a deletion vector."""
        return self._totals.vectors

    def batches(
        self,
        keep_partition: KeepPartition | None = None,
        keep_file: KeepFile | None = None,
        *,
        skip: int = 0,
    ) -> Iterator[FileBatch]:
        """The live files, those left out that one of the tests refuses; from place `skip` on.

        `keep_partition` is asked once for each combination of partition values, `keep_file` for
        each file that is left, with its statistics as the log has them.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        kept = None
        if keep_partition is not None:
            numbers = [number for number, each in enumerate(self.partitions) if keep_partition(each)]
            kept = None if len(numbers) == len(self.partitions) else pa.array(numbers, pa.int32())
        place = 0
        for batch in self._live():
            first, place = place, place + len(batch)
            if place <= skip:
                continue
            if first < skip:
                batch, first = batch.slice(skip - first), skip
            rows = None
            if kept is not None:
                mask = pc.is_in(batch.column("partition"), value_set=kept)
                batch, rows = batch.filter(mask), pc.indices_nonzero(mask)
            if keep_file is not None and len(batch):
                mask = pa.array(self._wanted(batch, keep_file), pa.bool_())
                rows = pc.indices_nonzero(mask) if rows is None else rows.filter(mask)
                batch = batch.filter(mask)
            if len(batch):
                yield FileBatch(batch, self.partitions, first, rows)

    def find(self, paths: Sequence[str]) -> dict[str, tuple[int, Words]]:
        """Size and partition values of live files, by path."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = pa.array(set(paths), pa.string())
        found: dict[str, tuple[int, Words]] = {}
        for batch in self._live():
            rows = batch.filter(pc.is_in(batch.column("path"), value_set=wanted))
            columns = (rows.column(name).to_pylist() for name in ("path", "size", "partition"))
            for path, size, partition in zip(*columns, strict=True):
                found[path] = size, self.partitions[partition]
        return found

    def _wanted(self, batch: pa.RecordBatch, keep: KeepFile) -> list[bool]:
        numbers = batch.column("partition").to_pylist()
        stats = batch.column("stats").to_pylist()
        return [keep(self.partitions[n], text) for n, text in zip(numbers, stats, strict=True)]

    def _live(self) -> Iterator[pa.RecordBatch]:
        base = self.base
        for number in range(0 if base is None else len(base)):
            assert base is not None
            batch = base.batch(number)
            dead = self._dead.get(number)
            yield batch if dead is None else batch.filter(_all_but(dead, len(batch)))
            if number % _PAGES_EVERY == _PAGES_EVERY - 1:
                base.forget_pages()
        if base is not None:
            base.forget_pages()
        yield from self._added

    def _count(self) -> Head:
        totals = Head(version=self.version, state=TableState(), partitions=[], files=0, bytes=0, vectors=0)
        for batch in self._added:
            count(totals, batch)
        if self.base is not None:
            import pyarrow as pa

            gone = msgspec.structs.replace(totals, files=0, bytes=0, vectors=0)
            for number, rows in self._dead.items():
                count(gone, self.base.batch(number).take(pa.array(rows, pa.int64())))
            head = self.base.head
            totals.files += head.files - gone.files
            totals.bytes += head.bytes - gone.bytes
            totals.vectors += head.vectors - gone.vectors
        return totals


def complete(protocol: Protocol | None, metadata: Metadata | None, version: int) -> TableHead:
    if protocol is None or metadata is None:
        missing = "protocol" if protocol is None else "metadata"
        raise damaged(f"up to version {version} it has no {missing}")
    check_readable(protocol)
    return TableHead(protocol, metadata)


def check_readable(protocol: Protocol) -> None:
    if protocol.min_reader_version > 3:
        raise Unsupported(
            f"the table requires reader version {protocol.min_reader_version}; 3 is the last known"
        )
    unknown = sorted(set(protocol.reader_features or ()) - READER_FEATURES)
    if unknown:
        raise Unsupported(f"the table requires reader features that are not known here: {', '.join(unknown)}")


def _dead_rows(base: Base, gone: set[FileKey]) -> dict[int, list[int]]:
    """By batch, the rows of files that are not live any more."""
    import pyarrow as pa
    import pyarrow.compute as pc

    paths = pa.array({path for path, _ in gone}, pa.string())
    dead: dict[int, list[int]] = {}
    for number in range(len(base)):
        batch = base.batch(number)
        found = pc.indices_nonzero(pc.is_in(batch.column("path"), value_set=paths)).to_pylist()
        rows = [row for row, key in zip(found, row_keys(batch, found), strict=True) if key in gone]
        if rows:
            dead[number] = rows
    base.forget_pages()
    return dead


def _all_but(rows: Sequence[int], length: int) -> pa.Array:
    import pyarrow as pa

    mask = bytearray(b"\x01") * length
    for row in rows:
        mask[row] = 0
    return pa.Array.from_buffers(pa.uint8(), length, [None, pa.py_buffer(mask)]).cast(pa.bool_())
