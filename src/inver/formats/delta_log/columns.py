"""The live files of a table as Arrow columns, whatever they were read from.

`partition` is the number of the file's partition values in a list beside the columns: there are far
fewer of them than files, so a predicate is asked of each of them once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from inver.domain.delta_actions import Add, DeletionVector, Words, decoded, vector_id

if TYPE_CHECKING:
    import pyarrow as pa

_VECTOR = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")


@cache
def schema() -> pa.Schema:
    import pyarrow as pa

    text, number = pa.string(), pa.int64()
    return pa.schema(
        {
            "path": text,
            "partition": pa.int32(),
            "size": number,
            "modificationTime": number,
            "stats": text,
            "tags": pa.map_(text, text),
            "deletionVector": pa.struct(
                dict(zip(_VECTOR, (text, text, number, number, number), strict=True))
            ),
            "baseRowId": number,
            "defaultRowCommitVersion": number,
            "clusteringProvider": text,
        }
    )


class Partitions:
    """Partition values by number; the same values have the same number."""

    def __init__(self, values: Sequence[Words] = ()) -> None:
        self.values = list(values)
        self._numbers = {tuple(each.items()): number for number, each in enumerate(values)}

    def number(self, values: Words) -> int:
        key = tuple(values.items())
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.values)
            self.values.append(dict(values))
        return number


def from_adds(adds: Sequence[Add], partitions: Partitions) -> pa.RecordBatch:
    import pyarrow as pa

    wanted = schema()
    columns: dict[str, list[Any]] = {
        "path": [decoded(add.path) for add in adds],
        "partition": [partitions.number(add.partition_values) for add in adds],
        "size": [add.size for add in adds],
        "modificationTime": [add.modification_time for add in adds],
        "stats": [add.stats for add in adds],
        "tags": [None if add.tags is None else list(add.tags.items()) for add in adds],
        "deletionVector": [_vector(add.deletion_vector) for add in adds],
        "baseRowId": [add.base_row_id for add in adds],
        "defaultRowCommitVersion": [add.default_row_commit_version for add in adds],
        "clusteringProvider": [add.clustering_provider for add in adds],
    }
    arrays = [pa.array(columns[each.name], each.type) for each in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def from_checkpoint(
    children: Mapping[str, pa.Array], names: Sequence[str], partitions: Partitions
) -> pa.RecordBatch:
    """The fields of `add` as a checkpoint has them; `names` are the partition columns in it."""
    import pyarrow as pa

    rows = len(children["path"])
    arrays = []
    for each in schema():
        found = children.get(each.name)
        if each.name == "path":
            array = _decoded_paths(children["path"])
        elif each.name == "partition":
            array = _numbers(children["partitionValues"], names, partitions)
        elif found is None or found.null_count == rows:
            array = pa.nulls(rows, each.type)
        elif each.name == "deletionVector":
            array = _vectors(found, each.type)
        else:
            array = found if found.type == each.type else found.cast(each.type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema())


def row_keys(batch: pa.RecordBatch, rows: Sequence[int]) -> list[tuple[str, str | None]]:
    """The keys of some rows: their paths, and the ids of their deletion vectors."""
    import pyarrow as pa

    some = pa.array(rows, pa.int64())
    paths = batch.column("path").take(some).to_pylist()
    vectors = batch.column("deletionVector").take(some).to_pylist()
    return [
        (path, None if v is None else vector_id(v["storageType"], v["pathOrInlineDv"], v["offset"]))
        for path, v in zip(paths, vectors, strict=True)
    ]


def _vector(vector: DeletionVector | None) -> dict[str, Any] | None:
    if vector is None:
        return None
    values = (vector.storage_type, vector.path_or_inline_dv, vector.offset)
    return dict(zip(_VECTOR, (*values, vector.size_in_bytes, vector.cardinality), strict=True))


def _vectors(found: pa.Array, wanted: pa.StructType) -> pa.Array:
    import pyarrow as pa

    given = dict(zip((field.name for field in found.type), found.flatten(), strict=True))
    absent = pa.nulls(len(found))
    arrays = [given.get(field.name, absent).cast(field.type) for field in wanted]
    return pa.StructArray.from_arrays(arrays, fields=list(wanted), mask=found.is_null())


def _decoded_paths(paths: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    paths = paths.cast(pa.string())
    encoded = pc.match_substring(paths, "%")
    if encoded.true_count == 0:
        return paths
    # Files share their folders, and it is the folders that have characters to encode.
    folders: dict[str, str] = {}
    clear = []
    for path in paths.filter(encoded).to_pylist():
        folder, slash, name = path.rpartition("/")
        if folder not in folders:
            folders[folder] = decoded(folder)
        clear.append(folders[folder] + slash + decoded(name))
    return pc.replace_with_mask(paths, encoded, pa.array(clear, pa.string()))


def _numbers(values: pa.MapArray, names: Sequence[str], partitions: Partitions) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not names:
        return pa.array([partitions.number({})] * len(values), pa.int32())
    combined: Any = None
    found: list[list[str | None]] = []
    for looked_up in _looked_up(values, names):
        column = looked_up.dictionary_encode(null_encoding="encode")
        words = column.dictionary.to_pylist()
        found.append(words)
        codes = column.indices.cast(pa.int64())
        combined = codes if combined is None else pc.add(pc.multiply(combined, len(words)), codes)
    combined = combined.dictionary_encode()
    numbers = []
    for code in combined.dictionary.to_pylist():
        chosen: list[str | None] = []
        for words in reversed(found):
            code, place = divmod(code, len(words))
            chosen.append(words[place])
        numbers.append(partitions.number(dict(zip(names, reversed(chosen), strict=True))))
    return pa.array(numbers, pa.int32()).take(combined.indices)


def _looked_up(values: pa.MapArray, names: Sequence[str]) -> list[pa.Array]:
    """The values of each partition column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows, count = len(values), len(names)
    start, end = values.offsets[0].as_py(), values.offsets[-1].as_py()
    if values.null_count == 0 and end - start == rows * count:
        # Mostly every row has the same keys in the same order; a lookup would take far longer.
        keys, items = values.keys.slice(start, rows * count), values.items.slice(start, rows * count)
        steps = [pa.array(range(at, rows * count, count), pa.int64()) for at in range(count)]
        if all(
            pc.all(pc.equal(keys.take(step), name)).as_py() for step, name in zip(steps, names, strict=True)
        ):
            return [items.take(step) for step in steps]
    return [pc.map_lookup(values, name, "first") for name in names]
