"""Requirements fail with the words that clients look for."""

from __future__ import annotations

from typing import Any

import pytest

from inver.domain import iceberg
from inver.domain.iceberg import IllegalArgument, RequirementFailed, decode_commit
from inver.errors import Conflict, Invalid
from tests.fixtures.iceberg_tables import new_table
from tests.fixtures.iceberg_updates import UUID, add_snapshot, body, set_ref


@pytest.fixture
def table() -> Any:
    table = new_table()
    table.commit(add_snapshot(11), set_ref(11), set_ref(11, "release", "tag"))
    return table


def check(table: Any, **requirement: Any) -> Any:
    named = {name.replace("_", "-"): value for name, value in requirement.items()}
    iceberg.check(table.state, decode_commit(body([], [named])).requirements)


@pytest.mark.parametrize(
    "requirement",
    [
        {"type": "assert-table-uuid", "uuid": UUID},
        {"type": "assert-table-uuid", "uuid": UUID.upper()},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot_id": 11},
        {"type": "assert-ref-snapshot-id", "ref": "other", "snapshot_id": None},
        {"type": "assert-ref-snapshot-id", "ref": "other"},
        {"type": "assert-last-assigned-field-id", "last_assigned_field_id": 3},
        {"type": "assert-current-schema-id", "current_schema_id": 0},
        {"type": "assert-last-assigned-partition-id", "last_assigned_partition_id": 999},
        {"type": "assert-default-spec-id", "default_spec_id": 0},
        {"type": "assert-default-sort-order-id", "default_sort_order_id": 0},
    ],
)
def test_what_holds(table, requirement):
    check(table, **requirement)


@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        ({"type": "assert-create"}, "table already exists"),
        ({"type": "assert-table-uuid", "uuid": "x"}, f"UUID does not match: expected {UUID} != x"),
        (
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot_id": 5},
            "branch main has changed: expected id 5 != 11",
        ),
        (
            {"type": "assert-ref-snapshot-id", "ref": "release", "snapshot_id": 5},
            "tag release has changed: expected id 5 != 11",
        ),
        (
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot_id": None},
            "branch main was created concurrently",
        ),
        (
            {"type": "assert-ref-snapshot-id", "ref": "release"},
            "tag release was created concurrently",
        ),
        (
            {"type": "assert-ref-snapshot-id", "ref": "gone", "snapshot_id": 5},
            "branch or tag gone is missing, expected 5",
        ),
        (
            {"type": "assert-last-assigned-field-id", "last_assigned_field_id": 2},
            "last assigned field id changed: expected id 2 != 3",
        ),
        (
            {"type": "assert-current-schema-id", "current_schema_id": 4},
            "current schema changed: expected id 4 != 0",
        ),
        (
            {"type": "assert-last-assigned-partition-id", "last_assigned_partition_id": 1000},
            "last assigned partition id changed: expected id 1000 != 999",
        ),
        (
            {"type": "assert-default-spec-id", "default_spec_id": 1},
            "default partition spec changed: expected id 1 != 0",
        ),
        (
            {"type": "assert-default-sort-order-id", "default_sort_order_id": 1},
            "default sort order changed: expected id 1 != 0",
        ),
    ],
)
def test_what_does_not_hold(table, requirement, reason):
    with pytest.raises(RequirementFailed) as failed:
        check(table, **requirement)
    assert failed.value.message == f"Requirement failed: {reason}"
    assert isinstance(failed.value, Conflict)


def test_a_failed_requirement_changes_nothing(table):
    before = table.document
    with pytest.raises(RequirementFailed):
        table.commit({"action": "set-properties", "updates": {"a": "b"}}, require=[{"type": "assert-create"}])
    assert table.document == before


def test_a_requirement_of_views_does_not_fit_a_table(table):
    with pytest.raises(Invalid, match="Cannot validate assert-view-uuid against a table"):
        check(table, type="assert-view-uuid", uuid=UUID)


def test_a_creation_can_require_nothing_else():
    request = decode_commit(
        body([], [{"type": "assert-create"}, {"type": "assert-table-uuid", "uuid": UUID}])
    )
    with pytest.raises(IllegalArgument, match=r"Invalid create requirements: \[assert-table-uuid\]"):
        iceberg.create(request, now_ms=1, uuid=UUID, file_id="f")


def test_later_requests_of_a_transaction_see_what_the_earlier_ones_did(table):
    table.send(
        body(
            [add_snapshot(12, 2, parent=11), set_ref(12)],
            [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 11}],
        ),
        body(
            [add_snapshot(13, 3, parent=12), set_ref(13)],
            [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 12}],
        ),
    )
    assert table.head.current_snapshot_id == 13
    assert len(table.document["metadata-log"]) == 2
    with pytest.raises(RequirementFailed, match="branch main has changed: expected id 13 != 14"):
        table.send(
            body([add_snapshot(14, 4, parent=13), set_ref(14)]),
            body([], [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 13}]),
        )
