"""A commit that is sent again is known by what it left in the table."""

from __future__ import annotations

from typing import Any

import pytest

from inver.domain import iceberg
from inver.domain.iceberg import decode_commit
from tests.fixtures.iceberg_tables import new_table
from tests.fixtures.iceberg_updates import (
    COLUMNS,
    UUID,
    add_snapshot,
    body,
    column,
    order,
    partition,
    schema,
    set_ref,
    sort,
    spec,
    statistics,
)

OWN = {"type": "assert-table-uuid", "uuid": UUID}


def applied(table: Any, *updates: Any, require: Any = (OWN,)) -> bool:
    return iceberg.is_applied(table.state, decode_commit(body(updates, require)))


@pytest.fixture
def table() -> Any:
    """With the snapshots 1 and 2 on main, and 3 on a branch from 1."""
    table = new_table()
    table.commit(*FIRST)
    table.commit(*SECOND)
    table.commit(add_snapshot(3, 3, parent=1), set_ref(3, "audit"))
    return table


FIRST = (add_snapshot(1), set_ref(1))
SECOND = (add_snapshot(2, 2, parent=1), set_ref(2))


def test_the_last_commit_and_an_older_one(table):
    assert applied(table, *SECOND)
    assert applied(table, *FIRST)
    assert applied(table, *FIRST, *SECOND)


def test_requirements_that_no_longer_hold_do_not_matter(table):
    assert applied(
        table, *SECOND, require=[OWN, {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1}]
    )


def test_another_table_is_another(table):
    assert not applied(table, *SECOND, require=[{"type": "assert-table-uuid", "uuid": "x"}])


def test_a_snapshot_that_is_not_there(table):
    assert not applied(table, add_snapshot(9, 4, parent=2), set_ref(9))


def test_an_id_that_means_another_snapshot(table):
    other = add_snapshot(2, 2, parent=1) | {}
    other["snapshot"]["manifest-list"] = "other.avro"
    assert not applied(table, other, set_ref(2))


def test_the_same_snapshot_in_other_spelling(table):
    again = add_snapshot(2, 2, parent=1)
    again["snapshot"] = dict(reversed(again["snapshot"].items()))
    assert applied(table, again, set_ref(2))


def test_a_ref_that_went_elsewhere(table):
    assert not applied(table, *FIRST[:1], set_ref(2, "audit"))
    assert not applied(table, *SECOND[:1], set_ref(2, "gone"))
    assert not applied(table, *SECOND[:1], set_ref(2, "audit", "tag"))
    assert applied(table, *FIRST[:1], set_ref(1, "audit"))


def test_a_rollback_since_is_no_success(table):
    table.commit(set_ref(1))
    assert not applied(table, *SECOND)


def test_only_commits_with_snapshots_are_known(table):
    assert not applied(table, set_ref(2))
    assert not applied(table, {"action": "set-properties", "updates": {}})


def test_everything_else_must_be_there_too(table):
    table.commit({"action": "set-properties", "updates": {"a": "1"}})
    assert applied(table, *SECOND, {"action": "set-properties", "updates": {"a": "1"}})
    assert not applied(table, *SECOND, {"action": "set-properties", "updates": {"a": "2"}})
    assert applied(table, *SECOND, {"action": "remove-properties", "removals": ["b"]})
    assert not applied(table, *SECOND, {"action": "remove-properties", "removals": ["a"]})
    assert not applied(table, *SECOND, {"action": "set-location", "location": "s3://other"})
    assert not applied(table, *SECOND, {"action": "upgrade-format-version", "format-version": 3})
    assert not applied(table, *SECOND, {"action": "assign-uuid", "uuid": "x"})
    assert applied(table, *SECOND, {"action": "remove-snapshots", "snapshot-ids": [8]})
    assert not applied(table, *SECOND, {"action": "remove-snapshots", "snapshot-ids": [1]})
    assert applied(table, *SECOND, {"action": "remove-snapshot-ref", "ref-name": "none"})
    assert not applied(table, *SECOND, {"action": "remove-snapshot-ref", "ref-name": "audit"})
    assert applied(table, {"action": "remove-snapshot-ref", "ref-name": "main"}, *SECOND)
    assert not applied(table, *SECOND, {"action": "set-statistics", "statistics": statistics(2)})


LAYOUT = (
    {"action": "add-schema", "schema": schema(*COLUMNS, column(4, "new"))},
    {"action": "set-current-schema", "schema-id": -1},
    {"action": "add-spec", "spec": spec(partition(3, field=1000))},
    {"action": "set-default-spec", "spec-id": -1},
    {"action": "add-sort-order", "sort-order": order(sort(3))},
    {"action": "set-default-sort-order", "sort-order-id": -1},
)


def test_a_new_layout_with_its_first_snapshot():
    table = new_table()
    table.commit(*LAYOUT, *FIRST)
    assert applied(table, *LAYOUT, *FIRST)
    table.commit({"action": "set-current-schema", "schema-id": 0})
    assert not applied(table, *LAYOUT, *FIRST)
    assert not applied(new_table(), *LAYOUT, *FIRST)


def test_the_creation_of_a_table_with_its_data():
    updates = (
        {"action": "assign-uuid", "uuid": UUID},
        {"action": "add-schema", "schema": schema()},
        {"action": "set-current-schema", "schema-id": -1},
        *LAYOUT[2:],
        {"action": "set-location", "location": "s3://b/t"},
        *FIRST,
    )
    request = decode_commit(body(updates, [{"type": "assert-create"}]))
    change = iceberg.create(request, now_ms=1_700_000_000_000, uuid="n", file_id="f")
    assert iceberg.is_applied(change.state, request)
    other = decode_commit(
        body([{"action": "assign-uuid", "uuid": "x"}, *updates[1:]], [{"type": "assert-create"}])
    )
    assert not iceberg.is_applied(change.state, other)


def test_what_cannot_be_read_is_no_replay(table):
    assert not applied(table, {"action": "add-snapshot", "snapshot": {"snapshot-id": 2}})
