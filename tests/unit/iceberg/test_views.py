"""Views: versions, dialects and their history."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inver.domain import iceberg
from inver.domain.iceberg import IllegalArgument, RequirementFailed, ViewHead
from inver.errors import Invalid
from tests.fixtures.iceberg_tables import Table, document_of
from tests.fixtures.iceberg_updates import COLUMNS, LOCATION, START_MS, UUID, body, column, schema

HISTORY = "version.history.num-entries"
DROP = "replace.drop-dialect.allowed"


def version(
    sql: Any = "select 1",
    dialect: Any = "spark",
    *,
    id_: Any = 1,
    schema_id: Any = 0,
    at: Any = START_MS,
    **more: Any,
) -> Any:
    return {
        "version-id": id_,
        "timestamp-ms": at,
        "schema-id": schema_id,
        "summary": {"engine-name": "spark"},
        "default-namespace": ["ns"],
        "representations": [{"type": "sql", "sql": sql, "dialect": dialect}],
        **more,
    }


def queries(*pairs: Any) -> Any:
    return {"representations": [{"type": "sql", "sql": sql, "dialect": dialect} for sql, dialect in pairs]}


def create(view_version: Any = None, **more: Any) -> Any:
    request = {
        "name": "v",
        "schema": schema(**{"schema-id": 4}),
        "view-version": view_version or version(),
        "properties": {},
    }
    decoded = iceberg.decode_create_view(json.dumps(request | more).encode())
    return iceberg.new_view(decoded, location=LOCATION + "/", now_ms=START_MS, uuid=UUID, file_id="f0")


def new_view(*args: Any, **more: Any) -> Any:
    return Table(create(*args, **more))


def add(sql: Any = "select 2", dialect: Any = "spark", **more: Any) -> Any:
    return {"action": "add-view-version", "view-version": version(sql, dialect, **more)}


def current(id_: Any = -1) -> Any:
    return {"action": "set-current-view-version", "view-version-id": id_}


def properties(**values: Any) -> Any:
    return {"action": "set-properties", "updates": values}


class TestCreation:
    def test_a_new_view(self):
        view = new_view(version(id_=9, schema_id=7, **{"default-catalog": "c"}), properties={"comment": "x"})
        assert view.document == {
            "view-uuid": UUID,
            "format-version": 1,
            "location": LOCATION,
            "properties": {"comment": "x"},
            "schemas": [schema(**{"schema-id": 0})],
            "current-version-id": 1,
            "versions": [version(**{"default-catalog": "c"})],
            "version-log": [{"timestamp-ms": START_MS, "version-id": 1}],
        }
        assert view.head.metadata_location == f"{LOCATION}/metadata/00000-f0.gz.metadata.json"
        assert view.state.is_view
        assert json.loads(iceberg.current_schema(view.state)) == schema(**{"schema-id": 0})
        assert document_of(view.stored.load()) == view.document

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (
                queries(("a", "trino"), ("b", "Trino")),
                "Invalid view version: Cannot add multiple queries for dialect trino",
            ),
            ({"representations": []}, "Cannot create view without specifying a query"),
            ({"representations": [{"type": "graph"}]}, "Found unsupported view representations: [graph]"),
            ({"representations": [{"type": "sql", "sql": "a"}]}, "Cannot parse missing string: dialect"),
            ({"representations": [{"type": "sql", "dialect": "a"}]}, "Cannot parse missing string: sql"),
            ({"default-namespace": None}, "Cannot parse view-version"),
            ({"summary": {"a": 1}}, "Cannot parse view-version"),
        ],
    )
    def test_what_is_no_version(self, wrong, message):
        with pytest.raises(IllegalArgument) as refusal:
            create(version() | wrong)
        assert message in refusal.value.message

    def test_the_schema_is_checked(self):
        with pytest.raises(IllegalArgument):
            create(schema={"type": "struct"})

    def test_files_may_be_plain(self):
        view = new_view(properties={"write.metadata.compression-codec": "none"})
        assert view.head.metadata_location.endswith("f0.metadata.json")


class TestVersions:
    def test_replacing(self):
        view = new_view()
        document = view.commit(add(id_=2, at=START_MS + 5), current())
        assert document["current-version-id"] == 2
        assert document["version-log"][-1] == {"timestamp-ms": START_MS + 5, "version-id": 2}
        assert view.head.metadata_location.startswith(f"{LOCATION}/metadata/00001-")

    def test_concurrent_replacements_both_count(self):
        view = new_view(properties={DROP: "true"})
        view.commit(add("select a", id_=2), current())
        document = view.commit(add("select b", "trino", id_=2), current())
        assert [each["version-id"] for each in document["versions"]] == [1, 2, 3]
        assert document["current-version-id"] == 3

    def test_the_same_version_keeps_its_id(self):
        view = new_view()
        view.commit(add(id_=2), current())
        document = view.commit(add("select 1", id_=7, at=START_MS + 99), current(1))
        assert [each["version-id"] for each in document["versions"]] == [1, 2]
        assert document["current-version-id"] == 1
        assert document["version-log"][-1] == {"timestamp-ms": view.now, "version-id": 1}

    def test_replacing_by_what_it_has_become_is_no_change(self):
        view = new_view()
        replacement = (
            {"action": "add-schema", "schema": schema(*COLUMNS, column(4, "new"))},
            add(id_=2, schema_id=-1),
            current(),
        )
        view.commit(*replacement)
        before = view.document
        view.commit(*replacement)
        assert not view.change.changed
        assert view.document == before

    def test_bytes_of_a_version_are_kept_where_they_do_not_change(self):
        view = new_view()
        view.commit(add(id_=2, later={"a": [1.50, None]}))
        assert b'"later":{"a": [1.5, null]}' in (view.state.parts("version").get("2") or b"")

    def test_schemas(self):
        view = new_view()
        more = {"action": "add-schema", "schema": schema(*COLUMNS, column(4, "new"))}
        document = view.commit(more, add(id_=2, schema_id=-1), current())
        assert [each["schema-id"] for each in document["schemas"]] == [0, 1]
        assert document["versions"][-1]["schema-id"] == 1
        view.commit({"action": "add-schema", "schema": schema()})
        assert not view.change.changed

    @pytest.mark.parametrize(
        ("updates", "message"),
        [
            ([add(schema_id=-1)], "Cannot set last added schema: no schema has been added"),
            ([add(schema_id=9)], "Cannot add version with unknown schema: 9"),
            ([current()], "Cannot set last version id: no current version id has been set"),
            ([current(9)], "Cannot set current version to unknown version: 9"),
            ([add(**queries(("a", "x"), ("b", "X")))], "Cannot add multiple queries for dialect x"),
            ([{"action": "upgrade-format-version", "format-version": 0}], "Cannot downgrade v1 view to v0"),
            ([{"action": "upgrade-format-version", "format-version": 2}], "Unsupported format version: 2"),
            ([{"action": "assign-uuid", "uuid": "x"}], "Cannot reassign uuid"),
            ([{"action": "set-location", "location": ""}], "Invalid location: null"),
            ([{"action": "remove-snapshots", "snapshot-ids": []}], "Cannot apply remove-snapshots to a view"),
        ],
    )
    def test_what_is_refused(self, updates, message):
        with pytest.raises(Invalid) as refusal:
            new_view().commit(*updates)
        assert message in refusal.value.message

    def test_what_changes_nothing(self):
        view = new_view()
        view.commit(
            current(1),
            {"action": "assign-uuid", "uuid": UUID.upper()},
            {"action": "upgrade-format-version", "format-version": 1},
            {"action": "set-location", "location": LOCATION},
            {"action": "remove-properties", "removals": []},
        )
        assert not view.change.changed

    def test_location_and_properties(self):
        view = new_view()
        document = view.commit(
            {"action": "set-location", "location": "s3://b/v/"},
            properties(a="1", b="2"),
            {"action": "remove-properties", "removals": ["a", "none"]},
        )
        assert (document["location"], document["properties"]) == ("s3://b/v", {"b": "2"})


class TestDialects:
    def test_losing_one_is_refused(self):
        view = new_view(version(**queries(("a", "Spark"), ("b", "trino"))))
        with pytest.raises(IllegalArgument) as refusal:
            view.commit(add(dialect="spark", id_=2), current())
        assert refusal.value.message == (
            "Cannot replace view due to loss of view dialects (replace.drop-dialect.allowed=false):\n"
            "Previous dialects: [spark, trino]\nNew dialects: [spark]"
        )

    def test_unless_the_view_allows_it(self):
        view = new_view(version(**queries(("a", "spark"), ("b", "trino"))))
        document = view.commit(properties(**{DROP: "true"}), add(dialect="spark", id_=2), current())
        assert document["current-version-id"] == 2

    def test_gaining_one(self):
        view = new_view()
        view.commit(add(id_=2, **queries(("a", "SPARK"), ("b", "trino"))), current())


class TestHistory:
    def test_the_newest_versions_are_kept(self):
        view = new_view(properties={HISTORY: "2"})
        for number in range(2, 6):
            view.commit(add(f"select {number}", id_=number), current())
        document = view.document
        assert [each["version-id"] for each in document["versions"]] == [4, 5]
        assert [entry["version-id"] for entry in document["version-log"]] == [4, 5]
        assert document_of(view.stored.load()) == document

    def test_ten_is_the_default(self):
        view = new_view()
        for number in range(2, 15):
            view.commit(add(f"select {number}", id_=number), current())
        assert [each["version-id"] for each in view.document["versions"]] == list(range(5, 15))

    def test_the_current_one_stays(self):
        view = new_view(properties={HISTORY: "2"})
        view.commit(add("select 2", id_=2))
        document = view.commit(add("select 3", id_=3))
        assert [each["version-id"] for each in document["versions"]] == [1, 3]
        assert [entry["version-id"] for entry in document["version-log"]] == [1]

    def test_all_of_one_commit_stay(self):
        view = new_view(properties={HISTORY: "1"})
        document = view.commit(*(add(f"select {number}", id_=number) for number in (2, 3)), current())
        assert [each["version-id"] for each in document["versions"]] == [2, 3]

    @pytest.mark.parametrize("size", ["0", "-1", "x"])
    def test_the_size_is_a_positive_number(self, size):
        with pytest.raises(IllegalArgument, match=HISTORY):
            new_view().commit(properties(**{HISTORY: size}))


class TestRequirements:
    def test_the_uuid(self):
        view = new_view()
        view.commit(properties(a="b"), require=[{"type": "assert-view-uuid", "uuid": UUID.upper()}])
        with pytest.raises(RequirementFailed) as failed:
            view.commit(require=[{"type": "assert-view-uuid", "uuid": "x"}])
        assert failed.value.message == f"Requirement failed: view UUID does not match: expected {UUID} != x"

    @pytest.mark.parametrize("type_", ["assert-create", "assert-table-uuid"])
    def test_those_of_tables_do_not_fit(self, type_):
        with pytest.raises(Invalid, match=f"Cannot validate {type_} against a view"):
            new_view().commit(require=[{"type": type_, "uuid": UUID}])
        request = iceberg.decode_commit(body([], [{"type": type_, "uuid": UUID}]))
        with pytest.raises(Invalid, match=f"Cannot validate {type_} against a view"):
            iceberg.check(new_view().state, request.requirements)


class TestDocuments:
    def taken(self, document: Any) -> Any:
        written = document if isinstance(document, bytes) else json.dumps(document).encode()
        return Table(
            iceberg.from_view_document(written, metadata_location=f"{LOCATION}/metadata/00007-x.json")
        )

    def test_what_was_written_is_read_the_same(self):
        view = new_view()
        view.commit(add(id_=2), current())
        again = self.taken(view.document)
        assert again.document == view.document
        again.commit(add("select 3", id_=3), current())
        assert [each["version-id"] for each in again.document["versions"]] == [1, 2, 3]
        assert "/00008-" in again.head.metadata_location
        assert isinstance(again.head, ViewHead)

    def test_unknown_fields_keep_their_bytes(self):
        mark = b'{"x" : 1.500}'
        written = b"".join(iceberg.document(new_view().state))[:-1] + b',"of-tomorrow":' + mark + b"}"
        again = self.taken(written)
        again.commit(properties(a="b"))
        assert b'"of-tomorrow":' + mark in b"".join(iceberg.document(again.stored.load()))

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"format-version": 2}, "Unsupported format version: 2"),
            ({"view-uuid": None}, "Cannot parse to a string value: view-uuid"),
            ({"current-version-id": 9}, "Cannot find current version 9"),
            ({"schemas": []}, "Cannot find current schema with id 0"),
            ({"schemas": [schema(), schema()]}, "two of schema with the id 0"),
            ({"versions": [version(), version()]}, "two of version with the id 1"),
            ({"versions": {}}, "Cannot parse versions"),
            ({"version-log": [5]}, "an entry must be an object"),
            ({"version-log": [{"version-id": 1}]}, "Cannot parse missing long: timestamp-ms"),
        ],
    )
    def test_what_is_no_view(self, fields, message):
        with pytest.raises(IllegalArgument) as refusal:
            self.taken(new_view().document | fields)
        assert message in refusal.value.message

    def test_all_of_it_is_needed(self):
        for field in ("schemas", "versions", "version-log", "location", "format-version"):
            document = new_view().document
            del document[field]
            with pytest.raises(IllegalArgument, match=field):
                self.taken(document)
