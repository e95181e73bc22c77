"""Managed Delta tables whose version 0 the server writes, for clients that cannot create one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from inver.domain.locations import Location
from tests.fixtures.delta import DeltaTable, add_file
from tests.fixtures.server import API
from tests.fixtures.unity import Place

KEY = "01a1ec71-b922-7e7a-b20f-924a5b36f4eb"
COLUMNS = "id BIGINT NOT NULL COMMENT 'the key', day DATE"


def make(place: Place, by: httpx.Client | None = None, key: str | None = None, **fields: Any) -> Any:
    """The answer of the management API, as whoever speaks to Unity with this client."""
    who = dict((by or place.admin).headers)
    headers = {"Authorization": who["authorization"]} | ({"Idempotency-Key": key} if key else {})
    body = {"name": "t", "format": "DELTA", "schema": COLUMNS, **fields}
    path = f"{place.server.url}{API}/catalogs/{place.catalog}/schemas/s/tables"
    return httpx.post(path, json=body, headers=headers, timeout=60)


def made(place: Place, **fields: Any) -> DeltaTable:
    answer = make(place, **fields)
    assert answer.status_code == 201, answer.text
    info = answer.json()
    return DeltaTable(place.admin, ".".join(info["full_name"]), info["id"], info["location"], ())


def folders(place: Place) -> set[Path]:
    return set(Path(place.server.home / "warehouse").glob("*"))


def test_it_is_a_managed_table_like_any_other(place: Place):
    table = made(
        place, partition_by=["DAY"], comment="visits", properties={"delta.enableChangeDataFeed": "true"}
    )
    loaded = table.load()
    assert loaded["latest-table-version"] == 0
    metadata = loaded["metadata"]
    assert [each["name"] for each in metadata["columns"]["fields"]] == ["id", "day"]
    assert metadata["partition-columns"] == ["day"]
    properties = metadata["properties"]
    assert properties["io.unitycatalog.tableId"] == table.id
    assert properties["delta.feature.catalogManaged"] == "supported"
    assert properties["delta.feature.changeDataFeed"] == "supported"
    shown = place.get(f"/tables/{table.name}")
    assert (shown["comment"], shown["table_type"]) == ("visits", "MANAGED")
    assert [each.get("partition_index") for each in shown["columns"]] == [None, 0]
    assert table.published == [0]
    first = (table.folder / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    assert json.loads(first[2])["metaData"]["description"] == "visits"
    table.append(1, add_file("a.parquet"))
    assert table.load()["latest-table-version"] == 1


def test_the_same_request_under_one_key_is_one_table(place: Place):
    first, again = (make(place, key=KEY) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]
    other = make(place, key=KEY, schema="id INT")
    assert other.status_code == 422


def test_a_name_that_is_taken_is_refused(place: Place):
    table = made(place)
    before = folders(place)
    refused = make(place, schema="other INT")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:inver:problem:already-exists")
    assert table.load()["metadata"]["table-uuid"] == table.id
    assert folders(place) == before


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"schema": "id BIGINT,"}, "schema"),
        ({"schema": "id varchar(3)"}, "schema"),
        ({"schema": ""}, "schema"),
        ({"schema": 3}, "schema"),
        ({"partition_by": ["nothing"]}, "partition_by"),
        ({"schema": None, "partition_by": ["id"]}, "partition_by"),
        ({"format": "ICEBERG"}, "schema"),
        ({"kind": "EXTERNAL", "location": "/lake/t"}, "schema"),
        ({"location": "/lake/t"}, "location"),
        ({"version": 3}, "version"),
        ({"columns": [{"name": "id"}]}, "columns"),
        ({"properties": {"delta.columnMapping.mode": "name"}}, "properties.delta.columnMapping.mode"),
    ],
)
def test_what_cannot_be_made_is_refused_and_leaves_nothing(place: Place, fields, wrong):
    before = folders(place)
    refused = make(place, **fields)
    assert refused.status_code == 400, refused.text
    assert refused.json()["field"] == wrong
    assert folders(place) == before
    assert place.get(f"/tables?catalog_name={place.catalog}&schema_name=s")["tables"] == []


def test_it_takes_the_right_to_create(place: Place):
    assert make(place, by=place.visitor()).status_code == 403
    creator = place.visitor("CREATE TABLE")
    answer = make(place, by=creator)
    assert answer.status_code == 201, answer.text
    assert answer.json()["owner"] == answer.json()["created_by"]
    assert place.get(f"/tables/{place.schema}.t", by=creator)["owner"] == creator.headers["X-Name"]


def test_no_version_is_made_past_its_format(place: Place):
    """A version without a file in the log is one that no reader of the table can read."""
    table = made(place)
    path = [place.catalog, "s", "t"]
    for named in ({"id": table.id}, {"name": path}):
        for operation in (
            {"op": "commit", "table": named, "version": 1, "token": "x"},
            {"op": "create-branch", "table": named, "branch": "b", "version": 0},
        ):
            refused = place.server.call("POST", "/transactions", json={"operations": [operation]})
            assert (refused.status_code, refused.json()["field"]) == (400, "operations[0].table"), (
                refused.text
            )
            assert "delta-commit" in refused.json()["fix"]
    assert table.load()["latest-table-version"] == 0
    table.append(1, add_file("a.parquet"))
    late = {"op": "commit", "table": {"id": table.id}, "version": 2, "token": "x"}
    assert place.server.call("POST", "/transactions", json={"operations": [late]}).status_code == 400
    assert table.load()["latest-table-version"] == 1


def test_a_table_without_a_log_takes_no_delta_commits(place: Place):
    body = {"name": "bare", "format": "DELTA"}
    bare = place.server.call("POST", f"/catalogs/{place.catalog}/schemas/s/tables", json=body).json()
    table = DeltaTable(place.admin, f"{place.schema}.bare", bare["id"], bare["location"], ())
    assert table.commit(table.stage(1, [add_file("a.parquet")])).status_code == 400
    change = {"action": "set-properties", "updates": {"team": "sales"}}
    requirement = {"type": "assert-table-uuid", "uuid": table.id}
    altered = place.admin.post(table.url, json={"requirements": [requirement], "updates": [change]})
    assert altered.status_code == 400, altered.text
    commit = {"op": "commit", "table": {"id": table.id}, "version": 1, "token": "x"}
    assert place.server.call("POST", "/transactions", json={"operations": [commit]}).status_code == 200


def test_several_are_made_at_once_or_none(place: Place):
    def operation(name: str, schema: str = COLUMNS) -> dict[str, Any]:
        path = [place.catalog, "s", name]
        return {"op": "create-table", "name": path, "format": "DELTA", "schema": schema}

    made(place, name="taken")
    refused = place.server.call(
        "POST", "/transactions", json={"operations": [operation("a"), operation("b", "x char(2)")]}
    )
    assert (refused.status_code, refused.json()["field"]) == (400, "operations[1].schema")
    lost = place.server.call(
        "POST", "/transactions", json={"operations": [operation("a"), operation("taken")]}
    )
    assert (lost.status_code, lost.json()["operation"]) == (409, 1)
    assert place.admin.get(f"/tables/{place.schema}.a").status_code == 404
    both = place.server.call("POST", "/transactions", json={"operations": [operation("a"), operation("b")]})
    assert both.status_code == 200, both.text
    for name, result in zip("ab", both.json()["results"], strict=True):
        shown = place.get(f"/tables/{place.schema}.{name}")
        assert shown["table_id"] == result["id"]
        folder = Path(Location.parse(shown["storage_location"]).local_path)
        assert (folder / "_delta_log" / f"{0:020d}.json").exists()
