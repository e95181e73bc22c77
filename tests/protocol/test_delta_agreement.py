"""Who is late is told so whatever else is wrong, and the catalog shows what the log says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fixtures.delta import DeltaTable, add_file, metadata, new_schema, new_table, unity
from tests.fixtures.server import InverServer

FIELD: dict[str, Any] = {
    "name": "price",
    "type": "decimal(10,2)",
    "nullable": True,
    "metadata": {"comment": "in euro"},
}


@pytest.fixture(scope="module")
def http(shared_inver: InverServer) -> Iterator[httpx.Client]:
    with unity(shared_inver) as http:
        new_schema(http, "lake.agreement")
        yield http


@pytest.fixture
def table(http: httpx.Client, request: pytest.FixtureRequest) -> DeltaTable:
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)
    return new_table(http, f"lake.agreement.{name}")


def published(version: int) -> dict[str, Any]:
    return {"action": "set-latest-backfilled-version", "latest-published-version": version}


def error(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["type"]


def preview(table: DeltaTable, staged: dict[str, Any], **more: Any) -> httpx.Response:
    """The same commit in the dialect that has no words for schema, partitions and clusters."""
    info = {key.replace("-", "_"): value for key, value in staged.items()}
    body = {"table_id": table.id, "table_uri": table.location, "commit_info": info, **more}
    return table.http.post("/delta/preview/commits", json=body)


def test_who_is_late_and_saw_what_the_winner_published_is_late(table):
    """The late writer lists the log, finds the winner's version there, and reports it as published."""
    table.append(1, add_file("winner"))
    late = table.stage(1, [add_file("late")])
    for version in (0, 1, 2):
        assert error(table.commit(late, published(version))) == (409, "CommitVersionConflictException")
    assert preview(table, late, latest_backfilled_version=1).status_code == 409


def test_who_is_late_is_late_whatever_its_file_says(table):
    table.append(1, add_file("winner"))
    late = table.stage(1, [{"add": {"path": "no size"}}])
    assert error(table.commit(late)) == (409, "CommitVersionConflictException")
    assert error(table.commit({**late, "file-size": 1})) == (409, "CommitVersionConflictException")
    assert error(table.commit({**late, "file-name": "none.json"})) == (409, "CommitVersionConflictException")


def test_the_same_commit_again_is_a_success_whoever_published_it(table):
    staged = table.stage(1, [add_file("a")])
    assert table.commit(staged).status_code == 200
    table.append(2, add_file("b"))
    assert table.commit(staged, published(2)).status_code == 200
    assert preview(table, staged).status_code == 200
    assert table.load()["latest-table-version"] == 2


@pytest.mark.parametrize("version", [1, 2, 1000])
def test_a_version_that_is_not_there_cannot_be_published(table, version):
    assert error(table.commit(table.stage(1, []), published(version))) == (
        400,
        "InvalidParameterValueException",
    )
    assert table.load()["latest-table-version"] == 0


def test_columns_are_those_of_the_log(table):
    answer = preview(
        table,
        table.stage(1, [metadata(table, FIELD)]),
        metadata={"properties": {"properties": table.load()["metadata"]["properties"]}},
    )
    assert answer.status_code == 200, answer.text
    loaded = table.load()["metadata"]
    assert loaded["columns"]["fields"] == [*table.fields, FIELD]
    assert loaded["last-commit-version"] == 1
    shown = table.http.get(f"/tables/{table.name}").json()["columns"]
    assert [(each["name"], each["type_text"]) for each in shown] == [
        ("id", "bigint"),
        ("price", "decimal(10,2)"),
    ]


