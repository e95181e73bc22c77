"""Data files of Delta tables as tasks read and write them, without Spark."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.delta_actions import Add, DeletionVector, Metadata
from inver.errors import Invalid, NotFound, Unsupported
from inver.formats.deletion_vectors import inline

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from pyarrow import fs  # noqa: E402

from inver.pipeline.tasks.delta_read import Reading, RowIds  # noqa: E402
from inver.pipeline.tasks.delta_schema import by_field_id, data_schema, indexed  # noqa: E402
from inver.pipeline.tasks.delta_write import FileWriter, Layout  # noqa: E402


def field(name: str, kind: Any, number: int | None = None) -> dict[str, Any]:
    mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{name}"}
    return {"name": name, "type": kind, "nullable": True, "metadata": {} if number is None else mapping}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def metadata(*fields: dict[str, Any], partitions: tuple[str, ...] = (), **configuration: str) -> Metadata:
    given_words: dict[str, str | None] = {
        key.replace("__", "."): value for key, value in configuration.items()
    }
    return Metadata(
        id="t",
        schema_string=json.dumps(struct(*fields)),
        partition_columns=partitions,
        configuration=given_words,
    )


def write(folder: Path, table: Any, told: Metadata, name: str = "new.parquet") -> Any:
    """The file that a task makes of a table, and its statistics."""
    files = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    writer = FileWriter(files, name, data_schema(told), indexed(told))
    writer.write(table.cast(data_schema(told)))
    made = writer.close()
    assert made is not None
    assert made.size == (folder / name).stat().st_size
    return json.loads(made.stats)


def read(folder: Path, told: Metadata, row_ids: RowIds | None = None, **add: Any) -> Any:
    files = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    file = Add(path="old.parquet", partition_values={}, size=1, **add)
    reading = Reading(data_schema(told), by_field_id(told), row_ids)
    return pa.concat_tables(reading.tables(files, file)).to_pylist()


def old(folder: Path, table: Any, **options: Any) -> None:
    pq.write_table(table, folder / "old.parquet", **options)


# --- statistics ---


def test_bounds_by_type(tmp_path):
    told = metadata(
        field("l", "long"),
        field("dec", "decimal(12,2)"),
        field("wide", "decimal(30,2)"),
        field("day", "date"),
        field("at", "timestamp"),
        field("flag", "boolean"),
        field("raw", "binary"),
        field("none", "string"),
    )
    table = pa.table(
        {
            "l": [1, None, -5],
            "dec": [Decimal("1.10"), Decimal("-2.25"), None],
            "wide": [Decimal("1.10"), Decimal("12345678901234567890.25"), None],
            "day": [date(1969, 12, 31), None, date(2024, 2, 29)],
            "at": pa.array([-1, None, 1_700_000_000_123_999], pa.timestamp("us", "UTC")),
            "flag": [True, False, None],
            "raw": [b"a", b"b", None],
            "none": pa.nulls(3, pa.string()),
        }
    )
    found = write(tmp_path, table, told)
    assert found["minValues"] == {
        "l": -5,
        "dec": -2.25,
        "wide": 1.1,
        "day": "1969-12-31",
        "at": "1969-12-31T23:59:59.999Z",
    }
    assert found["maxValues"]["at"] == "2023-11-14T22:13:20.123Z"
    assert found["maxValues"]["day"] == "2024-02-29"
    assert found["nullCount"] == {**dict.fromkeys(told_names(told), 1), "none": 3}
    assert found["numRecords"] == 3
    assert found["tightBounds"] is True


def told_names(told: Metadata) -> list[str]:
    return [each["name"] for each in json.loads(told.schema_string)["fields"]]


def test_what_no_calendar_has_is_left_out(tmp_path):
    told = metadata(field("day", "date"), field("at", "timestamp"))
    far = 10**18
    table = pa.table(
        {"day": pa.array([0, 10**7], pa.date32()), "at": pa.array([0, far], pa.timestamp("us", "UTC"))}
    )
    found = write(tmp_path, table, told)
    assert found["minValues"] == {"day": "1970-01-01", "at": "1970-01-01T00:00:00.000Z"}
    assert found["maxValues"] == {}


@given(st.lists(st.text(max_size=45), min_size=1, max_size=8))
def test_bounds_of_texts_hold(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("texts")
    sound = [each for each in values if not any(0xD800 <= ord(c) <= 0xDFFF for c in each)] or [""]
    found = write(folder, pa.table({"t": sound}), metadata(field("t", "string")))
    assert found["minValues"]["t"] <= min(sound)
    assert found["maxValues"].get("t", "\U0010ffff" * 40) >= max(sound)
    assert len(found["minValues"]["t"]) <= 32


@given(st.lists(st.one_of(st.none(), st.floats()), min_size=1, max_size=8))
def test_bounds_of_floats_hold(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("floats")
    found = write(folder, pa.table({"f": pa.array(values, pa.float64())}), metadata(field("f", "double")))
    numbers = [each for each in values if each is not None and not math.isnan(each)]
    for each in numbers:
        assert found["minValues"].get("f", -math.inf) <= each <= found["maxValues"].get("f", math.inf)
    if any(each is not None and math.isnan(each) for each in values):
        assert "f" not in found["maxValues"]
    assert found["nullCount"]["f"] == values.count(None)


def test_nested_columns_have_nested_statistics(tmp_path):
    told = metadata(
        field("s", struct(field("x", "long"), field("inner", struct(field("y", "string"))), field("l", LIST)))
    )
    rows = [
        {"x": 1, "inner": {"y": "a"}, "l": [1]},
        {"x": None, "inner": None, "l": None},
        None,
    ]
    found = write(tmp_path, pa.table({"s": pa.array(rows, data_schema(told).field("s").type)}), told)
    assert found["minValues"] == found["maxValues"] == {"s": {"x": 1, "inner": {"y": "a"}}}
    assert found["nullCount"] == {"s": {"x": 2, "inner": {"y": 2}, "l": 2}}


LIST = {"type": "array", "elementType": "long", "containsNull": True}
MANY = tuple(field(f"c{i}", "long") for i in range(40))


@pytest.mark.parametrize(
    ("configuration", "wanted"),
    [
        ({}, [f"c{i}" for i in range(32)]),
        ({"delta__dataSkippingNumIndexedCols": "2"}, ["c0", "c1"]),
        ({"delta__dataSkippingNumIndexedCols": "-1"}, [f"c{i}" for i in range(40)]),
        ({"delta__dataSkippingStatsColumns": "c39, `c1`"}, ["c1", "c39"]),
    ],
)
def test_which_columns_have_statistics(configuration, wanted):
    assert [leaf.path[0] for leaf in indexed(metadata(*MANY, **configuration))] == wanted


def test_statistics_of_named_structs_and_not_of_partitions():
    told = metadata(
        field("p", "long"),
        field("s", struct(field("a.b", "long"), field("c", "long"))),
        partitions=("p",),
        delta__dataSkippingStatsColumns="s.`a.b`,p",
    )
    assert [leaf.path for leaf in indexed(told)] == [("s", "a.b")]


def test_a_dot_in_a_name_takes_no_bounds_from_a_field(tmp_path):
    told = metadata(field("a", struct(field("b", "long"))), field("a.b", "long"), field("c", "long"))
    table = pa.table({"a": [{"b": 1}, {"b": 2}], "a.b": [100, 200], "c": [7, 8]})
    stats = write(tmp_path, table, told)
    assert stats["minValues"] == {"c": 7}
    assert stats["maxValues"] == {"c": 8}


def test_wide_rows_do_not_wait_for_many(tmp_path, monkeypatch):
    monkeypatch.setattr("inver.pipeline.tasks.delta_write.HELD", 1_000)
    told = metadata(field("text", "string"))
    files = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    writer = FileWriter(files, "new.parquet", data_schema(told), indexed(told))
    for _ in range(3):
        writer.write(pa.table({"text": ["x" * 2_000]}))
        assert writer.bytes > 0
    made = writer.close()
    assert made is not None
    assert (made.rows, pq.ParquetFile(tmp_path / "new.parquet").num_row_groups) == (3, 3)


def test_several_row_groups_have_common_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr("inver.pipeline.tasks.delta_write.ROWS", 4)
    found = write(tmp_path, pa.table({"x": pa.array([None, None, None, None, 5, 9, 7, 8])}), metadata(X))
    assert pq.ParquetFile(tmp_path / "new.parquet").num_row_groups == 2
    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({"x": 5}, {"x": 9}, {"x": 4})


X = field("x", "long")


# --- reading ---


def test_deleted_rows_are_left_out_and_positions_count_all_rows(tmp_path):
    old(tmp_path, pa.table({"x": list(range(10))}), row_group_size=3)
    ids = RowIds("rid", "rcv")
    rows = read(
        tmp_path,
        metadata(X),
        ids,
        deletion_vector=inline([0, 4, 9]),
        base_row_id=100,
        default_row_commit_version=7,
    )
    assert [row["x"] for row in rows] == [1, 2, 3, 5, 6, 7, 8]
    assert [row["rid"] for row in rows] == [101, 102, 103, 105, 106, 107, 108]
    assert {row["rcv"] for row in rows} == {7}


def test_ids_that_a_file_has_win(tmp_path):
    old(tmp_path, pa.table({"x": [1, 2], "rid": [50, None], "rcv": pa.array([3, None], pa.int64())}))
    rows = read(tmp_path, metadata(X), RowIds("rid", "rcv"), base_row_id=100, default_row_commit_version=7)
    assert [(row["rid"], row["rcv"]) for row in rows] == [(50, 3), (101, 7)]


def test_files_without_ids_in_a_table_that_tracks_rows(tmp_path):
    old(tmp_path, pa.table({"x": [1]}))
    with pytest.raises(Invalid, match="no row ids"):
        read(tmp_path, metadata(X), RowIds("rid", "rcv"))


def test_a_vector_that_is_not_about_the_file(tmp_path):
    old(tmp_path, pa.table({"x": [1, 2]}))
    with pytest.raises(Invalid, match="not about its rows"):
        read(tmp_path, metadata(X), deletion_vector=inline([5]))


def test_what_is_missing_or_elsewhere_is_refused(tmp_path):
    with pytest.raises(NotFound, match=r"old\.parquet"):
        read(tmp_path, metadata(X))
    old(tmp_path, pa.table({"x": [1]}))
    with pytest.raises(NotFound, match="deletion vector"):
        read(tmp_path, metadata(X), deletion_vector=DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 34, 1, 1))
    with pytest.raises(Unsupported, match="outside"):
        read(tmp_path, metadata(X), deletion_vector=DeletionVector("p", "s3://x/y.bin", 34, 1, 1))
    (tmp_path / "old.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(Invalid, match="no Parquet file"):
        read(tmp_path, metadata(X))


@pytest.mark.parametrize(
    "path", ["../other/part.parquet", "a/../../other/part.parquet", "./old.parquet", "//x"]
)
def test_no_path_leads_out_of_the_table(tmp_path, path):
    told = metadata(field("id", "long"))
    (tmp_path / "other").mkdir()
    own = tmp_path / "own"
    own.mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "other" / "part.parquet")
    files = fs.SubTreeFileSystem(str(own), fs.LocalFileSystem())
    reading = Reading(data_schema(told))
    with pytest.raises(Unsupported, match="outside"):
        list(reading.tables(files, Add(path=path, partition_values={}, size=1)))


def test_no_link_leads_out_of_the_table(tmp_path):
    told = metadata(field("id", "long"))
    own = tmp_path / "own"
    own.mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "secret.parquet")
    (own / "old.parquet").symlink_to(tmp_path / "secret.parquet")
    with pytest.raises(Unsupported, match="outside"):
        read(own, told)


def test_old_types_are_widened_and_columns_come_and_go(tmp_path):
    inner = struct(field("a", "long"), field("late", "string"))
    told = metadata(
        field("n", "long"),
        field("f", "double"),
        field("d", "decimal(12,4)"),
        field("s", inner),
        field("l", {"type": "array", "elementType": inner, "containsNull": True}),
        field("m", {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}),
        field("at", "timestamp"),
        field("new", LIST),
    )
    small = pa.struct({"gone": pa.int8(), "a": pa.int16()})
    table = pa.table(
        {
            "dropped": [1, 2, 3],
            "n": pa.array([1, None, 3], pa.int8()),
            "f": pa.array([1.5, None, 3.5], pa.float32()),
            "d": pa.array([Decimal("1.10"), None, Decimal("2.20")], pa.decimal128(5, 2)),
            "s": pa.array([{"gone": 1, "a": 2}, None, {"gone": 1, "a": None}], small),
            "l": pa.array([[{"gone": 1, "a": 2}, None], None, []], pa.list_(small)),
            "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
            "at": pa.array([1, None, 3], pa.timestamp("us")),
        }
    )
    old(tmp_path, table, use_deprecated_int96_timestamps=True, row_group_size=2)
    one, two, three = read(tmp_path, told)
    assert one["s"] == {"a": 2, "late": None}
    assert one["l"] == [{"a": 2, "late": None}, None]
    assert one["m"] == [("k", 1)]
    assert one["at"].timestamp() == 1e-6
    assert (one["n"], one["f"], one["d"], one["new"]) == (1, 1.5, Decimal("1.1000"), None)
    assert set(two.values()) == {None}
    assert (three["s"], three["l"], three["m"]) == ({"a": None, "late": None}, [], [])


def test_columns_are_found_by_id_where_the_table_says_so(tmp_path):
    def numbered(name: str, kind: Any, number: int) -> Any:
        return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})

    inner = pa.struct([numbered("other", pa.int64(), 3)])
    table = pa.table(
        [pa.array([1]), pa.array([{"other": 5}], inner), pa.array([9])],
        schema=pa.schema(
            [numbered("a", pa.int64(), 1), numbered("b", inner, 2), numbered("col-x", pa.int64(), 8)]
        ),
    )
    old(tmp_path, table)
    told = metadata(
        field("x", "long", 1), field("s", struct(field("y", "long", 3)), 2), delta__columnMapping__mode="id"
    )
    assert read(tmp_path, told) == [{"col-x": 1, "col-s": {"col-y": 5}}]


def test_mapped_files_carry_names_and_ids(tmp_path):
    told = metadata(field("x", "long", 4), delta__columnMapping__mode="name")
    found = write(tmp_path, pa.table({"col-x": [1]}), told)
    assert found["minValues"] == {"col-x": 1}
    [made] = pq.ParquetFile(tmp_path / "new.parquet").schema_arrow
    assert (made.name, made.metadata[b"PARQUET:field_id"]) == ("col-x", b"4")


def test_types_that_are_not_rewritten():
    with pytest.raises(Unsupported, match="variant"):
        data_schema(metadata(field("v", "variant")))
    assert data_schema(metadata(X, field("v", "void"))).names == ["x"]


@pytest.mark.parametrize(
    ("version", "sound"), [("2.4.8", False), ("3.0.3", False), ("3.1.0", True), ("4.1.4", True)]
)
def test_spark_marks_the_old_calendar_since_3_1(tmp_path, version, sound):
    told = metadata(field("day", "date"), field("id", "long"))
    words = {b"org.apache.spark.version": version.encode()}
    table = pa.table({"day": [date(1500, 1, 1)], "id": [1]})
    old(tmp_path, table.replace_schema_metadata(words))
    if sound:
        assert read(tmp_path, told) == table.to_pylist()
    else:
        with pytest.raises(Unsupported, match="Julian"):
            read(tmp_path, told)
    old(tmp_path, table.select(["id"]).replace_schema_metadata(words))
    assert read(tmp_path, metadata(field("id", "long"))) == [{"id": 1}]


def test_dates_of_the_old_calendar_are_refused(tmp_path):
    table = pa.table({"x": [1]}).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    old(tmp_path, table)
    with pytest.raises(Unsupported, match="Julian"):
        read(tmp_path, metadata(X))


# --- places ---


@pytest.mark.parametrize(
    ("values", "folder"),
    [
        ({}, ""),
        ({"p": "a b"}, "p=a b/"),
        ({"p": "x/y=%", "q": "ü:1"}, "p=x%2Fy%3D%25/q=ü%3A1/"),
        ({"p": None}, "p=__HIVE_DEFAULT_PARTITION__/"),
        ({"p": ""}, "p=__HIVE_DEFAULT_PARTITION__/"),
    ],
)
def test_partition_folders(values, folder):
    path = Layout.of(metadata(X)).path(values, 3)
    assert path.startswith(f"{folder}care-")
    assert path.endswith("-00003.c000.zstd.parquet")


@pytest.mark.parametrize(
    ("configuration", "length"),
    [
        ({"delta__randomizeFilePrefixes": "true"}, 2),
        ({"delta__randomizeFilePrefixes": "true", "delta__randomPrefixLength": "5"}, 5),
        ({"delta__columnMapping__mode": "name"}, 2),
    ],
)
def test_random_prefixes(configuration, length):
    path = Layout.of(metadata(X, **configuration)).path({"p": "a"}, 0)
    assert len(path.partition("/")[0]) == length
    assert path.count("/") == 1


def test_no_rows_make_no_file(tmp_path):
    files = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    writer = FileWriter(files, "p=1/new.parquet", data_schema(metadata(X)), indexed(metadata(X)))
    writer.write(pa.table({"x": pa.array([], pa.int64())}))
    assert writer.close() is None
    assert list(tmp_path.iterdir()) == []


def test_modification_times_are_milliseconds(tmp_path):
    files = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    writer = FileWriter(files, "new.parquet", data_schema(metadata(X)), [])
    writer.write(pa.table({"x": [1]}))
    made = writer.close()
    assert made is not None
    assert abs(made.modification_time / 1000 - datetime.now().timestamp()) < 60
