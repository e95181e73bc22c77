"""Deletion vectors and the bitmaps in them: what is written is read, and what is wrong is refused."""

from __future__ import annotations

import struct
import uuid
import zlib
from contextlib import suppress
from itertools import chain

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.delta_actions import DeletionVector
from inver.errors import Invalid
from inver.formats import deletion_vectors as vectors
from inver.formats.roaring import BadBitmap, RowSet

ROWS = st.one_of(
    st.sets(st.integers(0, 300)),
    st.sets(st.integers(0, 2**63 - 1), max_size=20),
    st.builds(
        lambda start, length: set(range(start, start + length)), st.integers(0, 2**33), st.integers(0, 9000)
    ),
)


@given(ROWS)
def test_what_is_written_is_read(rows):
    made = RowSet(rows)
    assert list(made) == sorted(rows)
    assert len(made) == len(rows)
    assert RowSet.parse(made.serialize()) == made
    assert vectors.parse_inline(vectors.inline(made)) == made


@given(ROWS, ROWS)
def test_sets_are_sets(one, two):
    assert list(RowSet(one) | RowSet(two)) == sorted(one | two)
    assert list(RowSet(one) - RowSet(two)) == sorted(one - two)
    assert (RowSet(one) - RowSet(one)) == RowSet()
    assert not RowSet(one) - RowSet(one)
    lost, back = vectors.changed_rows(RowSet(one), RowSet(two))
    assert (set(lost), set(back)) == (two - one, one - two)


@given(st.sets(st.integers(0, 500)), st.integers(0, 500))
def test_bits_for_arrow(rows, length):
    bits = RowSet(rows).bitmap(length)
    assert len(bits) == (length + 7) // 8
    assert [bool(bits[row >> 3] >> (row & 7) & 1) for row in range(length)] == [
        row in rows for row in range(length)
    ]


def test_bits_beyond_the_first_block():
    bits = RowSet([5, 70_000]).bitmap(80_000)
    assert (len(bits), bits[0], bits[8750]) == (10_000, 32, 1)


def test_membership():
    rows = RowSet([3, 2**40])
    assert 3 in rows
    assert 2**40 in rows
    assert 4 not in rows


@pytest.mark.parametrize("row", [-1, 2**63])
def test_row_numbers_have_bounds(row):
    with pytest.raises(ValueError, match="is no row number"):
        RowSet([row])


def bitmap32(*containers: bytes, cookie: int = 12346, count: int | None = None) -> bytes:
    """A 64-bit bitmap with one 32-bit bitmap of these bytes."""
    head = struct.pack("<II", cookie, len(containers) if count is None else count)
    return struct.pack("<QI", 1, 0) + head + b"".join(containers)


# Made by hand from the specification of the format: the rows 1, 2 and 5 in an array.
ARRAY = bitmap32(struct.pack("<HH", 0, 2) + struct.pack("<I", 16) + struct.pack("<3H", 1, 2, 5))
# One container of runs, 3 to 7 and 100; no offsets, as there are fewer than four containers.
RUNS = (
    struct.pack("<QI", 1, 0)
    + struct.pack("<I", 12347)
    + b"\x01"
    + struct.pack("<HH", 0, 5)
    + struct.pack("<H4H", 2, 3, 4, 100, 0)
)


def test_bytes_of_the_specification():
    assert RowSet([1, 2, 5]).serialize() == ARRAY
    assert list(RowSet.parse(ARRAY)) == [1, 2, 5]
    assert list(RowSet.parse(RUNS)) == [3, 4, 5, 6, 7, 100]


