"""Snapshots, the branches and tags that name them, and the logs that remember them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inver.domain import iceberg
from inver.domain.iceberg import IllegalArgument, StaleCommit, ref_of
from inver.errors import Conflict, Invalid
from tests.fixtures.iceberg_tables import new_table, registered
from tests.fixtures.iceberg_updates import (
    START_MS,
    add_snapshot,
    body,
    partition_statistics,
    set_ref,
    snapshot,
    statistics,
)


def log(document: Any) -> Any:
    return [entry["snapshot-id"] for entry in document["snapshot-log"]]


def appended(count: Any, version: Any = 2) -> Any:
    """A table with the snapshots 1, 2, ..., each made current in a commit of its own."""
    table = new_table(version)
    for number in range(1, count + 1):
        rows = {"first-row-id": 10 * (number - 1), "added-rows": 10} if version == 3 else {}
        at = table.now + 500
        parent = number - 1 or None
        table.commit(
            add_snapshot(number, number if version > 1 else 0, parent=parent, at=at, **rows), set_ref(number)
        )
    return table


class TestAdding:
    def test_an_append(self):
        table = appended(2)
        document = table.document
        assert (document["current-snapshot-id"], document["last-sequence-number"]) == (2, 2)
        assert document["refs"] == {"main": {"snapshot-id": 2, "type": "branch"}}
        assert log(document) == [1, 2]
        assert [entry["timestamp-ms"] for entry in document["snapshot-log"]] == [
            each["timestamp-ms"] for each in document["snapshots"]
        ]
        assert document["last-updated-ms"] == table.now

    def test_the_bytes_of_a_snapshot_are_kept(self):
        table = new_table()
        raw = json.dumps(snapshot(1) | {"key-id": "k", "later": {"a": [1.50]}}, indent=1).encode()
        table.send(b'{"updates":[{"action":"add-snapshot","snapshot":' + raw + b"}]}")
        assert table.state.parts("snapshot").get("1") == raw
        assert raw in b"".join(iceberg.document(table.state))

    def test_fields_that_are_null_are_left_out(self):
        """Readers take a field that is there for one that has a value."""
        table = new_table()
        nulls = {"parent-snapshot-id": None, "key-id": None, "manifests": None, "of tomorrow": None}
        document = table.commit(add_snapshot(1, **nulls))
        assert document["snapshots"] == [snapshot(1)]

    def test_one_that_exists(self):
        with pytest.raises(Invalid, match="Snapshot already exists for id: 1"):
            appended(1).commit(add_snapshot(1, 2, parent=1))

    def test_a_stale_sequence_number_is_a_conflict(self):
        table = appended(1)
        with pytest.raises(StaleCommit) as stale:
            table.commit(add_snapshot(2, 1, parent=1))
        assert stale.value.message == (
            "Validation failed, please retry: "
            "Cannot add snapshot with sequence number 1 older than last sequence number 1"
        )
        assert isinstance(stale.value, Conflict)

    def test_a_snapshot_without_parent_may_have_the_last_number(self):
        assert appended(1).commit(add_snapshot(2, 1))["last-sequence-number"] == 1
        with pytest.raises(StaleCommit):
            appended(2).commit(add_snapshot(3, 1))

    def test_numbers_may_leave_gaps(self):
        assert appended(1).commit(add_snapshot(2, 9, parent=1))["last-sequence-number"] == 9

    def test_version_1_has_no_sequence_numbers(self):
        table = appended(2, version=1)
        assert "last-sequence-number" not in table.document
        with pytest.raises(IllegalArgument, match="Sequence number must be 0 in v1: 3"):
            table.commit(add_snapshot(3, 3))

    def test_manifests_inside_a_snapshot(self):
        old = snapshot(1, 0) | {"manifests": ["a.avro"]}
        del old["manifest-list"]
        document = new_table(1).commit({"action": "add-snapshot", "snapshot": old}, set_ref(1))
        assert document["snapshots"][0]["manifests"] == ["a.avro"]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"snapshot-id": None},
            {"snapshot-id": 2**63},
            {"snapshot-id": "1"},
            {"timestamp-ms": None},
            {"manifest-list": None},
            {"manifest-list": 5},
            {"summary": None},
            {"summary": {"a": 1}},
            {"schema-id": 1.5},
            {"parent-snapshot-id": "2"},
        ],
    )
    def test_what_is_no_snapshot(self, wrong):
        with pytest.raises(IllegalArgument):
            new_table().commit({"action": "add-snapshot", "snapshot": snapshot(1) | wrong})


class TestRows:
    def test_next_row_id_grows_by_what_was_added(self):
        table = appended(2, version=3)
        assert table.document["next-row-id"] == 20

    def test_a_gap_is_not_filled(self):
        rows = {"first-row-id": 100, "added-rows": 5}
        assert new_table(3).commit(add_snapshot(1, **rows))["next-row-id"] == 105

    def test_first_row_id_is_needed(self):
        with pytest.raises(Invalid, match="Cannot add a snapshot: first-row-id is null"):
            new_table(3).commit(add_snapshot(1))
        new_table(2).commit(add_snapshot(1))

    def test_added_rows_are_needed(self):
        with pytest.raises(IllegalArgument, match="required when first-row-id is set"):
            new_table(3).commit(add_snapshot(1, **{"first-row-id": 0}))

    @pytest.mark.parametrize(
        "rows", [{"first-row-id": -1, "added-rows": 1}, {"first-row-id": 0, "added-rows": -1}]
    )
    def test_neither_is_negative(self, rows):
        with pytest.raises(IllegalArgument, match="cannot be negative"):
            new_table(3).commit(add_snapshot(1, **rows))

    def test_a_first_row_that_is_taken_is_a_conflict(self):
        with pytest.raises(StaleCommit) as stale:
            appended(1, version=3).commit(
                add_snapshot(2, 2, parent=1, **{"first-row-id": 9, "added-rows": 1})
            )
        assert stale.value.message == (
            "Validation failed, please retry: "
            "Cannot add a snapshot, first-row-id is behind table next-row-id: 9 < 10"
        )

    def test_more_rows_than_there_are_numbers(self):
        with pytest.raises(IllegalArgument, match="too many rows"):
            new_table(3).commit(add_snapshot(1, **{"first-row-id": 1, "added-rows": 2**63 - 1}))

    def test_an_upgrade_starts_at_zero(self):
        table = appended(1)
        document = table.commit({"action": "upgrade-format-version", "format-version": 3})
        assert (document["next-row-id"], document["snapshots"][0].get("first-row-id")) == (0, None)


class TestRefs:
    def test_branches_and_tags_with_their_retention(self):
        table = appended(2)
        branch = {"min-snapshots-to-keep": 3, "max-snapshot-age-ms": 4, "max-ref-age-ms": 5}
        document = table.commit(
            set_ref(1, "audit", **branch), set_ref(2, "release", "TAG", **{"max-ref-age-ms": 9})
        )
        assert document["refs"]["audit"] == {"snapshot-id": 1, "type": "branch", **branch}
        assert document["refs"]["release"] == {"snapshot-id": 2, "type": "tag", "max-ref-age-ms": 9}
        ref = ref_of(table.state, "audit")
        assert ref is not None
        assert (ref.snapshot_id, ref.max_ref_age_ms, ref_of(table.state, "none")) == (1, 5, None)

    def test_the_same_ref_is_no_change(self):
        table = appended(1)
        table.commit(set_ref(1))
        assert not table.change.changed

    def test_other_retention_is_a_change_and_counts_as_made_current_again(self):
        table = appended(1)
        document = table.commit(set_ref(1, **{"min-snapshots-to-keep": 2}))
        assert table.change.changed
        assert log(document) == [1, 1]

    @pytest.mark.parametrize(
        ("ref", "message"),
        [
            (set_ref(9), "Cannot set main to unknown snapshot: 9"),
            (set_ref(1, "main", "tag"), "Cannot set main to a tag, it must be a branch"),
            (
                set_ref(1, "t", "tag", **{"min-snapshots-to-keep": 1}),
                "Tags do not support setting minSnapshotsToKeep",
            ),
            (
                set_ref(1, "t", "tag", **{"max-snapshot-age-ms": 1}),
                "Tags do not support setting maxSnapshotAgeMs",
            ),
            (set_ref(1, "b", **{"min-snapshots-to-keep": 0}), "Min snapshots to keep must be greater than 0"),
            (set_ref(1, "b", **{"max-snapshot-age-ms": 0}), "Max snapshot age must be greater than 0 ms"),
            (set_ref(1, "b", **{"max-ref-age-ms": -1}), "Max reference age must be greater than 0"),
            (set_ref(1, "b", "bookmark"), "Invalid snapshot ref type: bookmark"),
        ],
    )
    def test_what_is_no_ref(self, ref, message):
        with pytest.raises(Invalid) as refusal:
            appended(1).commit(ref)
        assert refusal.value.message == message

    def test_removing(self):
        table = appended(1)
        table.commit(set_ref(1, "audit"))
        assert "audit" not in table.commit({"action": "remove-snapshot-ref", "ref-name": "audit"})["refs"]
        table.commit({"action": "remove-snapshot-ref", "ref-name": "audit"})
        assert not table.change.changed

    def test_removing_main_leaves_no_current_snapshot_and_the_log(self):
        for version, none in ((2, -1), (3, None)):
            table = appended(1, version)
            document = table.commit({"action": "remove-snapshot-ref", "ref-name": "main"})
            assert (document["current-snapshot-id"], document["refs"], log(document)) == (none, {}, [1])

    def test_unknown_fields_of_a_ref_stay_until_it_is_set(self):
        document = appended(1).document
        document["refs"]["main"]["of tomorrow"] = [1]
        table = registered(document)
        table.commit(set_ref(1))
        assert not table.change.changed
        assert table.document["refs"]["main"]["of tomorrow"] == [1]


class TestSnapshotLog:
    def test_going_back_happens_now(self):
        table = appended(2)
        document = table.commit(set_ref(1))
        assert log(document) == [1, 2, 1]
        assert document["snapshot-log"][-1]["timestamp-ms"] == table.now

    def test_snapshots_that_were_current_only_within_a_commit_are_not_logged(self):
        table = appended(1)
        document = table.commit(
            *(add_snapshot(2, 2, parent=1, at=table.now), set_ref(2)),
            *(add_snapshot(3, 3, parent=2, at=table.now), set_ref(3)),
        )
        assert log(document) == [1, 3]

    def test_a_branch_is_not_logged(self):
        table = appended(1)
        assert log(table.commit(add_snapshot(2, 2, parent=1), set_ref(2, "audit"))) == [1]

    def test_what_lies_before_a_removed_snapshot_is_forgotten(self):
        table = appended(5)
        assert log(table.commit({"action": "remove-snapshots", "snapshot-ids": [3]})) == [4, 5]
        assert [each["snapshot-id"] for each in table.document["snapshots"]] == [1, 2, 4, 5]

    def test_the_log_goes_on_after_it_was_cut(self):
        table = appended(3)
        table.commit({"action": "remove-snapshots", "snapshot-ids": [1, 2]})
        assert log(table.commit(add_snapshot(4, 4, parent=3, at=table.now), set_ref(4))) == [3, 4]
        table.commit({"action": "remove-snapshots", "snapshot-ids": [3, 4]})
        assert log(table.document) == []
        assert log(table.commit(add_snapshot(5, 5, at=table.now), set_ref(5))) == [5]

    def test_a_table_without_a_log_can_lose_snapshots(self):
        document = appended(2).document | {"snapshot-log": []}
        assert log(registered(document).commit({"action": "remove-snapshots", "snapshot-ids": [1]})) == []

    def test_a_log_that_does_not_end_with_the_current_snapshot(self):
        table = registered(
            appended(3).document | {"snapshot-log": [{"timestamp-ms": START_MS, "snapshot-id": 2}]}
        )
        with pytest.raises(Invalid, match="latest entry is not the current snapshot"):
            table.commit({"action": "remove-snapshots", "snapshot-ids": [1]})

    def test_clocks_may_differ_by_a_minute(self):
        table = appended(1)
        last = table.document["snapshot-log"][-1]["timestamp-ms"]
        table.commit(add_snapshot(2, 2, parent=1, at=last - 60_000), set_ref(2))
        with pytest.raises(IllegalArgument, match="before last snapshot log entry at"):
            table.commit(add_snapshot(3, 3, parent=2, at=last - 120_001), set_ref(3))
        with pytest.raises(IllegalArgument, match="Invalid update timestamp"):
            table.commit(add_snapshot(3, 3, parent=2, at=table.now + 120_000), set_ref(3))

    def test_times_do_not_go_back_with_the_server_clock(self):
        table = appended(1)
        before = table.document["last-updated-ms"]
        table.now -= 10_000_000
        document = table.commit({"action": "set-properties", "updates": {"a": "b"}})
        assert document["last-updated-ms"] == before


class TestRemovingSnapshots:
    def test_unknown_ones_are_nothing(self):
        table = appended(1)
        table.commit({"action": "remove-snapshots", "snapshot-ids": [8, 9]})
        assert not table.change.changed

    def test_their_statistics_go_too(self):
        table = appended(2)
        for id_ in (1, 2):
            table.commit(
                {"action": "set-statistics", "statistics": statistics(id_)},
                {"action": "set-partition-statistics", "partition-statistics": partition_statistics(id_)},
            )
        document = table.commit({"action": "remove-snapshots", "snapshot-ids": [1]})
        assert [each["snapshot-id"] for each in document["statistics"]] == [2]
        assert [each["snapshot-id"] for each in document["partition-statistics"]] == [2]

    def test_refs_without_a_snapshot_go_too(self):
        table = appended(2)
        table.commit(set_ref(1, "old", "tag"), set_ref(2, "new", "tag"))
        document = table.commit({"action": "remove-snapshots", "snapshot-ids": [1]})
        assert sorted(document["refs"]) == ["main", "new"]
        document = table.commit({"action": "remove-snapshots", "snapshot-ids": [2]})
        assert (document["refs"], document["current-snapshot-id"], document["snapshots"]) == ({}, -1, [])

    def test_children_keep_their_parent(self):
        document = appended(2).commit({"action": "remove-snapshots", "snapshot-ids": [1]})
        assert document["snapshots"][0]["parent-snapshot-id"] == 1

    def test_an_id_may_come_back_in_the_same_commit(self):
        table = appended(2)
        again = add_snapshot(2, 3, at=table.now)
        document = table.commit({"action": "remove-snapshots", "snapshot-ids": [2]}, again, set_ref(2))
        assert [each["sequence-number"] for each in document["snapshots"]] == [1, 3]
        assert table.stored.load().parts("snapshot").keys() == ["1", "2"]


class TestStatistics:
    def test_one_file_for_a_snapshot(self):
        table = appended(1)
        table.commit({"action": "set-statistics", "statistics": statistics(1, "a"), "snapshot-id": 77})
        document = table.commit({"action": "set-statistics", "statistics": statistics(1, "b")})
        assert document["statistics"] == [statistics(1, "b")]
        assert table.commit({"action": "remove-statistics", "snapshot-id": 1})["statistics"] == []
        table.commit({"action": "remove-statistics", "snapshot-id": 1})
        assert not table.change.changed

    def test_partition_statistics(self):
        table = appended(1)
        document = table.commit(
            {"action": "set-partition-statistics", "partition-statistics": partition_statistics(5)}
        )
        assert document["partition-statistics"] == [partition_statistics(5)]
        document = table.commit({"action": "remove-partition-statistics", "snapshot-id": 5})
        assert document["partition-statistics"] == []

    def test_several_files_of_one_snapshot_that_a_document_brings(self):
        files = [statistics(1, "a"), statistics(1, "b"), statistics(1, "c")]
        table = registered(appended(1).document | {"statistics": files})
        assert table.document["statistics"] == files
        table.commit({"action": "set-statistics", "statistics": statistics(1, "d")})
        assert table.document["statistics"] == [statistics(1, "d")]

    @pytest.mark.parametrize("wrong", [{"blob-metadata": None}, {"snapshot-id": "x"}, {"statistics-path": 1}])
    def test_what_is_none(self, wrong):
        with pytest.raises(IllegalArgument):
            appended(1).commit({"action": "set-statistics", "statistics": statistics(1) | wrong})


KEY = {"key-id": "k", "encrypted-key-metadata": "AAEC", "encrypted-by-id": "root", "more": 1}


class TestEncryptionKeys:
    def test_adding_and_removing(self):
        table = new_table(3)
        assert "encryption-keys" not in table.document
        add = {"action": "add-encryption-key", "encryption-key": KEY}
        assert table.commit(add)["encryption-keys"] == [KEY]
        table.commit(add | {"encryption-key": KEY | {"encrypted-by-id": "other"}})
        assert not table.change.changed
        remove = {"action": "remove-encryption-key", "key-id": "k"}
        assert "encryption-keys" not in table.commit(remove)
        table.commit(remove)
        assert not table.change.changed

    @pytest.mark.parametrize("wrong", [{"key-id": None}, {"encrypted-key-metadata": "?"}])
    def test_what_is_none(self, wrong):
        with pytest.raises(IllegalArgument):
            new_table().commit({"action": "add-encryption-key", "encryption-key": KEY | wrong})


def test_snapshots_need_a_table_that_is_laid_out():
    created = [{"type": "assert-create"}]
    with pytest.raises(Invalid, match="Attempting to add a snapshot before a schema is added"):
        iceberg.create(
            iceberg.decode_commit(body([add_snapshot(1)], created)), now_ms=1, uuid="u", file_id="f"
        )
