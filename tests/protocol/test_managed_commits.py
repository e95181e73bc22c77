"""Commits of managed tables whose request and file do not make sense, alone or together."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.fixtures.delta import DeltaTable, commit_file
from tests.fixtures.unity import (
    FEATURES,
    Place,
    code,
    commit_info,
    first_actions,
    properties,
    proposal,
    version,
)

INVALID = (400, "INVALID_PARAMETER_VALUE")
IN_COMMIT = "delta.enableInCommitTimestamps"
UNIFORM = {"delta.universalFormat.enabledFormats": "iceberg"}


@pytest.fixture
def table(place: Place) -> DeltaTable:
    return place.table("t")


def commit(table: DeltaTable, *actions: Any, **more: Any) -> httpx.Response:
    info = commit_info(table, version(table) + 1, *actions)
    return table.http.post("/delta/commit", json={**proposal(table), "commit_info": info, **more})


def refused(table: DeltaTable, word: str, answer: httpx.Response) -> None:
    """With a message that has the word in it; the table is what it was."""
    assert code(answer) == INVALID, answer.text
    assert word in answer.json()["message"]
    assert version(table) == 0


def metadata(
    table: DeltaTable, configuration: dict[str, str] | None = None, **changed: Any
) -> dict[str, Any]:
    """The metadata action of version 0 with other values."""
    [_, action] = first_actions(table, configuration=configuration)
    action["metaData"].update(changed)
    return action


def told(table: DeltaTable, **changed: Any) -> dict[str, Any]:
    return {"id": "internal", "properties": properties(table), **changed}


SCHEMAS = [
    '{"type":"array","fields":[]}',
    '{"fields":[]}',
    '{"type":"struct","fields":[{"name":"id","type":"long"},{"name":"ID","type":"long"}]}',
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":5}]}',
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":"no","metadata":{}}]}',
    # One that a decoder takes, but not another that is called from deeper inside.
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{"x":%s}}]}'
    % ("[" * 960 + "]" * 960),
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
def test_a_schema_is_a_struct_of_different_columns(place: Place, schema: str) -> None:
    staged = place.staged("t")
    first = first_actions(staged)
    first[1]["metaData"]["schemaString"] = schema
    staged.put(f"_delta_log/{0:020d}.json", commit_file(staged.timestamp, first, "CREATE TABLE"))
    assert code(place.admin.post("/tables", json=place.creation(staged, columns=[]))) == INVALID
    table = place.table("other")
    refused(table, "metadata.schema", commit(table, metadata(table, schemaString=schema)))


@pytest.mark.parametrize("value", ["", "nope", "disabled", "SUPPORTED"])
def test_a_feature_is_supported_or_not_named(place: Place, table: DeltaTable, value: str) -> None:
    staged = place.staged("s")
    wrong = {**properties(staged), "delta.feature.appendOnly": value}
    answer = place.admin.post("/tables", json=place.creation(staged, properties=wrong))
    assert code(answer) == INVALID
    assert "delta.feature.appendOnly" in answer.json()["message"]
    wrong = {**properties(table), "delta.feature.appendOnly": value}
    answer = commit(table, metadata(table), metadata=told(table, properties=wrong))
    refused(table, "delta.feature.appendOnly", answer)


# --- what a commit may change ---


def test_a_file_keeps_what_makes_a_table_managed(table: DeltaTable) -> None:
    """Also when the request does not speak of it, and the catalog still knows it."""
    for key in (IN_COMMIT, "io.unitycatalog.tableId"):
        action = metadata(table)
        del action["metaData"]["configuration"][key]
        refused(table, key, commit(table, action))
        refused(table, key, commit(table, action, metadata=told(table)))
    refused(table, IN_COMMIT, commit(table, metadata(table, {IN_COMMIT: "false"})))


@pytest.mark.parametrize(
    "key", ["delta.minReaderVersion", "delta.minWriterVersion", "delta.feature.appendOnly"]
)
def test_the_protocol_of_the_request_is_that_of_the_file(table: DeltaTable, key: str) -> None:
    protocol, wrong = first_actions(table)[0], properties(table)
    if key in wrong:
        wrong[key] = "9"
    else:
        protocol["protocol"]["writerFeatures"] = [*FEATURES, "appendOnly"]
    answer = commit(table, protocol, metadata(table), metadata=told(table, properties=wrong))
    refused(table, "protocol", answer)
    if key not in wrong:
        wrong[key] = "supported"
        answer = commit(table, protocol, metadata(table), metadata=told(table, properties=wrong))
        assert answer.json() == {}


def test_features_for_readers_outlast_a_request_that_only_names_features(place: Place) -> None:
    """Of a feature that the catalog has never heard of, only the log tells whom it concerns."""
    features = (*FEATURES, "newsOfTomorrow")
    table = place.staged("t", features=features)
    named = {**properties(table), "delta.feature.newsOfTomorrow": "supported"}
    place.post("/tables", place.creation(table, properties=named))
    answer = commit(table, metadata(table), metadata=told(table, properties=named, description="new"))
    assert answer.json() == {}
    lost = first_actions(table, features=features)[0]["protocol"]
    assert "newsOfTomorrow" in lost["readerFeatures"]
    lost["readerFeatures"] = [each for each in lost["readerFeatures"] if each != "newsOfTomorrow"]
    spelled = {
        "min-reader-version": 3,
        "min-writer-version": 7,
        "reader-features": lost["readerFeatures"],
        "writer-features": lost["writerFeatures"],
    }
    change = {"action": "set-protocol", "protocol": spelled}
    assert table.commit(table.stage(2, []), change).status_code == 400


def test_properties_of_delta_change_only_with_the_metadata_of_the_file(place: Place) -> None:
    mine = "delta.appendOnly"
    table = place.staged("t", configuration={mine: "true"})
    place.post("/tables", place.creation(table))
    kept = {**properties(table), mine: "true"}
    other, gone = {**kept, mine: "false"}, properties(table)
    for wrong in (other, gone):
        refused(table, mine, commit(table, metadata=told(table, properties=wrong)))
    assert commit(table, metadata=told(table, properties={**kept, "yours": "3"})).json() == {}
    shown = place.get(f"/tables/{place.schema}.t")["properties"]
    assert (shown[mine], shown["yours"]) == ("true", "3")
    answer = commit(table, metadata(table), metadata=told(table, properties=gone))
    assert answer.json() == {}
    assert not {mine, "yours"} & set(place.get(f"/tables/{place.schema}.t")["properties"])


def test_a_description_is_that_of_the_file_where_it_has_one(place: Place, table: DeltaTable) -> None:
    action = metadata(table, description="written")
    for wrong in ("told", ""):
        refused(table, "description", commit(table, action, metadata=told(table, description=wrong)))
    assert commit(table, action, metadata=told(table, description="written")).json() == {}
    assert place.get(f"/tables/{place.schema}.t")["comment"] == "written"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ""),
        ("id", 5),
        ("name", 5),
        ("description", 5),
        ("provider", 5),
        ("options", []),
        ("options", {"a": 5}),
        ("format", "parquet"),
        ("format", {"provider": 5}),
        ("format", {"options": []}),
        ("schema", 5),
        ("schema", [{"name": "id"}]),
        ("partition_columns", "id"),
        ("partition_columns", ["nothing"]),
        ("properties", []),
        ("properties", {"properties": 5}),
        ("created_time", -1),
        ("created_time", "yesterday"),
        ("created_time", 2**63),
        ("created_time", True),
    ],
)
def test_each_field_of_metadata_has_its_type(table: DeltaTable, field: str, value: Any) -> None:
    answer = commit(table, metadata(table), metadata={**told(table, description="d"), field: value})
    refused(table, field.partition("_")[0], answer)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("metadata_location", ""),
        ("metadata_location", "metadata/1.json"),
        ("metadata_location", "file:///etc/passwd"),
        ("converted_delta_version", 0),
        ("converted_delta_version", 2),
        ("converted_delta_timestamp", -1),
        ("converted_delta_timestamp", "1969-12-31T23:59:59.000000Z"),
        ("converted_delta_timestamp", "2026-02-09T17:00:00.000000"),
        ("base_converted_delta_version", -1),
        ("base_converted_delta_version", 1),
        ("base_converted_delta_version", 7),
    ],
)
def test_iceberg_metadata_is_of_this_commit_and_this_table(table: DeltaTable, field: str, value: Any) -> None:
    iceberg = {
        "metadata_location": f"{table.location}/metadata/1.json",
        "converted_delta_version": 1,
        "converted_delta_timestamp": "2026-02-09T17:00:00.000000Z",
    }
    action = metadata(table, UNIFORM)
    answer = commit(table, action, uniform={"iceberg": {**iceberg, field: value}})
    refused(table, field, answer)
    assert commit(table, action, uniform={"iceberg": iceberg}).json() == {}


def test_a_histogram_has_a_number_of_bins_that_can_be_kept(place: Place, table: DeltaTable) -> None:
    def report(bins: int) -> httpx.Response:
        histogram = {
            "sorted_bin_boundaries": list(range(bins)),
            "file_counts": [0] * bins,
            "total_bytes": [0] * bins,
        }
        given = {"commit_report": {"commit_version": 0, "file_size_histogram": histogram}}
        return place.admin.post("/delta/metrics", json={**proposal(table), "report": given})

    assert report(95).json() == {}
    assert code(report(1_001)) == INVALID


def test_the_sample_of_the_specification_is_a_commit(place: Place) -> None:
    """A change of metadata as it is printed there, with the file that belongs to it."""
    fields: list[dict[str, Any]] = [
        {"name": "id", "type": "long", "nullable": False},
        {"name": "name", "type": "string", "nullable": True},
        {"name": "created_at", "type": "timestamp", "nullable": False},
    ]
    written = [{**field, "metadata": {}} for field in fields]
    table = place.table("t")
    schema = json.dumps({"type": "struct", "fields": written})
    given = {
        "id": "12345678-1234-5678-1234-567812345678",
        "name": "t",
        "description": "Updated table description",
        "format": {"provider": "parquet", "options": {}},
        "schema": fields,
        "properties": properties(table),
        "created_time": 1804067300000,
    }
    action = metadata(table, schemaString=schema, description="Updated table description")
    assert commit(table, action, metadata=given).json() == {}
    shown = place.get(f"/tables/{place.schema}.t")
    assert [json.loads(each["type_json"]) for each in shown["columns"]] == written
    assert shown["comment"] == "Updated table description"
