"""Filters in the protocol's JSON: read, bound, refused, written; and the values in them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.iceberg.expressions import FALSE, TRUE, Always, And, Or, Predicate, bind, written
from inver.domain.iceberg.schemas import parse_schema
from inver.domain.iceberg.transforming import function, murmur3
from inver.domain.iceberg.values import ABOVE, BELOW, date_of, days_of, from_binary, from_json, to_json
from inver.errors import Invalid

SCHEMA = parse_schema(
    msgspec.json.encode(
        {
            "type": "struct",
            "schema-id": 0,
            "fields": [
                {"id": 1, "name": "id", "required": True, "type": "long"},
                {"id": 2, "name": "Name", "required": False, "type": "string"},
                {"id": 3, "name": "f", "required": False, "type": "float"},
                {"id": 4, "name": "day", "required": False, "type": "date"},
                {
                    "id": 5,
                    "name": "place",
                    "required": False,
                    "type": {
                        "type": "struct",
                        "fields": [{"id": 6, "name": "zip", "required": True, "type": "int"}],
                    },
                },
                {
                    "id": 7,
                    "name": "tags",
                    "required": False,
                    "type": {"type": "list", "element-id": 8, "element": "string", "element-required": True},
                },
                {"id": 9, "name": "ts", "required": False, "type": "timestamp"},
                {"id": 10, "name": "v", "required": False, "type": "variant"},
            ],
        }
    )
)


def leaf(op: str, term: Any, *value: Any, **more: Any) -> dict[str, Any]:
    return {"type": op, "term": term, **({"value": value[0]} if value else {}), **more}


def test_a_predicate_is_bound_to_its_column() -> None:
    found = bind(leaf("lt-eq", "id", 5), SCHEMA)
    assert isinstance(found, Predicate)
    assert (found.op, found.values, found.term.field_id, found.term.type) == ("lt-eq", (5,), 1, "long")
    assert written(found) == leaf("lt-eq", "id", 5)


@pytest.mark.parametrize(
    "node",
    [
        {"type": "eq", "left": {"type": "reference", "name": "id"}, "right": 5},
        {"type": "eq", "left": {"type": "reference", "id": 1}, "right": {"type": "literal", "value": 5}},
        {"type": "eq", "left": {"type": "literal", "value": 5}, "right": {"type": "reference", "name": "id"}},
        {"type": "eq", "term": {"type": "reference", "term": "id"}, "value": {"type": "literal", "value": 5}},
        {"type": "in", "child": {"type": "reference", "name": "id"}, "values": [5, 5]},
        {"type": "in", "term": "id", "values": {"type": "literals", "values": [5], "data-type": "long"}},
        {"type": "EQ", "term": "id", "value": 5},
        {"type": "not", "child": leaf("not-eq", "id", 5)},
        {"type": "and", "left": True, "right": leaf("eq", "id", 5)},
        {"type": "or", "left": {"type": "false"}, "right": leaf("eq", "id", 5)},
        {"type": "or", "left": leaf("eq", "id", 5), "right": leaf("eq", "id", 5)},
        leaf("eq", {"type": "transform", "transform": "identity", "term": "id"}, 5),
    ],
)
def test_spellings_of_one_filter(node: Any) -> None:
    assert written(bind(node, SCHEMA)) == leaf("eq", "id", 5)


def test_comparisons_turn_round_with_their_sides() -> None:
    node = {"type": "lt", "left": 5, "right": {"type": "reference", "name": "id"}}
    assert written(bind(node, SCHEMA)) == leaf("gt", "id", 5)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (True, TRUE),
        ({"type": "false"}, FALSE),
        ({"type": "literal", "value": False}, FALSE),
        ({"type": "not", "child": False}, TRUE),
        (leaf("is-null", "id"), FALSE),
        (leaf("not-null", "id"), TRUE),
        (leaf("in", "id", values=[]), FALSE),
        (leaf("not-in", "id", values=[]), TRUE),
        (leaf("eq", "place.zip", 2**40), FALSE),
        (leaf("not-eq", "place.zip", 2**40), TRUE),
        (leaf("gt", "place.zip", 2**40), FALSE),
        (leaf("lt", "place.zip", -(2**40)), FALSE),
        (leaf("in", "place.zip", values=[2**40, -(2**40)]), FALSE),
        (leaf("lt", "id", 2**70), TRUE),
    ],
)
def test_what_is_always_so(node: Any, expected: Always) -> None:
    assert bind(node, SCHEMA) == expected


def test_what_no_value_reaches_leaves_null_out() -> None:
    """The column itself is required, but what it is inside of is not."""
    assert written(bind(leaf("lt", "place.zip", 2**40), SCHEMA)) == leaf("not-null", "place.zip")
    assert written(bind(leaf("is-null", "place.zip"), SCHEMA)) == leaf("is-null", "place.zip")


def test_not_is_pushed_down() -> None:
    node = {
        "type": "not",
        "child": {
            "type": "or",
            "left": {"type": "and", "left": leaf("lt", "id", 1), "right": leaf("is-null", "Name")},
            "right": leaf("starts-with", "Name", "a"),
        },
    }
    found = bind(node, SCHEMA)
    assert isinstance(found, And)
    either, prefix = found.children
    assert isinstance(either, Or)
    assert [child.op for child in either.children if isinstance(child, Predicate)] == ["gt-eq", "not-null"]
    assert isinstance(prefix, Predicate)
    assert prefix.op == "not-starts-with"


def test_long_chains_are_no_deep_trees() -> None:
    node: Any = leaf("eq", "id", 0)
    for number in range(1, 900):
        node = {"type": "or", "left": node, "right": leaf("eq", "id", number)}
    found = bind(node, SCHEMA)
    assert isinstance(found, Or)
    assert len(found.children) == 900
    again = written(found)
    assert bind(again, SCHEMA) == found
    depth = 0
    while again["type"] == "or":
        again, depth = again["left"], depth + 1
    assert depth < 12


def test_names_without_regard_to_case() -> None:
    assert written(bind(leaf("is-null", "NAME"), SCHEMA, case_sensitive=False)) == leaf("is-null", "Name")
    with pytest.raises(Invalid, match="no column 'NAME'"):
        bind(leaf("is-null", "NAME"), SCHEMA)


def test_a_transform_of_a_column() -> None:
    term = {"type": "transform", "transform": "bucket[4]", "term": "id"}
    found = bind(leaf("eq", term, 3), SCHEMA)
    assert isinstance(found, Predicate)
    assert (found.term.transform, found.term.type) == ("bucket[4]", "int")
    assert written(found) == leaf("eq", term, 3)


@pytest.mark.parametrize(
    ("node", "field"),
    [
        (None, "filter"),
        (5, "filter"),
        ([], "filter"),
        ({}, "filter"),
        ({"type": 5}, "filter"),
        ({"type": "between", "term": "id"}, "filter.type"),
        ({"type": "and", "left": True}, "filter.right"),
        ({"type": "not"}, "filter.child"),
        (leaf("eq", "id"), "filter.value"),
        ({"type": "eq", "value": 5}, "filter.term"),
        ({"type": "is-null"}, "filter.child"),
        (leaf("eq", "nobody", 5), "filter.term"),
        (leaf("eq", 5, 5), "filter.term"),
        (leaf("eq", {"type": "reference", "id": 77}, 5), "filter.term"),
        (leaf("eq", {"type": "reference"}, 5), "filter.term"),
        (leaf("eq", {"type": "apply", "function": "f", "arguments": []}, 5), "filter.term"),
        (leaf("eq", {"type": "transform", "transform": "zorder", "term": "id"}, 5), "filter.term.transform"),
        (
            leaf("eq", {"type": "transform", "transform": "bucket[0]", "term": "id"}, 5),
            "filter.term.transform",
        ),
        (leaf("eq", {"type": "transform", "transform": "year", "term": "id"}, 5), "filter.term.term"),
        (leaf("eq", "id", "five"), "filter.value"),
        (leaf("eq", "id", None), "filter.value"),
        (leaf("eq", "id", 1.5), "filter.value"),
        (leaf("eq", "id", True), "filter.value"),
        (leaf("eq", "id", {"type": "literal"}), "filter.value"),
        (leaf("eq", "day", "2024-02-30"), "filter.value"),
        (leaf("eq", "ts", "2024-02-01T00:00:00+00:00"), "filter.value"),
        (leaf("eq", "v", 5), "filter.value"),
        (leaf("eq", "place", 5), "filter.value"),
        (leaf("eq", "f", "NaN"), "filter.value"),
        (leaf("in", "id", values=5), "filter.values"),
        (leaf("in", "id", values=[1, "x"]), "filter.values[1]"),
        (leaf("in", "id"), "filter.values"),
        (leaf("is-null", "id", 5), "filter.value"),
        (leaf("eq", "id", 5, values=[1]), "filter.values"),
        (leaf("is-nan", "id"), "filter"),
        (leaf("starts-with", "id", 5), "filter.value"),
        (leaf("eq", "tags.element", "x"), "filter.term"),
        ({"type": "or", "left": True, "right": leaf("eq", "nobody", 1)}, "filter.right.term"),
        ({"type": "not", "child": leaf("eq", "nobody", 1)}, "filter.child.term"),
    ],
)
def test_what_is_wrong_is_named(node: Any, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        bind(node, SCHEMA)
    assert caught.value.field == field


def test_nesting_has_an_end() -> None:
    node: Any = leaf("eq", "id", 5)
    for number in range(300):
        node = {"type": "and" if number % 2 else "or", "left": leaf("eq", "id", number), "right": node}
    with pytest.raises(Invalid, match="nested too deeply"):
        bind(node, SCHEMA)


# --- values ---


@pytest.mark.parametrize(
    ("type_", "node", "value"),
    [
        ("boolean", True, True),
        ("int", -5, -5),
        ("int", 2**31, ABOVE),
        ("int", -(2**31) - 1, BELOW),
        ("long", 2**31, 2**31),
        ("long", 2**63, ABOVE),
        ("float", 1, 1.0),
        ("float", 0.1, 0.10000000149011612),
        ("float", 1e39, ABOVE),
        ("float", -1e39, BELOW),
        ("float", "-Infinity", float("-inf")),
        ("double", 10**400, ABOVE),
        ("double", "70.5", 70.5),
        ("decimal(9, 2)", "12.34", 1234),
        ("decimal(9, 2)", "-0.5", -50),
        ("decimal(9, 2)", 7, 700),
        ("decimal(9, 2)", 1.005, 101),
        ("decimal(9, 2)", "1e2", 10000),
        ("date", "1970-01-02", 1),
        ("date", 19000, 19000),
        ("date", "-0001-12-31", -719529),
        ("date", "+12345-01-01", 3789391),
        ("time", "00:00:01.5", 1_500_000),
        ("time", 7, 7),
        ("timestamp", "1970-01-01T00:00:01", 1_000_000),
        ("timestamp", 5, 5),
        ("timestamptz", "1970-01-01T01:00:00.000001+01:00", 1),
        ("timestamptz", "1970-01-01T00:00:00Z", 0),
        ("timestamp_ns", "1970-01-01T00:00:00.000000001", 1),
        ("timestamp_ns", 5, 5000),
        ("timestamptz_ns", "1969-12-31T23:59:59.999999999+00:00", -1),
        ("uuid", "F79C3E09-677C-4BBD-A479-3F349CB785E7", bytes.fromhex("f79c3e09677c4bbda4793f349cb785e7")),
        ("fixed[2]", "00ff", b"\x00\xff"),
        ("binary", "78797A", b"xyz"),
        ("string", "", ""),
    ],
)
def test_literals(type_: str, node: Any, value: Any) -> None:
    found = from_json(type_, node, "value")
    assert found == value
    assert type(found) is type(value)
    if found not in (ABOVE, BELOW):
        assert from_json(type_, to_json(type_, found), "value") == value


@pytest.mark.parametrize(
    ("type_", "node"),
    [
        ("boolean", 1),
        ("int", "5"),
        ("int", 5.0),
        ("decimal(9, 2)", "1.234"),
        ("decimal(9, 2)", "x"),
        ("decimal(9, 2)", float("inf")),
        ("date", "2024-1-1"),
        ("date", "2023-02-29"),
        ("time", "24:00"),
        ("timestamp", "2024-01-01"),
        ("timestamptz", "2024-01-01T00:00:00"),
        ("uuid", "f79c3e09677c4bbda4793f349cb785e7"),
        ("fixed[2]", "00"),
        ("binary", "0"),
        ("binary", "00 11"),
        ("string", 5),
        ("unknown", 5),
        ("geometry(OGC:CRS84)", "x"),
    ],
)
def test_wrong_literals(type_: str, node: Any) -> None:
    with pytest.raises(Invalid, match="is not a value of type"):
        from_json(type_, node, "value")


@given(st.integers(-(10**7), 10**7))
def test_the_calendar(days: int) -> None:
    assert days_of(*date_of(days)) == days
    if -719_162 <= days <= 2_932_896:
        date = datetime.date(1970, 1, 1) + datetime.timedelta(days=days)
        assert date_of(days) == (date.year, date.month, date.day)
        assert to_json("date", days) == date.isoformat()


@given(st.integers(-(10**9), 10**9), st.integers(0, 9))
def test_decimals(unscaled: int, scale: int) -> None:
    text = to_json(f"decimal(38, {scale})", unscaled)
    assert Decimal(text) == Decimal(unscaled).scaleb(-scale)
    assert from_json(f"decimal(38, {scale})", text, "value") == unscaled


@pytest.mark.parametrize(
    ("type_", "data", "value"),
    [
        ("boolean", b"\x01", True),
        ("int", b"\xff\xff\xff\xff", -1),
        ("long", b"\xff\xff\xff\xff", -1),
        ("long", b"\x01" + bytes(7), 1),
        ("int", b"\x01" + bytes(7), None),
        ("timestamp", b"\x01" + bytes(3), None),
        ("double", b"\x00\x00\x80?", 1.0),
        ("float", b"\x00", None),
        ("decimal(9, 2)", b"\xff\x38", -200),
        ("string", b"\xff", None),
        ("string", b"ab", "ab"),
        ("uuid", b"x", None),
        ("binary", b"x", b"x"),
        ("variant", b"x", None),
    ],
)
def test_bounds(type_: str, data: bytes, value: Any) -> None:
    assert from_binary(type_, data) == value


# --- transforms: the examples of the table specification, and its rules ---


@pytest.mark.parametrize(
    ("type_", "value", "hashed"),
    [
        ("int", 34, 2017239379),
        ("long", 34, 2017239379),
        ("decimal(9, 2)", 1420, -500754589),
        ("date", 17486, -653330422),
        ("time", 81_068_000_000, -662762989),
        ("timestamp", 1_510_871_468_000_000, -2047944441),
        ("timestamp_ns", 1_510_871_468_000_001_001, -1207196810),
        ("string", "iceberg", 1210000089),
        ("uuid", bytes.fromhex("f79c3e09677c4bbda4793f349cb785e7"), 1488055340),
        ("fixed[4]", b"\x00\x01\x02\x03", -188683207),
        ("binary", b"\x00\x01\x02\x03", -188683207),
    ],
)
def test_buckets(type_: str, value: Any, hashed: int) -> None:
    expected = (hashed & 0x7FFF_FFFF) % 1000
    assert function("bucket[1000]", type_)(value) == expected


def test_murmur3_of_every_length() -> None:
    assert [murmur3(b"") & 0xFFFF_FFFF, murmur3(b"a"), murmur3(b"abc")] == [0, 0x3C2569B2, 0xB3DD93FA]


@pytest.mark.parametrize(
    ("transform", "type_", "value", "expected"),
    [
        ("truncate[10]", "int", 1, 0),
        ("truncate[10]", "int", -1, -10),
        ("truncate[50]", "decimal(9, 2)", 1065, 1050),
        ("truncate[3]", "string", "iceberg", "ice"),
        ("truncate[2]", "string", "\U0001f600ab", "\U0001f600a"),
        ("truncate[2]", "binary", b"abc", b"ab"),
        ("year", "date", -1, -1),
        ("month", "date", -1, -1),
        ("month", "date", 31, 1),
        ("day", "timestamp", -1, -1),
        ("day", "timestamp_ns", 86_400_000_000_000, 1),
        ("hour", "timestamptz", -1, -1),
        ("year", "timestamptz", 1_510_871_468_000_000, 47),
        ("identity", "string", "x", "x"),
    ],
)
def test_transforms(transform: str, type_: str, value: Any, expected: Any) -> None:
    assert function(transform, type_)(value) == expected
