"""How tables begin, and what every commit does besides its updates."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inver.domain import iceberg
from inver.domain.iceberg import IllegalArgument
from inver.domain.ledger import Part
from inver.errors import Invalid
from tests.fixtures.iceberg_tables import Table, by_id, document_of, new_table, registered
from tests.fixtures.iceberg_updates import (
    COLUMNS,
    LOCATION,
    START_MS,
    UUID,
    add_snapshot,
    body,
    column,
    create_body,
    order,
    partition,
    schema,
    set_ref,
    sort,
    spec,
)

PREVIOUS = "write.metadata.previous-versions-max"
DELETE = "write.metadata.delete-after-commit.enabled"


def properties(**values: Any) -> Any:
    return {"action": "set-properties", "updates": values}


def files(document: Any) -> Any:
    return [entry["metadata-file"] for entry in document["metadata-log"]]


class TestCreation:
    def test_the_least(self):
        document = new_table().document
        assert document == {
            "format-version": 2,
            "table-uuid": UUID,
            "location": LOCATION,
            "last-sequence-number": 0,
            "last-updated-ms": START_MS,
            "last-column-id": 3,
            "current-schema-id": 0,
            "schemas": [schema(**{"schema-id": 0})],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": {"write.parquet.compression-codec": "zstd"},
            "current-snapshot-id": -1,
            "refs": {},
            "snapshots": [],
            "statistics": [],
            "partition-statistics": [],
            "snapshot-log": [],
            "metadata-log": [],
        }

    def test_ids_are_the_catalogs_own(self):
        columns = [column(100, "a", "long"), column(50, "b", "timestamp")]
        document = new_table(
            schema=schema(*columns, **{"schema-id": 9}),
            **{
                "partition-spec": spec(partition(50, "Day", "d", 2000), **{"spec-id": 7}),
                "write-order": order(sort(100, direction="desc"), id_=5),
            },
        ).document
        assert [field["id"] for field in document["schemas"][0]["fields"]] == [1, 2]
        assert document["schemas"][0]["schema-id"] == 0
        [made] = document["partition-specs"]
        assert made == {"spec-id": 0, "fields": [partition(2, "day", "d", 1000)]}
        assert document["sort-orders"] == [order(sort(1, direction="desc"), id_=1)]
        assert (document["last-partition-id"], document["default-sort-order-id"]) == (1000, 1)

    def test_version_1_says_what_old_readers_look_for(self):
        document = new_table(1, **{"partition-spec": spec(partition(3))}).document
        assert document["schema"] == document["schemas"][0]
        assert document["partition-spec"] == document["partition-specs"][0]["fields"]
        assert "last-sequence-number" not in document

    def test_version_3(self):
        document = new_table(3).document
        assert (document["next-row-id"], document["current-snapshot-id"]) == (0, None)

    @pytest.mark.parametrize("version", ["0", "4", "x", "-1", "99999999999"])
    def test_versions_that_there_are_not(self, version):
        with pytest.raises(IllegalArgument):
            new_table(version)

    def test_reserved_properties_are_not_kept(self):
        given = {
            "format-version": "3",
            "uuid": "x",
            "snapshot-count": "1",
            "current-schema": "{}",
            "mine": "m",
        }
        table = new_table(properties=given)
        assert table.head.format_version == 3
        assert table.head.properties == {"write.parquet.compression-codec": "zstd", "mine": "m"}
        own = {"write.parquet.compression-codec": "gzip"}
        assert new_table(properties=own).head.properties == own

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"write.metadata.metrics.column.none": "full"}, "could not find column none"),
            ({"commit.retry.num-retries": "many"}, "must have integer value"),
            ({"commit.retry.min-wait-ms": "-1"}, "must have non negative integer value"),
            ({"encryption.key-id": "k"}, "Invalid properties for v2: [encryption.key-id]"),
        ],
    )
    def test_properties_that_do_not_fit(self, given, message):
        with pytest.raises(Invalid) as refusal:
            new_table(properties=given)
        assert message in refusal.value.message

    def test_a_spec_or_an_order_of_a_column_that_is_not_there(self):
        with pytest.raises(Invalid, match="Cannot find source column for partition field"):
            new_table(**{"partition-spec": spec(partition(9))})
        with pytest.raises(Invalid, match="Cannot find source column for sort field"):
            new_table(**{"write-order": order(sort(9))})

    def test_a_staged_table_has_no_file(self):
        request = iceberg.decode_create_table(create_body())
        staged = iceberg.new_table(request, location=LOCATION, now_ms=1, uuid=UUID, file_id=None)
        assert staged.state.head.metadata_location is None

    def test_its_parts_are_all_that_is_stored(self):
        table = new_table()
        assert {(part.kind, part.key) for part in table.change.parts} == {
            ("schema", "0"),
            ("spec", "0"),
            ("order", "0"),
        }
        assert document_of(table.stored.load()) == table.document


class TestCreationByCommit:
    UPDATES = (
        {"action": "assign-uuid", "uuid": "11111111-2222-3333-4444-555555555555"},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": schema(), "last-column-id": 3},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": spec(partition(3, field=1000))},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": order()},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": LOCATION + "/"},
        {"action": "set-properties", "updates": {"a": "b"}},
    )

    def create(self, *updates: Any, more: Any = ()) -> Table:
        request = iceberg.decode_commit(body(updates, [{"type": "assert-create"}]))
        return Table(
            iceberg.create(
                request,
                now_ms=START_MS,
                uuid=UUID,
                file_id="f",
                more=[iceberg.decode_commit(each) for each in more],
            )
        )

    def test_what_a_client_sends(self):
        document = self.create(*self.UPDATES, add_snapshot(1), set_ref(1)).document
        assert document["table-uuid"] == "11111111-2222-3333-4444-555555555555"
        assert (document["location"], document["properties"]) == (LOCATION, {"a": "b"})
        assert (document["current-schema-id"], document["default-spec-id"]) == (0, 0)
        assert (document["last-column-id"], document["last-partition-id"]) == (3, 1000)
        assert (document["current-snapshot-id"], document["metadata-log"]) == (1, [])

    def test_the_catalog_gives_an_id_when_none_is_assigned(self):
        assert self.create(*self.UPDATES[1:]).head.uuid == UUID

    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_the_version_is_that_of_the_first_upgrade(self, version):
        upgrade = {"action": "upgrade-format-version", "format-version": version}
        assert self.create(*self.UPDATES[2:], upgrade).head.format_version == version

    def test_without_one_it_is_2(self):
        assert self.create(*self.UPDATES[2:]).head.format_version == 2

    def test_version_4_is_refused(self):
        with pytest.raises(IllegalArgument, match=r"Unsupported format version: v4 \(supported: v3\)"):
            self.create(*self.UPDATES[2:], {"action": "upgrade-format-version", "format-version": 4})

    @pytest.mark.parametrize(
        ("without", "message"),
        [
            ("add-schema", "no schema has been added"),
            ("add-spec", "no spec has been added"),
            ("add-sort-order", "no sort order has been added"),
            ("set-location", "Table location is required in format v2"),
        ],
    )
    def test_a_table_needs_all_of_it(self, without, message):
        with pytest.raises(Invalid, match=message):
            self.create(*(update for update in self.UPDATES if update["action"] != without))

    def test_defaults_that_nobody_set(self):
        only = [each for each in self.UPDATES if each["action"] in ("add-schema", "set-location")]
        with pytest.raises(IllegalArgument, match="Partition specs cannot be null or empty"):
            self.create(*only)
        with pytest.raises(IllegalArgument, match="Cannot find the current schema"):
            self.create(self.UPDATES[-2])

    def test_further_requests_of_the_transaction(self):
        later = body(
            [add_snapshot(1), set_ref(1)], [{"type": "assert-current-schema-id", "current-schema-id": 0}]
        )
        assert self.create(*self.UPDATES, more=[later]).head.current_snapshot_id == 1


class TestVersions:
    def test_upgrading(self):
        table = new_table(1)
        assert "schema" not in table.commit({"action": "upgrade-format-version", "format-version": 2})
        assert table.commit({"action": "upgrade-format-version", "format-version": 3})["next-row-id"] == 0
        table.commit({"action": "upgrade-format-version", "format-version": 3})
        assert not table.change.changed

    def test_not_down_and_not_too_far(self):
        with pytest.raises(IllegalArgument, match="Cannot downgrade v2 table to v1"):
            new_table().commit({"action": "upgrade-format-version", "format-version": 1})
        with pytest.raises(IllegalArgument, match=r"unsupported format version: v4 \(supported: v3\)"):
            new_table().commit({"action": "upgrade-format-version", "format-version": 4})


class TestUuidAndLocation:
    def test_a_table_keeps_its_id(self):
        table = new_table()
        table.commit({"action": "assign-uuid", "uuid": UUID.upper()})
        assert not table.change.changed
        with pytest.raises(IllegalArgument, match="Cannot reassign uuid"):
            table.commit({"action": "assign-uuid", "uuid": "other"})

    def test_the_location(self):
        table = new_table()
        table.commit({"action": "set-location", "location": LOCATION + "/"})
        assert not table.change.changed
        document = table.commit({"action": "set-location", "location": "s3://other/place//"})
        assert document["location"] == "s3://other/place"
        assert table.head.metadata_location.startswith("s3://other/place/metadata/00001-")
        with pytest.raises(IllegalArgument, match="Invalid location"):
            table.commit({"action": "set-location", "location": ""})


class TestProperties:
    def test_setting_and_removing(self):
        table = new_table()
        table.commit(properties(a="1", b="2"))
        document = table.commit(properties(b="3"), {"action": "remove-properties", "removals": ["a", "none"]})
        assert document["properties"] == {"write.parquet.compression-codec": "zstd", "b": "3"}

    def test_nothing_is_no_change(self):
        table = new_table()
        table.commit(properties(), {"action": "remove-properties", "removals": []})
        assert not table.change.changed
        assert table.change.parts == ()

    def test_the_key_of_an_encrypted_table_stays(self):
        table = new_table(3, properties={"format-version": "3", "encryption.key-id": "k"})
        table.commit(properties(**{"encryption.key-id": "k"}))
        with pytest.raises(IllegalArgument, match=r"Cannot change encryption.key-id"):
            table.commit(properties(**{"encryption.key-id": "other"}))
        with pytest.raises(IllegalArgument, match=r"Cannot change encryption.key-id"):
            table.commit({"action": "remove-properties", "removals": ["encryption.key-id"]})


class TestMetadataLog:
    def test_every_commit_notes_the_file_before(self):
        table = new_table()
        first = table.head.metadata_location
        document = table.commit(properties(a="1"))
        assert document["metadata-log"] == [{"timestamp-ms": START_MS, "metadata-file": first}]
        assert first == f"{LOCATION}/metadata/00000-file-0.metadata.json"
        assert table.head.metadata_location == f"{LOCATION}/metadata/00001-file-{table.now}.metadata.json"

    def test_it_is_cut_to_what_the_new_properties_say(self):
        table = new_table()
        for number in range(6):
            table.commit(properties(a=str(number)))
        assert len(files(table.document)) == 6
        document = table.commit(properties(**{PREVIOUS: "3"}))
        assert [file.rpartition("/")[2][:5] for file in files(document)] == ["00004", "00005", "00006"]
        assert table.change.removed_files == ()
        assert len(files(table.commit(properties(**{PREVIOUS: "0"})))) == 1
        with pytest.raises(IllegalArgument, match=PREVIOUS):
            table.commit(properties(**{PREVIOUS: "few"}))

    def test_a_hundred_is_the_default(self):
        table = new_table()
        for number in range(105):
            table.commit(properties(a=str(number)))
        assert len(files(table.document)) == 100
        assert len(table.stored.rows) == 103

    def test_files_that_fall_out_are_to_be_deleted_when_the_table_says_so(self):
        table = new_table(properties={PREVIOUS: "2", DELETE: "TRUE"})
        names = [table.head.metadata_location]
        for number in range(4):
            before = files(table.document)
            table.commit(properties(a=str(number)))
            assert list(table.change.removed_files) == [
                name for name in before if name not in files(table.document)
            ]
            names.append(table.head.metadata_location)
        assert files(table.document) == names[2:4]

    def test_a_table_without_a_file_has_none_to_note(self):
        request = iceberg.decode_create_table(create_body())
        table = Table(iceberg.new_table(request, location=LOCATION, now_ms=1, uuid=UUID, file_id=None))
        assert table.commit(properties(a="1"))["metadata-log"] == []
        assert table.head.metadata_location.startswith(f"{LOCATION}/metadata/00000-")


class TestFileNames:
    def test_the_number_goes_on_from_the_file_before(self):
        table = registered(new_table().document)
        assert table.head.metadata_location == f"{LOCATION}/metadata/7.json"
        table.commit(properties(a="1"))
        assert "/metadata/00000-" in table.head.metadata_location
        table.commit(properties(a="2"))
        assert "/metadata/00001-" in table.head.metadata_location

    def test_another_folder(self):
        table = new_table()
        table.commit(properties(**{"write.metadata.path": "s3://meta/here/"}))
        assert table.head.metadata_location.startswith("s3://meta/here/00001-")

    def test_gzip(self):
        table = new_table()
        table.commit(properties(**{"write.metadata.compression-codec": "GZIP"}))
        assert table.head.metadata_location.endswith(".gz.metadata.json")
        assert iceberg.is_gzip(table.head.metadata_location)
        assert iceberg.is_gzip("a/v1.metadata.json.gz")
        assert not iceberg.is_gzip("a/00001-x.metadata.json")
        with pytest.raises(IllegalArgument, match="Invalid codec name: zip"):
            table.commit(properties(**{"write.metadata.compression-codec": "zip"}))


def test_updates_of_views_do_not_fit():
    with pytest.raises(Invalid, match="Cannot apply set-current-view-version to a table"):
        new_table().commit({"action": "set-current-view-version", "view-version-id": 1})


def test_a_failed_update_leaves_nothing_behind():
    table = new_table()
    before = table.document
    with pytest.raises(Invalid):
        table.commit(properties(a="b"), add_snapshot(1), set_ref(1), set_ref(2))
    assert table.document == before
    assert table.commit(add_snapshot(1), set_ref(1))["current-snapshot-id"] == 1


def test_parts_are_exactly_what_changes():
    table = new_table(properties={PREVIOUS: "1"})
    table.commit(add_snapshot(1), set_ref(1))
    table.commit(add_snapshot(2, 2, parent=1, at=table.now), set_ref(2))
    told = {(part.kind, part.key, part.position, part.body is None) for part in table.change.parts}
    assert told == {
        ("snapshot", "2", 1, False),
        ("snapshot-log", "1:2", 1, False),
        ("metadata-log", "0", 0, True),
        ("metadata-log", "1", 1, False),
    }
    assert all(isinstance(part, Part) for part in table.change.parts)


def test_the_current_schema():
    table = new_table()
    table.commit(
        {"action": "add-schema", "schema": schema(*COLUMNS, column(4, "new"))},
        {"action": "set-current-schema", "schema-id": -1},
    )
    document = table.document
    assert json.loads(iceberg.current_schema(table.state)) == by_id(document, "schemas", "schema-id")[1]
