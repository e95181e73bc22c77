"""Iceberg REST through real HTTP: tables from their creation to their end."""

from __future__ import annotations

import gzip
import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.delta import new_table, unity
from tests.fixtures.iceberg import SCHEMA, Lake, Table, append, error, first_commit, kind, segment
from tests.fixtures.unity import first_actions
from tests.fixtures.waiting import eventually

NOT_THERE = (404, "NoSuchTableException")


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.table("t")


def create(
    lake: Lake, name: str = "t", namespace: str = "ns", stage: bool = False, **fields: Any
) -> httpx.Response:
    body = {"name": name, "schema": SCHEMA, "stage-create": stage}
    body |= {field.replace("_", "-"): value for field, value in fields.items()}
    return lake.admin.post(f"/namespaces/{namespace}/tables", json=body)


def external(lake: Lake, name: str | None = None) -> str:
    """A folder that clients may choose."""
    return f"file://{lake.server.home.with_name('external')}/{name or uuid.uuid4()}"


def read(location: str) -> Any:
    data = Path(location.removeprefix("file://")).read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def rename(lake: Lake, source: list[str], target: list[str], kind_: str = "tables") -> httpx.Response:
    def identifier(path: list[str]) -> dict[str, Any]:
        return {"namespace": path[:-1], "name": path[-1]}

    body = {"source": identifier(source), "destination": identifier(target)}
    return lake.admin.post(f"/{kind_}/rename", json=body)


# --- listing ---


def test_names_are_listed_as_they_are(lake: Lake) -> None:
    names = ["plain"]
    lake.table("plain")
    assert lake.get("/namespaces/ns/tables")["identifiers"] == [{"namespace": ["ns"], "name": "plain"}]
    for name in (",", 'a",', '","', "},{", "\\", "\u00fc", "with space"):
        assert create(lake, name).status_code == 200
        names.append(name)
    listed = lake.get("/namespaces/ns/tables")
    assert sorted(each["name"] for each in listed["identifiers"]) == sorted(names)
    assert all(each["namespace"] == ["ns"] for each in listed["identifiers"])
    assert listed["next-page-token"] is None


# --- creating ---


def test_create(lake: Lake) -> None:
    spec = {"fields": [{"source-id": 1, "transform": "bucket[4]", "name": "b"}]}
    order = {
        "order-id": 1,
        "fields": [
            {"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
        ],
    }
    answer = create(lake, properties={"owner": "ann"}, partition_spec=spec, write_order=order)
    told = answer.json()
    metadata = told["metadata"]
    assert metadata["format-version"] == 2
    assert metadata["properties"]["owner"] == "ann"
    assert metadata["partition-specs"][0]["fields"][0]["name"] == "b"
    assert metadata["default-sort-order-id"] == 1
    assert metadata["location"].endswith(metadata["table-uuid"])
    place = told["metadata-location"]
    assert place.startswith(metadata["location"] + "/metadata/00000-")
    assert place.endswith(".metadata.json")
    assert read(place) == metadata
    loaded = lake.admin.get("/namespaces/ns/tables/t")
    assert (loaded.json(), loaded.headers["ETag"]) == (told, answer.headers["ETag"])
    assert error(create(lake)) == (409, "AlreadyExistsException", "Table already exists: ns.t")
    nowhere = create(lake, namespace="nowhere")
    assert error(nowhere) == (404, "NoSuchNamespaceException", "Namespace does not exist: nowhere")


def test_what_others_see_of_it(lake: Lake, table: Table) -> None:
    """Columns, properties and history are the catalog's, whatever the format."""
    table.commit(table.set(comment="said", a="1"))
    table.commit(table.append())
    full = f"/catalogs/{lake.catalog}/schemas/ns/tables/t"
    shown = lake.management("GET", full)
    assert (shown["format"], shown["version"], shown["comment"]) == ("ICEBERG", 2, "said")
    assert shown["properties"]["a"] == "1"
    assert [(column["name"], column["type_text"]) for column in shown["columns"]] == [
        ("id", "bigint"),
        ("name", "string"),
    ]
    newest = lake.management("GET", full + "/commits")["commits"][0]
    assert newest["operation"] == "append"
    assert newest["counts"].pop("whole") == [None, None, None, None, None, 1, None], "snapshots"
    assert newest["counts"] == {"rows_added": 3, "files_added": 1}
    assert lake.management("GET", "/search?q=who")["results"] == []
    unity = httpx.get(
        f"{lake.server.url}/api/2.1/unity-catalog/tables/{lake.catalog}.ns.t", headers=lake.server.headers
    ).json()
    assert (unity["data_source_format"], unity["columns"][0]["type_name"]) == ("ICEBERG", "LONG")


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "a\u0000b"},
        {"name": "a\nb"},
        {"schema": {}},
        {"schema": None},
        {
            "schema": {
                "type": "struct",
                "fields": [{"id": 1, "name": "a", "required": True, "type": "nonsense"}],
            }
        },
        {"partition-spec": {"fields": [{"source-id": 9, "transform": "identity", "name": "x"}]}},
        {"write-order": []},
        {"properties": {"a": 1}},
        {"properties": {"format-version": "9"}},
        {"location": "/somewhere/else"},
        {"location": "s3://bucket"},
        {"location": "gopher://x/y"},
        {"stage-create": "yes"},
    ],
)
def test_bad_creations_leave_nothing(lake: Lake, fields: dict[str, Any]) -> None:
    answer = lake.admin.post(
        "/namespaces/ns/tables", content=json.dumps({"name": "t", "schema": SCHEMA, **fields})
    )
    assert answer.status_code == 400, answer.text
    assert lake.get("/namespaces/ns/tables")["identifiers"] == []


