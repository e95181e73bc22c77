"""Bodies of commits and creations: what is read, and how a bad one is refused."""

from __future__ import annotations

import json

import pytest

from inver.domain.iceberg import decode_commit, decode_create_table, decode_create_view, decode_transaction
from inver.domain.iceberg.updates import (
    REQUIREMENTS,
    UPDATES,
    AddSnapshot,
    AssertRefSnapshotId,
    RemoveProperties,
    SetProperties,
    SetSnapshotRef,
)
from inver.errors import Invalid
from tests.fixtures.iceberg_updates import add_snapshot, body, schema, set_ref


def refused(written: bytes, decode=decode_commit) -> Invalid:
    with pytest.raises(Invalid) as refusal:
        decode(written)
    return refusal.value


def test_every_update_and_requirement_of_the_specification_is_known():
    assert len(UPDATES) == 25
    assert len(REQUIREMENTS) == 9


def test_a_commit_keeps_the_bytes_of_its_snapshot():
    raw = b'{"snapshot-id": 1,  "timestamp-ms":2,"of tomorrow": [1.50, null]}'
    request = decode_commit(
        b'{"requirements":[],"updates":[{"action":"add-snapshot","snapshot":' + raw + b"}]}"
    )
    [update] = request.updates
    assert isinstance(update, AddSnapshot)
    assert bytes(update.snapshot) == raw


def test_fields_that_are_not_known_are_skipped():
    request = decode_commit(json.dumps({"updates": [set_ref(1) | {"new": 1}], "new": {}}).encode())
    [update] = request.updates
    assert isinstance(update, SetSnapshotRef)
    assert update.snapshot_id == 1


def test_actions_and_types_are_read_in_any_case():
    written = body(
        [{"action": "SET-Properties", "updates": {"a": "b"}}, add_snapshot(1) | {"action": "Add-Snapshot"}],
        [{"type": "ASSERT-ref-snapshot-id", "ref": "main", "snapshot-id": 3}],
    )
    request = decode_commit(written)
    assert [type(each) for each in request.updates] == [SetProperties, AddSnapshot]
    assert request.requirements == (AssertRefSnapshotId(ref="main", snapshot_id=3),)


def test_the_older_names_of_property_updates_are_read():
    request = decode_commit(
        body(
            [
                {"action": "set-properties", "updated": {"a": "1"}},
                {"action": "set-properties", "updated": {"a": "1"}, "updates": {"b": "2"}},
                {"action": "remove-properties", "removed": ["a"]},
                {"action": "remove-properties", "removed": ["a"], "removals": ["b"]},
            ]
        )
    )
    first, second, third, fourth = request.updates
    assert isinstance(first, SetProperties)
    assert isinstance(second, SetProperties)
    assert isinstance(third, RemoveProperties)
    assert isinstance(fourth, RemoveProperties)
    assert (first.values, second.values, third.names, fourth.names) == ({"a": "1"}, {"b": "2"}, ["a"], ["b"])


def test_requirements_may_be_missing():
    for written in (b'{"updates":[]}', b'{"updates":[],"requirements":null}'):
        request = decode_commit(written)
        assert (request.requirements, request.updates, request.is_create) == ((), (), False)


def test_assert_create_makes_it_a_creation():
    assert decode_commit(body([], [{"type": "assert-create"}])).is_create


@pytest.mark.parametrize(
    ("written", "message", "field"),
    [
        (b"[]", "Expected `object`, got `array`", None),
        (b"{}", "Object missing required field `updates`", None),
        (b'{"updates":null}', "Expected `array`, got `null`", "updates"),
        (b"{", "the request is not valid JSON", None),
        (b"\xff", "the request is not valid JSON", None),
        (b'{"updates":[{"action":"tidy-up"}]}', 'Unknown update: "tidy-up"', "updates[0].action"),
        (b'{"updates":[{"action":7}]}', "Unknown update: 7", "updates[0].action"),
        (b'{"updates":[{}]}', "Missing field: action", "updates[0].action"),
        (b'{"updates":[7]}', "Cannot parse updates[0]", "updates[0]"),
        (
            b'{"updates":[],"requirements":[{"type":"assert-luck"}]}',
            'Unknown requirement: "assert-luck"',
            "requirements[0].type",
        ),
        (
            b'{"updates":[{"action":"set-location"}]}',
            "Object missing required field `location`",
            "updates[0]",
        ),
        (b'{"updates":[{"action":"set-properties"}]}', "missing required field `updates`", "updates[0]"),
        (b'{"updates":[{"action":"remove-properties"}]}', "missing required field `removals`", "updates[0]"),
        (
            b'{"updates":[{"action":"set-properties","updates":{"a":1}}]}',
            "Expected `str`",
            "updates[0].updates[...]",
        ),
        (
            b'{"updates":[{"action":"set-current-schema","schema-id":2147483648}]}',
            "Expected `int`",
            "updates[0].schema-id",
        ),
        (
            b'{"updates":[{"action":"set-current-schema","schema-id":"1"}]}',
            "Expected `int`",
            "updates[0].schema-id",
        ),
        (
            b'{"updates":[{"action":"remove-snapshots","snapshot-ids":[9223372036854775808]}]}',
            "Expected `int`",
            "updates[0].snapshot-ids[0]",
        ),
        (b'{"updates":[{"action":"set-location","location":"a\\u0000b"}]}', "NUL", None),
        (b'{"updates":[{"action":"set-properties","updates":{"\\u0000":""}}]}', "NUL", None),
    ],
)
def test_a_bad_commit_is_refused_by_the_name_of_its_field(written, message, field):
    error = refused(written)
    assert message in error.message
    assert error.field == field


def test_a_backslash_before_u0000_is_no_nul():
    decode_commit(body([{"action": "set-properties", "updates": {"path": "C:\\u0000"}}]))


def test_very_deep_json_is_refused():
    deep = b"[" * 100_000 + b"]" * 100_000
    refused(b'{"updates":[{"action":"add-schema","schema":' + deep + b"}]}")


def test_a_transaction_names_its_tables():
    one = {"identifier": {"namespace": ["a", "b"], "name": "t"}, "updates": [], "requirements": []}
    [change] = decode_transaction(json.dumps({"table-changes": [one]}).encode())
    assert change.identifier is not None
    assert (change.identifier.namespace, change.identifier.name) == (("a", "b"), "t")


@pytest.mark.parametrize(
    "changes", [[], [{"updates": []}], [{"identifier": {"namespace": []}, "updates": []}], [5]]
)
def test_a_bad_transaction_is_refused(changes):
    refused(json.dumps({"table-changes": changes}).encode(), decode_transaction)


def test_a_creation_with_everything_and_with_the_least():
    least = decode_create_table(json.dumps({"name": "t", "schema": schema()}).encode())
    assert (least.location, least.partition_spec, least.write_order, least.stage_create) == (
        None,
        None,
        None,
        False,
    )
    nulls = {"location": None, "partition-spec": None, "write-order": None, "properties": None}
    assert (
        decode_create_table(json.dumps({"name": "t", "schema": schema()} | nulls).encode()).write_order
        is None
    )
    for missing in ({"name": "t"}, {"schema": schema()}, {"name": "", "schema": schema()}):
        refused(json.dumps(missing).encode(), decode_create_table)


def test_a_view_needs_a_name_a_schema_and_a_version():
    for missing in ({"name": "v"}, {"name": "v", "schema": schema()}):
        refused(json.dumps(missing).encode(), decode_create_view)
