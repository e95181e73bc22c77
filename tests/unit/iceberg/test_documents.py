"""Metadata documents: writing them, and taking in those of others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inver.domain import iceberg
from inver.domain.iceberg import IllegalArgument
from inver.errors import Invalid
from tests.fixtures.iceberg_tables import document_of, new_table, registered
from tests.fixtures.iceberg_updates import (
    COLUMNS,
    LOCATION,
    START_MS,
    UUID,
    add_snapshot,
    column,
    order,
    partition,
    partition_statistics,
    schema,
    set_ref,
    snapshot,
    sort,
    spec,
    statistics,
)


def changed(document: Any, **fields: Any) -> Any:
    """With fields set, or taken away by ...; names have underscores."""
    document = dict(document)
    for name, value in fields.items():
        document.pop(name.replace("_", "-"), None)
        if value is not ...:
            document[name.replace("_", "-")] = value
    return document


@pytest.fixture
def table() -> Any:
    table = new_table(3, **{"partition-spec": spec(partition(3)), "write-order": order(sort(1))})
    for number in (1, 2, 3):
        rows = {"first-row-id": 0, "added-rows": 0}
        table.commit(add_snapshot(number, number, at=table.now, **rows), set_ref(number))
        table.commit(
            {"action": "set-statistics", "statistics": statistics(number)},
            {"action": "set-partition-statistics", "partition-statistics": partition_statistics(number)},
        )
    table.commit(set_ref(1, "release", "tag"))
    return table


class TestWriting:
    def test_pieces_are_one_document(self, table):
        pieces = iceberg.document(table.state)
        assert all(isinstance(piece, bytes) for piece in pieces)
        assert json.loads(b"".join(pieces))["current-snapshot-id"] == 3

    def test_no_field_is_null_but_the_current_snapshot(self, table):
        def nulls(node: Any) -> Any:
            if isinstance(node, dict):
                return [key for key, each in node.items() if each is None] + nulls(list(node.values()))
            return [found for each in node for found in nulls(each)] if isinstance(node, list) else []

        assert nulls(table.document) == []
        assert nulls(new_table(3).document) == ["current-snapshot-id"]
        assert nulls(new_table(2).document) == []

    def test_only_what_refs_name(self, table):
        document = document_of(table.state, "refs")
        whole = table.document
        for field in ("snapshots", "statistics", "partition-statistics"):
            assert [each["snapshot-id"] for each in document[field]] == [1, 3]
            del document[field], whole[field]
        assert document == whole

    def test_statistics_of_no_snapshot_stay(self, table):
        table.commit({"action": "set-statistics", "statistics": statistics(77)})
        told = [each["snapshot-id"] for each in document_of(table.state, "refs")["statistics"]]
        assert told == [1, 3, 77]

    def test_many_snapshots(self):
        table = new_table()
        for number in range(1, 300):
            table.commit(add_snapshot(number, number, at=table.now), set_ref(number))
        document = table.document
        assert [each["snapshot-id"] for each in document["snapshots"]] == list(range(1, 300))
        assert len(document_of(table.state, "refs")["snapshots"]) == 1
        assert document_of(table.stored.load()) == document


class TestTakingIn:
    def test_what_was_written_is_read_the_same(self, table):
        again = registered(table.document)
        assert again.document == table.document
        assert document_of(again.stored.load()) == table.document

    def test_unknown_fields_keep_their_bytes(self, table):
        unknown = b'{"a" :  [1.500, {"b":null}],\n "c": 123456789012345678901234567890}'
        written = b"".join(iceberg.document(table.state))
        again = registered(written[:-1] + b',"of-tomorrow":' + unknown + b"}")
        assert b'"of-tomorrow":' + unknown in b"".join(iceberg.document(again.state))
        again.commit({"action": "set-properties", "updates": {"a": "b"}})
        assert b'"of-tomorrow":' + unknown in b"".join(iceberg.document(again.stored.load()))

    @pytest.mark.parametrize("kind", ["schemas", "partition-specs", "sort-orders", "snapshots", "statistics"])
    def test_unknown_fields_of_parts_keep_their_bytes(self, table, kind):
        document = table.document
        document[kind][0]["of tomorrow"] = "MARK"
        mark = b'{"x":  1.500 }'
        again = registered(json.dumps(document).encode().replace(b'"MARK"', mark))
        assert b'"of tomorrow": ' + mark in b"".join(iceberg.document(again.state))

    def test_a_table_goes_on_from_it(self, table):
        again = registered(table.document)
        document = again.commit(
            add_snapshot(4, 4, at=again.now, **{"first-row-id": 0, "added-rows": 1}), set_ref(4)
        )
        assert [entry["snapshot-id"] for entry in document["snapshot-log"]] == [1, 2, 3, 4]
        assert document["metadata-log"][-1]["metadata-file"] == f"{LOCATION}/metadata/7.json"

    def test_a_file_of_the_first_days(self):
        old = {
            "format-version": 1,
            "location": LOCATION + "/",
            "last-updated-ms": START_MS,
            "last-column-id": 3,
            "schema": schema(),
            "partition-spec": [partition(3, "bucket[4]", "b"), partition(1, name="id")],
            "properties": {"owner": "me"},
            "current-snapshot-id": 5,
            "snapshots": [
                {"snapshot-id": 5, "timestamp-ms": START_MS, "manifests": ["a.avro"], "summary": {}},
            ],
        }
        document = registered(old).document
        assert document["table-uuid"] == UUID
        assert document["location"] == LOCATION
        assert document["schemas"] == [schema(**{"schema-id": 0})]
        assert document["schema"] == document["schemas"][0]
        fields = [partition(3, "bucket[4]", "b", 1000), partition(1, "identity", "id", 1001)]
        assert document["partition-specs"] == [{"spec-id": 0, "fields": fields}]
        assert document["partition-spec"] == fields
        assert (document["last-partition-id"], document["default-sort-order-id"]) == (1001, 0)
        assert document["sort-orders"] == [{"order-id": 0, "fields": []}]
        assert document["refs"] == {"main": {"snapshot-id": 5, "type": "branch"}}
        assert document["snapshots"] == old["snapshots"]

    def test_a_table_of_version_1_gets_its_id_when_it_is_registered(self):
        table = registered(changed(new_table(1).document, table_uuid=...))
        assert table.head.uuid == UUID

    def test_refs_in_other_cases_and_without_a_current_snapshot(self, table):
        document = table.document
        document["refs"]["main"]["type"] = "BRANCH"
        assert registered(document).document["refs"]["main"] == {"snapshot-id": 3, "type": "branch"}
        assert registered(changed(new_table().document, current_snapshot_id=None)).document["refs"] == {}

    def test_nulls_of_snapshots_are_left_out(self):
        table = new_table()
        table.commit(add_snapshot(1), set_ref(1))
        document = table.document
        document["snapshots"][0]["parent-snapshot-id"] = None
        assert registered(document).document["snapshots"] == [snapshot(1)]

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"format_version": 4}, "Cannot read unsupported version 4"),
            ({"format_version": 0}, "Cannot read unsupported version 0"),
            ({"format_version": ...}, "Cannot parse missing int: format-version"),
            ({"table_uuid": ...}, "UUID is required in format v3"),
            ({"location": ...}, "Cannot parse missing string: location"),
            ({"last_sequence_number": ...}, "Cannot parse missing long: last-sequence-number"),
            ({"last_updated_ms": "now"}, "Cannot parse to a long value: last-updated-ms"),
            ({"last_column_id": None}, "Cannot parse to an integer value: last-column-id"),
            ({"next_row_id": ...}, "Cannot parse missing long: next-row-id"),
            ({"properties": {"a": 1}}, "Cannot parse string map: properties"),
            ({"schemas": ...}, "schemas must exist in format v3"),
            ({"schemas": {}}, "Cannot parse schemas"),
            ({"schemas": []}, "Cannot find schema with current-schema-id=0 from schemas"),
            ({"schemas": [schema(), schema()]}, "two of schema with the id 0"),
            ({"current_schema_id": 9}, "Cannot find schema with current-schema-id=9 from schemas"),
            ({"partition_specs": ...}, "partition-specs must exist in format v3"),
            ({"default_spec_id": 9}, "Cannot find partition spec with default-spec-id=9"),
            ({"partition_specs": [spec(partition(9, field=1000))]}, "Cannot find source column"),
            ({"last_partition_id": ...}, "last-partition-id must exist in format v3"),
            ({"sort_orders": ...}, "sort-orders must exist in format v3"),
            ({"default_sort_order_id": 9}, "Cannot find sort order with default-sort-order-id=9"),
            ({"sort_orders": [order(sort(9))]}, "Cannot find source column for sort field"),
            ({"current_snapshot_id": 9}, "Current snapshot ID does not match main branch (9 != 3)"),
            ({"current_snapshot_id": None}, "Current snapshot ID does not match main branch (-1 != 3)"),
            ({"current_snapshot_id": 9, "refs": {}}, "Cannot find current version"),
            ({"refs": {"a": {"snapshot-id": 9, "type": "tag"}}}, "Snapshot for reference a does not exist"),
            ({"refs": {"a": {"snapshot-id": 3, "type": "x"}}}, "Invalid snapshot ref type: x"),
            ({"refs": {"a": {"type": "tag"}}}, "Cannot parse ref a"),
            ({"snapshots": [snapshot(3, 9)]}, "sequence number 9 greater than last sequence number 3"),
            ({"snapshots": [snapshot(3), snapshot(3)]}, "two of snapshot with the id 3"),
            ({"snapshots": [5]}, "Cannot parse snapshot"),
            ({"snapshot_log": [{"snapshot-id": 3}]}, "Cannot parse missing long: timestamp-ms"),
            ({"snapshot_log": [5]}, "an entry must be an object"),
            ({"metadata_log": [{"timestamp-ms": 1}]}, "Cannot parse missing string: metadata-file"),
            (
                {"snapshot_log": [{"timestamp-ms": at, "snapshot-id": 3} for at in (100_000, 1)]},
                "Expected sorted snapshot-log entries",
            ),
            (
                {"metadata_log": [{"timestamp-ms": at, "metadata-file": "f"} for at in (100_000, 1)]},
                "Expected sorted metadata-log entries",
            ),
            (
                {"snapshot_log": [{"timestamp-ms": START_MS + 10**6, "snapshot-id": 3}]},
                "before last snapshot log entry",
            ),
            (
                {"metadata_log": [{"timestamp-ms": START_MS + 10**6, "metadata-file": "f"}]},
                "before the latest metadata log entry",
            ),
            ({"statistics": [{"snapshot-id": 1}]}, "Cannot parse statistics"),
            ({"encryption_keys": [{"key-id": "k"}]}, "Cannot parse encryption-key"),
            ({"location": "a\0b"}, "NUL"),
        ],
    )
    def test_what_is_no_table(self, table, fields, message):
        with pytest.raises(Invalid) as refusal:
            registered(changed(table.document, **fields))
        assert message in refusal.value.message

    @pytest.mark.parametrize("written", [b"", b"[]", b"null", b"{", b"\x1f\x8b"])
    def test_what_is_no_document(self, written):
        with pytest.raises(IllegalArgument):
            registered(written)

    def test_older_specs_need_not_fit_the_current_schema(self, table):
        document = table.document
        dropped = [field for field in COLUMNS if field["id"] != 2]
        document["partition-specs"].append({"spec-id": 5, "fields": [partition(2, "day", "d", 1001)]})
        document["schemas"].append(schema(*dropped, column(4, "new"), **{"schema-id": 1}))
        document |= {"current-schema-id": 1, "last-column-id": 4}
        assert registered(document).document == document