def test_what_only_the_log_says_of_columns_is_taken_from_it(table):
    """Not every client of the older dialect sends the metadata of fields."""
    inner = {"name": "street", "type": "string", "nullable": False, "metadata": {"comment": "no number"}}
    fields = [
        {"name": "price", "type": "decimal(10,2)", "nullable": False, "metadata": {"delta.invariants": "{}"}},
        {
            "name": "address",
            "type": {"type": "struct", "fields": [inner]},
            "nullable": True,
            "metadata": {"comment": "of the buyer"},
        },
    ]
    bare = {"type": "struct", "fields": [{**inner, "nullable": True, "metadata": {}}]}
    told: list[dict[str, Any]] = [
        {"name": "id", "type": "long"},
        {"name": "price", "type": "decimal(10,2)"},
        {"name": "address", "type": bare, "metadata": {"pii": "yes"}},
    ]
    types = {
        "id": ("bigint", "LONG"),
        "price": ("decimal(10,2)", "DECIMAL"),
        "address": ("struct<street:string>", "STRUCT"),
    }
    columns = [
        {
            "name": each["name"],
            "type_text": types[each["name"]][0],
            "type_name": types[each["name"]][1],
            "type_json": json.dumps({"nullable": True, "metadata": {}, **each}),
            "position": position,
        }
        for position, each in enumerate(told)
    ]
    properties = table.load()["metadata"]["properties"]
    answer = preview(
        table,
        table.stage(1, [metadata(table, *fields)]),
        metadata={"schema": columns, "properties": {"properties": properties}},
    )
    assert answer.status_code == 200, answer.text
    loaded = table.load()["metadata"]["columns"]["fields"]
    assert loaded[1] == fields[0]
    assert loaded[2] == {**fields[1], "metadata": {"pii": "yes", "comment": "of the buyer"}}
    shown = table.http.get(f"/tables/{table.name}").json()["columns"]
    assert [column["nullable"] for column in shown] == [True, False, True]


ARRAY: dict[str, Any] = {
    "name": "parts",
    "type": {"type": "array", "element-type": "long", "contains-null": True},
    "nullable": True,
    "metadata": {},
}


def set_columns(table: DeltaTable, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"action": "set-columns", "columns": {"type": "struct", "fields": [*table.fields, *fields]}}


@pytest.mark.parametrize("wrong", [{"elementType": "LONG"}, {"containsNull": "yes"}])
def test_a_nested_type_that_is_none_of_delta_is_refused(table, wrong):
    kind = {"type": "array", "elementType": "long", "containsNull": True, **wrong}
    staged = table.stage(1, [metadata(table, {**ARRAY, "type": kind})])
    answer = table.commit(staged, set_columns(table, ARRAY))
    assert error(answer) == (400, "InvalidParameterValueException"), answer.text
    assert "metadata.schema" in answer.text
    assert table.load()["latest-table-version"] == 0


@pytest.mark.parametrize("empty", [{"containsNull": None}, {}])
def test_what_a_nested_type_leaves_out_may_be_null(table, empty):
    staged = table.stage(
        1, [metadata(table, {**ARRAY, "type": {"type": "array", "elementType": "long", **empty}})]
    )
    assert table.commit(staged, set_columns(table, ARRAY)).status_code == 200
    assert table.load()["metadata"]["columns"]["fields"][1] == ARRAY


def test_a_nested_field_without_metadata_has_none(table):
    inner = {"name": "s", "type": "long", "nullable": True, "metadata": {}}
    written = {"type": "struct", "fields": [{**inner, "metadata": None}]}
    told = {**ARRAY, "type": {**ARRAY["type"], "element-type": {**written, "fields": [inner]}}}
    kind = {"type": "array", "elementType": written, "containsNull": True}
    staged = table.stage(1, [metadata(table, {**ARRAY, "type": kind})])
    assert table.commit(staged, set_columns(table, told)).status_code == 200
    assert table.load()["metadata"]["columns"]["fields"][1] == told


@pytest.mark.parametrize("told", [{}, {"comment": "in dollar"}])
def test_the_comment_of_a_column_is_that_of_the_log(table, told):
    staged = table.stage(1, [metadata(table, FIELD)])
    assert table.commit(staged, set_columns(table, {**FIELD, "metadata": told})).status_code == 200
    assert table.load()["metadata"]["columns"]["fields"][1] == FIELD
    shown = table.http.get(f"/tables/{table.name}").json()["columns"][1]
    assert shown["comment"] == "in euro"


