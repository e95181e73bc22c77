"""Files as checkpoints list them: one column of added files and one of tombstones, a row has either.

Paths stay as the log has them. Readers that compare them without decoding must find in a checkpoint what
they find in commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inver.domain.delta_actions import Add, DeletionVector, FileKey, Remove, Words, decoded, vector_id
from inver.formats.delta_log.actions import damaged
from inver.formats.delta_log.checkpoints import any_stats, completed, json_actions, opened

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 16_384
_VECTOR = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")


@cache
def file_schema() -> pa.Schema:
    """The types are those that other readers expect: they refuse wider ones."""
    import pyarrow as pa

    text, number, flag, words = pa.string(), pa.int64(), pa.bool_(), pa.map_(pa.string(), pa.string())
    types = (text, text, pa.int32(), pa.int32(), number)
    vector = pa.struct(dict(zip(_VECTOR, types, strict=True)))
    tracked = {"deletionVector": vector, "baseRowId": number, "defaultRowCommitVersion": number}
    add = {
        "path": text,
        "partitionValues": words,
        "size": number,
        "modificationTime": number,
        "dataChange": flag,
        "stats": text,
        "tags": words,
        **tracked,
        "clusteringProvider": text,
    }
    remove = {
        "path": text,
        "deletionTimestamp": number,
        "dataChange": flag,
        "extendedFileMetadata": flag,
        "partitionValues": words,
        "size": number,
        **tracked,
    }
    return pa.schema({"add": pa.struct(add), "remove": pa.struct(remove)})


def from_actions(adds: Sequence[Add], removes: Sequence[Remove]) -> pa.RecordBatch:
    import pyarrow as pa

    rows: list[list[dict[str, Any] | None]] = [
        [*map(_added, adds), *[None] * len(removes)],
        [*[None] * len(adds), *map(_removed, removes)],
    ]
    wanted = file_schema()
    arrays = [pa.array(each, field.type) for each, field in zip(rows, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def from_checkpoint(path: Path) -> Iterator[pa.RecordBatch]:
    """The files in one file of a checkpoint, whoever wrote it."""
    import pyarrow as pa

    if path.suffix == ".json":
        found = (action for action in json_actions(path) if action.add or action.remove)
        while some := list(islice(found, ROWS)):
            yield from_actions([a.add for a in some if a.add], [a.remove for a in some if a.remove])
        return
    with opened(path) as file:
        there = [name for name in ("add", "remove") if name in file.schema_arrow.names]
        if not there:
            return
        fields = {name: {each.name for each in file.schema_arrow.field(name).type} for name in there}
        for name in there:
            if "path" not in fields[name]:
                raise damaged(f"{path.name} has files without a path")
        parsed = _is_parsed(fields.get("add", set()), file)
        columns = [
            f"{name}.{each.name}"
            for name in there
            for each in file_schema().field(name).type
            if each.name in fields[name]
        ]
        for batch in file.iter_batches(ROWS, columns=[*columns, *(["add.stats_parsed"] if parsed else [])]):
            arrays = []
            for field in file_schema():
                found_rows = batch.column(field.name) if field.name in there else None
                arrays.append(_normal(found_rows, field.type, len(batch)))
            made = pa.RecordBatch.from_arrays(arrays, schema=file_schema())
            made = made.filter(_either(made))
            made.validate(full=True)
            if len(made):
                yield made


def keys_of(files: pa.StructArray, rows: Sequence[int]) -> list[FileKey]:
    """The keys of some rows of a column, as `file_key` makes them of actions."""
    import pyarrow as pa

    some = files.take(pa.array(rows, pa.int64()))
    paths, vectors = some.field("path").to_pylist(), some.field("deletionVector").to_pylist()
    return [
        (decoded(path), None if v is None else vector_id(v["storageType"], v["pathOrInlineDv"], v["offset"]))
        for path, v in zip(paths, vectors, strict=True)
    ]


def _is_parsed(fields: set[str], file: Any) -> bool:
    return "stats_parsed" in fields and not ("stats" in fields and any_stats(file))


def _either(batch: pa.RecordBatch) -> pa.Array:
    import pyarrow.compute as pc

    return pc.or_(batch.column("add").is_valid(), batch.column("remove").is_valid())


def _normal(rows: pa.StructArray | None, wanted: pa.StructType, length: int) -> pa.Array:
    import pyarrow as pa

    if rows is None:
        return pa.nulls(length, wanted)
    given = dict(zip((field.name for field in rows.type), rows.flatten(), strict=True))
    absent = given["path"].is_null()
    if "stats_parsed" in given:
        given["stats"] = completed(given.get("stats"), given["stats_parsed"])
    if "dataChange" in {field.name for field in wanted}:
        given["dataChange"] = pa.array([False] * length, pa.bool_())
    arrays = [_child(given, field, length) for field in wanted]
    return pa.StructArray.from_arrays(arrays, fields=list(wanted), mask=absent)


def _child(given: Mapping[str, pa.Array], field: pa.Field, length: int) -> pa.Array:
    import pyarrow as pa

    found = given.get(field.name)
    if found is None or found.null_count == length:
        return pa.nulls(length, field.type)
    if field.name == "deletionVector":
        inner = dict(zip((each.name for each in found.type), found.flatten(), strict=True))
        arrays = [_child(inner, each, length) for each in field.type]
        return pa.StructArray.from_arrays(arrays, fields=list(field.type), mask=found.is_null())
    return found if found.type == field.type else found.cast(field.type)


def _added(add: Add) -> dict[str, Any]:
    return {
        "path": add.path,
        "partitionValues": _words(add.partition_values),
        "size": add.size,
        "modificationTime": add.modification_time,
        "dataChange": False,
        "stats": add.stats,
        "tags": _words(add.tags),
        "clusteringProvider": add.clustering_provider,
        **_tracked(add),
    }


def _removed(remove: Remove) -> dict[str, Any]:
    return {
        "path": remove.path,
        "deletionTimestamp": remove.deletion_timestamp,
        "dataChange": False,
        "extendedFileMetadata": remove.extended_file_metadata,
        "partitionValues": _words(remove.partition_values),
        "size": remove.size,
        **_tracked(remove),
    }


def _tracked(file: Add | Remove) -> dict[str, Any]:
    return {
        "deletionVector": _vector(file.deletion_vector),
        "baseRowId": file.base_row_id,
        "defaultRowCommitVersion": file.default_row_commit_version,
    }


def _words(words: Words | None) -> list[tuple[str, str | None]] | None:
    return None if words is None else list(words.items())


def _vector(vector: DeletionVector | None) -> dict[str, Any] | None:
    if vector is None:
        return None
    values = (vector.storage_type, vector.path_or_inline_dv, vector.offset)
    return dict(zip(_VECTOR, (*values, vector.size_in_bytes, vector.cardinality), strict=True))
