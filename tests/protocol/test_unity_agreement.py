"""What a request says of a table and what the table's own files say are one thing, or nothing happens."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.fixtures.delta import DeltaTable, commit_file, new_table
from tests.fixtures.server import InverServer
from tests.fixtures.unity import DAY, ID, Place, code, first_actions, kind, properties

V1 = "/delta/v1"
INVALID = (400, "InvalidParameterValueException")
UNIFORM = {"delta.universalFormat.enabledFormats": "iceberg"}
OTHER = {"name": "other", "type": "string", "nullable": True, "metadata": {}}


@pytest.fixture
def table(place: Place) -> DeltaTable:
    return new_table(place.admin, f"{place.schema}.t")


def domain(name: str, configuration: str) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": configuration, "removed": False}}


def staged(place: Place, *actions: Any, **log: Any) -> DeltaTable:
    """A staged table whose version 0 has these actions too."""
    table = place.staged("t", **log)
    first = [*first_actions(table, **log), *actions]
    table.put(f"_delta_log/{0:020d}.json", commit_file(table.timestamp, first, "CREATE TABLE"))
    return table


def create(place: Place, table: DeltaTable, **fields: Any) -> httpx.Response:
    """Finish a staged table in the words of delta/v1."""
    protocol, metadata = first_actions(table)
    written = protocol["protocol"]
    body = {
        "name": "t",
        "location": table.location,
        "table-type": "MANAGED",
        "columns": json.loads(metadata["metaData"]["schemaString"]),
        "protocol": {
            "min-reader-version": 3,
            "min-writer-version": 7,
            "reader-features": written["readerFeatures"],
            "writer-features": written["writerFeatures"],
        },
        "properties": metadata["metaData"]["configuration"],
        "last-commit-timestamp-ms": table.timestamp,
        **fields,
    }
    return place.admin.post(f"{V1}/catalogs/{place.catalog}/schemas/s/tables", json=body)


def update(table: DeltaTable, *updates: Any, **requirement: str) -> httpx.Response:
    requirements: list[Any] = [{"type": "assert-table-uuid", "uuid": table.id}]
    if requirement:
        requirements.append({"type": "assert-etag", **requirement})
    return table.http.post(table.url, json={"requirements": requirements, "updates": list(updates)})


def listed(place: Place) -> list[str]:
    found = place.get(f"/tables?catalog_name={place.catalog}&schema_name=s")["tables"]
    return [each["name"] for each in found]


# --- version 0 ---


@pytest.mark.parametrize("configuration", ["plain text", "", "5", '["id"]', '{"a": 1}'])
def test_a_domain_of_its_writer_may_hold_any_text(place: Place, configuration: str) -> None:
    table = staged(place, domain("my.domain", configuration))
    assert create(place, table).status_code == 200
    assert listed(place) == ["t"]


@pytest.mark.parametrize("name", ["delta.clustering", "delta.rowTracking"])
@pytest.mark.parametrize("configuration", ["plain text", "", "5", "[1]", "{}", '{"clusteringColumns": 5}'])
def test_a_domain_of_delta_that_is_none_is_refused(place: Place, name: str, configuration: str) -> None:
    table = staged(place, domain(name, configuration))
    answer = create(place, table)
    assert kind(answer) == INVALID
    assert name in answer.text
    assert listed(place) == []


def test_domains_of_delta_are_shown(place: Place) -> None:
    table = staged(
        place,
        domain("delta.clustering", '{"clusteringColumns":[["id"]],"domainName":"delta.clustering"}'),
        domain("delta.rowTracking", '{"rowIdHighWaterMark":7}'),
    )
    shown = create(place, table).json()["metadata"]["properties"]
    assert shown["clusteringColumns"] == '[["id"]]'
    assert shown["delta.rowTracking.rowIdHighWaterMark"] == "7"


def test_columns_come_from_version_0_when_the_request_has_none(place: Place) -> None:
    table = place.staged("t")
    made = place.post("/tables", place.creation(table, columns=None))
    assert [column["name"] for column in made["columns"]] == ["id"]
    assert place.get(f"/tables/{place.schema}.t")["columns"][0]["type_text"] == "bigint"


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "[]",
        "{}",
        '{"fields": 5}',
        '{"fields": [5]}',
        '{"fields": [{"type": "long"}]}',
        '{"fields": [{"name": 5, "type": "long"}]}',
        '{"fields": [{"name": "id"}]}',
        '{"fields": [{"name": "id", "type": 5}]}',
    ],
)
def test_version_0_without_a_schema_is_refused(place: Place, schema: str) -> None:
    table = place.staged("t")
    first = first_actions(table)
    first[1]["metaData"]["schemaString"] = schema
    table.put(f"_delta_log/{0:020d}.json", commit_file(table.timestamp, first, "CREATE TABLE"))
    answer = place.admin.post("/tables", json=place.creation(table, columns=None))
    assert code(answer) == (400, "INVALID_PARAMETER_VALUE")
    assert "schema" in answer.json()["message"]
    assert listed(place) == []


def test_columns_that_version_0_has_not_are_refused(place: Place) -> None:
    table = place.staged("t")
    answer = create(place, table, columns={"type": "struct", "fields": [OTHER]})
    assert kind(answer) == INVALID
    assert "columns" in answer.text
    wrong = place.creation(table, columns=[ID, {**ID, "name": "more", "type_json": None, "position": 1}])
    assert code(place.admin.post("/tables", json=wrong)) == (400, "INVALID_PARAMETER_VALUE")
    assert listed(place) == []
    assert create(place, table).status_code == 200


@pytest.mark.parametrize(
    ("path", "version", "enabled"),
    [
        ("file:///etc/passwd", 0, True),
        ("{}", 0, True),
        ("{}/metadata/1.json", 2, True),
        ("{}/1.json", 0, False),
    ],
)
def test_iceberg_metadata_of_a_new_table_is_checked(
    place: Place, path: str, version: int, enabled: bool
) -> None:
    table = staged(place, configuration=UNIFORM if enabled else {})
    _, metadata = first_actions(table)
    given = {
        "metadata-location": path.format(table.location),
        "converted-delta-version": version,
        "converted-delta-timestamp": 1,
    }
    kept = {**metadata["metaData"]["configuration"], **(UNIFORM if enabled else {})}
    assert kind(create(place, table, uniform={"iceberg": given}, properties=kept)) == INVALID
    assert listed(place) == []
    good = {**given, "metadata-location": f"{table.location}/metadata/0.json", "converted-delta-version": 0}
    first = commit_file(table.timestamp, first_actions(table, configuration=UNIFORM), "CREATE TABLE")
    table.put(f"_delta_log/{0:020d}.json", first)
    answer = create(place, table, uniform={"iceberg": good}, properties={**kept, **UNIFORM})
    assert answer.json()["uniform"] == {"iceberg": good}


def test_an_external_table_points_only_into_itself(place: Place, shared_inver: InverServer) -> None:
    location = f"file://{shared_inver.home}.external/{place.catalog}"
    body = {
        "name": "x",
        "location": location,
        "table-type": "EXTERNAL",
        "columns": {"type": "struct", "fields": [OTHER]},
        "protocol": {"min-reader-version": 1, "min-writer-version": 2},
        "properties": UNIFORM,
        "last-commit-timestamp-ms": 1,
    }
    iceberg = {"converted-delta-version": 0, "converted-delta-timestamp": 1}
    outside = {"iceberg": {**iceberg, "metadata-location": "file:///etc/passwd"}}
    url = f"{V1}/catalogs/{place.catalog}/schemas/s/tables"
    answer = place.admin.post(url, json={**body, "uniform": outside})
    assert kind(answer) == INVALID
    assert "uniform.iceberg.metadata-location" in answer.text
    answer = place.admin.post(url, json={**body, "partition-columns": ["none"]})
    assert kind(answer) == INVALID
    assert "none" in answer.text
    assert listed(place) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.lastUpdateVersion", "1"),
        ("delta.lastCommitTimestamp", "1"),
        ("delta.minReaderVersion", "4"),
        ("delta.minWriterVersion", "8"),
        ("delta.feature.appendOnly", "supported"),
        ("delta.appendOnly", "true"),
    ],
)
def test_properties_that_version_0_belies_are_refused(place: Place, key: str, value: str) -> None:
    table = place.staged("t")
    wrong = place.creation(table, properties={**properties(table), key: value})
    answer = place.admin.post("/tables", json=wrong)
    assert code(answer) == (400, "INVALID_PARAMETER_VALUE")
    assert key in answer.json()["message"]
    assert listed(place) == []
    assert place.post("/tables", place.creation(table))["table_id"] == table.id


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.enableInCommitTimestamps", "false"),
        ("io.unitycatalog.tableId", "another"),
        ("delta.minReaderVersion", "2"),
        ("delta.minWriterVersion", "x"),
        ("mine", "2"),
    ],
)
def test_properties_are_those_of_version_0_also_without_features(place: Place, key: str, value: str) -> None:
    table = staged(place, configuration={"mine": "1"})
    for wrong in ({key: value}, {**properties(table), key: value}):
        answer = place.admin.post("/tables", json=place.creation(table, properties=wrong))
        assert code(answer) == (400, "INVALID_PARAMETER_VALUE")
        assert key in answer.json()["message"]
    assert listed(place) == []
    made = place.post("/tables", place.creation(table, properties={"yours": "3"}))
    assert (made["properties"]["mine"], made["properties"]["yours"]) == ("1", "3")
    assert made["properties"]["delta.enableInCommitTimestamps"] == "true"


def test_columns_have_the_types_of_version_0(place: Place) -> None:
    text = {"name": "text", "type": "string", "nullable": True, "metadata": {}}
    table = staged(place, fields=(ID, {"type_json": json.dumps(text)}))
    short = {"name": "TEXT", "type_text": "varchar(5)", "position": 1}
    for wrong in (
        [{**ID, "type_json": None, "type_text": "string"}, short],
        [ID, {**short, "type_text": "int"}],
    ):
        answer = place.admin.post("/tables", json=place.creation(table, columns=wrong))
        assert code(answer) == (400, "INVALID_PARAMETER_VALUE")
        assert "columns" in answer.json()["message"]
    wrong_struct = {"type": "struct", "fields": [{**text, "name": "id"}, text]}
    assert kind(create(place, table, columns=wrong_struct)) == INVALID
    assert listed(place) == []
    # Of a string, only the catalog's column tells how long it may be.
    made = place.post("/tables", place.creation(table, columns=[ID, short]))
    assert [column["type_text"] for column in made["columns"]] == ["bigint", "varchar(5)"]


def test_clustering_columns_are_those_of_version_0(place: Place) -> None:
    clustering = domain("delta.clustering", '{"clusteringColumns":[["id"]]}')
    table = staged(place, clustering)
    for wrong in ('[["other"]]', "[]", "id", '["id"]', "5"):
        asked = place.creation(table, properties={**properties(table), "clusteringColumns": wrong})
        answer = place.admin.post("/tables", json=asked)
        assert code(answer) == (400, "INVALID_PARAMETER_VALUE"), wrong
        assert "clusteringColumns" in answer.json()["message"]
    answer = create(place, table, **{"domain-metadata": {"delta.clustering": {"clusteringColumns": [["x"]]}}})
    assert kind(answer) == INVALID
    assert "delta.clustering" in answer.text
    assert listed(place) == []
    asked = place.creation(table, properties={**properties(table), "clusteringColumns": '[ ["ID"] ]'})
    assert place.post("/tables", asked)["properties"]["clusteringColumns"] == '[["id"]]'


def test_version_0_is_divided_by_columns_that_it_has(place: Place) -> None:
    table = place.staged("t", partition=("none",))
    answer = create(place, table)
    assert kind(answer) == INVALID
    assert "none" in answer.text
    assert listed(place) == []


def test_partition_columns_are_named_in_any_case(place: Place) -> None:
    table = place.staged("t", partition=("id",))
    assert kind(create(place, table, **{"partition-columns": []})) == INVALID
    made = create(place, table, **{"partition-columns": ["ID"]})
    assert made.json()["metadata"]["partition-columns"] == ["id"]


def test_columns_stand_as_in_version_0(place: Place) -> None:
    """Clients of the older dialects may name them otherwise, and put those of partitions last."""
    table = place.staged("t", fields=(DAY, ID), partition=("day",))
    told = [
        {
            **column,
            "name": column["name"].upper(),
            "type_json": column["type_json"].replace(name, name.upper()),
        }
        for column, name in ((ID, '"id"'), (DAY, '"day"'))
    ]
    place.post("/tables", place.creation(table, columns=told))
    shown = place.get(f"/tables/{place.schema}.t")["columns"]
    assert [(each["name"], each["position"], each.get("partition_index")) for each in shown] == [
        ("day", 0, 0),
        ("id", 1, None),
    ]
    loaded = table.load()["metadata"]
    assert [each["name"] for each in loaded["columns"]["fields"]] == ["day", "id"]


def test_of_those_that_send_the_same_creation_at_once_all_succeed(place: Place) -> None:
    table = place.staged("t")
    body = place.creation(table)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: place.admin.post("/tables", json=body), range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8, [answer.text for answer in answers]
    assert {answer.json()["table_id"] for answer in answers} == {table.id}


def test_of_those_that_want_the_same_name_at_once_one_gets_it(place: Place) -> None:
    """A name can be staged by many; it belongs to who finishes first."""
    tables = [place.staged("t") for _ in range(6)]
    bodies = [place.creation(table) for table in tables]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda body: place.admin.post("/tables", json=body), bodies))
    [winner] = [answer.json()["table_id"] for answer in answers if answer.is_success]
    lost = [answer for answer in answers if not answer.is_success]
    assert [code(answer) for answer in lost] == [(400, "TABLE_ALREADY_EXISTS")] * 5
    assert place.get(f"/tables/{place.schema}.t")["table_id"] == winner
    # Who lost still has a staged table, good for another name.
    other = next(table for table in tables if table.id != winner)
    assert place.post("/tables", place.creation(other, name="u"))["table_id"] == other.id
    assert listed(place) == ["t", "u"]


# --- commits ---


def metadata(table: DeltaTable, *fields: Any) -> dict[str, Any]:
    [_, action] = first_actions(table)
    action["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": list(fields)})
    return action


def columns(*fields: Any) -> dict[str, Any]:
    return {"action": "set-columns", "columns": {"type": "struct", "fields": list(fields)}}


def test_columns_that_the_file_has_not_are_refused(table: DeltaTable) -> None:
    before = table.load()
    [own] = table.fields
    none = {**OTHER, "type": {"type": "struct", "fields": [5]}}
    wrong = [
        ([], columns(own, OTHER), "columns"),
        ([metadata(table, own)], columns(own, OTHER), "columns"),
        ([metadata(table, own, OTHER)], columns(own), "columns"),
        ([metadata(table, own, OTHER)], columns(own, {**OTHER, "type": "long"}), "columns"),
        ([metadata(table, own, none)], columns(own, OTHER), "metadata.schema"),
    ]
    for actions, asked, field in wrong:
        answer = table.commit(table.stage(1, actions), asked)
        assert kind(answer) == INVALID, answer.text
        assert field in answer.text
        assert table.load() == before
    answer = table.commit(table.stage(1, [metadata(table, own, OTHER)]), columns(own, OTHER))
    assert answer.json()["metadata"]["columns"]["fields"] == [own, OTHER]


def test_nested_columns_agree_in_both_spellings(table: DeltaTable) -> None:
    inner = {"name": "a", "type": "decimal(10,2)", "nullable": True, "metadata": {}}
    struct = {"type": "struct", "fields": [inner]}
    written = {"type": "array", "elementType": struct, "containsNull": True}
    asked = {"type": "array", "element-type": struct, "contains-null": True}
    staged = table.stage(1, [metadata(table, {**OTHER, "type": written})])
    assert table.commit(staged, columns({**OTHER, "type": asked})).status_code == 200


def test_a_protocol_that_the_file_has_not_is_refused(table: DeltaTable) -> None:
    before = table.load()
    protocol = first_actions(table)[0]["protocol"]
    asked = {
        "min-reader-version": 3,
        "min-writer-version": 7,
        "reader-features": protocol["readerFeatures"],
        "writer-features": [*protocol["writerFeatures"], "appendOnly"],
    }
    answer = table.commit(table.stage(1, []), {"action": "set-protocol", "protocol": asked})
    assert kind(answer) == INVALID
    assert "protocol" in answer.text
    shown = before["metadata"]["properties"]
    spelled = {**shown, "delta.feature.appendOnly": "supported"}
    info = {key.replace("-", "_"): value for key, value in table.stage(1, []).items()}
    legacy = {
        "table_id": table.id,
        "table_uri": table.location,
        "commit_info": info,
        "metadata": {"properties": {"properties": spelled}},
    }
    assert code(table.http.post("/delta/preview/commits", json=legacy))[0] == 400
    assert table.load() == before


def test_a_partition_column_is_a_column(table: DeltaTable) -> None:
    before = table.load()
    answer = update(table, {"action": "set-partition-columns", "partition-columns": ["none"]})
    assert kind(answer) == INVALID
    assert table.load() == before


# --- requirements ---


def test_a_notice_of_published_versions_has_requirements_too(table: DeltaTable) -> None:
    notice = {"action": "set-latest-backfilled-version", "latest-published-version": 0}
    etag = table.load()["metadata"]["etag"]
    conflict = (409, "UpdateRequirementConflictException")
    assert kind(update(table, notice, etag="etag-999")) == conflict
    assert kind(update(table, notice, etag="another")) == conflict
    assert update(table, notice, etag=etag).status_code == 200


def test_a_version_that_is_not_there_is_not_published_with_a_change_either(table: DeltaTable) -> None:
    before = table.load()
    notice = {"action": "set-latest-backfilled-version", "latest-published-version": 1}
    answer = update(table, notice, {"action": "set-table-comment", "comment": "ours"})
    assert kind(answer) == INVALID
    assert table.load() == before


def test_a_request_that_the_older_dialect_completes_is_a_table_of_its_own_words(place: Place) -> None:
    """Properties are those of the request and of version 0, and what follows from the state."""
    table = place.table("t")
    shown = place.get(f"/tables/{place.schema}.t")["properties"]
    assert {**shown, **properties(table)} == shown
