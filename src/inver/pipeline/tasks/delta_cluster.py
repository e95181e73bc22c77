"""The tasks of clustering: sample the columns, give each row its place on the curve, write in that order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from inver.domain.delta_actions import Add, Metadata
from inver.domain.delta_bins import Bin, deleted_ratio
from inver.domain.delta_clusters import LIQUID, Clustering
from inver.domain.delta_rewrites import NewFile
from inver.errors import Refused
from inver.pipeline.tasks.delta_rewrite import Rewriting

PLACE = "__inver_place"
PART = "__inver_part"
_SAMPLE = "sample binary, refused string"
_SAMPLE_ROWS = 200_000
_LEAST_ROWS = 100
_LEAST_TASKS = 16
_TASK_BYTES = 64 << 20
_NEW = "file binary"

_encode = msgspec.json.encode
_decode_file = msgspec.json.Decoder(Add).decode
_decode_new = msgspec.json.Decoder(NewFile).decode


@dataclass(frozen=True)
class Layout:
    """What all tasks are told: a value that travels in a closure.

    `cuts` are where the ranges of each column begin, `ends` where on the curve one file ends and the
    next begins.
    """

    rewriting: Rewriting
    clustering: Clustering
    files: tuple[bytes, ...]
    tasks: int
    cube: str
    cuts: tuple[Any, ...] = ()
    ends: Any = None


def clustered(
    session: Any, rewriting: Rewriting, clustering: Clustering, bin: Bin, cube: str
) -> list[NewFile]:
    """The files of a cube, written anew in the order of the curve. Refused as `rewritten` is."""
    live = sum(file.size * (1 - deleted_ratio(file)) for file in bin.files)
    count = max(1, math.ceil(live / rewriting.target_file_size))
    tasks = min(len(bin.files), max(_LEAST_TASKS, bin.bytes // _TASK_BYTES))
    layout = Layout(rewriting, clustering, tuple(map(_encode, bin.files)), tasks, cube)
    layout = _with_cuts(session, layout, bin, count)
    rows = _work(session, layout).mapInArrow(partial(placed_rows, layout), _row_schema(layout))
    # Which file a row belongs to is known already; to let Spark find ranges would read everything twice.
    ordered = rows.repartitionById(count, PART).sortWithinPartitions(PLACE)
    written = ordered.mapInArrow(partial(write_rows, layout, bin.files[0].partition_values), _NEW)
    return [_decode_new(bytes(row.file)) for row in written.collect()]


def _work(session: Any, layout: Layout) -> Any:
    return session.range(0, len(layout.files), 1, layout.tasks)


def _with_cuts(session: Any, layout: Layout, bin: Bin, count: int) -> Layout:
    """From some rows of every file, of the larger ones more."""
    import numpy as np
    import pyarrow as pa

    from inver.pipeline.tasks.curves import bounds, places, ranges_of

    chosen = [max(_LEAST_ROWS, _SAMPLE_ROWS * file.size // bin.bytes) for file in bin.files]
    samples = []
    for row in _work(session, layout).mapInArrow(partial(sampled, layout, chosen), _SAMPLE).collect():
        if row.refused is not None:
            raise Refused(row.refused)
        samples.append(pa.ipc.open_stream(bytes(row.sample)).read_all())
    sample = pa.concat_tables(samples)
    ranges = ranges_of(len(layout.clustering.paths))
    cuts = tuple(bounds(column, ranges) for column in sample.columns)
    ordered = np.sort(places(sample.columns, cuts, layout.clustering.curve).to_numpy())
    ends = ordered[[len(ordered) * part // count for part in range(1, count)]] if len(ordered) else ordered
    return replace(layout, cuts=cuts, ends=ends)


def sampled(layout: Layout, chosen: list[int], batches: Iterable[Any]) -> Iterator[Any]:
    """Some rows of a file, of which only the columns in question are read."""
    import numpy as np
    import pyarrow as pa

    whole, files = _reading(layout)
    tops = {path[0] for path in layout.clustering.paths}
    reading = replace(whole, schema=pa.schema([f for f in whole.schema if f.name in tops]), row_ids=None)
    for number in _numbers(batches):
        sample, refused = None, None
        try:
            file = _decode_file(layout.files[number])
            whole_file = pa.concat_tables([reading.output.empty_table(), *reading.tables(files, file)])
            found = pa.table(
                [_column(whole_file, path) for path in layout.clustering.paths], names=_names(layout)
            )
            rows = np.linspace(0, max(0, found.num_rows - 1), min(chosen[number], found.num_rows))
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, found.schema) as stream:
                stream.write_table(found.take(pa.array(rows.astype(np.int64))))
            sample = sink.getvalue().to_pybytes()
        except Refused as error:
            refused = error.message
        arrays = [pa.array([sample], pa.binary()), pa.array([refused], pa.string())]
        yield pa.RecordBatch.from_arrays(arrays, names=["sample", "refused"])


def placed_rows(layout: Layout, batches: Iterable[Any]) -> Iterator[Any]:
    """The live rows of files, each with its place."""
    import numpy as np
    import pyarrow as pa

    from inver.pipeline.tasks.curves import places

    reading, files = _reading(layout)
    for number in _numbers(batches):
        for table in reading.tables(files, _decode_file(layout.files[number])):
            columns = [_column(table, path) for path in layout.clustering.paths]
            found = places(columns, layout.cuts, layout.clustering.curve)
            part: Any = np.searchsorted(layout.ends, found.to_numpy(), side="right").astype(np.int32)
            placed = table.append_column(PLACE, found).append_column(PART, pa.array(part))
            yield from placed.combine_chunks().to_batches(max_chunksize=1 << 16)


def write_rows(
    layout: Layout, partition_values: dict[str, str | None], batches: Iterable[Any]
) -> Iterator[Any]:
    """Everything that a task gets becomes one file."""
    import pyarrow as pa

    from inver.pipeline.tasks.delta_read import conformed
    from inver.pipeline.tasks.delta_schema import indexed
    from inver.pipeline.tasks.delta_write import FileWriter
    from inver.pipeline.tasks.delta_write import Layout as Folders

    metadata = _metadata(layout)
    reading, files = _reading(layout)
    writer = FileWriter(
        files,
        Folders.of(metadata).path(partition_values, 0),
        reading.output,
        indexed(metadata),
        partition_values,
        layout.clustering.tags(layout.cube),
        LIQUID if layout.clustering.liquid else None,
    )
    for batch in batches:
        columns = [
            conformed(batch.column(field.name), field, batch.num_rows, False) for field in reading.output
        ]
        writer.write(pa.table(columns, schema=reading.output))
    made = writer.close()
    if made is not None:
        yield pa.RecordBatch.from_arrays([pa.array([_encode(made)], pa.binary())], names=["file"])


def _row_schema(layout: Layout) -> Any:
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    reading, _ = _reading(layout, with_files=False)
    own = [pa.field(PLACE, pa.int64()), pa.field(PART, pa.int32())]
    return from_arrow_schema(pa.schema([*reading.output, *own]), prefer_timestamp_ntz=True)


def _reading(layout: Layout, with_files: bool = True) -> tuple[Any, Any]:
    from inver.pipeline.tasks.delta_rewrite import reading_of

    files = layout.rewriting.place.filesystem() if with_files else None
    return reading_of(layout.rewriting), files


def _metadata(layout: Layout) -> Metadata:
    return msgspec.json.decode(layout.rewriting.metadata, type=Metadata)


def _numbers(batches: Iterable[Any]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _names(layout: Layout) -> list[str]:
    return [str(number) for number in range(len(layout.clustering.paths))]


def _column(table: Any, path: tuple[str, ...]) -> Any:
    import pyarrow.compute as pc

    column = table[path[0]]
    return column if len(path) == 1 else pc.struct_field(column, list(path[1:]))
