"""Iceberg REST through real HTTP: views."""

from __future__ import annotations

import gzip
import json
import uuid
from pathlib import Path
from typing import Any

import httpx

from tests.fixtures.iceberg import SCHEMA, VIEW_VERSION, Lake, error, kind

NOT_THERE = (404, "NoSuchViewException")


def create(lake: Lake, name: str = "v", namespace: str = "ns", **fields: Any) -> httpx.Response:
    body = {"name": name, "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": {"a": "1"}, **fields}
    return lake.admin.post(f"/namespaces/{namespace}/views", json=body)


def replacement(seen: dict[str, Any], sql: str) -> dict[str, Any]:
    version = {
        **VIEW_VERSION,
        "version-id": 1,
        "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
    }
    return {
        "requirements": [{"type": "assert-view-uuid", "uuid": seen["view-uuid"]}],
        "updates": [
            {"action": "add-view-version", "view-version": version},
            {"action": "set-current-view-version", "view-version-id": -1},
        ],
    }


def rename(lake: Lake, source: str, target: list[str]) -> httpx.Response:
    body = {
        "source": {"namespace": ["ns"], "name": source},
        "destination": {"namespace": target[:-1], "name": target[-1]},
    }
    return lake.admin.post("/views/rename", json=body)


def read(location: str) -> Any:
    return json.loads(gzip.decompress(Path(location.removeprefix("file://")).read_bytes()))


def test_life_of_a_view(lake: Lake) -> None:
    made = create(lake).json()
    metadata = made["metadata"]
    assert metadata["view-uuid"] in metadata["location"]
    assert metadata["properties"] == {"a": "1"}
    assert made["metadata-location"].endswith(".gz.metadata.json")
    assert read(made["metadata-location"]) == metadata
    url = "/namespaces/ns/views/v"
    assert lake.get(url) == made
    assert lake.admin.head(url).status_code == 204
    assert lake.get("/namespaces/ns/views")["identifiers"] == [{"namespace": ["ns"], "name": "v"}]
    assert lake.get("/namespaces/ns/tables")["identifiers"] == []
    assert kind(lake.admin.get("/namespaces/ns/tables/v")) == (404, "NoSuchTableException")

    replaced = lake.admin.post(url, json=replacement(metadata, "SELECT 2")).json()
    assert replaced["metadata"]["current-version-id"] == 2
    assert replaced["metadata-location"].rpartition("/")[2].startswith("00001-")
    assert lake.get(url) == replaced

    lake.post("/namespaces", {"namespace": ["other"]})
    assert rename(lake, "v", ["other", "w"]).status_code == 204
    assert lake.get("/namespaces/other/views/w") == replaced
    assert kind(lake.admin.get(url)) == NOT_THERE
    assert lake.admin.delete("/namespaces/other/views/w").status_code == 204
    gone = error(lake.admin.delete("/namespaces/other/views/w"))
    assert gone == (404, "NoSuchViewException", "View does not exist: other.w")


def test_names_are_shared_with_tables(lake: Lake) -> None:
    lake.table("t")
    assert create(lake).status_code == 200
    assert error(create(lake)) == (409, "AlreadyExistsException", "View already exists: ns.v")
    same = "Table with same name already exists: ns.t"
    assert error(create(lake, "t")) == (409, "AlreadyExistsException", same)
    nowhere = create(lake, namespace="nowhere")
    assert error(nowhere) == (404, "NoSuchNamespaceException", "Namespace does not exist: nowhere")
    taken = (409, "AlreadyExistsException", "Cannot rename ns.v to ns.t. Table already exists")
    assert error(rename(lake, "v", ["ns", "t"])) == taken
    create(lake, "w")
    assert error(rename(lake, "v", ["ns", "w"]))[2] == "Cannot rename ns.v to ns.w. View already exists"
    assert error(rename(lake, "t", ["ns", "x"])) == (
        404,
        "NoSuchViewException",
        "Cannot rename ns.t to ns.x. View does not exist",
    )
    assert error(rename(lake, "v", ["zz", "x"]))[1] == "NoSuchNamespaceException"
    assert kind(lake.admin.get("/namespaces/ns/views/t")) == NOT_THERE


