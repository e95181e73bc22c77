"""Attacks on the Iceberg face: places, files and keys that are not the caller's."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.iceberg import SCHEMA, VIEW_VERSION, Lake, Table, append, first_commit, kind

FORBIDDEN = (403, "ForbiddenException")
BAD = (400, "BadRequestException")


@pytest.fixture
def victim(lake: Lake) -> Table:
    """A table of which others know everything but hold nothing."""
    table = lake.table("victim")
    table.commit(table.append())
    return table


def create(by: httpx.Client, name: str = "mine", **fields: Any) -> httpx.Response:
    return by.post("/namespaces/ns/tables", json={"name": name, "schema": SCHEMA, **fields})


def outside(lake: Lake) -> list[str]:
    home = lake.server.home
    return [
        "/etc/passwd",
        "file:///etc",
        f"file://{home}",
        f"file://{home}/warehouse",
        f"file://{home.with_name('external')}-2/t",
        f"file://{home.with_name('external')}/../t",
        f"file://{home.with_name('external')}/%2e%2e/t",
        "http://169.254.169.254/latest/meta-data",
        "s3://somebody-elses-bucket/t",
        "file://otherhost/t",
    ]


def test_b1_staging_gives_no_way_into_other_places(lake: Lake, victim: Table) -> None:
    maker = lake.visitor("CREATE TABLE", "CREATE EXTERNAL TABLE")
    asks = {"X-Iceberg-Access-Delegation": "vended-credentials"}
    place = victim.metadata["location"]
    for location in (place, place + "/data", *outside(lake)):
        body = {"name": "x", "schema": SCHEMA, "stage-create": True, "location": location}
        answer = maker.post("/namespaces/ns/tables", json=body, headers=asks)
        assert answer.status_code in (400, 403, 409), (location, answer.text)
        assert create(maker, "x", location=location).status_code in (400, 403, 409), location
    for name in ("write.data.path", "write.metadata.path", "write.object-storage.path"):
        for stage in (True, False):
            answer = create(maker, "x", properties={name: place}, **{"stage-create": stage})
            assert kind(answer) == BAD, name


def test_b1_a_staged_table_cannot_be_finished_elsewhere(lake: Lake, victim: Table) -> None:
    maker = lake.visitor("CREATE TABLE", "CREATE EXTERNAL TABLE")
    staged = create(maker, "x", **{"stage-create": True}).json()["metadata"]
    place = victim.metadata["location"]
    for location in (place, place + "/data", *outside(lake)):
        answer = maker.post("/namespaces/ns/tables/x", json=first_commit({**staged, "location": location}))
        assert answer.status_code in (400, 403, 409), (location, answer.text)
    stolen = {**staged, "location": place, "table-uuid": victim.metadata["table-uuid"]}
    answer = maker.post("/namespaces/ns/tables/x", json=first_commit(stolen))
    assert answer.status_code in (400, 403, 409)
    assert victim.load()


def test_b4_every_property_that_names_a_place_is_checked_on_every_commit(lake: Lake, victim: Table) -> None:
    table = lake.table("mine")
    place = victim.metadata["location"]
    for name in ("write.metadata.path", "write.data.path", "write.folder-storage.path"):
        for location in (place, *outside(lake)):
            assert kind(table.commit(table.set(**{name: location}))) == BAD, (name, location)
    external = f"file://{lake.server.home.with_name('external')}/{uuid.uuid4()}"
    assert table.commit(table.set(**{"write.data.path": external})).status_code == 200
    # The server itself writes metadata, and it writes nowhere but into the table.
    assert kind(table.commit(table.set(**{"write.metadata.path": external}))) == BAD
    view = {
        "name": "v",
        "schema": SCHEMA,
        "view-version": VIEW_VERSION,
        "properties": {"write.metadata.path": place},
    }
    assert kind(lake.admin.post("/namespaces/ns/views", json=view)) == BAD
    assert not any(Path(f"{place.removeprefix('file://')}").rglob("*mine*"))


def test_b5_a_place_with_the_same_beginning_is_another_place(lake: Lake) -> None:
    place = f"file://{lake.server.home.with_name('external')}/{uuid.uuid4()}"
    assert create(lake.admin, "one", location=place).status_code == 200
    assert create(lake.admin, "two", location=place + "2").status_code == 200
    assert create(lake.admin, "three", location=place + "/2").status_code == 409


def test_b14_registering_takes_the_right_to_the_files(lake: Lake, victim: Table) -> None:
    """Nobody reads a table by registering its metadata under a name of their own."""
    place = victim.load()["metadata-location"]
    body = {"name": "mine", "metadata-location": place}
    for thief in (
        lake.visitor("CREATE TABLE"),
        lake.visitor("CREATE TABLE", "CREATE EXTERNAL TABLE"),
    ):
        assert thief.post("/namespaces/ns/register", json=body).status_code in (400, 403)
        assert thief.post("/namespaces/ns/register-view", json=body).status_code in (400, 403)
        lake.admin.delete(victim.url)
        assert thief.post("/namespaces/ns/register", json=body).status_code in (400, 403)
        assert lake.post("/namespaces/ns/register", {**body, "name": "victim"})["metadata"]


def test_b14_metadata_may_not_claim_the_folder_of_another(lake: Lake, victim: Table) -> None:
    external = lake.server.home.with_name("external") / str(uuid.uuid4())
    (external / "metadata").mkdir(parents=True)
    forged = external / "metadata" / "v1.metadata.json"
    forged.write_text(json.dumps(victim.metadata))
    thief = lake.visitor("CREATE TABLE", "CREATE EXTERNAL TABLE")
    body = {"name": "mine", "metadata-location": f"file://{forged}"}
    assert thief.post("/namespaces/ns/register", json=body).status_code in (400, 403, 409)
    assert lake.admin.post("/namespaces/ns/register", json=body).status_code in (400, 409)


def test_f4_the_server_opens_no_file_outside_its_roots(lake: Lake, tmp_path: Path) -> None:
    secret = tmp_path / "v1.metadata.json"
    secret.write_text('{"password": "hunter2"}')
    for location in (f"file://{secret}", *outside(lake)):
        body = {"name": "x", "metadata-location": location}
        for route in ("register", "register-view"):
            answer = lake.admin.post(f"/namespaces/ns/{route}", json=body)
            assert answer.status_code in (400, 403), (location, answer.text)
            assert "hunter2" not in answer.text


def test_b11_a_link_leads_nowhere(lake: Lake, tmp_path: Path) -> None:
    table = lake.table("plain")
    outer = tmp_path / "outer"
    (outer / "metadata").mkdir(parents=True)
    (outer / "metadata" / "v1.metadata.json").write_text(json.dumps(table.metadata))
    link = lake.server.home.with_name("external") / f"link{uuid.uuid4()}"
    link.symlink_to(outer)
    body = {"name": "x", "metadata-location": f"file://{link}/metadata/v1.metadata.json"}
    assert lake.admin.post("/namespaces/ns/register", json=body).status_code in (400, 403, 404)
    made = create(lake.admin, "y", location=f"file://{link}/t")
    assert made.status_code in (400, 403, 404)
    assert not (outer / "t").exists()


def test_c9_metadata_takes_the_right_to_the_table(lake: Lake, victim: Table) -> None:
    sees = lake.visitor("BROWSE")
    for path in ("", "/credentials"):
        assert kind(sees.get(victim.url + path)) == FORBIDDEN
    assert kind(sees.post(victim.url + "/unregister")) == FORBIDDEN
    # A tag from somebody else opens nothing.
    tag = lake.admin.get(victim.url).headers["ETag"]
    assert kind(sees.get(victim.url, headers={"If-None-Match": tag})) == FORBIDDEN
    assert kind(lake.person().get(victim.url, headers={"If-None-Match": tag}))[0] == 404


def test_c10_what_one_face_forbids_no_other_allows(lake: Lake, victim: Table) -> None:
    reader = lake.visitor("SELECT")
    body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    change = {"identifier": victim.identifier, **body}
    assert kind(reader.post(victim.url, json=body)) == FORBIDDEN
    assert kind(reader.post("/transactions/commit", json={"table-changes": [change]})) == FORBIDDEN
    mine = lake.visitor("SELECT", "MODIFY", "CREATE TABLE")
    assert create(mine, "own").status_code == 200
    mixed = [{"identifier": {"namespace": ["ns"], "name": "own"}, **body}, change]
    only = lake.person(
        ("USE CATALOG", "catalog", []), ("USE SCHEMA", "schema", ["ns"]), ("MODIFY", "table", ["ns", "own"])
    )
    answer = only.post("/transactions/commit", json={"table-changes": mixed})
    assert kind(answer) == (404, "NoSuchTableException")
    assert "a" not in Table(lake, ("ns",), "own").metadata["properties"], "all or none"


def test_c13_a_rename_takes_rights_on_both_sides(lake: Lake, victim: Table) -> None:
    lake.post("/namespaces", {"namespace": ["own"]})
    body = {"source": victim.identifier, "destination": {"namespace": ["own"], "name": "mine"}}
    thief = lake.person(
        ("USE CATALOG", "catalog", []),
        ("USE SCHEMA", "schema", ["ns"]),
        ("SELECT", "schema", ["ns"]),
        ("USE SCHEMA", "schema", ["own"]),
        ("CREATE TABLE", "schema", ["own"]),
        ("MANAGE", "schema", ["own"]),
    )
    assert kind(thief.post("/tables/rename", json=body)) == FORBIDDEN
    pusher = lake.person(
        ("USE CATALOG", "catalog", []), ("USE SCHEMA", "schema", ["ns"]), ("MANAGE", "schema", ["ns"])
    )
    assert kind(pusher.post("/tables/rename", json=body)) == (404, "NoSuchNamespaceException")
    assert victim.load()


def test_a_key_belongs_to_who_used_it(lake: Lake, victim: Table) -> None:
    key = {"Idempotency-Key": str(uuid.uuid4())}
    body = append(victim.metadata)
    assert victim.commit(body, headers=key).status_code == 200
    writer = lake.visitor("SELECT", "MODIFY")
    assert kind(writer.post(victim.url, json=body, headers=key)) == (422, "UnprocessableEntityException")


def test_f1_requests_that_are_too_much(lake: Lake, victim: Table) -> None:
    deep = b'{"updates":[' + b"[" * 5_000 + b"]" * 5_000 + b"]}"
    assert lake.admin.post(victim.url, content=deep).status_code == 400
    digits = b'{"updates":[{"action":"set-default-spec","spec-id":' + b"9" * 200_000 + b"}]}"
    assert lake.admin.post(victim.url, content=digits).status_code == 400
    many = {"requirements": [], "updates": [{"action": "remove-snapshot-ref", "ref-name": "x"}] * 20_000}
    assert lake.admin.post(victim.url, json=many).status_code in (200, 400, 413)
    change = {"identifier": victim.identifier, "requirements": [], "updates": []}
    crowd = {"table-changes": [change] * 5_000}
    assert lake.admin.post("/transactions/commit", json=crowd).status_code in (204, 400)
    assert victim.load()