def test_many_runs_have_offsets():
    keys = range(4)
    data = struct.pack("<QI", 1, 7) + struct.pack("<I", 12347 | 3 << 16) + b"\x0f"
    data += b"".join(struct.pack("<HH", key, 1) for key in keys) + bytes(16)
    data += b"".join(struct.pack("<HHH", 1, key, 1) for key in keys)
    expected = chain.from_iterable((7 << 32 | key << 16 | key, 7 << 32 | key << 16 | key + 1) for key in keys)
    assert list(RowSet.parse(data)) == list(expected)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "ends too early"),
        (ARRAY[:-1], "ends too early"),
        (ARRAY + b"\x00", "1 bytes follow its end"),
        (struct.pack("<Q", 2**40), "claims 1099511627776 bitmaps"),
        (struct.pack("<Q", 2) + ARRAY[8:] + ARRAY[8:], "keys of its bitmaps are not in order"),
        (bitmap32(cookie=99), "unknown cookie 99"),
        (bitmap32(count=70_000), "claims 70000 containers"),
        (bitmap32(struct.pack("<HHHH", 3, 0, 3, 0), count=2), "keys of its containers are not in order"),
        (ARRAY[:-2] + struct.pack("<H", 2), "another number of rows"),
        (RUNS[:-4] + struct.pack("<HH", 65535, 1), "a run ends behind its container"),
    ],
)
def test_bad_bitmaps_are_refused(data, problem):
    with pytest.raises(BadBitmap, match=problem):
        RowSet.parse(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_bitmap_or_refused(data):
    with suppress(BadBitmap):
        RowSet.parse(data)


def test_base85_of_its_specification():
    assert vectors.to_z85(bytes.fromhex("864fd26fb559f75b")) == "HelloWorld"
    assert vectors.from_z85("HelloWorld", 8) == bytes.fromhex("864fd26fb559f75b")


def test_the_example_of_the_delta_specification():
    path = vectors.relative_path("ab^-aqEH.-t@S}K{vb[*k^")
    assert path == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


@pytest.mark.parametrize("text", ["short", "x" * 19 + "~", "#" * 20])
def test_names_that_name_no_file(text):
    with pytest.raises(Invalid):
        vectors.relative_path(text)


def test_where_vectors_lie():
    described = DeletionVector("u", "^-aqEH.-t@S}K{vb[*k^", 36, 2, 9)
    assert vectors.place(described) == vectors.Place(
        "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", False, 9, 44
    )
    absolute = DeletionVector("p", "s3://b/a%20b.bin", 36, 2)
    assert vectors.place(absolute) == vectors.Place("s3://b/a b.bin", True, 1, 44)
    assert vectors.place(vectors.inline([1])) is None
    with pytest.raises(Invalid, match="storage type 'x' is unknown"):
        vectors.place(DeletionVector("x", "", 1, 1))


SETS = [RowSet([0, 3]), RowSet(range(100_000)), RowSet([2**40])]


def test_a_file_of_vectors():
    path, data, described = vectors.file_of(SETS, uuid.UUID(int=5), "ab")
    assert path == "ab/deletion_vector_00000000-0000-0000-0000-000000000005.bin"
    vectors.check_file(data)
    for rows, each in zip(SETS, described, strict=True):
        where = vectors.place(each)
        assert where is not None
        assert where.path == path
        assert vectors.parse_stored(each, data[where.offset : where.offset + where.length]) == rows


def stored(rows: RowSet) -> tuple[DeletionVector, bytes]:
    _, data, (described,) = vectors.file_of([rows], uuid.UUID(int=5))
    return described, data[1:]


def sealed(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))


def test_every_flipped_byte_of_a_stored_vector_is_noticed():
    described, data = stored(RowSet([1, 2, 5]))
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 1
        with pytest.raises(Invalid, match="unusable"):
            vectors.parse_stored(described, bytes(broken))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"size_in_bytes": 35}, "its file has 46 bytes for it and not 43"),
        ({"cardinality": 4}, "it has 3 rows, and its descriptor says 4"),
    ],
)
def test_a_descriptor_that_says_otherwise(change, problem):
    described, data = stored(RowSet([1, 2, 5]))
    with pytest.raises(Invalid, match=problem):
        vectors.parse_stored(msgspec.structs.replace(described, **change), data)


@pytest.mark.parametrize(
    ("magic", "problem"),
    [(1681511376, "native format of an old writer"), (7, "begins with 7 and not with 1681511377")],
)
def test_another_magic(magic, problem):
    described, data = stored(RowSet([1, 2, 5]))
    payload = struct.pack("<I", magic) + data[8:-4]
    with pytest.raises(Invalid, match=problem):
        vectors.parse_stored(described, sealed(payload))


def test_an_inline_vector_of_another_length():
    described = vectors.inline([1, 2, 5])
    for size in (described.size_in_bytes - 4, described.size_in_bytes + 1):
        with pytest.raises(Invalid):
            vectors.parse_inline(msgspec.structs.replace(described, size_in_bytes=size))


def test_a_file_of_another_version():
    with pytest.raises(Invalid, match=r"has version b'{' and not 1"):
        vectors.check_file(b'{"error":')
