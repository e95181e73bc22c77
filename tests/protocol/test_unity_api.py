"""Unity's own dialect through real HTTP: managed tables, commits, catalogs, permissions, tokens."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.fixtures.delta import DeltaTable, add_file, unity
from tests.fixtures.unity import (
    DAY,
    FEATURES,
    ID,
    Place,
    code,
    commit_info,
    first_actions,
    kind,
    properties,
    proposal,
)

CONTROL = "/api/1.0/unity-control"
NOBODY = str(uuid.UUID(int=7))


# --- staging and creating ---


def test_the_folder_of_staged_commits_is_there_from_the_start(place: Place):
    """Spark writes into it without making it, also where another client has created the table."""
    table = place.table()
    assert (table.folder / "_delta_log" / "_staged_commits").is_dir()


def test_a_managed_table_from_staging_to_its_first_commits(place: Place) -> None:
    staging = place.post("/staging-tables", place.named("orders"))
    assert staging == place.named("orders", id=staging["id"], staging_location=staging["staging_location"])
    uuid.UUID(staging["id"])
    assert staging["staging_location"].startswith("file:///")

    table = place.staged("trips", partition=("day",), fields=(ID, DAY))
    body = place.creation(table, columns=[ID, DAY], comment="all of them")
    made = place.post("/tables", body)
    for name in ("name", "catalog_name", "schema_name", "table_type", "data_source_format", "comment"):
        assert made[name] == body[name], name
    assert made["storage_location"] == table.location
    assert made["table_id"] == table.id
    assert made["owner"] == made["created_by"] == made["updated_by"] == "admin"
    assert made["created_at"] > 0
    assert made["updated_at"] >= made["created_at"]
    assert made["properties"] == body["properties"]
    for sent, shown in zip(body["columns"], made["columns"], strict=True):
        assert {name: shown[name] for name in sent} == sent
        assert (shown["type_precision"], shown["type_scale"]) == (0, 0)
    assert place.get(f"/tables/{place.schema}.trips") == made

    assert commits(place, table) == {"commits": [], "latest_table_version": 0}
    first = commit_info(table, 1)
    assert place.post("/delta/commit", {**proposal(table), "commit_info": first}) == {}
    assert commits(place, table) == {"commits": [first], "latest_table_version": 1}


def test_creating_again_is_the_same_creation(place: Place) -> None:
    table = place.staged("twice")
    body = place.creation(table)
    made = place.post("/tables", body)
    assert place.post("/tables", body) == made
    for spelling in (table.location + "/", str(table.folder), f"file:{table.folder}"):
        assert place.post("/tables", {**body, "storage_location": spelling}) == made
    other = place.admin.post("/tables", json={**body, "comment": "another"})
    assert code(other) == (400, "TABLE_ALREADY_EXISTS")
    place.admin.delete(f"/tables/{table.name}").raise_for_status()
    # It was created, so that there is none would not be true; of another request it is.
    assert place.admin.post("/tables", json=body).status_code == 500
    assert place.admin.post("/tables", json={**body, "comment": "another"}).status_code == 404


def test_refusals_of_staging(place: Place) -> None:
    def stage(client: httpx.Client, **fields: str) -> tuple[int, str]:
        return code(client.post("/staging-tables", json=place.named("t", **fields)))

    place.table("t")
    assert stage(place.admin, catalog_name="nowhere") == (404, "CATALOG_DOES_NOT_EXIST")
    assert stage(place.admin, schema_name="nowhere") == (404, "SCHEMA_DOES_NOT_EXIST")
    assert stage(place.admin) == (400, "TABLE_ALREADY_EXISTS")
    assert stage(place.visitor()) == (403, "PERMISSION_DENIED")
    assert stage(place.person()) == (404, "CATALOG_DOES_NOT_EXIST")
    assert stage(place.admin, name="") == (400, "INVALID_PARAMETER_VALUE")
    answer = place.admin.post("/staging-tables", json={"name": "t", "schema_name": "s"})
    assert code(answer) == (400, "INVALID_PARAMETER_VALUE")
    assert "catalog_name" in answer.json()["message"]


def test_refusals_of_creating(place: Place) -> None:
    table = place.staged("made")
    body = place.creation(table)

    def create(client: httpx.Client = place.admin, **fields: Any) -> tuple[int, str]:
        return code(client.post("/tables", json={**body, **fields}))

    assert create(catalog_name="nowhere") == (404, "CATALOG_DOES_NOT_EXIST")
    assert create(schema_name="nowhere") == (404, "SCHEMA_DOES_NOT_EXIST")
    assert create(storage_location=table.location + "x") == (404, "TABLE_DOES_NOT_EXIST")
    assert create(place.visitor()) == (403, "PERMISSION_DENIED")
    assert create(place.visitor("CREATE TABLE")) == (403, "PERMISSION_DENIED")
    invalid = (400, "INVALID_PARAMETER_VALUE")
    assert create(data_source_format="PARQUET") == invalid
    assert create(data_source_format=None) == invalid
    assert create(storage_location=None) == invalid
    assert create(table_type="FROB") == invalid
    assert create(columns=[{**ID, "type_json": "{"}]) == invalid
    assert create(columns=[ID, {**ID, "name": "ID"}]) == invalid
    assert create(properties={"a": 1}) == invalid
    for missing in (
        "delta.feature.catalogManaged",
        "delta.feature.inCommitTimestamp",
        "delta.feature.vacuumProtocolCheck",
        "delta.enableInCommitTimestamps",
        "io.unitycatalog.tableId",
        "delta.minReaderVersion",
        "delta.minWriterVersion",
    ):
        left = {key: value for key, value in properties(table).items() if key != missing}
        answer = place.admin.post("/tables", json={**body, "properties": left})
        assert code(answer) == invalid, missing
        assert missing.rpartition(".")[2] in answer.json()["message"]
    assert create(properties={**properties(table), "io.unitycatalog.tableId": NOBODY}) == invalid
    assert create(table_type="VIEW") == (501, "UNIMPLEMENTED")

    place.table("taken")
    taken = place.staged("other")
    assert code(place.admin.post("/tables", json=place.creation(taken, name="taken"))) == (
        400,
        "TABLE_ALREADY_EXISTS",
    )


def test_a_table_is_finished_only_with_a_good_version_0(place: Place) -> None:
    empty = place.post("/staging-tables", place.named("empty"))
    table = DeltaTable(place.admin, f"{place.schema}.empty", empty["id"], empty["staging_location"], ())
    answer = place.admin.post("/tables", json=place.creation(table))
    assert code(answer) == (400, "INVALID_PARAMETER_VALUE")
    assert "00000000000000000000.json" in answer.json()["message"]

    plain = place.staged("plain", features=FEATURES[1:])
    assert code(place.admin.post("/tables", json=place.creation(plain)))[0] == 400


# --- finding ---


def test_refusals_of_getting_a_table(place: Place) -> None:
    place.table("t")

    def get(name: str, client: httpx.Client = place.admin) -> tuple[int, str]:
        return code(client.get(f"/tables/{name}"))

    assert get("nowhere.s.t") == (404, "CATALOG_DOES_NOT_EXIST")
    assert get(f"{place.catalog}.nowhere.t") == (404, "SCHEMA_DOES_NOT_EXIST")
    assert get(f"{place.schema}.nothing") == (404, "TABLE_DOES_NOT_EXIST")
    assert get(f"{place.schema}.t", place.visitor("BROWSE")) == (403, "PERMISSION_DENIED")
    assert get(f"{place.schema}.t", place.visitor()) == (404, "TABLE_DOES_NOT_EXIST")
    assert get(f"{place.schema}.t", place.person()) == (404, "CATALOG_DOES_NOT_EXIST")
    assert get("just_one") == (400, "INVALID_PARAMETER_VALUE")
    assert get("a..b") == (400, "INVALID_PARAMETER_VALUE")


def test_a_table_is_found_with_the_flags_that_clients_send(place: Place) -> None:
    table = place.table("t")
    name = f"{place.schema}.t"
    flags = {"read_streaming_table_as_managed": "true", "full_name": name}
    assert place.admin.get(f"/tables/{name}", params=flags).json()["table_id"] == table.id
    head = place.admin.head(f"/tables/{name}")
    assert (head.status_code, head.content) == (200, b"")
    assert place.get(f"/tables/{name}", by=place.visitor("SELECT"))["table_id"] == table.id


def test_tables_are_listed_with_all_that_clients_look_for(place: Place) -> None:
    made = {name: place.table(name).id for name in ("a", "b", "c")}
    where = {"catalog_name": place.catalog, "schema_name": "s"}
    shown = place.admin.get("/tables", params=where).json()
    assert {table["name"]: table["table_id"] for table in shown["tables"]} == made
    assert "next_page_token" not in shown
    for table in shown["tables"]:
        assert table == place.get(f"/tables/{place.schema}.{table['name']}")

    first = place.admin.get("/tables", params={**where, "max_results": 2, "page_token": ""}).json()
    assert [table["name"] for table in first["tables"]] == ["a", "b"]
    rest = {**where, "max_results": 2, "page_token": first["next_page_token"]}
    last = place.admin.get("/tables", params=rest).json()
    assert ([table["name"] for table in last["tables"]], "next_page_token" in last) == (["c"], False)

    for size in ("0", "2147483647"):
        page = place.admin.get("/tables", params={**where, "max_results": size, "page_token": ""}).json()
        assert len(page["tables"]) == 3
    bare = place.admin.get(
        "/tables", params={**where, "omit_columns": "true", "omit_properties": "true"}
    ).json()["tables"][0]
    assert not {"columns", "properties"} & set(bare)


def test_a_list_shows_only_what_may_be_seen(place: Place) -> None:
    secret, open_table = place.table("secret"), place.table("open")
    where = {"catalog_name": place.catalog, "schema_name": "s"}

    def names(client: httpx.Client) -> list[str]:
        return [table["name"] for table in client.get("/tables", params=where).json()["tables"]]

    reader = place.visitor()
    assert names(reader) == []
    change = {"principal": reader.headers["X-Name"], "add": ["SELECT"]}
    place.send("PATCH", f"/permissions/table/{open_table.name}", {"changes": [change]})
    assert names(reader) == ["open"]

    browsing = place.visitor("BROWSE").get("/tables", params=where).json()["tables"]
    assert [table["table_id"] for table in browsing] == [open_table.id, secret.id]
    for table in browsing:
        assert (table["columns"], table["properties"]) == ([], {})
        assert "storage_location" not in table


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"schema_name": "s"}, 400),
        ({"catalog_name": "nowhere", "schema_name": "s"}, 404),
        ({"max_results": "-1"}, 400),
        ({"max_results": "many"}, 400),
        ({"omit_columns": "perhaps"}, 400),
    ],
)
def test_refusals_of_listing(place: Place, params: dict[str, str], status: int) -> None:
    where = {"catalog_name": place.catalog, "schema_name": "s"} if "schema_name" not in params else {}
    assert code(place.admin.get("/tables", params={**where, **params}))[0] == status


def test_a_table_is_changed_and_dropped(place: Place) -> None:
    place.table("t")
    name = f"{place.schema}.t"
    assert place.send("PATCH", f"/tables/{name}", {"comment": "ours"})["comment"] == "ours"
    owner = place.person(("USE CATALOG", "catalog", place.catalog), ("USE SCHEMA", "schema", place.schema))
    changed = place.send("PATCH", f"/tables/{name}", {"owner": owner.headers["X-Name"]})
    assert changed["owner"] == owner.headers["X-Name"]
    for field, value in (("properties", {"a": "b"}), ("columns", []), ("storage_location", "file:/x")):
        refused = place.admin.patch(f"/tables/{name}", json={"comment": "lost", field: value})
        assert code(refused) == (400, "INVALID_PARAMETER_VALUE")
        assert field in refused.json()["message"]
    place.table("taken")
    taken = place.admin.patch(f"/tables/{name}", json={"comment": "lost", "new_name": "taken"})
    assert code(taken) == (400, "TABLE_ALREADY_EXISTS")
    assert place.send("GET", f"/tables/{name}")["comment"] == "ours"
    renamed = place.send("PATCH", f"/tables/{name}", {"comment": "moved", "new_name": "other"})
    assert (renamed["name"], renamed["comment"], renamed["table_id"]) == (
        "other",
        "moved",
        changed["table_id"],
    )
    assert code(place.admin.get(f"/tables/{name}")) == (404, "TABLE_DOES_NOT_EXIST")
    assert place.send("PATCH", f"/tables/{place.schema}.other", {"new_name": "t"})["name"] == "t"
    assert code(place.visitor("SELECT").delete(f"/tables/{name}")) == (403, "PERMISSION_DENIED")
    gone = owner.delete(f"/tables/{name}")
    assert (gone.status_code, gone.json()) == (200, {})
    assert code(place.admin.delete(f"/tables/{name}")) == (404, "TABLE_DOES_NOT_EXIST")
    place.table("t")


# --- external tables ---


def test_external_tables_of_every_format(place: Place) -> None:
    root = place.server.home.with_name("external") / place.catalog
    for form in ("DELTA", "ICEBERG", "LANCE"):
        body = place.named(
            f"ext_{form.lower()}",
            table_type="EXTERNAL",
            data_source_format=form,
            columns=[{"name": "id", "type_text": "struct<a:int,b:array<string>>", "type_name": "STRUCT"}],
            storage_location=f"file:{root}/{form}",
            properties={"k": "v"},
            comment="theirs",
        )
        made = place.post("/tables", body)
        # Lance tables go by the names that their own clients of this dialect agree on.
        shown = ("TEXT", {"k": "v", "table_type": "lance"}) if form == "LANCE" else (form, {"k": "v"})
        assert (made["data_source_format"], made["properties"]) == shown
        assert (made["table_type"], made["comment"]) == ("EXTERNAL", "theirs")
        assert json.loads(made["columns"][0]["type_json"])["type"]["type"] == "struct"
        asked = {"table_id": made["table_id"], "table_uri": body["storage_location"]}
        answer = place.admin.request("GET", "/delta/commits", json=asked)
        assert answer.json() == {"commits": [], "latest_table_version": -1}
        again = place.admin.post("/tables", json={**body, "storage_location": f"file:{root}/again"})
        assert code(again) == (400, "TABLE_ALREADY_EXISTS")
        inside = place.admin.post(
            "/tables", json={**body, "name": "inside", "storage_location": f"file:{root}/{form}/x"}
        )
        assert inside.status_code == 400

    span = {"name": "span", "type_name": "INTERVAL", "type_text": "interval day to second", "position": 0}
    for name in ("type_internal_type", "type_interval_type"):
        body = place.named(
            name, table_type="EXTERNAL", data_source_format="DELTA", columns=[span | {name: "x"}]
        )
        [column] = place.post("/tables", {**body, "storage_location": f"file:{root}/{name}"})["columns"]
        assert (column["type_internal_type"], column["type_interval_type"]) == ("x", "x")

    def register(client: httpx.Client, **fields: Any) -> tuple[int, str]:
        body = place.named("x", table_type="EXTERNAL", data_source_format="DELTA", columns=[])
        return code(client.post("/tables", json={**body, "storage_location": f"{root}/x", **fields}))

    assert register(place.admin, storage_location="/etc") == (400, "INVALID_PARAMETER_VALUE")
    assert register(place.admin, data_source_format="CSV") == (400, "INVALID_PARAMETER_VALUE")
    assert register(place.visitor("CREATE TABLE")) == (403, "PERMISSION_DENIED")


def test_a_dropped_external_table_holds_its_place_only_until_somebody_uses_it(place: Place) -> None:
    root = place.server.home.with_name("external") / place.catalog / "held"

    def register(name: str, folder: str = "") -> httpx.Response:
        body = place.named(name, table_type="EXTERNAL", data_source_format="DELTA", columns=[])
        return place.admin.post("/tables", json={**body, "storage_location": f"file://{root}{folder}"})

    def dropped() -> list[str]:
        path = f"/catalogs/{place.catalog}/schemas/s/dropped"
        found = place.server.call("GET", path).raise_for_status().json()
        return [table["id"] for table in found["tables"]]

    first = register("a").json()
    assert code(register("b")) == (400, "RESOURCE_ALREADY_EXISTS")
    place.admin.delete(f"/tables/{place.schema}.a").raise_for_status()
    assert dropped() == [first["table_id"]]
    second = register("a").raise_for_status().json()
    assert second["table_id"] != first["table_id"]
    assert second["storage_location"] == first["storage_location"]
    # The claims of the old table are gone with it, and those of the new one stand.
    assert dropped() == []
    assert code(register("b", "/inside")) == (400, "RESOURCE_ALREADY_EXISTS")
    place.admin.delete(f"/tables/{place.schema}.a").raise_for_status()
    # A request that is refused for another reason leaves it where it was.
    register("c", "-beside").raise_for_status()
    assert code(register("c")) == (400, "TABLE_ALREADY_EXISTS")
    assert dropped() == [second["table_id"]]
    assert register("b", "/inside").json()["name"] == "b"


@pytest.mark.parametrize("path", ["/data/v1.2/t", "file:/data/v1.2/t", "s3://my.bucket/t.d"])
def test_a_path_is_the_name_of_no_table(place: Place, path: str) -> None:
    """Spark asks for it like for a table, and reads the path once it hears that there is none."""
    answer = place.admin.get(f"/tables/{quote(f'{place.catalog}.delta.{path}', safe='')}")
    assert code(answer)[0] == 404
    other = place.admin.get(f"/tables/{place.schema}.a.b")
    assert code(other) == (400, "INVALID_PARAMETER_VALUE")


# --- commits ---


def commits(place: Place, table: DeltaTable, route: str = "/delta/commits", **asked: Any) -> Any:
    body = {"table_id": table.id, "table_uri": table.location, **asked}
    return place.send("GET", route, body)


@pytest.mark.parametrize("route", ["/delta/commits", "/delta/preview/commits"])
def test_commits_are_told_in_ranges(place: Place, route: str) -> None:
    table = place.table("t")
    made = [commit_info(table, version) for version in (1, 2, 3)]
    for info in made:
        place.post("/delta/commit", {**proposal(table), "commit_info": info})

    def versions(**asked: Any) -> list[int]:
        found = commits(place, table, route, **asked)
        assert found["latest_table_version"] == 3
        return sorted(commit["version"] for commit in found["commits"])

    # The server may publish them at any moment and then tells fewer, the oldest first to go.
    left = versions()
    assert left == [1, 2, 3][3 - len(left) :]
    assert set(versions(start_version=2, end_version=2)) <= {2}
    assert set(versions(start_version=3)) <= {3}
    assert versions(start_version=4) == []
    assert versions(start_version=None, end_version=None) == versions()
    query = {"table_id": table.id, "table_uri": table.location, "start_version": "4"}
    answer = place.admin.get(route, params=query).json()
    assert answer == {"commits": [], "latest_table_version": 3}


def test_a_location_may_be_spelled_as_clients_do(place: Place) -> None:
    table = place.table("t")
    path = str(table.folder)
    for spelling in (f"file:{path}", f"file://{path}", path, f"file://{path}/"):
        assert commits(place, table, table_uri=spelling)["latest_table_version"] == 0


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"table_id": NOBODY}, (404, "TABLE_DOES_NOT_EXIST")),
        ({"table_uri": "file:///elsewhere"}, (400, "INVALID_PARAMETER_VALUE")),
        ({"start_version": -1}, (400, "INVALID_PARAMETER_VALUE")),
        ({"end_version": -1}, (400, "INVALID_PARAMETER_VALUE")),
        ({"start_version": 3, "end_version": 2}, (400, "INVALID_PARAMETER_VALUE")),
        ({"start_version": "1"}, (400, "INVALID_PARAMETER_VALUE")),
        ({"start_version": 2**63}, (400, "INVALID_PARAMETER_VALUE")),
        ({"table_id": None}, (400, "INVALID_PARAMETER_VALUE")),
        ({"table_uri": None}, (400, "INVALID_PARAMETER_VALUE")),
    ],
)
def test_refusals_of_getting_commits(place: Place, asked: dict[str, Any], expected: tuple[int, str]) -> None:
    table = place.table("t")
    body = {"table_id": table.id, "table_uri": table.location, **asked}
    assert code(place.admin.request("GET", "/delta/commits", json=body)) == expected
    preview = place.admin.request("GET", "/delta/preview/commits", json=body)
    names = {"TABLE_DOES_NOT_EXIST": "TABLE_NOT_FOUND", "INVALID_PARAMETER_VALUE": "INVALID_ARGUMENT"}
    assert code(preview) == (expected[0], names[expected[1]])


def test_required_fields_of_getting_commits(place: Place) -> None:
    for params in ({}, {"table_id": NOBODY}, {"table_uri": "/x"}):
        assert code(place.admin.get("/delta/commits", params=params)) == (400, "INVALID_PARAMETER_VALUE")
    answer = place.admin.get("/delta/commits", params={"table_id": NOBODY, "table_uri": "/x"})
    assert code(answer) == (404, "TABLE_DOES_NOT_EXIST")


def test_who_may_read_and_write_commits(place: Place) -> None:
    table = place.table("t")
    body = {"table_id": table.id, "table_uri": table.location}

    def get(client: httpx.Client) -> int:
        return client.request("GET", "/delta/commits", json=body).status_code

    def post(client: httpx.Client, version: int) -> httpx.Response:
        return client.post("/delta/commit", json=proposal(table, version))

    assert get(place.visitor("SELECT")) == 200
    assert get(place.visitor("MODIFY")) == 200
    browser = place.visitor("BROWSE")
    assert code(browser.request("GET", "/delta/commits", json=body)) == (403, "PERMISSION_DENIED")
    stranger = place.person()
    assert code(stranger.request("GET", "/delta/commits", json=body)) == (404, "TABLE_DOES_NOT_EXIST")
    assert code(post(place.visitor("SELECT"), 1)) == (403, "PERMISSION_DENIED")
    assert code(post(stranger, 1)) == (404, "TABLE_DOES_NOT_EXIST")
    assert post(place.visitor("MODIFY"), 1).json() == {}


@pytest.mark.parametrize("route", ["/delta/commit", "/delta/preview/commits"])
def test_the_same_commit_again_is_a_success(place: Place, route: str) -> None:
    table = place.table("t")
    first = proposal(table, 1)
    assert place.post(route, first) == {}
    assert place.post(route, proposal(table, 2)) == {}
    assert place.post(route, first) == {}
    assert commits(place, table)["latest_table_version"] == 2


@pytest.mark.parametrize(
    ("route", "taken", "invalid"),
    [
        ("/delta/commit", "ALREADY_EXISTS", "INVALID_PARAMETER_VALUE"),
        ("/delta/preview/commits", "COMMIT_VERSION_CONFLICT", "INVALID_ARGUMENT"),
    ],
)
def test_lost_and_early_commits(place: Place, route: str, taken: str, invalid: str) -> None:
    table = place.table("t")
    place.post(route, proposal(table, 1))
    assert code(place.admin.post(route, json=proposal(table, 1))) == (409, taken)
    assert code(place.admin.post(route, json=proposal(table, 3))) == (400, invalid)
    assert commits(place, table)["latest_table_version"] == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.pop("commit_info"),
        lambda body: body.update(commit_info=None),
        lambda body: body.pop("table_id"),
        lambda body: body.pop("table_uri"),
        lambda body: body.update(table_id="not-a-uuid"),
        lambda body: body.update(table_uri="file:///elsewhere"),
        lambda body: body["commit_info"].update(version=0),
        lambda body: body["commit_info"].update(version=-1),
        lambda body: body["commit_info"].update(version="1"),
        lambda body: body["commit_info"].update(version=2**63),
        lambda body: body["commit_info"].update(version=1.5),
        lambda body: body["commit_info"].update(timestamp=0),
        lambda body: body["commit_info"].update(file_size=0),
        lambda body: body["commit_info"].update(file_modification_timestamp=0),
        lambda body: body["commit_info"].update(file_name=""),
        lambda body: body["commit_info"].update(file_name="../0.json"),
        lambda body: body["commit_info"].update(file_name="a/b.json"),
        lambda body: body["commit_info"].update(file_name="a\x00.json"),
        lambda body: body["commit_info"].pop("file_name"),
        lambda body: body["commit_info"].pop("timestamp"),
        lambda body: body.update(latest_published_version=1),
        lambda body: body.update(latest_published_version=-1),
        lambda body: body.update(latest_published_version=0, latest_backfilled_version=1),
        lambda body: body.update(metadata={"description": "no id"}),
        lambda body: body.update(metadata={"id": "x"}),
        lambda body: body.update(metadata={"id": "x", "schema": [{"name": "a", "type": "frob"}]}),
        lambda body: body.update(metadata={"id": "x", "properties": {"a": None}}),
        lambda body: (body.pop("commit_info"), body.update(metadata={"id": "x", "description": "d"})),
        lambda body: body.update(uniform={"iceberg": {"metadata_location": "x"}}),
        lambda body: body.update(
            uniform={
                "iceberg": {
                    "metadata_location": "x",
                    "converted_delta_version": 1,
                    "converted_delta_timestamp": "yesterday",
                }
            }
        ),
    ],
)
def test_invalid_commits_are_refused_and_leave_nothing(
    place: Place, change: Callable[[dict[str, Any]], Any]
) -> None:
    table = place.table("t")
    body = proposal(table, 1)
    change(body)
    assert code(place.admin.post("/delta/commit", json=body)) == (400, "INVALID_PARAMETER_VALUE")
    assert commits(place, table) == {"commits": [], "latest_table_version": 0}


def test_a_commit_to_no_table(place: Place) -> None:
    table = place.table("t")
    body = {**proposal(table, 1), "table_id": NOBODY}
    assert code(place.admin.post("/delta/commit", json=body)) == (404, "TABLE_DOES_NOT_EXIST")


def test_what_one_has_published_does_not_depend_on_what_others_have_not(place: Place) -> None:
    table = place.table("t")
    log = table.folder / "_delta_log"
    for version in (1, 2):
        place.post("/delta/commit", proposal(table, version))
    # Too large to be remembered, so only the file has it.
    large = commit_info(table, 3, *(add_file(f"file-{number}") for number in range(100)))
    place.post("/delta/commit", {**proposal(table), "commit_info": large})
    (log / "_staged_commits" / large["file_name"]).unlink()
    assert place.post("/delta/commit", {**proposal(table), "latest_published_version": 2}) == {}
    assert table.published == [0, 1, 2]
    lost = place.admin.post("/delta/commit", json={**proposal(table), "latest_published_version": 3})
    assert code(lost) == (500, "INTERNAL")
    assert large["file_name"] in lost.json()["message"]
    assert commits(place, table) == {"commits": [large], "latest_table_version": 3}


def test_published_versions_are_told(place: Place) -> None:
    table = place.table("t")
    for version in (1, 2):
        place.post("/delta/commit", proposal(table, version))
    notice = {**proposal(table), "latest_published_version": 2}
    assert place.post("/delta/commit", notice) == {}
    assert table.published == [0, 1, 2]
    assert commits(place, table) == {"commits": [], "latest_table_version": 2}
    assert place.post("/delta/preview/commits", {**proposal(table), "latest_backfilled_version": 1}) == {}
    above = {**proposal(table), "latest_published_version": 3}
    assert code(place.admin.post("/delta/commit", json=above)) == (400, "INVALID_PARAMETER_VALUE")
    both = proposal(table, 3, latest_published_version=2)
    assert place.post("/delta/commit", both) == {}


def metadata_commit(table: DeltaTable, version: int, **changed: Any) -> dict[str, Any]:
    """A commit whose file changes the metadata too."""
    action = first_actions(table, **changed)[1]
    return {**proposal(table), "commit_info": commit_info(table, version, action)}


def test_metadata_changes_with_a_commit_in_every_form(place: Place) -> None:
    table = place.table("t")
    name = f"{place.schema}.t"
    kept = properties(table)
    flat: dict[str, Any] = {
        "id": NOBODY,
        "name": "t",
        "description": "flat",
        "format": {"provider": "parquet", "options": {}},
        "schema": [
            {"name": "id", "type": "long", "nullable": False},
            {"name": "at", "type": "timestamp", "nullable": True},
        ],
        "partition_columns": [],
        "properties": {**kept, "mine": "1"},
        "created_time": 1804067300000,
    }
    fields = [{"type_json": json.dumps({**field, "metadata": {}})} for field in flat["schema"]]
    place.post("/delta/commit", {**metadata_commit(table, 1, fields=fields), "metadata": flat})
    shown = place.get(f"/tables/{name}")
    assert shown["comment"] == "flat"
    assert [column["type_text"] for column in shown["columns"]] == ["bigint", "timestamp"]
    assert [column["nullable"] for column in shown["columns"]] == [False, True]
    assert shown["properties"]["mine"] == "1"
    assert shown["properties"]["delta.lastUpdateVersion"] == "1"

    nested = {
        "description": "nested",
        "schema": {"columns": [ID]},
        "properties": {"properties": {**kept, "mine": "2"}},
        "created_time": "1804067300000",
        "delta_table_id": NOBODY,
    }
    body = {**metadata_commit(table, 2), "metadata": nested, "protocol": {"whatever": 1}}
    place.post("/delta/preview/commits", body)
    shown = place.get(f"/tables/{name}")
    assert (shown["comment"], shown["properties"]["mine"]) == ("nested", "2")
    assert [column["name"] for column in shown["columns"]] == ["id"]

    place.post("/delta/preview/commits", {**metadata_commit(table, 3), "metadata": {"description": ""}})
    shown = place.get(f"/tables/{name}")
    assert "comment" not in shown
    assert shown["properties"]["mine"] == "2"


@pytest.mark.parametrize("timestamp", ["2026-02-09T17:00:00.000000Z", 1770656400000])
def test_uniform_metadata_is_kept_with_a_commit(place: Place, timestamp: str | int) -> None:
    table = place.table("t")
    iceberg = {
        "metadata_location": f"{table.location}/metadata/00001.metadata.json",
        "converted_delta_version": 1,
        "converted_delta_timestamp": timestamp,
    }
    uniform = {"uniform": {"iceberg": iceberg}}
    assert code(place.admin.post("/delta/commit", json={**proposal(table, 1), **uniform}))[0] == 400
    switch = {"delta.universalFormat.enabledFormats": "iceberg"}
    metadata = {"id": NOBODY, "properties": {**properties(table), **switch}}
    body = {**metadata_commit(table, 1, configuration=switch), "metadata": metadata, **uniform}
    place.post("/delta/commit", body)
    assert table.load()["uniform"]["iceberg"]["converted-delta-timestamp"] == 1770656400000


# --- metrics ---


def test_metrics_are_taken(place: Place) -> None:
    table = place.table("t")
    place.post("/delta/commit", proposal(table, 1))
    report = {
        "num_files_added": 10,
        "num_bytes_added": 104857600,
        "num_clustered_bytes_added": 52428800,
        "num_files_removed": 0,
        "file_size_histogram": {
            "sorted_bin_boundaries": [0, 1024, 2048],
            "file_counts": [100, 40, 5],
            "total_bytes": [104857600, 167772160, 83886080],
        },
        "num_rows_inserted": 1000000,
        "commit_version": 1,
    }
    body = {"table_id": table.id, "table_uri": table.location, "report": {"commit_report": report}}

    def refused(client: httpx.Client = place.admin, **fields: Any) -> tuple[int, str]:
        return code(client.post("/delta/metrics", json={**body, **fields}))

    assert place.post("/delta/metrics", body) == {}
    assert place.post("/delta/metrics", body, by=place.visitor("SELECT")) == {}
    assert place.post("/delta/metrics", {**body, "report": None}) == {}
    assert refused(table_id=NOBODY) == (404, "TABLE_DOES_NOT_EXIST")
    assert refused(table_id=NOBODY, report=None) == (404, "TABLE_DOES_NOT_EXIST")
    assert refused(place.visitor("BROWSE")) == (403, "PERMISSION_DENIED")
    invalid = (400, "INVALID_PARAMETER_VALUE")
    assert refused(table_uri="file:///elsewhere") == invalid
    assert refused(table_uri=None) == invalid
    for wrong in (
        {"num_files_added": -1},
        {"commit_version": None},
        {"commit_version": -1},
        {"commit_version": 2},
        {"file_size_histogram": {"sorted_bin_boundaries": [1], "file_counts": [1], "total_bytes": [1]}},
        {"file_size_histogram": {"sorted_bin_boundaries": [0, 5], "file_counts": [1], "total_bytes": [1]}},
    ):
        assert refused(report={"commit_report": {**report, **wrong}}) == invalid, wrong


# --- credentials ---


def test_credentials_of_local_tables_are_just_their_place(place: Place) -> None:
    table = place.table("t")

    def ask(client: httpx.Client, operation: str, table_id: str = table.id) -> httpx.Response:
        body = {"table_id": table_id, "operation": operation}
        return client.post("/temporary-table-credentials", json=body)

    assert ask(place.admin, "READ_WRITE").json() == {"url": table.location}
    assert ask(place.visitor("SELECT"), "READ").json() == {"url": table.location}
    assert code(ask(place.visitor("SELECT"), "READ_WRITE")) == (403, "PERMISSION_DENIED")
    assert code(ask(place.visitor("MODIFY"), "READ_WRITE")) == (403, "PERMISSION_DENIED")
    assert ask(place.visitor("SELECT", "MODIFY"), "READ_WRITE").status_code == 200
    assert code(ask(place.person(), "READ")) == (404, "TABLE_NOT_FOUND")
    assert code(ask(place.admin, "READ", NOBODY)) == (404, "TABLE_NOT_FOUND")
    assert code(ask(place.admin, "UNKNOWN_TABLE_OPERATION")) == (400, "INVALID_ARGUMENT")
    assert code(ask(place.admin, "READ", "no-id")) == (400, "INVALID_ARGUMENT")

    staged = place.staged("later")
    assert ask(place.admin, "READ_WRITE", staged.id).json() == {"url": staged.location}
    assert code(ask(place.visitor("CREATE TABLE"), "READ_WRITE", staged.id)) == (403, "PERMISSION_DENIED")


def test_credentials_of_paths_never_reach_over_tables(place: Place) -> None:
    root = place.server.home.with_name("external") / place.catalog
    place.post(
        "/tables",
        place.named(
            "ext",
            table_type="EXTERNAL",
            data_source_format="DELTA",
            columns=[],
            storage_location=f"{root}/in/ext",
        ),
    )

    def ask(path: str, operation: str = "PATH_READ", client: httpx.Client = place.admin) -> httpx.Response:
        return client.post("/temporary-path-credentials", json={"url": path, "operation": operation})

    assert ask(f"file://{root}/new", "PATH_CREATE_TABLE").json() == {"url": f"file://{root}/new"}
    assert ask(f"{root}/in/ext/part", "PATH_READ").status_code == 200
    denied = (403, "PERMISSION_DENIED")
    assert code(ask(f"{root}/in")) == denied
    assert code(ask(f"{root}")) == denied
    assert code(ask("/")) == denied
    assert code(ask("s3://bucket")) == denied
    assert code(ask(f"{root}/in/ext", "PATH_CREATE_TABLE"))[0] == 400
    assert code(ask("/etc")) == (400, "INVALID_ARGUMENT")
    assert code(ask(f"{root}/new", "PATH_FROB")) == (400, "INVALID_ARGUMENT")
    assert code(ask(f"{root}/new", client=place.visitor("CREATE TABLE"))) == denied
    # Each use of a path that is no table's has a privilege of its own.
    uses = {
        "PATH_READ": {"READ FILES"},
        "PATH_READ_WRITE": {"READ FILES", "WRITE FILES"},
        "PATH_CREATE_TABLE": {"CREATE EXTERNAL TABLE"},
    }
    metastore = place.get("/metastore_summary")["metastore_id"]
    for held in ({"READ FILES"}, {"WRITE FILES"}, {"READ FILES", "WRITE FILES"}, {"CREATE EXTERNAL TABLE"}):
        somebody = place.person(*((privilege, "metastore", metastore) for privilege in held))
        for operation, needed in uses.items():
            answer = ask(f"{root}/new", operation, somebody)
            assert answer.status_code == (200 if needed <= held else 403), (held, operation, answer.text)
            # What belongs to a table is had by rights to the table only.
            assert code(ask(f"{root}/in/ext", operation, somebody)) == denied
    assert code(ask(f"{root}/in/ext", client=place.visitor("BROWSE"))) == denied
    assert code(ask(f"{root}/in/ext", client=place.person())) == denied
    staged = place.staged("mine")
    assert ask(f"{staged.location}/_delta_log", "PATH_READ_WRITE").status_code == 200
    assert code(ask(staged.location, client=place.visitor("CREATE TABLE"))) == denied


def test_volumes_and_models_are_not_offered(place: Place) -> None:
    for what in ("volume", "model-version"):
        answer = place.admin.post(f"/temporary-{what}-credentials", json={})
        assert code(answer) == (501, "UNIMPLEMENTED")


# --- catalogs and schemas ---


def test_catalogs_and_schemas(place: Place) -> None:
    root = f"file://{place.server.home.with_name('external')}/{place.catalog}-root"
    name = place.catalog + "x"
    body = {"name": name, "comment": "ours", "properties": {"a": "b"}, "storage_root": root}
    made = place.post("/catalogs", body)
    assert {key: made[key] for key in body} == body
    for key in ("owner", "created_by", "updated_by"):
        assert made[key] == "admin"
    assert made["created_at"] == made["updated_at"] > 0
    uuid.UUID(made["id"])
    assert place.get(f"/catalogs/{name}") == made
    assert made in place.get("/catalogs")["catalogs"]
    changed = place.send("PATCH", f"/catalogs/{name}", {"comment": "yours", "new_name": name})
    assert (changed["comment"], changed["properties"]) == ("yours", {"a": "b"})
    assert code(place.admin.post("/catalogs", json=body)) == (400, "CATALOG_ALREADY_EXISTS")

    schema = place.post("/schemas", {"name": "s", "catalog_name": name, "comment": "one"})
    assert (schema["full_name"], schema["catalog_name"], schema["properties"]) == (f"{name}.s", name, {})
    assert schema["created_at"] > 0
    uuid.UUID(schema["schema_id"])
    assert place.get(f"/schemas/{name}.s") == schema
    assert place.get(f"/schemas?catalog_name={name}&max_results=0&page_token=") == {"schemas": [schema]}
    # However they are spelled in a request, they are shown by their own names.
    assert place.get(f"/schemas/{name.upper()}.S") == schema
    assert place.get(f"/schemas?catalog_name={name.upper()}") == {"schemas": [schema]}
    place.send("PATCH", f"/schemas/{name}.s", {"properties": {"k": "v"}})
    assert place.get(f"/schemas/{name}.s")["properties"] == {"k": "v"}
    other = place.post("/schemas", {"name": "other", "catalog_name": name.upper()})
    assert (other["catalog_name"], other["full_name"]) == (name, f"{name}.other")
    changed = place.send("PATCH", f"/schemas/{name.upper()}.OTHER", {"comment": "two"})
    assert (changed["catalog_name"], changed["full_name"]) == (name, f"{name}.other")
    assert place.send("DELETE", f"/schemas/{name.upper()}.OTHER") == {}
    taken = place.admin.post("/schemas", json={"name": "S", "catalog_name": name})
    assert code(taken) == (400, "SCHEMA_ALREADY_EXISTS")

    assert code(place.admin.delete(f"/catalogs/{name}")) == (400, "FAILED_PRECONDITION")
    assert place.send("DELETE", f"/schemas/{name}.s") == {}
    assert place.send("DELETE", f"/catalogs/{name}") == {}
    assert code(place.admin.get(f"/catalogs/{name}")) == (404, "CATALOG_NOT_FOUND")
    assert code(place.admin.get(f"/schemas/{name}.s")) == (404, "CATALOG_NOT_FOUND")
    assert code(place.admin.get(f"/schemas/{place.catalog}.none")) == (404, "SCHEMA_NOT_FOUND")
    assert code(place.admin.get(f"/schemas/{place.catalog}")) == (400, "INVALID_ARGUMENT")


def test_catalogs_and_schemas_are_renamed(place: Place) -> None:
    table = place.table()
    new = place.catalog + "-new"
    before = place.get(f"/catalogs/{place.catalog}")
    reader = place.visitor("SELECT")
    renamed = place.send("PATCH", f"/catalogs/{place.catalog}", {"new_name": new})
    assert (renamed["name"], renamed["id"]) == (new, before["id"])
    assert code(place.admin.get(f"/catalogs/{place.catalog}")) == (404, "CATALOG_NOT_FOUND")
    schema = place.send("PATCH", f"/schemas/{new}.s", {"new_name": "people", "comment": "ours"})
    assert (schema["name"], schema["full_name"], schema["comment"]) == ("people", f"{new}.people", "ours")
    assert code(place.admin.get(f"/schemas/{new}.s")) == (404, "SCHEMA_NOT_FOUND")
    # Ids, locations, grants and commits are what they were.
    found = place.get(f"/tables/{new}.people.t", by=reader)
    assert (found["table_id"], found["storage_location"]) == (table.id, table.location)
    place.post("/delta/commit", proposal(table, 1))
    moved = f"/delta/v1/catalogs/{new}/schemas/people/tables/t"
    assert place.get(moved, by=reader)["latest-table-version"] == 1
    assert kind(place.admin.get(table.url)) == (404, "NoSuchCatalogException")
    update = {
        "requirements": [{"type": "assert-table-uuid", "uuid": table.id}],
        "updates": [{"action": "add-commit", "commit": table.stage(2, [])}],
    }
    assert kind(place.admin.post(table.url, json=update)) == (404, "NoSuchCatalogException")
    assert place.post(moved, update)["latest-table-version"] == 2

    place.post("/schemas", {"name": "s", "catalog_name": new})
    taken = place.admin.patch(f"/schemas/{new}.s", json={"new_name": "People"})
    assert code(taken) == (400, "SCHEMA_ALREADY_EXISTS")
    place.post("/catalogs", {"name": place.catalog})
    taken = place.admin.patch(f"/catalogs/{new}", json={"new_name": place.catalog.upper()})
    assert code(taken) == (400, "CATALOG_ALREADY_EXISTS")
    for bad in ("", "a\tb", "x" * 300):
        answer = place.admin.patch(f"/catalogs/{new}", json={"new_name": bad})
        assert code(answer) == (400, "INVALID_ARGUMENT")
    refused = reader.patch(f"/schemas/{new}.people", json={"new_name": "mine"})
    assert code(refused) == (403, "PERMISSION_DENIED")
    # Who owns a schema needs the right to make one there, too.
    owner = place.person(("USE CATALOG", "catalog", new))
    place.send("PATCH", f"/schemas/{new}.people", {"owner": owner.headers["X-Name"]})
    place.send("PATCH", f"/schemas/{new}.people", {"comment": "mine"}, by=owner)
    refused = owner.patch(f"/schemas/{new}.people", json={"new_name": "mine"})
    assert code(refused) == (403, "PERMISSION_DENIED")


def test_catalogs_and_schemas_are_paged_and_filtered(place: Place) -> None:
    for name in ("a", "b"):
        place.post("/schemas", {"name": name, "catalog_name": place.catalog})
    seen: list[str] = []
    token = ""
    while True:
        params = {"catalog_name": place.catalog, "max_results": "1", "page_token": token}
        page = place.admin.get("/schemas", params=params).json()
        seen += [schema["name"] for schema in page["schemas"]]
        if "next_page_token" not in page:
            break
        token = page["next_page_token"]
    assert seen == ["a", "b", "s"]
    visitor = place.visitor()
    shown = place.get(f"/schemas?catalog_name={place.catalog}", by=visitor)["schemas"]
    assert [schema["name"] for schema in shown] == ["s"]
    assert [each["name"] for each in place.get("/catalogs", by=visitor)["catalogs"]] == [place.catalog]
    assert place.get("/catalogs", by=place.person()) == {"catalogs": []}


def test_force_drops_what_is_inside(place: Place) -> None:
    table = place.table("t")
    place.staged("never finished")
    with place.server.client() as management:
        nested = management.post(f"/catalogs/{place.catalog}/schemas", json={"path": ["s", "deep"]})
        nested.raise_for_status()
    assert code(place.admin.delete(f"/schemas/{place.schema}")) == (400, "FAILED_PRECONDITION")
    for visitor in (place.visitor("SELECT", "MODIFY", "CREATE TABLE"), place.visitor()):
        denied = visitor.delete(f"/schemas/{place.schema}?force=true")
        assert code(denied) == (403, "PERMISSION_DENIED")
    assert place.send("DELETE", f"/schemas/{place.schema}?force=true") == {}
    assert code(place.admin.get(f"/schemas/{place.schema}")) == (404, "SCHEMA_NOT_FOUND")
    body = {"table_id": table.id, "table_uri": table.location}
    assert place.admin.request("GET", "/delta/commits", json=body).status_code == 404
    place.post("/schemas", {"name": "s", "catalog_name": place.catalog})
    place.table("t")
    assert place.send("DELETE", f"/catalogs/{place.catalog}?force=true") == {}
    assert code(place.admin.get(f"/catalogs/{place.catalog}")) == (404, "CATALOG_NOT_FOUND")


# --- permissions ---


def test_permissions_are_read_and_changed_as_one(place: Place) -> None:
    one, two = place.person(), place.person()
    names = [one.headers["X-Name"], two.headers["X-Name"]]
    path = f"/permissions/schema/{place.schema}"
    changes = [
        {"principal": names[0], "add": ["SELECT", "USE SCHEMA"], "remove": []},
        {"principal": names[1], "add": ["MODIFY"], "remove": ["SELECT"]},
    ]
    expected = {
        "privilege_assignments": [
            {"principal": names[0], "privileges": ["SELECT", "USE SCHEMA"]},
            {"principal": names[1], "privileges": ["MODIFY"]},
        ]
    }
    assert place.send("PATCH", path, {"changes": changes}) == expected
    assert place.get(path) == expected
    only = place.admin.get(path, params={"principal": names[1]}).json()
    assert only["privilege_assignments"] == expected["privilege_assignments"][1:]
    wrong = [{"principal": names[0], "remove": ["SELECT"]}, {"principal": names[1], "add": ["USE CATALOG"]}]
    assert code(place.admin.patch(path, json={"changes": wrong})) == (400, "INVALID_ARGUMENT")
    assert place.get(path) == expected
    nobody = [{"principal": "nobody@example.com", "add": ["SELECT"]}]
    assert code(place.admin.patch(path, json={"changes": nobody})) == (404, "NOT_FOUND")
    gone = [{"principal": name, "remove": ["SELECT", "USE SCHEMA", "MODIFY"]} for name in names]
    assert place.send("PATCH", path, {"changes": gone}) == {"privilege_assignments": []}


def test_everybody_sees_what_they_hold_themselves(place: Place) -> None:
    visitor = place.visitor("SELECT")
    path = f"/permissions/schema/{place.schema}"
    shown = place.get(path, by=visitor)["privilege_assignments"]
    assert shown == [{"principal": visitor.headers["X-Name"], "privileges": ["SELECT", "USE SCHEMA"]}]
    assert code(visitor.get(path, params={"principal": "admin"})) == (403, "PERMISSION_DENIED")
    change = {"changes": [{"principal": visitor.headers["X-Name"], "add": ["MODIFY"]}]}
    assert code(visitor.patch(path, json=change)) == (403, "PERMISSION_DENIED")
    assert code(place.person().get(path)) == (404, "SCHEMA_NOT_FOUND")


def test_permissions_of_the_metastore(place: Place) -> None:
    metastore = place.get("/metastore_summary")["metastore_id"]
    person = place.person(("CREATE CATALOG", "metastore", metastore))
    name = place.catalog + "mine"
    assert place.post("/catalogs", {"name": name}, by=person)["owner"] == person.headers["X-Name"]
    assert code(place.admin.get(f"/permissions/metastore/{NOBODY}")) == (404, "NOT_FOUND")
    assert code(place.admin.get(f"/permissions/planet/{NOBODY}")) == (400, "INVALID_ARGUMENT")
    assert code(place.person().post("/catalogs", json={"name": "no"})) == (403, "PERMISSION_DENIED")


# --- the envelope around everything ---


def test_errors_of_the_server_itself_have_the_envelope_too(place: Place) -> None:
    with unity(place.server) as stranger:
        stranger.headers["Authorization"] = "Bearer nonsense"
        answer = stranger.get("/catalogs")
        assert code(answer) == (401, "UNAUTHENTICATED")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert code(place.admin.get("/nothing/here")) == (404, "NOT_FOUND")
    answer = place.admin.put("/tables")
    assert code(answer) == (405, "UNIMPLEMENTED")
    assert answer.headers["allow"]
    too_long = place.admin.post("/catalogs", content=b'{"name":"' + b"x" * (33 * 2**20) + b'"}')
    assert code(too_long) == (413, "INVALID_ARGUMENT")
    deep = place.admin.post("/delta/commit", content=b'{"a":' * 100 + b"1" + b"}" * 100)
    assert code(deep) == (400, "INVALID_PARAMETER_VALUE")
    for body in (b"", b"{", b"[]", b'{"name":"a\\u0000b"}', b"\xff", b'{"name":"\\ud800"}'):
        assert code(place.admin.post("/catalogs", content=body)) == (400, "INVALID_ARGUMENT"), body


# --- the control API ---


def control(place: Place, method: str, path: str, **options: Any) -> httpx.Response:
    return httpx.request(method, place.server.url + CONTROL + path, **options)


def test_tokens_by_client_credentials_and_by_exchange(place: Place) -> None:
    name = f"service-{place.catalog}"
    with place.server.client() as management:
        management.post("/principals", json={"name": name, "kind": "service"}).raise_for_status()
        secret = management.post(f"/principals/{name}/secrets", json={}).raise_for_status().json()
    form = {"grant_type": "client_credentials", "scope": "all-apis"}
    answer = control(place, "POST", "/auth/tokens", data=form, auth=(name, secret["client_secret"]))
    assert answer.status_code == 200, answer.text
    token = answer.json()["access_token"]
    assert answer.json()["expires_in"] > 0

    exchange = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "subject_token": token,
    }
    fresh = control(place, "POST", "/auth/tokens", data=exchange)
    assert fresh.status_code == 200, fresh.text
    assert fresh.json()["token_type"] == "Bearer"
    assert fresh.json()["issued_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
    assert fresh.headers["cache-control"] == "no-store"
    assert fresh.json()["access_token"] != token
    headers = {"Authorization": f"Bearer {fresh.json()['access_token']}"}
    me = control(place, "GET", "/scim2/Me", headers=headers)
    assert me.headers["content-type"] == "application/scim+json"
    assert (me.json()["displayName"], me.json()["active"]) == (name, True)
    assert me.json()["emails"] == [{"value": name, "primary": True}]

    foreign = control(place, "POST", "/auth/tokens", data={**exchange, "subject_token": "eyJhbGciOi.x.y"})
    assert code(foreign) == (401, "UNAUTHENTICATED")
    missing = {key: value for key, value in exchange.items() if key != "subject_token"}
    assert code(control(place, "POST", "/auth/tokens", data=missing)) == (400, "INVALID_ARGUMENT")
    by_id = {**exchange, "subject_token_type": "urn:ietf:params:oauth:token-type:id_token"}
    assert control(place, "POST", "/auth/tokens", data=by_id).status_code == 200
    for name in ("requested_token_type", "subject_token_type"):
        for wrong in ("urn:ietf:params:oauth:token-type:saml2", "", "token"):
            refused = control(place, "POST", "/auth/tokens", data={**exchange, name: wrong})
            assert code(refused) == (400, "INVALID_ARGUMENT")
            assert name in refused.json()["message"]
    other = control(place, "POST", "/auth/tokens", data={"grant_type": "password"})
    assert (other.status_code, other.json()["error"]) == (400, "unsupported_grant_type")


def test_who_one_is_and_leaving(place: Place) -> None:
    answer = control(place, "GET", "/scim2/Me")
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/scim+json"
    assert answer.json()["schemas"] == ["urn:ietf:params:scim:api:messages:2.0:Error"]
    assert answer.json()["status"] == "401"
    assert control(place, "GET", "/scim2/Nothing").json()["status"] == "404"
    assert control(place, "GET", "/scim2/Me", headers=place.server.headers).json()["userName"] == "admin"
    left = control(place, "POST", "/auth/logout", json={})
    assert (left.status_code, left.json()) == (200, {})
    assert "UC_TOKEN=;" in left.headers["set-cookie"]
    assert code(control(place, "GET", "/nowhere")) == (404, "NOT_FOUND")
