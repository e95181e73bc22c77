"""Nothing that a filter wants is ever left out, and what is left of a filter wants the same rows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from inver.domain.iceberg.content import ContentFile, FieldSummary, Metrics
from inver.domain.iceberg.expressions import FALSE, TRUE, bind, written
from inver.domain.iceberg.partitions import PartitionField, Spec
from inver.domain.iceberg.projections import inclusive, matches, residual, slots_of
from inver.domain.iceberg.pruning import metrics_match, summaries_match
from inver.domain.iceberg.values import from_json
from tests.fixtures.iceberg_rows import (
    IDS,
    SCHEMA,
    TYPES,
    binary,
    file_of,
    files_of,
    filters,
    partition_of,
    rows,
    specs,
    summaries_of,
    wanted,
)


def parse(type_: str, node: Any) -> Any:
    return from_json(type_, node, "x")


@given(spec=specs, written_rows=rows, node=filters)
@settings(max_examples=250, deadline=None)
def test_no_wanted_row_is_left_out(spec: Spec, written_rows: list[dict[str, Any]], node: Any) -> None:
    expression = bind(node, SCHEMA)
    slots = slots_of(spec, [SCHEMA])
    projection = inclusive(expression, slots)
    files = files_of(spec, written_rows)
    summaries = summaries_of([slot.type for slot in slots], [file.partition for file, _ in files])
    for file, group in files:
        if any(wanted(node, row, parse, null=True) for row in group):
            assert matches(projection, file.partition)
            assert summaries_match(projection, summaries)
            assert metrics_match(expression, file)


@given(spec=specs, written_rows=rows, node=filters)
@settings(max_examples=250, deadline=None)
def test_a_residual_wants_the_same_rows(spec: Spec, written_rows: list[dict[str, Any]], node: Any) -> None:
    expression = bind(node, SCHEMA)
    slots = slots_of(spec, [SCHEMA])
    for row in written_rows:
        left = written(residual(expression, slots, partition_of(spec, row)))
        for null in (True, False):
            assert wanted(left, row, parse, null) == wanted(node, row, parse, null)


@given(node=filters, written_rows=rows)
@settings(max_examples=100, deadline=None)
def test_a_filter_that_was_read_and_written_wants_the_same_rows(node: Any, written_rows: Any) -> None:
    again = written(bind(node, SCHEMA))
    assert written(bind(again, SCHEMA)) == again
    for row in written_rows:
        for null in (True, False):
            assert wanted(again, row, parse, null) == wanted(node, row, parse, null)


# --- that something is left out ---


def spec_of(*fields: tuple[str, str]) -> Spec:
    return Spec(
        1,
        tuple(
            PartitionField(IDS[name], 1000 + at, f"p{at}", transform)
            for at, (name, transform) in enumerate(fields)
        ),
    )


def row(**values: Any) -> dict[str, Any]:
    return {name: values.get(name) for name in TYPES}


HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("field", "value", "node"),
    [
        (("id", "identity"), 5, {"type": "eq", "term": "id", "value": 6}),
        (("id", "bucket[16]"), 5, {"type": "eq", "term": "id", "value": 6}),
        (("id", "bucket[16]"), 5, {"type": "in", "term": "id", "values": [6, 7]}),
        (("id", "truncate[10]"), 15, {"type": "lt", "term": "id", "value": 10}),
        (("id", "truncate[10]"), 15, {"type": "gt", "term": "id", "value": 19}),
        (("id", "truncate[10]"), 15, {"type": "gt-eq", "term": "id", "value": 20}),
        (("id", "truncate[10]"), 15, {"type": "eq", "term": "id", "value": 9}),
        (("name", "truncate[2]"), "abc", {"type": "starts-with", "term": "name", "value": "b"}),
        (("name", "truncate[2]"), "abc", {"type": "starts-with", "term": "name", "value": "acx"}),
        (("name", "truncate[2]"), "abc", {"type": "not-starts-with", "term": "name", "value": "ab"}),
        (("name", "truncate[2]"), "abc", {"type": "gt", "term": "name", "value": "ac"}),
        (("day", "month"), 40, {"type": "lt", "term": "day", "value": "1970-02-01"}),
        (("day", "year"), 40, {"type": "gt", "term": "day", "value": "1970-12-31"}),
        (("ts", "hour"), HOUR, {"type": "lt", "term": "ts", "value": "1970-01-01T01:00:00+00:00"}),
        (("ts", "day"), 30 * HOUR, {"type": "in", "term": "ts", "values": ["1970-01-01T05:00:00Z", 0]}),
        (("id", "identity"), None, {"type": "not-null", "term": "id"}),
        (("id", "bucket[16]"), 5, {"type": "is-null", "term": "id"}),
        (("f", "identity"), 1.0, {"type": "is-nan", "term": "f"}),
        (
            ("id", "bucket[16]"),
            5,
            {
                "type": "eq",
                "term": {"type": "transform", "transform": "bucket[16]", "term": "id"},
                "value": 0,
            },
        ),
    ],
)
def test_partitions_are_left_out(field: tuple[str, str], value: Any, node: Any) -> None:
    spec = spec_of(field)
    slots = slots_of(spec, [SCHEMA])
    partition = partition_of(spec, row(**{field[0]: value}))
    expression = bind(node, SCHEMA)
    projection = inclusive(expression, slots)
    assert not matches(projection, partition)
    assert not summaries_match(projection, summaries_of([slots[0].type], [partition]))
    assert residual(expression, slots, partition) == FALSE


@pytest.mark.parametrize(
    ("field", "value", "node"),
    [
        (("id", "identity"), 5, {"type": "eq", "term": "id", "value": 5}),
        (("id", "truncate[10]"), 15, {"type": "lt-eq", "term": "id", "value": 19}),
        (("id", "truncate[10]"), 15, {"type": "gt-eq", "term": "id", "value": 10}),
        (("id", "bucket[16]"), 5, {"type": "not-eq", "term": "id", "value": 6}),
        (("day", "month"), 70, {"type": "gt-eq", "term": "day", "value": "1970-03-01"}),
        (("ts", "hour"), 5 * HOUR, {"type": "lt", "term": "ts", "value": "1970-01-01T06:00:00+00:00"}),
        (("name", "truncate[2]"), "abc", {"type": "starts-with", "term": "name", "value": "ab"}),
        (("name", "truncate[2]"), "abc", {"type": "not-starts-with", "term": "name", "value": "acx"}),
        (("name", "identity"), None, {"type": "is-null", "term": "name"}),
    ],
)
def test_nothing_is_left_to_ask_of_a_partition_that_is_wanted_whole(
    field: tuple[str, str], value: Any, node: Any
) -> None:
    spec = spec_of(field)
    partition = partition_of(spec, row(**{field[0]: value}))
    assert residual(bind(node, SCHEMA), slots_of(spec, [SCHEMA]), partition) == TRUE


@pytest.mark.parametrize(
    "node",
    [
        {"type": "lt", "term": "id", "value": 3},
        {"type": "gt", "term": "id", "value": 7},
        {"type": "eq", "term": "id", "value": 8},
        {"type": "in", "term": "id", "values": [1, 2, 9]},
        {"type": "is-null", "term": "id"},
        {"type": "not-null", "term": "small"},
        {"type": "eq", "term": "small", "value": 1},
        {"type": "starts-with", "term": "name", "value": "c"},
        {"type": "not-starts-with", "term": "name", "value": "a"},
        {"type": "not-eq", "term": "ok", "value": True},
        {"type": "not-in", "term": "price", "values": ["1.00", "2.00"]},
        {"type": "is-nan", "term": "f"},
        {"type": "and", "left": True, "right": {"type": "lt", "term": "id", "value": 3}},
        {"type": "gt", "term": {"type": "transform", "transform": "truncate[10]", "term": "id"}, "value": 0},
    ],
)
def test_files_are_left_out_by_their_metrics(node: Any) -> None:
    group = [
        row(id=3, name="ab", ok=True, price=100, f=1.0),
        row(id=7, name="az", ok=True, price=100, f=2.0),
    ]
    file = file_of(spec_of(), group)
    assert not metrics_match(bind(node, SCHEMA), file)


def test_without_metrics_every_file_may_match() -> None:
    file = file_of(spec_of(), [row(id=3)])
    bare = ContentFile(
        content=file.content,
        path="f",
        format="parquet",
        spec_id=1,
        partition=(),
        record_count=1,
        size=1,
        sequence_number=1,
    )
    for node in ({"type": "eq", "term": "id", "value": 99}, {"type": "not-null", "term": "id"}):
        assert metrics_match(bind(node, SCHEMA), bare)


def test_a_file_without_rows_never_matches() -> None:
    file = file_of(spec_of(), [row(id=3)], record_count=0)
    assert not metrics_match(TRUE, file)


def test_bounds_of_nan_say_nothing() -> None:
    nan = binary("double", float("nan"))
    metrics = Metrics(None, {IDS["f"]: 2}, {IDS["f"]: 0}, None, {IDS["f"]: nan}, {IDS["f"]: nan})
    file = file_of(spec_of(), [row(f=1.0)], metrics=metrics)
    for op in ("lt", "gt", "eq", "not-eq"):
        assert metrics_match(bind({"type": op, "term": "f", "value": 1.0}, SCHEMA), file)


def test_bounds_of_a_column_that_was_an_int_or_a_float() -> None:
    low, high = (3).to_bytes(4, "little"), (7).to_bytes(4, "little")
    metrics = Metrics(None, {1: 2}, {1: 0}, None, {1: low}, {1: high})
    file = file_of(spec_of(), [row(id=3)], metrics=metrics)
    assert metrics_match(bind({"type": "eq", "term": "id", "value": 5}, SCHEMA), file)
    assert not metrics_match(bind({"type": "eq", "term": "id", "value": 8}, SCHEMA), file)


def test_partitions_of_early_writers_before_1970() -> None:
    """They put the last hours of 1969 into the first month of 1970."""
    spec = spec_of(("ts", "month"))
    slots = slots_of(spec, [SCHEMA])
    for op in ("lt", "eq"):
        expression = bind({"type": op, "term": "ts", "value": "1969-12-31T10:00:00Z"}, SCHEMA)
        assert matches(inclusive(expression, slots), (0,))
    expression = bind({"type": "gt-eq", "term": "ts", "value": "1970-01-01T00:00:00Z"}, SCHEMA)
    assert residual(expression, slots, (0,)) != TRUE


def test_summaries_without_bounds() -> None:
    slots = slots_of(spec_of(("f", "identity")), [SCHEMA])
    projection = inclusive(bind({"type": "gt", "term": "f", "value": 1.0}, SCHEMA), slots)
    assert not summaries_match(projection, [FieldSummary(True, False)])
    # Nothing is known of NaN here: an old writer did not say.
    assert summaries_match(projection, [FieldSummary(True, None)])
    assert summaries_match(projection, None)
    other = inclusive(bind({"type": "not-eq", "term": "f", "value": 1.0}, SCHEMA), slots)
    assert summaries_match(other, [FieldSummary(True, False)])


def test_a_dropped_column_and_an_unknown_transform_say_nothing() -> None:
    spec = Spec(1, (PartitionField(99, 1000, "gone", "identity"), PartitionField(1, 1001, "new", "zorder")))
    slots = slots_of(spec, [SCHEMA])
    assert [slot.type for slot in slots] == ["unknown", "unknown"]
    expression = bind({"type": "eq", "term": "id", "value": 5}, SCHEMA)
    assert inclusive(expression, slots) == TRUE
    assert residual(expression, slots, ("a", "b")) == expression