def test_malformed_bodies(lake: Lake, table: Table) -> None:
    for body in (b"", b"{", b"[]", b"null", b'{"name": "\xff"}'):
        for url in ("/namespaces/ns/tables", table.url, "/tables/rename", "/transactions/commit"):
            assert kind(lake.admin.post(url, content=body)) == (400, "BadRequestException"), (url, body)


def test_staged_tables_are_not_there(lake: Lake) -> None:
    answer = create(lake, "staged", stage=True)
    staged = answer.json()
    assert "metadata-location" not in staged
    assert "ETag" not in answer.headers
    assert lake.get("/namespaces/ns/tables")["identifiers"] == []
    url = "/namespaces/ns/tables/staged"
    assert kind(lake.admin.get(url)) == NOT_THERE
    assert not Path(staged["metadata"]["location"].removeprefix("file://")).exists()

    commit = first_commit(staged["metadata"])
    snapshot = append(staged["metadata"])
    commit["updates"] += snapshot["updates"]
    made = lake.admin.post(url, json=commit).json()
    metadata = made["metadata"]
    assert metadata["location"] == staged["metadata"]["location"]
    assert metadata["table-uuid"] == staged["metadata"]["table-uuid"]
    assert len(metadata["snapshots"]) == 1
    assert read(made["metadata-location"]) == metadata
    # The same again did not hear the answer; another one came too late.
    assert lake.admin.post(url, json=commit).json() == made
    late = first_commit(create(lake, "other", stage=True).json()["metadata"])
    told = error(lake.admin.post(url, json=late))
    assert told == (409, "CommitFailedException", "Requirement failed: table already exists")
    # Without a snapshot, its id says that it is the same.
    twice = first_commit(create(lake, "plain", stage=True).json()["metadata"])
    for _ in range(2):
        assert lake.admin.post("/namespaces/ns/tables/plain", json=twice).status_code == 200


def test_a_name_that_is_taken_cannot_be_staged(lake: Lake, table: Table) -> None:
    assert error(create(lake, "t", stage=True))[::2] == (409, "Table already exists: ns.t")
    lake.view("v")
    message = "View with same name already exists: ns.v"
    assert error(create(lake, "v", stage=True))[::2] == (409, message)
    assert error(create(lake, "v"))[::2] == (409, message)
    staged = create(lake, "x", stage=True).json()["metadata"]
    lake.view("x")
    assert error(lake.admin.post("/namespaces/ns/tables/x", json=first_commit(staged)))[0] == 409


