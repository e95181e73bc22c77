"""One task, one bin: read its files, leave the deleted rows out, write one file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from inver.domain.delta_actions import Metadata
from inver.domain.delta_bins import TARGET_TAG, Bin
from inver.domain.delta_rewrites import NewFile
from inver.errors import Invalid, Refused
from inver.pipeline.places import Place

if TYPE_CHECKING:
    from inver.pipeline.tasks.delta_read import Reading

RESULT = "bin int, file binary, refused string"

_encode = msgspec.json.encode
_decode_file = msgspec.json.Decoder(NewFile).decode
_decode_bin = msgspec.json.Decoder(Bin).decode


@dataclass(frozen=True)
class Rewriting:
    """What all tasks of a rewrite are told: a value that travels in a closure."""

    place: Place
    metadata: bytes
    keeps_row_ids: bool
    target_file_size: int

    @classmethod
    def of(cls, place: Place, metadata: Metadata, keeps_row_ids: bool, target_file_size: int) -> Rewriting:
        return cls(place, _encode(metadata), keeps_row_ids, target_file_size)


def rewritten(session: Any, rewriting: Rewriting, bins: list[Bin]) -> list[NewFile | None]:
    """What each bin has become: one file, or none where every row was deleted.

    Refused, with the reason, where a bin has something in it that must not be touched.
    """
    specs = [_encode(each) for each in bins]
    # One row in each partition, so each bin is a task of its own and is tried again by itself.
    work = session.range(0, len(bins), 1, len(bins))
    found: list[NewFile | None] = [None] * len(bins)
    for row in work.mapInArrow(partial(run_bins, rewriting, specs), RESULT).collect():
        if row.refused is not None:
            raise Refused(row.refused)
        if row.file is not None:
            found[row.bin] = _decode_file(bytes(row.file))
    return found


def run_bins(rewriting: Rewriting, specs: list[bytes], batches: Iterable[Any]) -> Iterator[Any]:
    """The rows of a task are numbers of bins."""
    import pyarrow as pa

    for batch in batches:
        for number in batch.column(0).to_pylist():
            file, refused = None, None
            try:
                made = rewrite(rewriting, _decode_bin(specs[number]), number)
                file = None if made is None else _encode(made)
            except Refused as error:
                # Another attempt would find the same.
                refused = error.message
            columns = [
                pa.array([number], pa.int32()),
                pa.array([file], pa.binary()),
                pa.array([refused], pa.string()),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=["bin", "file", "refused"])


def rewrite(rewriting: Rewriting, bin: Bin, number: int) -> NewFile | None:
    from inver.pipeline.tasks.delta_schema import indexed
    from inver.pipeline.tasks.delta_write import FileWriter, Layout

    metadata = msgspec.json.decode(rewriting.metadata, type=Metadata)
    reading, files = reading_of(rewriting), rewriting.place.filesystem()
    partition_values = bin.files[0].partition_values
    writer = FileWriter(
        files,
        Layout.of(metadata).path(partition_values, number),
        reading.output,
        indexed(metadata),
        partition_values,
        {**bin.cube_tags, **({TARGET_TAG: str(rewriting.target_file_size)} if bin.full else {})},
        bin.files[0].clustering_provider if bin.cube_tags else None,
    )
    for file in bin.files:
        for table in reading.tables(files, file):
            writer.write(table)
    return writer.close()


def reading_of(rewriting: Rewriting) -> Reading:
    from inver.pipeline.tasks.delta_read import Reading, RowIds
    from inver.pipeline.tasks.delta_schema import by_field_id, data_schema

    metadata = msgspec.json.decode(rewriting.metadata, type=Metadata)
    row_ids = None
    if rewriting.keeps_row_ids:
        names = metadata.configuration
        ids = names.get("delta.rowTracking.materializedRowIdColumnName")
        versions = names.get("delta.rowTracking.materializedRowCommitVersionColumnName")
        if not ids or not versions:
            raise Invalid("the table tracks rows, and does not say in which columns", field="table")
        row_ids = RowIds(ids, versions)
    return Reading(data_schema(metadata), by_field_id(metadata), row_ids)
