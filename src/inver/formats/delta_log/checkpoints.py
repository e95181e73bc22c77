"""Checkpoints: classic, in parts, and version 2 with sidecars; Parquet files, or JSON on top."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import msgspec

from inver.domain.delta_actions import (
    Add,
    AppTransaction,
    DomainMetadata,
    Metadata,
    Protocol,
    Sidecar,
    TableState,
)
from inver.domain.delta_schema import physical_partition_columns
from inver.formats.delta_log.actions import Action, actions, damaged, note
from inver.formats.delta_log.columns import Partitions, from_adds, from_checkpoint

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

T = TypeVar("T")

_encode = msgspec.json.Encoder(decimal_format="number").encode

_ROWS = 16_384
_BUFFER = 1 << 20
_FILE_FIELDS = (
    *("path", "partitionValues", "size", "modificationTime", "stats", "tags", "deletionVector"),
    *("baseRowId", "defaultRowCommitVersion", "clusteringProvider"),
)
# By name in the file: our name, the type, and a field that every action of the kind has.
_STATE: dict[str, tuple[str, type[Any], str]] = {
    "protocol": ("protocol", Protocol, "minReaderVersion"),
    "metaData": ("meta_data", Metadata, "id"),
    "domainMetadata": ("domain_metadata", DomainMetadata, "domain"),
    "txn": ("txn", AppTransaction, "appId"),
    "sidecar": ("sidecar", Sidecar, "path"),
}


class CheckpointFiles:
    """The files of one checkpoint on local disk. `sidecars` are named by the others, and come later."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = list(files)
        self._adds: list[Add] = []
        self.state = TableState()
        self.sidecars: list[str] = []
        for path in files:
            for action in json_actions(path) if path.suffix == ".json" else _parquet_state(path):
                self._note(action)

    def _note(self, action: Action) -> None:
        if action.sidecar is not None:
            self.sidecars.append(unquote(action.sidecar.path).rpartition("/")[2])
        elif action.add is not None:
            self._adds.append(action.add)
        else:
            note(self.state, action)

    def batches(self, sidecars: Sequence[Path], partitions: Partitions) -> Iterator[pa.RecordBatch]:
        """Every live file, in the order of the checkpoint."""
        if self.state.protocol is None or self.state.metadata is None:
            # Refused as a checkpoint; the commits that it was made of may still be there.
            missing = "protocol" if self.state.protocol is None else "metadata"
            raise damaged(f"a checkpoint has no {missing}")
        names = physical_partition_columns(self.state.metadata)
        if self._adds:
            yield from_adds(self._adds, partitions)
        for path in [*self.files, *sidecars]:
            if path.suffix != ".json":
                yield from _parquet_files(path, names, partitions)


class CommitFile:
    """A commit on local disk that no other came before, so that what it adds is all there is."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name

    def state(self) -> TableState:
        state = TableState()
        for action in self._actions():
            note(state, action)
        return state

    def batches(self, partitions: Partitions) -> Iterator[pa.RecordBatch]:
        adds = (action.add for action in self._actions() if action.add is not None)
        while some := list(islice(adds, _ROWS)):
            yield from_adds(some, partitions)

    def _actions(self) -> Iterator[Action]:
        with self._path.open("rb") as lines:
            yield from actions(lines, self._name)


def json_actions(path: Path) -> Iterator[Action]:
    return actions(path.read_bytes(), path.name)


def _parquet_state(path: Path) -> Iterator[Action]:
    with opened(path) as file:
        probes = {
            name: f"{name}.{field}" for name, (_, _, field) in _STATE.items() if _has(file, name, field)
        }
        for group in range(file.num_row_groups):
            # Files are all there is in most row groups. One field of each kind tells it; the footer
            # would tell it too, but a damaged one ends the process.
            present = set()
            for batch in file.iter_batches(_ROWS, row_groups=[group], columns=list(probes.values())):
                present |= {name for name in probes if _has_values(batch.column(name))}
            if not present:
                continue
            for batch in file.iter_batches(_ROWS, row_groups=[group], columns=sorted(present)):
                for name in present:
                    attribute, kind, _ = _STATE[name]
                    for value in batch.column(name).drop_null().to_pylist(maps_as_pydicts="strict"):
                        yield Action(**{attribute: _converted(value, kind, path)})


def _has(file: pq.ParquetFile, name: str, field: str) -> bool:
    names = file.schema_arrow.names
    return name in names and field in {each.name for each in file.schema_arrow.field(name).type}


def _has_values(column: pa.Array) -> bool:
    return bool(column.null_count < len(column))


def _converted(value: Any, kind: type[T], path: Path) -> T:
    try:
        return msgspec.convert(_without_nulls(value), kind)
    except msgspec.ValidationError as error:
        raise damaged(f"{path.name} has a {kind.__name__.lower()} that is none: {error}") from None


def _without_nulls(value: Any) -> Any:
    """As JSON would have it: what is not there is left out."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return value


def _parquet_files(path: Path, names: Sequence[str], partitions: Partitions) -> Iterator[pa.RecordBatch]:
    with opened(path) as file:
        if "add" not in file.schema_arrow.names:
            return
        fields = {field.name for field in file.schema_arrow.field("add").type}
        parsed = "stats_parsed" in fields and not ("stats" in fields and any_stats(file))
        wanted = [f"add.{name}" for name in _FILE_FIELDS if name in fields]
        if not {"path", "partitionValues", "size"} <= fields:
            raise damaged(f"{path.name} has files without a path, partition values or a size")
        columns = [*wanted, "add.stats_parsed"] if parsed else wanted
        for batch in file.iter_batches(_ROWS, columns=columns):
            rows = batch.column("add")
            children = dict(zip((field.name for field in rows.type), rows.flatten(), strict=True))
            there = children["path"].is_valid()
            if there.true_count == 0:
                continue
            if there.true_count < len(there):
                children = {name: array.filter(there) for name, array in children.items()}
            if parsed:
                children["stats"] = completed(children.get("stats"), children["stats_parsed"])
            made = from_checkpoint(children, names, partitions)
            # Text that is none would be noticed when an answer has begun.
            made.validate(full=True)
            yield made


@contextmanager
def opened(path: Path) -> Iterator[pq.ParquetFile]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Buffered, or a whole column of a large row group would be in memory at once.
        with pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
            yield file
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        raise damaged(f"{path.name} is no readable Parquet file: {str(error).splitlines()[0]}") from None


def any_stats(file: pq.ParquetFile) -> bool:
    """Whether files have statistics as JSON: what holds for the first ones, holds for them all."""
    for batch in file.iter_batches(_ROWS, columns=["add.path", "add.stats"]):
        path, stats = batch.column("add").flatten()
        if _has_values(path):
            return _has_values(stats)
    return False


def completed(stats: pa.Array | None, parsed: pa.StructArray) -> pa.Array:
    """Statistics that a writer left out as JSON, made of those that it wrote as columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = (None if row is None else _plain(row) for row in parsed.to_pylist())
    made = pa.array([_encode(row).decode() if row else None for row in rows], pa.string())
    return made if stats is None else pc.coalesce(stats, made)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, datetime.datetime):
        zone = "" if value.tzinfo is None else "Z"
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value