def test_a_location_of_the_clients_choice(lake: Lake) -> None:
    place = external(lake)
    for purge in ("false", "true", "false"):
        made = create(lake, location=place + "/").json()
        assert made["metadata"]["location"] == place
        assert made["metadata-location"].startswith(place + "/metadata/00000-")
        inside = create(lake, "inner", location=place + "/inner")
        assert error(inside)[:2] == (409, "AlreadyExistsException")
        staged = create(lake, "inner", location=place, stage=True)
        assert error(staged)[:2] == (409, "AlreadyExistsException")
        # What was dropped holds its place only until somebody uses it.
        gone = lake.admin.delete("/namespaces/ns/tables/t", params={"purgeRequested": purge})
        assert gone.status_code == 204
    assert create(lake, "below", location=place + "/deeper").status_code == 200


def test_the_folders_of_the_server_are_not_for_clients_to_choose(lake: Lake, table: Table) -> None:
    place = table.metadata["location"]
    lake.admin.delete(table.url, params={"purgeRequested": "true"})
    for location in (place, place + "/x", place.rpartition("/")[0], place.rpartition("/")[0] + "/x"):
        assert kind(create(lake, "thief", location=location)) == (400, "BadRequestException"), location


def test_below_the_storage_root_of_the_catalog(lake: Lake) -> None:
    root = external(lake)
    name = f"rooted{uuid.uuid4()}"
    lake.management("POST", "/catalogs", {"name": name, "storage_root": root})
    base = f"{lake.base}/{name}/namespaces"
    assert lake.admin.post(base, json={"namespace": ["ns"]}).status_code == 200
    made = lake.admin.post(base + "/ns/tables", json={"name": "t", "schema": SCHEMA}).json()
    assert made["metadata"]["location"].startswith(root + "/")
    chosen = {"name": "u", "schema": SCHEMA, "location": root + "/mine"}
    assert lake.admin.post(base + "/ns/tables", json=chosen).json()["metadata"]["location"] == root + "/mine"


# --- loading ---


def test_load_with_and_without_history(lake: Lake, table: Table) -> None:
    for _ in range(3):
        assert table.commit(table.append()).status_code == 200
    everything, refs = table.metadata, table.load(snapshots="refs")["metadata"]
    assert len(everything["snapshots"]) == 3
    assert [each["snapshot-id"] for each in refs["snapshots"]] == [everything["current-snapshot-id"]]
    assert refs["snapshot-log"] == everything["snapshot-log"]
    bad = lake.admin.get(table.url, params={"snapshots": "some"})
    assert kind(bad) == (400, "BadRequestException")


def test_what_is_unchanged_is_not_sent_again(lake: Lake, table: Table) -> None:
    def load(tag: str | None = None, headers: dict[str, str] | None = None, **params: str) -> httpx.Response:
        sent = {**(headers or {}), **({} if tag is None else {"If-None-Match": tag})}
        return lake.admin.get(table.url, params=params, headers=sent)

    first = load()
    names = [name for name, _ in first.headers.raw]
    assert b"ETag" in names, "clients look it up by this very spelling"
    tag = first.headers["ETag"]
    again = load(tag)
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
    assert load(f'"x", W/{tag}').status_code == 304
    assert load('"x"').status_code == 200
    # Another representation is another answer.
    refs = load(snapshots="refs")
    assert refs.headers["ETag"] != tag
    assert load(tag, snapshots="refs").status_code == 200
    delegated = load(headers={"X-Iceberg-Access-Delegation": "vended-credentials"})
    assert delegated.headers["ETag"] != tag
    committed = table.commit(table.set(a="1"))
    assert load(tag).status_code == 200
    assert load(committed.headers["ETag"]).status_code == 304
    # What changes nothing makes no version.
    location = {"action": "set-location", "location": table.metadata["location"]}
    for updates in ([], [location]):
        same = table.commit({"requirements": [], "updates": updates})
        assert same.headers["ETag"] == committed.headers["ETag"]


def test_what_is_not_there(lake: Lake) -> None:
    """A missing namespace is a missing table: clients look for `ns.t.files` in this way."""
    for url, name in (
        ("/namespaces/ns/tables/x", "ns.x"),
        (f"/namespaces/{segment('ns', 't')}/tables/files", "ns.t.files"),
    ):
        expected = (404, "NoSuchTableException", f"Table does not exist: {name}")
        assert error(lake.admin.get(url)) == expected
        assert error(lake.admin.delete(url)) == expected
        assert error(lake.admin.post(url, json={"requirements": [], "updates": []})) == expected
        assert error(lake.admin.get(url + "/credentials")) == expected
        assert error(lake.admin.post(url + "/unregister")) == expected
        assert lake.admin.head(url).status_code == 404
    listed = lake.admin.get("/namespaces/nowhere/tables")
    assert error(listed) == (404, "NoSuchNamespaceException", "Namespace does not exist: nowhere")
    assert kind(lake.admin.get("/nonsense")) == (404, "NotFoundException")
    assert kind(lake.admin.put("/namespaces/ns")) == (405, "BadRequestException")


