"""The rows of a Delta data file that are live, with the table's types and with their ids."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from inver.domain.delta_actions import Add, DeletionVector
from inver.domain.delta_bins import deleted_rows as count_deleted
from inver.errors import Invalid, NotFound, Unsupported
from inver.formats import deletion_vectors
from inver.formats.roaring import RowSet
from inver.pipeline.tasks.delta_schema import ARROW_ID

_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_WRITER = b"org.apache.spark.version"
_MARKED_SINCE = (3, 1)
"""Earlier releases of Spark wrote dates of the old calendar without a mark."""


@dataclass(frozen=True)
class RowIds:
    """The columns in which files keep ids and commit versions of rows that came from other files."""

    id_column: str
    version_column: str

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.id_column, pa.int64()), pa.field(self.version_column, pa.int64())]


@dataclass(frozen=True)
class Reading:
    """How the files of a table are read. `schema` is that of the data alone."""

    schema: pa.Schema
    by_field_id: bool = False
    row_ids: RowIds | None = None

    @property
    def output(self) -> pa.Schema:
        return self.schema if self.row_ids is None else pa.schema([*self.schema, *self.row_ids.fields])

    def tables(self, files: Any, file: Add) -> Iterator[pa.Table]:
        """Row group by row group; `files` is a file system whose root is the table."""
        deleted = deleted_rows(files, file)
        with _open(files, file) as source:
            parquet = _parquet(source, file)
            wanted = self._columns(parquet.schema_arrow)
            first = live = 0
            for number in range(parquet.num_row_groups):
                found = parquet.read_row_group(number, columns=wanted)
                rows = parquet.metadata.row_group(number).num_rows
                table = self._live(found, rows, file, deleted, first)
                first, live = first + rows, live + table.num_rows
                yield table
            if first - live != count_deleted(file):
                raise Invalid(f"the deletion vector of {file.path} is not about its rows", field="table")

    def _columns(self, found: pa.Schema) -> list[str]:
        names = {name for name in self.output.names if name in found.names}
        if self.by_field_id:
            ids = {_id(field) for field in self.schema}
            names |= {field.name for field in found if _id(field) in ids and _id(field) is not None}
        return sorted(names)

    def _live(self, table: pa.Table, rows: int, file: Add, deleted: RowSet | None, first: int) -> pa.Table:
        columns = [
            conformed(_find(table, field, self.by_field_id), field, rows, self.by_field_id)
            for field in self.schema
        ]
        if self.row_ids is not None:
            columns += self._ids(table, file, first, rows)
        live = pa.table(columns, schema=self.output)
        if deleted is None:
            return live
        bits = pa.py_buffer(deleted.bitmap(first + rows))
        gone = pa.Array.from_buffers(pa.bool_(), rows, [None, bits], offset=first)
        return live.filter(pc.invert(gone))

    def _ids(self, table: pa.Table, file: Add, first: int, rows: int) -> list[Any]:
        assert self.row_ids is not None
        found = []
        base, version = file.base_row_id, file.default_row_commit_version
        for field, default in zip(self.row_ids.fields, (base, version), strict=True):
            kept = table[field.name] if field.name in table.column_names else None
            if kept is not None and kept.null_count == 0:
                found.append(kept)
                continue
            if default is None:
                raise Invalid(f"{file.path} has no row ids, and the table says that it has", field="table")
            if field.name == self.row_ids.id_column:
                import numpy as np

                fresh = pa.array(np.arange(default + first, default + first + rows, dtype=np.int64))
            else:
                fresh = pa.repeat(pa.scalar(default, pa.int64()), rows)
            found.append(fresh if kept is None else pc.coalesce(kept, fresh))
        return found


def deleted_rows(files: Any, file: Add) -> RowSet | None:
    vector = file.deletion_vector
    if vector is None:
        return None
    place = deletion_vectors.place(vector)
    if place is None:
        return deletion_vectors.parse_inline(vector)
    if place.absolute or not inside(files, place.path):
        raise _outside(vector)
    try:
        with files.open_input_file(place.path) as source:
            deletion_vectors.check_file(source.read_at(1, 0))
            return deletion_vectors.parse_stored(vector, source.read_at(place.length, place.offset))
    except FileNotFoundError:
        raise NotFound(f"the deletion vector {place.path} is missing", kind="file") from None


def conformed(column: Any, field: pa.Field, rows: int, by_id: bool) -> Any:
    """The values with the type that the table has now: narrower types of earlier times are widened,
    fields that came later are null, and those that were dropped are left out."""
    if column is None:
        return pa.nulls(rows, field.type)
    if column.type == field.type:
        return column
    if isinstance(column, pa.ChunkedArray):
        chunks = [_conformed_array(chunk, field.type, by_id) for chunk in column.chunks]
        return pa.chunked_array(chunks, field.type)
    return _conformed_array(column, field.type, by_id)


def _conformed_array(array: Any, wanted: pa.DataType, by_id: bool) -> Any:
    if array.type == wanted:
        return array
    if pa.types.is_struct(wanted):
        children = []
        for each in wanted:
            at = _index(list(array.type), each, by_id)
            child = None if at is None else array.field(at)
            children.append(conformed(child, each, len(array), by_id))
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())
    if pa.types.is_map(wanted):
        array = _rebased(array)
        keys = _conformed_array(array.keys, wanted.key_type, by_id)
        items = _conformed_array(array.items, wanted.item_type, by_id)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=wanted, mask=_nulls(array))
    if pa.types.is_list(wanted):
        array = _rebased(array)
        values = _conformed_array(array.values, wanted.value_type, by_id)
        return pa.ListArray.from_arrays(array.offsets, values, type=wanted, mask=_nulls(array))
    try:
        return array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Invalid(f"values of type {array.type} are not {wanted}: {error}", field="table") from None


def _rebased(array: Any) -> Any:
    """Without an offset, which the parts of a collection do not have."""
    return array if array.offset == 0 else pa.concat_arrays([array, array.slice(0, 0)])


def _nulls(array: Any) -> Any:
    return array.is_null() if array.null_count else None


def _find(table: pa.Table, field: pa.Field, by_id: bool) -> Any:
    at = _index(list(table.schema), field, by_id)
    return None if at is None else table.column(at)


def _index(fields: list[pa.Field], wanted: pa.Field, by_id: bool) -> int | None:
    number = _id(wanted) if by_id else None
    if number is not None and any(_id(each) is not None for each in fields):
        return next((at for at, each in enumerate(fields) if _id(each) == number), None)
    return next((at for at, each in enumerate(fields) if each.name == wanted.name), None)


def _id(field: pa.Field) -> bytes | None:
    found: bytes | None = (field.metadata or {}).get(ARROW_ID)
    return found


def inside(files: Any, path: str) -> bool:
    """Whether a path of the log leads to a place below the table. Neither the file system nor the log sees
    to that, and who writes to a table may not have its care read somebody else's."""
    if "://" in path or path.startswith("file:") or not {"", ".", ".."}.isdisjoint(path.split("/")):
        return False
    if files.base_fs.type_name != "local":
        return True
    root = os.path.realpath(files.base_path)
    return os.path.realpath(os.path.join(root, path)).startswith(f"{root.rstrip('/')}/")


