"""Row deletes of Iceberg tables: files of positions, and the vectors in Puffin files.

A vector lies in its Puffin file exactly as Delta keeps one in a file of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from inver.domain.delta_actions import DeletionVector
from inver.errors import Invalid
from inver.formats import deletion_vectors
from inver.formats.deletion_vectors import ABSOLUTE, parse_stored
from inver.formats.roaring import RowSet

_PATH = "file_path"
_POSITION = "pos"


def read_positions(data: bytes) -> dict[str, RowSet]:
    """The deleted rows by data file, of a Parquet file of position deletes."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(data), columns=[_PATH, _POSITION])
        if table.column(_PATH).null_count:
            raise ValueError("a row names no file")
        paths = pc.dictionary_encode(table.column(_PATH).combine_chunks())
        positions = table.column(_POSITION).combine_chunks()
        return {
            path: RowSet(positions.filter(pc.equal(paths.indices, number)).to_pylist())
            for number, path in enumerate(paths.dictionary.to_pylist())
        }
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise Invalid(
            f"a file of position deletes cannot be read: {type(error).__name__}", field="table"
        ) from None


def read_vector(data: bytes, cardinality: int) -> RowSet:
    """Of the bytes that a manifest names."""
    return parse_stored(DeletionVector(ABSOLUTE, "", max(0, len(data) - 8), cardinality), data)


def inline(sets: Iterable[RowSet]) -> DeletionVector | None:
    """All of them in one vector; None if they have no rows."""
    found = RowSet()
    for rows in sets:
        found = found | rows
    return deletion_vectors.inline(found) if found else None
