"""Row deletes of Iceberg tables, read from their bytes."""

from __future__ import annotations

import uuid
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inver.errors import Invalid
from inver.formats.deletion_vectors import file_of, parse_inline
from inver.formats.iceberg_deletes import inline, read_positions, read_vector
from inver.formats.roaring import RowSet


def parquet(**columns: Any) -> bytes:
    out = BytesIO()
    pq.write_table(pa.table(columns), out, row_group_size=2)
    return out.getvalue()


def test_positions_by_data_file():
    found = read_positions(parquet(file_path=["a", "a", "b", "a"], pos=[5, 70_000, 0, 1], row=[None] * 4))
    assert {path: list(rows) for path, rows in found.items()} == {"a": [1, 5, 70_000], "b": [0]}
    assert read_positions(parquet(file_path=pa.array([], pa.string()), pos=pa.array([], pa.int64()))) == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PAR1",
        parquet(path=["a"], pos=[1]),
        parquet(file_path=["a"], pos=[-1]),
        parquet(file_path=["a"], pos=["one"]),
        parquet(file_path=["a"], pos=pa.array([None], pa.int64())),
        parquet(file_path=pa.array([None], pa.string()), pos=[1]),
    ],
)
def test_what_is_no_file_of_positions_is_refused(data: bytes):
    with pytest.raises(Invalid, match="position deletes cannot be read"):
        read_positions(data)


def test_vectors_are_checked():
    _, data, (told,) = file_of([RowSet([1, 9, 2**33])], uuid.uuid4())
    assert told.offset is not None
    blob = data[told.offset : told.offset + told.size_in_bytes + 8]
    assert list(read_vector(blob, 3)) == [1, 9, 2**33]
    for wrong, rows in ((blob, 2), (blob[:-1], 3), (b"", 0), (blob[:4] + b"\0" + blob[5:], 3)):
        with pytest.raises(Invalid, match="unusable"):
            read_vector(wrong, rows)


def test_all_rows_in_one_vector():
    made = inline([RowSet([1, 2]), RowSet([2, 3])])
    assert made is not None
    assert (made.cardinality, list(parse_inline(made))) == (3, [1, 2, 3])
    assert inline([]) is None
    assert inline([RowSet()]) is None