def _open(files: Any, file: Add) -> Any:
    if not inside(files, file.path):
        raise Unsupported(f"{file.path} lies outside of the table's folder")
    try:
        return files.open_input_file(file.path)
    except FileNotFoundError:
        raise NotFound(f"the data file {file.path} is missing", kind="file") from None


def _parquet(source: Any, file: Add) -> Any:
    try:
        parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
    except pa.ArrowInvalid as error:
        raise Invalid(f"{file.path} is no Parquet file: {error}", field="table") from None
    if _is_legacy(parquet.metadata.metadata or {}, parquet.schema_arrow):
        raise Unsupported(f"{file.path} has dates of the old Julian calendar, which only Spark reads right")
    return parquet


def _is_legacy(words: Mapping[bytes, bytes], schema: pa.Schema) -> bool:
    if any(key in words for key in _LEGACY):
        return True
    writer = words.get(_WRITER)
    if writer is None or not any(_has_time(field.type) for field in schema):
        return False
    numbers = [int(part) for part in writer.decode(errors="replace").split(".")[:2] if part.isdecimal()]
    return tuple(numbers) < _MARKED_SINCE


def _has_time(type: pa.DataType) -> bool:
    if pa.types.is_date(type) or pa.types.is_timestamp(type):
        return True
    return any(_has_time(type.field(at).type) for at in range(type.num_fields))


def _outside(vector: DeletionVector) -> Unsupported:
    return Unsupported(f"the deletion vector {vector.id!a} lies outside of the table's folder")