def test_what_delta_reads_of_a_column_is_what_the_log_says(table):
    told = {
        **FIELD,
        "metadata": {"delta.generationExpression": "id + 1", "CURRENT_DEFAULT": "7", "pii": "no"},
    }
    staged = table.stage(1, [metadata(table, FIELD)])
    assert table.commit(staged, set_columns(table, told)).status_code == 200
    loaded = table.load()["metadata"]["columns"]["fields"][1]
    assert loaded["metadata"] == {**FIELD["metadata"], "pii": "no"}


@pytest.mark.parametrize(
    "kind",
    [
        "",
        {"type": "array"},
        {"type": "decimal"},
        {"type": "map", "keyType": "long"},
        {"type": "struct", "fields": [{"name": "a", "type": "long"}, {"name": "A", "type": "long"}]},
        {"type": "struct", "fields": [5]},
    ],
    ids=range(6),
)
def test_a_type_that_is_not_whole_is_refused_whoever_tells_it(table, kind):
    answer = preview(table, table.stage(1, [metadata(table, {**ARRAY, "type": kind})]))
    assert answer.status_code == 400
    assert "metadata.schema" in answer.text
    assert table.load()["latest-table-version"] == 0


def test_a_type_that_is_newer_than_the_catalog_is_taken(table):
    assert (
        preview(table, table.stage(1, [metadata(table, {**ARRAY, "type": "geometry(4326)"})])).status_code
        == 200
    )
    assert table.load()["metadata"]["columns"]["fields"][1]["type"] == "geometry(4326)"


def test_columns_that_are_the_same_stay_as_they_were_given(table):
    before = table.http.get(f"/tables/{table.name}").json()["columns"]
    assert preview(table, table.stage(1, [metadata(table, description="x")])).status_code == 200
    assert table.http.get(f"/tables/{table.name}").json()["columns"] == before


def test_partitions_are_those_of_the_log(table):
    assert preview(table, table.stage(1, [metadata(table, partitionColumns=["id"])])).status_code == 200
    assert table.load()["metadata"]["partition-columns"] == ["id"]


def with_property(table: DeltaTable, value: str, key: str = "mine") -> dict[str, Any]:
    action = metadata(table)
    action["metaData"]["configuration"][key] = value
    return action


def test_properties_are_those_of_the_log(table):
    assert table.commit(table.stage(1, [with_property(table, "1")])).status_code == 200
    shown = table.load()["metadata"]["properties"]
    assert shown["mine"] == "1"
    kept = {key: value for key, value in shown.items() if key != "mine"}
    told = {"properties": {"properties": {**kept, "yours": "3"}}}
    assert preview(table, table.stage(2, [with_property(table, "2")]), metadata=told).status_code == 200
    shown = table.load()["metadata"]["properties"]
    assert (shown["mine"], shown["yours"]) == ("2", "3")


def test_properties_of_delta_go_with_the_log(table):
    def configured(**more: str) -> dict[str, Any]:
        action = metadata(table)
        action["metaData"]["configuration"].update(more)
        return action

    extra = {"delta.appendOnly": "true", "delta.logRetentionDuration": "interval 9 days", "mine": "1"}
    assert table.commit(table.stage(1, [configured(**extra)])).status_code == 200
    assert extra.items() <= table.load()["metadata"]["properties"].items()
    removal = {"action": "remove-properties", "removals": ["delta.appendOnly"]}
    assert table.commit(table.stage(2, [configured()]), removal).status_code == 200
    shown = table.load()["metadata"]["properties"]
    # What is not Delta's may be the catalog's own.
    assert extra.keys() & shown.keys() == {"mine"}


@pytest.mark.parametrize("whole", [False, True])
def test_a_property_that_the_log_has_dropped_is_not_told_again(table, whole):
    assert table.commit(table.stage(1, [with_property(table, "true", "delta.appendOnly")])).status_code == 200
    before = table.load()
    staged = table.stage(2, [metadata(table)])
    if whole:
        told = {"properties": {"properties": before["metadata"]["properties"]}}
        answer = preview(table, staged, metadata=told)
    else:
        update = {"action": "set-properties", "updates": {"delta.appendOnly": "true"}}
        answer = table.commit(staged, update)
    assert answer.status_code == 400
    assert "delta.appendOnly" in answer.text
    assert table.load() == before