def test_tables_of_other_formats(lake: Lake) -> None:
    for format_ in ("DELTA", "LANCE", "ICEBERG"):
        target = f"/catalogs/{lake.catalog}/schemas/ns/tables"
        lake.management("POST", target, {"name": format_.lower(), "format": format_})
    lake.table("real")
    listed = lake.get("/namespaces/ns/tables")["identifiers"]
    assert [each["name"] for each in listed] == ["real"]
    url = "/namespaces/ns/tables/delta"
    told = error(lake.admin.get(url))
    assert told[:2] == NOT_THERE
    assert "it is a Delta table" in told[2]
    assert lake.admin.head(url).status_code == 404
    assert error(lake.admin.delete(url))[:2] == NOT_THERE
    assert error(create(lake, "lance"))[2] == "Table already exists: ns.lance"
    assert "no metadata" in error(lake.admin.get("/namespaces/ns/tables/iceberg"))[2]


def test_a_delta_table_with_iceberg_metadata_beside_it(lake: Lake) -> None:
    """UniForm: it is listed, read with everything that goes with it, and changed by its own writers alone."""
    metadata = lake.table("twin").metadata
    with unity(lake.server) as http:
        table = new_table(http, f"{lake.catalog}.ns.delta")
        plain = new_table(http, f"{lake.catalog}.ns.plain")
        place = f"{table.location}/metadata/1.metadata.json"
        document = json.dumps({**metadata, "location": table.location, "table-uuid": table.id})
        file = Path(place.removeprefix("file://"))
        file.parent.mkdir()
        file.write_text(document)
        enabled = {"delta.universalFormat.enabledFormats": "iceberg"}
        uniform = {
            "metadata-location": place,
            "converted-delta-version": 1,
            "converted-delta-timestamp": 1_770_656_400_000,
        }
        commit = {
            "action": "add-commit",
            "commit": table.stage(1, first_actions(table, configuration=enabled)[1:]),
            "uniform": {"iceberg": uniform},
        }
        body = {
            "requirements": [{"type": "assert-table-uuid", "uuid": table.id}],
            "updates": [{"action": "set-properties", "updates": enabled}, commit],
        }
        made = http.post(table.url, json=body)
        assert made.status_code == 200, made.text
        assert plain.load()
    listed = lake.get("/namespaces/ns/tables")["identifiers"]
    assert [each["name"] for each in listed] == ["delta", "twin"]
    url = "/namespaces/ns/tables/delta"
    loaded = lake.admin.get(url)
    assert loaded.json()["metadata-location"] == place
    assert loaded.json()["metadata"]["table-uuid"] == table.id
    assert lake.admin.get(url, headers={"If-None-Match": loaded.headers["ETag"]}).status_code == 304
    assert lake.admin.head(url).status_code == 204
    assert lake.admin.get(url + "/credentials").status_code == 200
    scan = {"report-type": "scan-report", "snapshot-id": -1, "metrics": {}}
    assert lake.admin.post(url + "/metrics", json=scan).status_code == 204
    refused = (406, "UnsupportedOperationException")
    change = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    assert kind(lake.admin.post(url, json=change)) == refused
    assert kind(lake.admin.delete(url)) == refused
    assert kind(lake.admin.post(url + "/unregister")) == refused
    assert kind(rename(lake, ["ns", "delta"], ["ns", "x"])) == refused
    assert "Delta" in error(lake.admin.get("/namespaces/ns/tables/plain"))[2]


