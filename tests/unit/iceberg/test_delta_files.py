"""Data files of Iceberg tables in Delta's words."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from inver.domain.delta_actions import DeletionVector, decoded
from inver.domain.iceberg.as_delta import NAME_MAPPING, delta_schema
from inver.domain.iceberg.content import Content, ContentFile, FieldSummary, Manifest, Metrics
from inver.domain.iceberg.delta_files import (
    DeltaFiles,
    check_delete,
    check_partitions,
    check_readable,
    partition_columns,
)
from inver.domain.iceberg.partitions import PartitionField, Spec
from inver.errors import Unsupported
from tests.fixtures.iceberg_fields import field, many, schema
from tests.fixtures.iceberg_fields import struct as nested

KINDS = {
    "id": "long",
    "flag": "boolean",
    "small": "int",
    "day": "date",
    "price": "decimal(9, 2)",
    "name": "string",
    "f": "double",
    "at": "timestamptz",
    "local": "timestamp",
    "raw": "binary",
}
IDS = {name: at for at, name in enumerate(KINDS, 1)}
SCHEMA = schema(
    *(field(IDS[name], name, kind) for name, kind in KINDS.items()),
    field(20, "s", nested(field(21, "x", "int"), field(22, "l", many(23, "int")))),
)
SOME = FieldSummary(False, None, b"a", b"b")


def spec(number: int, *columns: str, transform: str = "identity") -> Spec:
    return Spec(
        number,
        tuple(PartitionField(IDS[name], 1000 + at, f"p{at}", transform) for at, name in enumerate(columns)),
    )


def manifest(number: int | None = 0, *summaries: FieldSummary, content: Content = Content.DATA) -> Manifest:
    return Manifest(path="m", spec_id=number, partitions=summaries, content=content)


def names(*manifests: Manifest, specs: list[Spec], default: int = 0) -> list[str]:
    known = {each.id: each for each in specs}
    return [each.name for each in partition_columns(SCHEMA, known, manifests, default)]


def test_identity_columns_of_every_spec_in_use_are_partition_columns():
    specs = [spec(0, "small", "day"), spec(1, "day"), spec(2), spec(3, "day", transform="month")]
    assert names(manifest(0), specs=specs) == ["small", "day"]
    assert names(manifest(0), manifest(1), specs=specs) == ["day"]
    assert names(manifest(0), manifest(2), specs=specs) == []
    assert names(manifest(3), specs=specs) == []
    # Deletes do not count, nor does a spec without files.
    assert names(manifest(0), manifest(2, content=Content.POSITION_DELETES), specs=specs) == ["small", "day"]
    assert names(specs=specs, default=1) == ["day"]
    # Of a manifest of the first format version it is not known.
    assert names(manifest(None), specs=specs) == []
    assert names(manifest(None), specs=specs[:2]) == ["day"]


@pytest.mark.parametrize("column", ["f", "at", "local", "raw"])
def test_values_that_readers_take_differently_stay_in_the_files(column: str):
    assert names(manifest(0), specs=[spec(0, column, "small")]) == ["small"]


def test_an_empty_text_is_no_partition_value():
    specs = [spec(0, "name")]
    assert names(manifest(0, SOME), specs=specs) == ["name"]
    assert names(manifest(0, FieldSummary(True)), specs=specs) == ["name"]
    assert names(manifest(0, SOME), manifest(0, FieldSummary(False, None, b"", b"b")), specs=specs) == []
    assert names(Manifest(path="m", spec_id=0), specs=specs) == []
    files = DeltaFiles(delta_schema(SCHEMA, [SCHEMA], {}), [SCHEMA.fields[IDS["name"]]], {0: specs[0]}, "/t")
    with pytest.raises(Unsupported, match="no form for the partition value ''"):
        files.add(data("/t/f", partition=("",)), None)


def test_all_columns_cannot_be_partition_columns():
    one = schema(field(1, "a", "int"))
    only = {0: Spec(0, (PartitionField(1, 1000, "a", "identity"),))}
    assert partition_columns(one, only, [manifest(0)], 0) == ()


def test_files_that_may_lack_their_partition_columns():
    specs = {0: spec(0, "f", "small")}
    told = partition_columns(SCHEMA, specs, [manifest(0)], 0)
    check_partitions({}, specs, [manifest(0)], told)
    with pytest.raises(Unsupported, match="may not have the column of partition field 'p0'"):
        check_partitions({NAME_MAPPING: "[]"}, specs, [manifest(0)], told)
    specs = {0: spec(0, "small")}
    check_partitions({NAME_MAPPING: "[]"}, specs, [manifest(0)], [SCHEMA.fields[IDS["small"]]])


def data(path: str = "file:///lake/t/data/f.parquet", **more: Any) -> ContentFile:
    given = {"content": Content.DATA, "format": "parquet", "spec_id": 0, "partition": (), "record_count": 9}
    return ContentFile(**{**given, "path": path, "size": 100, "sequence_number": 1, **more})


def teller(*partitions: str, mapped: bool = False) -> DeltaFiles:
    specs = {0: spec(0, *partitions)}
    columns = [SCHEMA.fields[IDS[name]] for name in partitions]
    return DeltaFiles(delta_schema(SCHEMA, [SCHEMA], {}, mapped=mapped), columns, specs, "file:///lake/t")


@pytest.mark.parametrize(
    ("path", "below"),
    [
        ("file:///lake/t/data/f.parquet", "data/f.parquet"),
        ("file:///lake/t/data/a=%2F b/f.parquet", "data/a=%2F b/f.parquet"),
        ("file:///lake/t2/f.parquet", "file:///lake/t2/f.parquet"),
        ("s3://b/%25", "s3://b/%25"),
    ],
)
def test_paths_are_meant_literally(path: str, below: str):
    assert decoded(teller().add(data(path), None).path) == below


def test_partition_values_are_words():
    columns = ("flag", "small", "day", "price", "name", "id")
    values = (True, -5, -1, -1250, "ü", 2**40)
    add = teller(*columns).add(data(partition=values), None)
    assert add.partition_values == {
        "flag": "true",
        "small": "-5",
        "day": "1969-12-31",
        "price": "-12.50",
        "name": "ü",
        "id": str(2**40),
    }
    nothing = teller(*columns, mapped=True).add(data(partition=(None,) * 6), None)
    assert nothing.partition_values == {f"col-{IDS[name]}": None for name in columns}
    with pytest.raises(Unsupported, match="no form"):
        teller("day").add(data(partition=(4_000_000,)), None)


def measured(**values: tuple[bytes | None, bytes | None, int]) -> Metrics:
    """By column, the bounds and how many are null."""
    ids = {**IDS, "x": 21}
    return Metrics(
        None,
        {ids[name]: 9 for name in values},
        {ids[name]: nulls for name, (_, _, nulls) in values.items()},
        {IDS["f"]: 0},
        {ids[name]: low for name, (low, _, _) in values.items() if low is not None},
        {ids[name]: high for name, (_, high, _) in values.items() if high is not None},
    )


def stats(metrics: Metrics, *partitions: str, mapped: bool = False, **more: Any) -> dict[str, Any]:
    text = teller(*partitions, mapped=mapped).add(data(metrics=metrics, **more), None).stats
    assert text is not None
    found: dict[str, Any] = json.loads(text)
    return found


def test_statistics_are_the_bounds_of_manifests():
    def q(value: int) -> bytes:
        return struct.pack("<q", value)

    metrics = measured(
        id=(struct.pack("<i", -3), q(2**40), 0),
        flag=(b"\x00", b"\x01", 1),
        day=(struct.pack("<i", 0), struct.pack("<i", 1), 0),
        price=(b"\xff\x38", b"\x05", 2),
        name=(b"a", "b\u2028".encode(), 0),
        f=(struct.pack("<d", -0.5), struct.pack("<d", 2.0), 0),
        at=(q(1_500_999), q(1_500_001), 0),
        local=(q(0), q(1_000), 9),
        raw=(b"\x00", b"\xff", 0),
        x=(struct.pack("<i", 4), struct.pack("<i", 5), 3),
    )
    assert stats(metrics) == {
        "numRecords": 9,
        "minValues": {
            "id": -3,
            "day": "1970-01-01",
            "price": -2.0,
            "name": "a",
            "f": -0.5,
            "at": "1970-01-01T00:00:01.500000Z",
            "local": "1970-01-01T00:00:00",
            "s": {"x": 4},
        },
        "maxValues": {
            "id": 2**40,
            "day": "1970-01-02",
            "price": 0.05,
            "name": "b\u2028",
            "f": 2.0,
            # Readers know milliseconds, so that the next one is what is safe to say.
            "at": "1970-01-01T00:00:01.501000Z",
            "local": "1970-01-01T00:00:00.001000",
            "s": {"x": 5},
        },
        "nullCount": {
            **dict.fromkeys(("id", "day", "name", "f", "at", "raw"), 0),
            "flag": 1,
            "price": 2,
            "local": 9,
            "s": {"x": 3},
        },
        "tightBounds": False,
    }
    assert stats(metrics, mapped=True)["minValues"]["col-20"] == {"col-21": 4}
    assert "id" not in stats(metrics, "id", partition=(1,))["minValues"]


def test_numbers_without_bounds():
    """NaN is larger than every number, and no bound of a manifest tells of it."""
    low, high = struct.pack("<d", 0.0), struct.pack("<d", 1.0)
    unknown = Metrics(None, None, None, None, {IDS["f"]: low}, {IDS["f"]: high})
    some = Metrics(None, None, None, {IDS["f"]: 1}, {IDS["f"]: low}, {IDS["f"]: high})
    for metrics in (unknown, some, measured(f=(struct.pack("<d", float("-inf")), None, 0))):
        assert stats(metrics)["minValues"] == {}
        assert stats(metrics)["maxValues"] == {}


def test_bounds_that_cannot_be_told_are_left_out():
    odd = measured(
        day=(struct.pack("<i", 4_000_000), None, 0), id=(b"\x01", None, 0), name=(b"\xff", None, 0)
    )
    assert stats(odd)["minValues"] == {}
    assert stats(Metrics()) == {
        "numRecords": 9,
        "minValues": {},
        "maxValues": {},
        "nullCount": {},
        "tightBounds": False,
    }


def test_what_recipients_cannot_read_is_refused():
    check_readable(data())
    for file, problem in ((data(format="orc"), "orc files"), (data(key_metadata=b"k"), "encrypted")):
        with pytest.raises(Unsupported, match=problem):
            check_readable(file)
    check_delete(data(content=Content.POSITION_DELETES))
    check_delete(data(content=Content.POSITION_DELETES, format="puffin"))
    for delete, problem in (
        (data(content=Content.EQUALITY_DELETES), "equality deletes"),
        (data(content=Content.POSITION_DELETES, format="avro"), "position deletes in avro"),
    ):
        with pytest.raises(Unsupported, match=problem):
            check_delete(delete)


def test_a_vector_goes_with_its_file():
    vector = DeletionVector("i", "x", 4, 1)
    assert teller().add(data(), vector).deletion_vector is vector
