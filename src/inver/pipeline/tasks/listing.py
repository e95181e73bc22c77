"""The files of a table's folder, listed folder by folder in Spark's tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import fs

from inver.domain.delta_vacuum import is_hidden, nested_table
from inver.pipeline.places import Place

ROWS = 10_000
SCHEMA = "path string, size long, modified long, nested boolean"
_ARROW = pa.schema({"path": pa.string(), "size": pa.int64(), "modified": pa.int64(), "nested": pa.bool_()})


def folders(place: Place) -> list[str]:
    """What lies directly in the table's folder: files, which are their own listing, and folders."""
    found = place.filesystem().get_file_info(fs.FileSelector("", recursive=False, allow_not_found=True))
    return sorted(each.path.strip("/") for each in found if each.type is not fs.FileType.NotFound)


def unneeded_files(
    spark: Any, place: Place, needed: pa.Table, since: int, partition_columns: Sequence[str]
) -> pa.Table:
    """What is older than `since` and not among the paths of `needed`; and, marked `nested`, folders inside
    that are tables by themselves. Bookkeeping is left out."""
    wanted = folders(place)
    columns = tuple(partition_columns)

    def listed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for folder in batch.column("folder").to_pylist():
                yield from _listed(place, folder, columns)

    # One row for each task: a folder's listing is as long as it is.
    rows = spark.createDataFrame(pa.table({"folder": pa.array(wanted, pa.string())}))
    files = rows.repartition(max(1, len(wanted))).mapInArrow(listed, SCHEMA)
    kept = spark.createDataFrame(needed.select(["path"]))
    found = files.join(kept, "path", "left_anti").where(f"nested OR modified < {since:d}")
    return found.toArrow()


def _listed(place: Place, folder: str, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    nested: set[str] = set()
    for path, size, modified in asyncio.run(_files(place, folder)):
        table = nested_table(path)
        if table is not None and table not in nested:
            nested.add(table)
            rows.append({"path": table, "size": 0, "modified": 0, "nested": True})
        if not is_hidden(path, columns):
            rows.append({"path": path, "size": size, "modified": modified, "nested": False})
        if len(rows) >= ROWS:
            yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)
            rows = []
    yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)


async def _files(place: Place, folder: str) -> list[tuple[str, int, int]]:
    objects = place.objects()
    found = [(info.path, info.size, info.modified_ms) async for info in objects.list(folder)]
    if found:
        return found
    info = await objects.head(folder)
    return [] if info is None else [(info.path, info.size, info.modified_ms)]
