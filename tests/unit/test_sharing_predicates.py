"""Predicates leave out only files that cannot have a row that is wanted."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.delta_actions import Metadata
from inver.domain.predicate_text import hint, parse_json, parse_sql, partition_filter
from inver.domain.predicates import Filter, parse_value
from inver.errors import Invalid

TYPES = {
    "day": "date",
    "region": "string",
    "n": "integer",
    "at": "timestamp",
    "flag": "boolean",
    "id": "long",
    "name": "string",
    "price": "decimal(10,2)",
    "score": "double",
    "small": "float",
    "seen": "timestamp",
    "local": "timestamp_ntz",
}
PARTITIONS = ("day", "region", "n", "at", "flag")
FIELDS = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in TYPES.items()]
FIELDS.append({"name": "nested", "type": {"type": "struct", "fields": []}, "nullable": True, "metadata": {}})
METADATA = Metadata("m", json.dumps({"type": "struct", "fields": FIELDS}), PARTITIONS)
ROW: dict[str, str | None] = {
    "day": "2024-05-06",
    "region": "eu",
    "n": "7",
    "at": "2024-05-06T01:02:03Z",
    "flag": "true",
}


def by_partition(text: str, **values: str | None) -> bool:
    return Filter(parse_sql(text), METADATA).keep_partition({**ROW, **values})


@pytest.mark.parametrize(
    "text",
    [
        "day = '2024-05-06'",
        "day = DATE '2024-05-06'",
        "'2024-05-06' = day",
        "day >= cast('2024-05-06' as date)",
        "DAY between '2024-05-01' and '2024-05-31'",
        "`day` <> '2024-05-07' AND region != 'us'",
        "n < 8 and n <= 7 and n > 6 and n >= 7 and n == 7",
        "n in (1, 7, 9)",
        "n > 6.5",
        "not (n in (1, 2))",
        "n not in (1, 2)",
        "n is not null",
        "region = 'us' or region = 'eu'",
        "flag",
        "flag = true",
        "not flag = false",
        "at = TIMESTAMP '2024-05-06T03:02:03+02:00'",
        "true",
    ],
)
def test_partitions_that_stay(text):
    assert by_partition(text)


@pytest.mark.parametrize(
    "text",
    [
        "day = '2024-05-07'",
        "day < '2024-05-06'",
        "n > 7",
        "7 > n",
        "n <> 7",
        "n is null",
        "n = null",
        "not n = 7",
        "region = 'us' or n = 8",
        "region = 'eu' and n = 8",
        "n not between 7 and 9",
        "not flag",
        "at < '2024-05-06T01:02:03Z'",
        "false",
        "region = 'it''s' or region = 'a\\'b'",
    ],
)
def test_partitions_that_are_left_out(text):
    assert not by_partition(text)


@pytest.mark.parametrize(
    "text", ["n = 7", "n <> 7", "not n = 7", "n in (7)", "not n in (7)", "n > 0 or n <= 0"]
)
def test_null_satisfies_no_comparison(text):
    assert not by_partition(text, n=None)
    assert not by_partition(text, n="")


def test_an_empty_string_may_be_null_or_empty():
    assert by_partition("region = ''", region="")
    assert by_partition("region is null", region="")
    assert not by_partition("region = 'eu'", region="")


@pytest.mark.parametrize(
    "text",
    [
        "id = 1",
        "nowhere = 1",
        "n = n",
        "n = 'x'",
        "region = 5",
        "day = 5",
        "nested is null",
        "id = 1 or n = 8",
    ],
)
def test_what_partition_values_cannot_decide_stays(text):
    assert by_partition(text)


def test_a_timestamp_without_a_zone_decides_nothing():
    assert by_partition("at = '2024-05-06T00:00:00Z'", at="2024-05-06 01:02:03")
    assert by_partition("at = '2024-05-06 09:09:09'")


def stats(
    low: Any = None, high: Any = None, nulls: int | None = 0, column: str = "id", records: int = 10
) -> str:
    told: dict[str, Any] = {"numRecords": records, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for key, value in (("minValues", low), ("maxValues", high), ("nullCount", nulls)):
        if value is not None:
            told[key][column] = value
    return json.dumps(told)


def by_file(text: str, told: str | None) -> bool:
    return Filter(parse_sql(text), METADATA).keep_file(ROW, told)


@pytest.mark.parametrize(
    ("text", "told", "kept"),
    [
        ("id = 5", stats(1, 4), False),
        ("id = 5", stats(1, 5), True),
        ("id = 5", stats(5, None), True),
        ("id < 5", stats(5, 9), False),
        ("id <= 5", stats(5, 9), True),
        ("id > 9", stats(5, 9), False),
        ("id >= 9", stats(5, 9), True),
        ("id <> 5", stats(5, 5), False),
        ("id <> 5", stats(5, 6), True),
        ("not id = 5", stats(5, 5), False),
        ("id is null", stats(5, 5, 0), False),
        ("id is null", stats(5, 5, 1), True),
        ("id is null", stats(5, 5, None), True),
        ("id is not null", stats(None, None, 10), False),
        ("id = 5", stats(None, None, 10), False),
        ("id = 5 and n = 8", stats(1, 9), False),
        ("id = 50 or n = 7", stats(1, 9), True),
        ("id = 9007199254740993", stats(9007199254740992, 9007199254740992), False),
        ("price > 10.01", stats(1, 10.01, column="price"), False),
        ("price >= 10.01", stats(1, 10.01, column="price"), True),
        ("name = 'm'", stats("a", "l", column="name"), False),
        ("name < 'a'", stats("a", "l", column="name"), False),
        ("score > 5", stats(1, 2, column="score"), True),
        ("score < 1", stats(1, 2, column="score"), False),
        ("small < 0.7", stats(0.7, 0.7, column="small"), True),
        (
            "seen > '2024-01-01T00:00:00.000500Z'",
            stats(None, "2024-01-01T00:00:00.000Z", column="seen"),
            True,
        ),
        ("seen > '2024-01-01T00:00:00.002Z'", stats(None, "2024-01-01T00:00:00.000Z", column="seen"), False),
        ("local > '2024-01-02'", stats(None, "2024-01-01T00:00:00.000", column="local"), False),
        ("id = 5", None, True),
        ("id = 5", "", True),
        ("id = 5", "{broken", True),
        ("id = 5", '{"numRecords":"x"}', True),
        ("id = 5", '{"minValues":{"id":{"a":1}}}', True),
    ],
)
def test_statistics(text, told, kept):
    assert by_file(text, told) is kept


@given(
    st.lists(st.one_of(st.none(), st.integers(-3, 3)), min_size=1, max_size=4),
    st.recursive(
        st.one_of(
            st.builds(
                "id {} {}".format, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), st.integers(-4, 4)
            ),
            st.sampled_from(["id is null", "id is not null", "id = null", "true", "false"]),
        ),
        lambda inner: st.one_of(
            st.builds("({} and {})".format, inner, inner),
            st.builds("({} or {})".format, inner, inner),
            st.builds("(not {})".format, inner),
        ),
        max_leaves=6,
    ),
)
def test_no_file_with_a_row_that_is_wanted_is_left_out(rows, text):
    """Against a database that evaluates the same predicate on the rows themselves."""
    import sqlite3

    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (id INTEGER)")
    database.executemany("INSERT INTO t VALUES (?)", [(row,) for row in rows])
    wanted = database.execute(f"SELECT count(*) FROM t WHERE {text}").fetchone()[0]
    database.close()
    values = [row for row in rows if row is not None]
    told = stats(min(values, default=None), max(values, default=None), rows.count(None), records=len(rows))
    if wanted:
        assert by_file(text, told), text
    if len(rows) == 1:
        made = Filter(parse_sql(text.replace("id", "n")), METADATA)
        partition = {"n": None if rows[0] is None else str(rows[0])}
        assert made.keep_partition(partition) is bool(wanted)
        assert made.admits_partition(partition) is bool(wanted)


def tree(op: str, *children: Any) -> dict[str, Any]:
    return {"op": op, "children": list(children)}


def column(name: str, kind: str = "int") -> dict[str, Any]:
    return {"op": "column", "name": name, "valueType": kind}


def literal(value: Any, kind: str = "int") -> dict[str, Any]:
    return {"op": "literal", "value": value, "valueType": kind}


@pytest.mark.parametrize(
    ("node", "kept"),
    [
        (tree("equal", column("n"), literal("7")), True),
        (tree("equal", column("n"), literal("8")), False),
        (tree("lessThan", literal("6"), column("n")), True),
        (tree("greaterThan", column("n"), literal("7")), False),
        (tree("lessThanOrEqual", column("day", "date"), literal("2024-05-05", "date")), False),
        (tree("greaterThanOrEqual", column("day", "date"), literal("2024-05-06", "date")), True),
        (tree("isNull", column("n")), False),
        (tree("not", tree("isNull", column("n"))), True),
        (tree("and", tree("equal", column("n"), literal("7")), tree("isNull", column("day"))), False),
        (tree("or", tree("equal", column("n"), literal("7")), tree("isNull", column("day"))), True),
        (tree("equal", column("region", "string"), literal("us", "string")), False),
        (tree("equal", column("flag", "bool"), literal("false", "bool")), False),
        (tree("equal", column("at", "timestamp"), literal("2024-05-06T01:02:04Z", "timestamp")), False),
    ],
)
def test_predicates_as_json(node, kept):
    made = hint(json.dumps(node), [], METADATA)
    assert made is not None
    assert made.keep_partition(ROW) is kept


@pytest.mark.parametrize("op", ["equal", "lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual"])
@pytest.mark.parametrize(
    ("value", "cut"),
    [
        ("2024-02-29T23:59:59.123456Z", "2024-02-29T23:59:59.123Z"),
        ("1969-12-31T23:59:59.876544Z", "1969-12-31T23:59:59.877Z"),
    ],
)
def test_timestamps_in_json_may_have_lost_their_microseconds(op: str, value: str, cut: str):
    """Rows of exactly that moment, or just before or after it, are not left out."""
    made = hint(json.dumps(tree(op, column("at", "timestamp"), literal(cut, "timestamp"))), [], METADATA)
    assert made is not None
    assert made.keep_partition({**ROW, "at": value})
    for near in ("2024-02-29T23:59:58.9Z", "2024-03-01T00:00:01Z"):
        wanted = {"equal": False}.get(op, (near < value) == op.startswith("less"))
        assert made.keep_partition({**ROW, "at": near}) is wanted


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"])
def test_the_first_and_the_last_moment_are_bounds_like_others(moment: str):
    told = stats(moment, moment, column="seen")
    assert by_file(f"seen = '{moment}'", told)
    made = hint(json.dumps(tree("equal", column("seen"), literal(moment, "timestamp"))), [], METADATA)
    assert made is not None
    assert made.keep_file(ROW, told)
    assert made.keep_partition({**ROW, "at": moment})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "null",
        json.dumps({"op": "like"}),
        json.dumps(tree("equal", column("n"))),
        json.dumps(tree("equal", column("n"), literal("1", "int128"))),
        json.dumps(tree("and", column("n"))),
        json.dumps({"op": "equal", "children": "n7"}),
        '{"op":"not","children":[' * 150 + "1" + "]}" * 150,
        "[" * 100_000,
        " " * (1 << 20) + "1",
    ],
)
def test_json_that_is_not_understood_leaves_everything_in(text):
    assert hint(text, [], METADATA) is None
    with pytest.raises(Invalid, match="the predicate is not understood"):
        parse_json(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "n =",
        "n = 7 and",
        "n = 7 x",
        "n like 'x%'",
        "upper(region) = 'EU'",
        "n = (select 1)",
        "n not 7",
        "cast(n as string) = '7'",
        "n = 7; drop table t",
        "region = 'open",
        "n in ()",
        "(" * 300 + "n = 7" + ")" * 300,
        "not " * 300 + "n = 7",
    ],
)
def test_sql_that_is_not_understood_leaves_everything_in(text):
    assert hint(None, [text], METADATA) is None
    with pytest.raises(Invalid, match="the predicate is not understood"):
        parse_sql(text)


def test_hints_are_joined_and_those_not_understood_do_not_count():
    made = hint(json.dumps(tree("equal", column("n"), literal("7"))), ["region = 'us'", "what?"], METADATA)
    assert made is not None
    assert not made.keep_partition(ROW)
    assert made.keep_partition({**ROW, "region": "us"})


def test_a_filter_that_decides_what_somebody_sees_lets_in_only_what_is_certain():
    made = partition_filter("region = 'eu' and day >= '2024-01-01'", METADATA)
    assert made.admits_partition(ROW)
    assert not made.admits_partition({**ROW, "region": "us"})
    assert not made.admits_partition({**ROW, "region": None})
    assert not made.admits_partition({**ROW, "region": ""})
    assert not made.admits_partition({**ROW, "day": "no date"})
    assert not made.admits_partition({})
    assert not partition_filter("not region = 5", METADATA).admits_partition(ROW)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id = 1", "partition columns only"),
        ("region = 'eu' or id = 1", "partition columns only"),
        ("nowhere = 1", "no column 'nowhere'"),
        ("region ~ 'eu'", "not understood"),
    ],
)
def test_a_filter_that_is_not_decided_by_partitions_is_refused(text, problem):
    with pytest.raises(Invalid, match=problem):
        partition_filter(text, METADATA)


def test_column_mapping_is_looked_through():
    fields = [
        {"name": "Region", "type": "string", "metadata": {"delta.columnMapping.physicalName": "col-1"}},
        {"name": "id", "type": "long", "metadata": {"delta.columnMapping.physicalName": "col-2"}},
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    mapped = Metadata("m", schema, ("Region",), {"delta.columnMapping.mode": "name"})
    made = Filter(parse_sql("region = 'eu' and id > 5"), mapped)
    assert made.keep_partition({"col-1": "eu"})
    assert not made.keep_partition({"col-1": "us"})
    assert not made.keep_file({"col-1": "eu"}, stats(1, 5, column="col-2"))
    assert made.keep_file({"col-1": "eu"}, stats(1, 6, column="col-2"))


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("5", "long", 5),
        ("1e2", "long", 100),
        ("x", "long", None),
        ("nan", "double", None),
        ("Infinity", "decimal(3,1)", None),
        ("2024-02-30", "date", None),
        ("2024-01-02", "date", datetime.date(2024, 1, 2)),
        ("x", "binary", None),
        ("x", None, None),
    ],
)
def test_values(text, kind, value):
    assert parse_value(text, kind) == value