def test_properties_that_the_file_has_otherwise_are_refused(table):
    before = table.load()
    staged = table.stage(1, [with_property(table, "1")])
    for update in (
        {"action": "set-properties", "updates": {"mine": "2"}},
        {"action": "remove-properties", "removals": ["mine"]},
    ):
        answer = table.commit(staged, update)
        assert error(answer) == (400, "InvalidParameterValueException")
        assert "mine" in answer.text
    told = {"properties": {"properties": {**before["metadata"]["properties"], "mine": "2"}}}
    assert preview(table, staged, metadata=told).status_code == 400
    incomplete = {"properties": {"properties": {"mine": "1"}}}
    assert preview(table, staged, metadata=incomplete).status_code == 400
    assert table.load() == before
    assert table.commit(staged, {"action": "set-properties", "updates": {"mine": "1"}}).status_code == 200


def test_the_protocol_is_that_of_the_log(table):
    lines = (table.folder / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    [protocol] = [json.loads(line)["protocol"] for line in lines if '"protocol"' in line]
    protocol["writerFeatures"] = [*protocol["writerFeatures"], "appendOnly"]
    assert preview(table, table.stage(1, [{"protocol": protocol}])).status_code == 200
    assert table.load()["metadata"]["properties"]["delta.feature.appendOnly"] == "supported"


def test_clusters_are_those_of_the_log(table):
    def clustering(**action: Any) -> dict[str, Any]:
        return {
            "domainMetadata": {"domain": "delta.clustering", "configuration": "", "removed": False, **action}
        }

    columns = json.dumps({"clusteringColumns": [["id"]], "domainName": "delta.clustering"})
    assert preview(table, table.stage(1, [clustering(configuration=columns)])).status_code == 200
    assert table.load()["metadata"]["properties"]["clusteringColumns"] == '[["id"]]'
    assert preview(table, table.stage(2, [clustering(removed=True)])).status_code == 200
    assert "clusteringColumns" not in table.load()["metadata"]["properties"]


@pytest.mark.parametrize(
    ("change", "update", "field"),
    [
        (
            {"partitionColumns": []},
            {"action": "set-partition-columns", "partition-columns": ["id"]},
            "partition",
        ),
        ({"configuration": {"io.unitycatalog.tableId": "another"}}, None, "tableId"),
        ({"schemaString": "{"}, None, "schema"),
    ],
)
def test_a_file_that_says_something_else_is_refused(table, change, update, field):
    staged = table.stage(1, [metadata(table, **change)])
    answer = table.commit(staged, *([update] if update else []))
    assert error(answer) == (400, "InvalidParameterValueException")
    assert field in answer.text
    assert table.load()["latest-table-version"] == 0


def test_a_file_that_was_written_past_the_catalog_does_not_hide_a_commit(table):
    (table.folder / "_delta_log" / f"{1:020d}.json").write_text('{"commitInfo":{}}\n')
    table.append(1, add_file("ratified"))
    notice = {
        "requirements": [{"type": "assert-table-uuid", "uuid": table.id}],
        "updates": [published(1)],
    }
    assert table.http.post(table.url, json=notice).status_code == 500
    assert [each["version"] for each in table.load()["commits"]] == [1]


def test_a_file_that_its_writer_published_is_as_good_as_ours(table):
    staged = table.stage(1, [add_file("a")])
    table.commit(staged).raise_for_status()
    log = table.folder / "_delta_log"
    (log / f"{1:020d}.json").write_bytes((log / "_staged_commits" / staged["file-name"]).read_bytes())
    notice = {
        "requirements": [{"type": "assert-table-uuid", "uuid": table.id}],
        "updates": [published(1)],
    }
    table.http.post(table.url, json=notice).raise_for_status()
    assert table.load()["commits"] == []


def test_texts_that_no_database_keeps_are_refused(table):
    odd = {**FIELD, "name": "a\0b"}
    for action in (metadata(table, odd), metadata(table, description="a\0b")):
        assert error(table.commit(table.stage(1, [action]))) == (400, "InvalidParameterValueException")
    table.append(1)