def test_listing_in_pages(lake: Lake) -> None:
    names = [f"t{number:02d}" for number in range(5)]
    for name in names:
        lake.table(name)
    lake.management(
        "POST", f"/catalogs/{lake.catalog}/schemas/ns/tables", {"name": "t02x", "format": "DELTA"}
    )
    lake.view("t00v")
    found: list[str] = []
    token: str | None = ""
    while token is not None:
        page = lake.get("/namespaces/ns/tables", params={"pageToken": token, "pageSize": "2"})
        found += [each["name"] for each in page["identifiers"]]
        assert len(page["identifiers"]) <= 2
        token = page["next-page-token"]
    assert found == names
    everything = lake.get("/namespaces/ns/tables")
    assert ([each["name"] for each in everything["identifiers"]], everything["next-page-token"]) == (
        names,
        None,
    )


# --- renaming ---


def test_rename(lake: Lake, table: Table) -> None:
    lake.post("/namespaces", {"namespace": ["other"]})
    table.commit(table.append())
    before = table.load()
    assert rename(lake, ["ns", "t"], ["other", "u"]).status_code == 204
    moved = Table(lake, ("other",), "u")
    assert moved.load() == before, "no file, no version, no place changes with a name"
    assert kind(lake.admin.get(table.url)) == NOT_THERE
    assert moved.commit(moved.append()).status_code == 200
    # A table under the old name is another one, and its end is not the end of the first.
    again = lake.table("t")
    assert again.metadata["location"] != before["metadata"]["location"]
    lake.admin.delete(again.url, params={"purgeRequested": "true"})
    assert len(moved.metadata["snapshots"]) == 2


def test_many_who_rename_at_once(lake: Lake) -> None:
    """Each moves what everybody may do, and so makes all others be decided again."""

    def work(number: int) -> set[int]:
        names = [f"t{number}", f"u{number}"]
        return {rename(lake, ["ns", names[n % 2]], ["ns", names[1 - n % 2]]).status_code for n in range(6)}

    for number in range(8):
        lake.table(f"t{number}")
    with ThreadPoolExecutor(8) as pool:
        assert set().union(*pool.map(work, range(8))) == {204}


def test_renames_that_are_refused(lake: Lake, table: Table) -> None:
    def told(source: list[str], target: list[str]) -> tuple[int, str, str]:
        return error(rename(lake, source, target))

    lake.table("taken")
    lake.view("seen")
    assert rename(lake, ["ns", "t"], ["ns", "t"]).status_code == 204
    assert told(["ns", "x"], ["ns", "y"]) == (
        404,
        "NoSuchTableException",
        "Cannot rename ns.x to ns.y. Table does not exist",
    )
    assert told(["ns", "t"], ["nowhere", "t"]) == (
        404,
        "NoSuchNamespaceException",
        "Cannot rename ns.t to nowhere.t. Namespace does not exist: nowhere",
    )
    for name, what in (("taken", "Table"), ("seen", "View")):
        message = f"Cannot rename ns.t to ns.{name}. {what} already exists"
        assert told(["ns", "t"], ["ns", name]) == (409, "AlreadyExistsException", message)
    assert told(["ns", "seen"], ["ns", "z"])[:2] == NOT_THERE
    assert told(["ns", "t"], ["ns", "a\u0007"])[0] == 400
    assert told(["ns", "x"], ["ns", "x"])[:2] == NOT_THERE
    assert table.load()["metadata"]


def test_grants_follow_the_table_and_not_the_name(lake: Lake, table: Table) -> None:
    reader = lake.person(
        ("USE CATALOG", "catalog", []), ("USE SCHEMA", "schema", ["ns"]), ("SELECT", "table", ["ns", "t"])
    )
    assert rename(lake, ["ns", "t"], ["ns", "u"]).status_code == 204
    lake.table("t")
    assert reader.get("/namespaces/ns/tables/u").status_code == 200
    assert kind(reader.get("/namespaces/ns/tables/t")) == NOT_THERE


# --- dropping, registering ---


def wait_until_gone(folder: Path) -> None:
    eventually(lambda: not any(path.is_file() for path in folder.rglob("*")), lambda: list(folder.rglob("*")))