def test_replacing(lake: Lake) -> None:
    seen = create(lake).json()["metadata"]
    url = "/namespaces/ns/views/v"
    wrong = replacement({"view-uuid": str(uuid.uuid4())}, "SELECT 3")
    assert error(lake.admin.post(url, json=wrong))[:2] == (409, "CommitFailedException")
    table_update = {"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": [1]}]}
    assert lake.admin.post(url, json=table_update).status_code == 400
    double = replacement(seen, "SELECT 4")
    double["updates"][0]["view-version"]["representations"] *= 2
    told = error(lake.admin.post(url, json=double))
    assert told[:2] == (400, "IllegalArgumentException")
    missing = lake.admin.post("/namespaces/ns/views/x", json=replacement(seen, "SELECT 5"))
    assert kind(missing) == NOT_THERE
    key = {"Idempotency-Key": str(uuid.uuid4())}
    # The first refusal and the recorded one are the same, word for word.
    for _ in range(2):
        assert error(lake.admin.post(url, json=double, headers=key)) == told
    key = {"Idempotency-Key": str(uuid.uuid4())}
    for _ in range(2):
        done = lake.admin.post(url, json=replacement(seen, "SELECT 6"), headers=key).json()
        assert done["metadata"]["current-version-id"] == 2
    for body in (b"", b"{}", b"[]"):
        assert kind(lake.admin.post(url, content=body)) == (400, "BadRequestException")


def test_a_view_is_no_table_and_a_table_no_view(lake: Lake) -> None:
    """Also where the change is one that both would take."""
    body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"b": "2"}}]}
    create(lake)
    lake.table("t")
    for _ in range(2):
        assert lake.admin.post("/namespaces/ns/views/v", json=body).status_code == 200
        assert lake.admin.post("/namespaces/ns/tables/t", json=body).status_code == 200
        assert kind(lake.admin.post("/namespaces/ns/tables/v", json=body)) == (404, "NoSuchTableException")
        assert kind(lake.admin.post("/namespaces/ns/views/t", json=body)) == NOT_THERE


def test_register(lake: Lake) -> None:
    made = create(lake).json()
    lake.admin.delete("/namespaces/ns/views/v")
    body = {"name": "back", "metadata-location": made["metadata-location"]}
    assert lake.post("/namespaces/ns/register-view", body) == made
    again = lake.admin.post("/namespaces/ns/register-view", json=body)
    assert error(again) == (409, "AlreadyExistsException", "View already exists: ns.back")
    lake.table("t")
    taken = lake.admin.post("/namespaces/ns/register-view", json={**body, "name": "t"})
    assert error(taken)[2] == "Table with same name already exists: ns.t"
    as_table = lake.admin.post("/namespaces/ns/register", json={**body, "name": "z"})
    assert as_table.status_code in (400, 409)


def test_places(lake: Lake) -> None:
    place = f"file://{lake.server.home.with_name('external')}/{uuid.uuid4()}"
    assert create(lake, location=place).json()["metadata"]["location"] == place
    assert kind(create(lake, "w", location=place + "/in")) == (409, "AlreadyExistsException")
    assert kind(create(lake, "w", location="/etc/views")) == (400, "BadRequestException")
    move = {"requirements": [], "updates": [{"action": "set-location", "location": place + "2"}]}
    moved = lake.admin.post("/namespaces/ns/views/v", json=move).json()
    assert moved["metadata"]["location"] == place + "2"
    assert moved["metadata-location"].startswith(place + "2/metadata/")


def test_pages_and_rights(lake: Lake) -> None:
    for number in range(5):
        create(lake, f"v{number}")
    found, token = [], ""
    while token is not None:
        page = lake.get("/namespaces/ns/views", params={"pageToken": token, "pageSize": "2"})
        found += [each["name"] for each in page["identifiers"]]
        token = page["next-page-token"]
    assert found == [f"v{number}" for number in range(5)]
    stranger, reader = lake.person(), lake.visitor("SELECT")
    url = "/namespaces/ns/views/v0"
    assert kind(stranger.get(url)) == NOT_THERE
    assert reader.get(url).status_code == 200
    seen = reader.get(url).json()["metadata"]
    assert kind(reader.post(url, json=replacement(seen, "SELECT 7"))) == (403, "ForbiddenException")
    assert kind(reader.delete(url)) == (403, "ForbiddenException")
