"""Avro containers and Iceberg's manifests in them."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from typing import Any

import pytest

from inver.domain.iceberg.content import Content, FieldSummary, Manifest
from inver.errors import Invalid, Unsupported
from inver.formats.avro import Container, Damaged
from inver.formats.iceberg_manifests import read_manifest, read_manifest_list
from inver.formats.snappy import BadSnappy, unpack_snappy
from tests.fixtures import avro
from tests.fixtures.avro import container, data_file, field, manifest_file, optional, pairs

EVERYTHING = {
    "type": "record",
    "name": "r",
    "fields": [
        field(1, "int", "int"),
        field(2, "long", "long"),
        field(3, "flag", "boolean"),
        field(4, "float", "float"),
        field(5, "double", "double"),
        field(6, "text", "string"),
        field(7, "bytes", "bytes"),
        field(8, "fixed", {"type": "fixed", "name": "f4", "size": 4}),
        field(9, "again", "f4"),
        field(10, "money", {"type": "fixed", "name": "d", "size": 3, "logicalType": "decimal", "scale": 2}),
        optional(11, "maybe", "long"),
        field(12, "list", {"type": "array", "items": "string", "element-id": 13}),
        field(14, "counts", pairs(15, 16, "long")),
        field(17, "bounds", pairs(18, 19, "bytes")),
        field(20, "words", {"type": "map", "values": "int"}),
        field(21, "inner", {"type": "record", "name": "i", "fields": [field(22, "deep", "string")]}),
    ],
}
ROW: dict[str, Any] = {
    "int": -1,
    "long": 2**62,
    "flag": True,
    "float": 0.5,
    "double": -1e300,
    "text": "naïve \N{SNOWMAN}",
    "bytes": b"\x00\xff" * 100,
    "fixed": b"abcd",
    "again": b"efgh",
    "money": (-12345).to_bytes(3, "big", signed=True),
    "maybe": None,
    "list": ["a", "", "c" * 300],
    "counts": {1: 5, 2147483546: 2**40, 3: -7},
    "bounds": {1: b"", 200: b"x" * 200, 3: b"abc"},
    "words": {"one": 1, "two": 2},
    "inner": {"deep": "down"},
}
READ = {
    1: -1,
    2: 2**62,
    3: True,
    4: 0.5,
    5: -1e300,
    6: ROW["text"],
    7: ROW["bytes"],
    8: b"abcd",
    9: b"efgh",
    10: -12345,
    11: None,
    12: ROW["list"],
    14: ROW["counts"],
    17: ROW["bounds"],
    20: ROW["words"],
    21: {22: "down"},
}


@pytest.mark.parametrize("codec", avro.CODECS)
def test_every_type_in_every_codec(codec: str) -> None:
    rows = [ROW, {**ROW, "maybe": 9}] * 5
    data = container(EVERYTHING, rows, codec, per_block=3)
    assert list(Container(data).records()) == [READ, {**READ, 11: 9}] * 5


def test_what_is_not_wanted_is_passed_over() -> None:
    data = container(EVERYTHING, [ROW, {**ROW, "maybe": 7}])
    found = list(Container(data, frozenset(READ) - {2, 21}).records())
    assert found == [{2: 2**62, 21: {22: "down"}}] * 2


def test_records_from_one_on() -> None:
    schema = {"type": "record", "name": "r", "fields": [field(1, "n", "int")]}
    data = container(schema, [{"n": n} for n in range(10)], "deflate", per_block=4)
    for first in range(12):
        assert [record[1] for record in Container(data).records(first)] == list(range(first, 10))
    # What is passed over is not even unpacked.
    broken = data.replace(avro.deflate(b"".join(map(avro.long, range(4)))), b"\xff" * 6)
    assert broken != data
    assert [record[1] for record in Container(broken).records(4)] == list(range(4, 10))


def test_arrays_in_several_blocks_with_sizes() -> None:
    schema = {
        "type": "record",
        "name": "r",
        "fields": [
            field(1, "counts", pairs(2, 3, "long")),
            field(4, "list", {"type": "array", "items": "int"}),
            field(5, "other", pairs(6, 7, "string")),
        ],
    }
    longs = avro.long
    one = longs(-1) + longs(2) + longs(5) + longs(6)
    record = one + longs(1) + longs(7) + longs(8) + b"\x00"
    record += longs(-2) + longs(2) + longs(1) + longs(2) + longs(1) + longs(3) + b"\x00"
    record += longs(1) + longs(9) + avro.text("x") + b"\x00"
    header = container(schema, [])
    data = header + longs(1) + longs(len(record)) + record + avro.SYNC
    assert list(Container(data).records()) == [{1: {5: 6, 7: 8}, 4: [1, 2, 3], 5: {9: "x"}}]
    assert list(Container(data, frozenset([1, 5])).records()) == [{4: [1, 2, 3]}]


def test_zstandard_is_read_where_a_library_is() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    schema = {"type": "record", "name": "r", "fields": [field(1, "a", "string")]}
    block = avro.text("x" * 1000)
    packed = pyarrow.Codec("zstd").compress(block, asbytes=True)
    data = container(schema, []).replace(avro.text("null"), avro.text("zstandard"), 1)
    data += avro.long(1) + avro.long(len(packed)) + packed + avro.SYNC
    assert list(Container(data).records()) == [{1: "x" * 1000}]


def test_an_unknown_codec_is_named() -> None:
    schema = {"type": "record", "name": "r", "fields": []}
    data = container(schema, []).replace(avro.text("null"), avro.text("brotli"), 1)
    with pytest.raises(Unsupported, match="'brotli'"):
        Container(data)


def test_damage_is_found_and_nothing_else_happens() -> None:
    """Whatever bytes are broken, the reader says so, or reads other values: it never fails otherwise."""
    rows = [ROW, {**ROW, "maybe": 9}] * 3
    chance = random.Random(8)
    for codec in ("null", "deflate", "snappy"):
        data = container(EVERYTHING, rows, codec, per_block=2)
        for _ in range(400):
            broken = bytearray(data)
            for _ in range(chance.randrange(1, 4)):
                broken[chance.randrange(len(broken))] = chance.randrange(256)
            cut = bytes(broken[: chance.randrange(len(broken))]) if chance.random() < 0.3 else bytes(broken)
            with suppress(Damaged, Unsupported):
                list(Container(cut).records())


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inver.formats.avro_codecs.MAX_BLOCK", 10_000)
    schema = {"type": "record", "name": "r", "fields": [field(1, "a", "string")]}
    for codec in ("deflate", "bzip2", "xz", "snappy"):
        data = container(schema, [{"a": "x" * 20_000}], codec)
        with pytest.raises(Damaged):
            list(Container(data).records())


def test_a_schema_that_contains_itself_is_refused() -> None:
    schema = {"type": "record", "name": "r", "fields": [field(1, "next", ["null", "r"])]}
    with pytest.raises(Damaged):
        Container(container(schema, []))


def test_a_count_without_bytes_is_refused() -> None:
    schema = {"type": "record", "name": "r", "fields": [field(1, "a", "null")]}
    data = container(schema, []) + avro.long(2**40) + avro.long(0) + avro.SYNC
    with pytest.raises(Damaged):
        list(Container(data).records())
    schema = {"type": "record", "name": "r", "fields": [field(1, "a", {"type": "array", "items": "null"})]}
    block = avro.long(2**40)
    data = container(schema, []) + avro.long(1) + avro.long(len(block)) + block + avro.SYNC
    with pytest.raises(Damaged):
        list(Container(data).records())


def test_snappy_copies() -> None:
    # "abcd" as a literal, then copies with offsets of one, two and four bytes; the first overlaps itself.
    one = bytes([((10 - 4) << 2) | 1, 4])
    two = bytes([((6 - 1) << 2) | 2]) + (14).to_bytes(2, "little")
    four = bytes([((2 - 1) << 2) | 3]) + (20).to_bytes(4, "little")
    packed = bytes([22, 3 << 2]) + b"abcd" + one + two + four
    assert unpack_snappy(packed, 100) == b"abcd" + b"abcdabcdab" + b"abcdab" + b"ab"
    for broken in (packed[:-1], b"", bytes([23]) + packed[1:], bytes([1, 1, 9]), b"\xff" * 9):
        with pytest.raises(BadSnappy):
            unpack_snappy(broken, 100)
    with pytest.raises(BadSnappy):
        unpack_snappy(packed, 21)


# --- manifests ---


def manifest(**more: Any) -> Manifest:
    return Manifest(path="m", spec_id=0, sequence_number=7, added_snapshot_id=70, **more)


def entries(
    schema: Any, rows: list[Any], given: Manifest, fields: tuple[int, ...] = (), metrics: bool = True
) -> Any:
    return list(read_manifest(container(schema, rows, "deflate"), given, {0: fields}, metrics))


def test_entries_inherit_from_their_manifest() -> None:
    schema = avro.manifest_schema()
    rows = [
        {"status": 1, "data_file": data_file("a")},
        {"status": 0, "snapshot_id": 3, "sequence_number": 2, "data_file": data_file("b")},
        {"status": 2, "snapshot_id": 3, "sequence_number": 2, "data_file": data_file("gone")},
        {"status": 1, "data_file": data_file("d", content=2, equality_ids=[1, 2])},
    ]
    a, b, gone, d = entries(schema, rows, manifest())
    assert (a.path, a.sequence_number, a.snapshot_id, a.added, a.format) == ("a", 7, 70, True, "parquet")
    assert (b.sequence_number, b.snapshot_id, b.added) == (2, 3, False)
    assert gone is None
    assert (d.content, d.equality_ids) == (Content.EQUALITY_DELETES, (1, 2))


def test_entries_of_version_1() -> None:
    schema = avro.manifest_schema(version=1)
    given = Manifest(path="m", added_snapshot_id=70)
    data = container(
        schema,
        [{"status": 1, "snapshot_id": 5, "data_file": data_file("a")}],
        metadata={"partition-spec-id": "4"},
    )
    [file] = read_manifest(data, given, {4: ()}, True)
    assert file is not None
    assert (file.sequence_number, file.snapshot_id, file.spec_id, file.content) == (0, 5, 4, Content.DATA)
    with pytest.raises(Invalid, match="spec 4"):
        list(read_manifest(data, given, {0: ()}, True))


def test_row_ids_are_counted_from_the_manifest_on() -> None:
    schema = avro.manifest_schema(version=3)
    rows = [
        {"status": 1, "data_file": data_file("a", record_count=5)},
        {"status": 2, "data_file": data_file("gone", record_count=100)},
        {"status": 0, "data_file": data_file("b", record_count=3, first_row_id=2)},
        {"status": 1, "data_file": data_file("c", record_count=4)},
    ]
    found = entries(schema, rows, manifest(first_row_id=1000))
    assert [file and file.first_row_id for file in found] == [1000, None, 2, 1005]
    data = container(schema, rows, "deflate", per_block=1)
    later = list(read_manifest(data, manifest(first_row_id=1000), {0: ()}, True, first=3))
    assert [file and file.first_row_id for file in later] == [1005]
    later = list(read_manifest(data, manifest(), {0: ()}, True, first=3))
    assert [file and file.path for file in later] == ["c"]
    # Without one, the table was not of version 3 when the manifest was written.
    assert [file and file.first_row_id for file in entries(schema, rows, manifest())] == [None] * 4


def test_deletion_vectors() -> None:
    schema = avro.manifest_schema(version=3)
    more = {"content": 1, "file_format": "PUFFIN", "referenced_data_file": "a", "content_offset": 4}
    row = {"status": 1, "data_file": data_file("v", content_size_in_bytes=9, **more)}
    [file] = entries(schema, [row], manifest(content=Content.POSITION_DELETES))
    assert file.is_vector
    assert (file.deletes_from, file.content_offset, file.content_size) == ("a", 4, 9)


def test_partitions_are_in_the_order_of_the_spec() -> None:
    partition = [
        optional(1001, "day", {"type": "int", "logicalType": "date"}),
        optional(1000, "name", "string"),
        optional(1002, "money", {"type": "fixed", "name": "d", "size": 2, "logicalType": "decimal"}),
    ]
    schema = avro.manifest_schema(partition)
    row = data_file("a", partition={"day": -3, "name": "x", "money": (-2).to_bytes(2, "big", signed=True)})
    fields = (1000, 1001, 1003, 1002)
    [file] = entries(schema, [{"status": 1, "data_file": row}], manifest(), fields)
    assert file.partition == ("x", -3, None, -2)


def test_metrics_only_where_they_are_needed() -> None:
    schema = avro.manifest_schema()
    row = data_file(
        "a",
        column_sizes={1: 10},
        value_counts={1: 10},
        null_value_counts={1: 0},
        nan_value_counts={},
        lower_bounds={1: struct.pack("<q", 3)},
        upper_bounds={1: struct.pack("<q", 9)},
    )
    [file] = entries(schema, [{"status": 1, "data_file": row}], manifest())
    assert file.metrics.value_counts == {1: 10}
    assert file.metrics.lower == {1: struct.pack("<q", 3)}
    assert file.metrics.nan_counts == {}
    [file] = entries(schema, [{"status": 1, "data_file": row}], manifest(), metrics=False)
    assert file.metrics.value_counts is None
    assert file.path == "a"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_manifest_lists(version: int) -> None:
    rows = [
        manifest_file(
            "m1",
            added_files_count=3,
            existing_files_count=2,
            deleted_files_count=1,
            partitions=[{"contains_null": True, "lower_bound": b"a", "upper_bound": b"z"}],
            first_row_id=90,
        ),
        manifest_file("m2", content=1, sequence_number=8, added_files_count=0),
    ]
    first, second = read_manifest_list(container(avro.manifest_list_schema(version), rows, "snappy"))
    assert (first.path, first.entries, first.is_live) == ("m1", 6, True)
    assert first.partitions == (FieldSummary(True, None, b"a", b"z"),)
    assert first.first_row_id == (90 if version == 3 else None)
    assert not second.is_live
    assert (second.content, second.sequence_number) == ((1, 8) if version > 1 else (0, 0))


def test_a_list_that_is_none() -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        read_manifest_list(
            container({"type": "record", "name": "r", "fields": [field(1, "a", "int")]}, [{"a": 1}])
        )
    with pytest.raises(Invalid, match="not an Avro container"):
        read_manifest_list(b"PAR1")