def test_drop_keeps_the_files_and_purge_does_not(lake: Lake, table: Table) -> None:
    folder, files = table.folder, table.files()
    assert lake.admin.delete(table.url).status_code == 204
    assert kind(lake.admin.get(table.url)) == NOT_THERE
    assert kind(lake.admin.delete(table.url)) == NOT_THERE
    assert sorted(path.name for path in (folder / "metadata").iterdir()) == files
    dropped = lake.management("GET", f"/catalogs/{lake.catalog}/schemas/ns/dropped")["tables"]
    lake.management("POST", f"/tables/{dropped[0]['id']}/undrop", {})
    assert table.metadata["table-uuid"] == dropped[0]["id"]

    assert lake.admin.delete(table.url, params={"purgeRequested": "true"}).status_code == 204
    wait_until_gone(folder)
    assert lake.management("GET", f"/catalogs/{lake.catalog}/schemas/ns/dropped")["tables"] == []
    bad = lake.admin.delete(table.url, params={"purgeRequested": "perhaps"})
    assert kind(bad) == (400, "BadRequestException")


def test_a_dropped_table_can_be_registered_again(lake: Lake, table: Table) -> None:
    table.commit(table.append())
    before = table.load()

    def register(name: str, location: str, **more: Any) -> httpx.Response:
        body = {"name": name, "metadata-location": location, **more}
        return lake.admin.post("/namespaces/ns/register", json=body)

    place = before["metadata-location"]
    taken = register("t", place)
    assert error(taken) == (409, "AlreadyExistsException", "Table already exists: ns.t")
    assert register("second", place).status_code == 409, "a place belongs to one table"
    lake.admin.delete(table.url)
    back = register("back", place)
    assert back.json() == before
    again = Table(lake, ("ns",), "back")
    committed = again.commit(again.append()).json()
    assert committed["metadata-location"].rpartition("/")[2].startswith("00002-")
    assert len(committed["metadata"]["metadata-log"]) == 2
    missing = place.replace("metadata/0", "metadata/9")
    assert error(register("x", missing)) == (
        404,
        "NotFoundException",
        f"Failed to open input stream for file: {missing}",
    )


def test_register_over_a_table(lake: Lake, table: Table) -> None:
    first = table.load()
    table.commit(table.append())
    table.commit(table.set(a="1"))
    body = {"name": "t", "metadata-location": first["metadata-location"], "overwrite": True}
    assert lake.post("/namespaces/ns/register", body) == first
    assert table.load() == first
    reloaded = table.metadata
    assert (reloaded["snapshots"], reloaded["properties"]) == ([], first["metadata"]["properties"])
    assert table.commit(table.append()).status_code == 200


def test_register_metadata_from_elsewhere(lake: Lake, table: Table) -> None:
    place = external(lake)
    text = json.dumps(table.metadata).replace(table.metadata["location"], place)
    text = text.replace(table.metadata["table-uuid"], str(uuid.uuid4()))
    folder = Path(place.removeprefix("file://")) / "metadata"
    folder.mkdir(parents=True)
    (folder / "v1.metadata.json").write_text(text)
    (folder / "v2.gz.metadata.json").write_bytes(gzip.compress(text.encode()))
    (folder / "bad.metadata.json").write_text('{"format-version": 2}')
    (folder / "bad.gz.metadata.json").write_bytes(b"\x1f\x8b123")

    def register(name: str, file: str) -> httpx.Response:
        body = {"name": name, "metadata-location": f"{place}/metadata/{file}"}
        return lake.admin.post("/namespaces/ns/register", json=body)

    assert register("one", "v1.metadata.json").json()["metadata"]["location"] == place
    lake.admin.delete("/namespaces/ns/tables/one")
    assert register("two", "v2.gz.metadata.json").status_code == 200
    two = Table(lake, ("ns",), "two")
    told = two.commit(two.set(b="2")).json()
    assert told["metadata-location"].startswith(f"{place}/metadata/")
    for file in ("bad.metadata.json", "bad.gz.metadata.json"):
        assert register("bad", file).status_code == 400


def test_unregister(lake: Lake, table: Table) -> None:
    table.commit(table.append())
    before = table.load()
    late = table.append()
    told = lake.admin.post(table.url + "/unregister").json()
    assert (told["metadata-location"], told["metadata"]) == (before["metadata-location"], before["metadata"])
    assert kind(table.commit(late)) == NOT_THERE
    assert Path(told["metadata-location"].removeprefix("file://")).exists()
    body = {"name": "t", "metadata-location": told["metadata-location"]}
    assert lake.post("/namespaces/ns/register", body)["metadata"] == before["metadata"]


# --- what else there is ---


def test_credentials_where_clients_reach_the_storage_by_themselves(lake: Lake, table: Table) -> None:
    answer = lake.admin.get(table.url + "/credentials")
    assert answer.json() == {"storage-credentials": []}
    assert answer.headers["Cache-Control"] == "no-store"
    asked = lake.admin.get(table.url, headers={"X-Iceberg-Access-Delegation": "vended-credentials"})
    assert (asked.json()["config"], asked.json()["storage-credentials"]) == ({}, [])


def test_reports_are_kept_with_their_version(lake: Lake, table: Table) -> None:
    table.commit(table.append())
    snapshot = table.metadata["current-snapshot-id"]
    table.commit(table.set(a="1"))
    commit = {
        "report-type": "commit-report",
        "table-name": "ns.t",
        "snapshot-id": snapshot,
        "sequence-number": 1,
        "operation": "append",
        "metrics": {"total-duration": {"count": 1, "time-unit": "nanoseconds", "total-duration": 7}},
    }
    scan = {
        "report-type": "scan-report",
        "table-name": "ns.t",
        "snapshot-id": snapshot,
        "filter": True,
        "schema-id": 0,
        "projected-field-ids": [1],
        "projected-field-names": ["id"],
        "metrics": {"something-new": {"unit": "count", "value": 1}},
    }
    for report in (commit, scan):
        assert lake.admin.post(table.url + "/metrics", json=report).status_code == 204
    kept = lake.management("GET", f"/catalogs/{lake.catalog}/schemas/ns/tables/t/metrics")["reports"]
    assert [(each["version"], each["report"]) for each in kept] == [(1, commit), (1, scan)]
    reader = lake.visitor("SELECT")
    assert reader.post(table.url + "/metrics", json=scan).status_code == 204
    for bad in ({**scan, "report-type": "weather"}, {**scan, "snapshot-id": "x"}, {}):
        assert kind(lake.admin.post(table.url + "/metrics", json=bad)) == (400, "BadRequestException")
    huge = {**scan, "projected-field-names": ["x" * 300_000]}
    assert lake.admin.post(table.url + "/metrics", json=huge).status_code == 413
    missing = lake.admin.post("/namespaces/ns/tables/x/metrics", json=scan)
    assert kind(missing) == NOT_THERE


def test_rights(lake: Lake, table: Table) -> None:
    stranger = lake.person()
    sees, reads, writes = lake.visitor("BROWSE"), lake.visitor("SELECT"), lake.visitor("SELECT", "MODIFY")
    makes = lake.visitor("CREATE TABLE")
    commit = table.set(a="1")
    body = {"name": "mine", "schema": SCHEMA}
    forbidden = (403, "ForbiddenException")

    assert kind(stranger.get(table.url)) == NOT_THERE
    assert kind(stranger.post(table.url, json=commit)) == NOT_THERE
    assert kind(stranger.post("/namespaces/ns/tables", json=body)) == (404, "NoSuchNamespaceException")
    assert sees.head(table.url).status_code == 204
    assert kind(sees.get(table.url)) == forbidden
    assert reads.get(table.url).status_code == 200
    assert kind(reads.post(table.url, json=commit)) == forbidden
    assert kind(reads.delete(table.url)) == forbidden
    assert writes.post(table.url, json=commit).status_code == 200
    assert kind(writes.delete(table.url)) == forbidden
    assert kind(writes.post("/namespaces/ns/tables", json=body)) == forbidden
    assert makes.post("/namespaces/ns/tables", json=body).status_code == 200
    assert makes.get("/namespaces/ns/tables").json()["identifiers"] == [{"namespace": ["ns"], "name": "mine"}]
    # A place of one's own choice takes a right of its own.
    chosen = {**body, "name": "chosen", "location": external(lake)}
    assert kind(makes.post("/namespaces/ns/tables", json=chosen)) == forbidden
    moves = {"source": table.identifier, "destination": {"namespace": ["ns"], "name": "u"}}
    assert kind(writes.post("/tables/rename", json=moves)) == forbidden
    register = {"name": "r", "metadata-location": table.load()["metadata-location"]}
    assert makes.post("/namespaces/ns/register", json=register).status_code in (400, 403)
