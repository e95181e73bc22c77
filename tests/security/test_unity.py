"""Attacks on the Unity faces: places, keys and tokens that are not the caller's."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.delta import unity
from tests.fixtures.server import running_inver
from tests.fixtures.unity import ID, Place, code

DENIED = (403, "PERMISSION_DENIED")
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
LISTS = ("columns", "changes")
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"


def metastore(place: Place) -> str:
    return str(place.get("/metastore_summary")["metastore_id"])


# --- B1: places that a client chooses ---


def test_b1_who_makes_a_catalog_or_a_schema_does_not_choose_its_storage(place: Place) -> None:
    roots = (
        "s3://somebody-elses-bucket",
        "abfss://data@acct.dfs.core.windows.net/payroll",
        "file:///",
        f"file://{place.server.home}",
        f"file://{place.server.home.with_name('external')}/{place.catalog}",
    )
    maker = place.person(
        ("CREATE CATALOG", "metastore", metastore(place)),
        ("USE CATALOG", "catalog", place.catalog),
        ("CREATE SCHEMA", "catalog", place.catalog),
        ("MANAGE", "catalog", place.catalog),
    )
    mine = f"{place.catalog}-mine"
    place.post("/catalogs", {"name": mine}, by=maker)
    for root in roots:
        catalog = maker.post("/catalogs", json={"name": f"{mine}2", "storage_root": root})
        assert code(catalog) == DENIED, root
        assert "CREATE MANAGED STORAGE" in catalog.json()["message"]
        for above in (place.catalog, mine):
            body = {"name": "rooted", "catalog_name": above, "storage_root": root}
            assert code(maker.post("/schemas", json=body)) == DENIED, (above, root)
    shown = [each["name"] for each in place.get(f"/schemas?catalog_name={mine}")["schemas"]]
    assert shown == []
    assert code(place.admin.get(f"/catalogs/{mine}2")) == (404, "CATALOG_NOT_FOUND")


def test_b1_the_right_to_choose_storage_is_given_on_the_metastore_alone(place: Place) -> None:
    root = f"file://{place.server.home.with_name('external')}/{place.catalog}"

    def grant(kind: str, name: str, client: httpx.Client) -> httpx.Response:
        change = {"principal": client.headers["X-Name"], "add": ["CREATE MANAGED STORAGE"], "remove": []}
        return place.admin.patch(f"/permissions/{kind}/{name}", json={"changes": [change]})

    maker = place.visitor("CREATE TABLE")
    change = {"principal": maker.headers["X-Name"], "add": ["CREATE SCHEMA"], "remove": []}
    place.send("PATCH", f"/permissions/catalog/{place.catalog}", {"changes": [change]})
    for kind, name in (("catalog", place.catalog), ("schema", place.schema)):
        assert code(grant(kind, name, maker)) == (400, "INVALID_ARGUMENT")
    body = {"name": "rooted", "catalog_name": place.catalog, "storage_root": root}
    assert code(maker.post("/schemas", json=body)) == DENIED
    assert grant("metastore", metastore(place), maker).status_code == 200
    assert place.post("/schemas", body, by=maker)["storage_root"] == root
    staged = {"name": "t", "catalog_name": place.catalog, "schema_name": "rooted"}
    assert place.post("/staging-tables", staged, by=maker)["staging_location"].startswith(root + "/")


def outside(place: Place) -> list[str]:
    home = place.server.home
    return [
        "/etc/passwd",
        "file:///etc",
        f"file://{home}",
        f"file://{home}/warehouse",
        f"file://{home}/warehouse/mine",
        f"file://{home.with_name('external')}-2/t",
        f"file://{home.with_name('external')}/../t",
        f"file://{home.with_name('external')}/%2e%2e/t",
        "http://169.254.169.254/latest/meta-data",
        "s3://somebody-elses-bucket/t",
        "file://otherhost/t",
    ]


def registration(place: Place, location: str) -> dict[str, Any]:
    return place.named(
        "x",
        table_type="EXTERNAL",
        data_source_format="DELTA",
        columns=[],
        storage_location=location,
    )


def test_b1_a_table_lies_where_the_server_says_or_where_it_may(place: Place) -> None:
    victim, staged = place.table("victim"), place.staged("staged")
    maker = place.visitor("CREATE TABLE", "CREATE EXTERNAL TABLE")
    for location in (victim.location, victim.location + "/x", staged.location, *outside(place)):
        answer = maker.post("/tables", json=registration(place, location))
        assert answer.status_code in (400, 403), (location, answer.text)
        finish = {**place.creation(staged), "storage_location": location}
        assert maker.post("/tables", json=finish).status_code in (400, 403, 404), location
        for operation in ("PATH_READ", "PATH_READ_WRITE", "PATH_CREATE_TABLE"):
            asked = {"url": location, "operation": operation}
            answer = maker.post("/temporary-path-credentials", json=asked)
            assert answer.status_code in (400, 403), (location, answer.text)
    shown = place.get(f"/tables?catalog_name={place.catalog}&schema_name=s")["tables"]
    assert [each["name"] for each in shown] == ["victim"]


def test_b1_owning_a_schema_opens_no_folder_of_the_external_roots(place: Place) -> None:
    root = f"file://{place.server.home.with_name('external')}/{place.catalog}"
    owner = place.person(("CREATE CATALOG", "metastore", metastore(place)))
    mine = f"{place.catalog}-mine"
    place.post("/catalogs", {"name": mine}, by=owner)
    place.post("/schemas", {"name": "s", "catalog_name": mine}, by=owner)
    change = {"principal": owner.headers["X-Name"], "add": ["CREATE EXTERNAL TABLE"], "remove": []}
    place.send("PATCH", f"/permissions/schema/{mine}.s", {"changes": [change]}, by=owner)
    place.send("PATCH", f"/permissions/catalog/{mine}", {"changes": [change]}, by=owner)
    body = {**registration(place, f"{root}/payroll"), "catalog_name": mine}
    refused = owner.post("/tables", json=body)
    assert code(refused) == DENIED
    assert "CREATE EXTERNAL TABLE on metastore" in refused.json()["message"]
    # Nor by another way in.
    url, headers = place.server.url, {"Authorization": owner.headers["Authorization"]}
    table = {"name": "x", "schema": {"type": "struct", "fields": []}, "location": f"{root}/payroll"}
    answer = httpx.post(f"{url}/iceberg/v1/{mine}/namespaces/s/tables", json=table, headers=headers)
    assert answer.status_code == 403, answer.text
    for way in ("declare", "register"):
        asked = {"location": f"{root}/payroll"}
        answer = httpx.post(f"{url}/lance/v1/table/{mine}$s$x/{way}", json=asked, headers=headers)
        assert answer.status_code == 403, (way, answer.text)
    table = {"name": "x", "format": "DELTA", "kind": "EXTERNAL", "location": f"{root}/payroll"}
    answer = httpx.post(
        f"{url}/api/management/v1/catalogs/{mine}/schemas/s/tables", json=table, headers=headers
    )
    assert answer.status_code == 403, answer.text
    # Whoever was given the right to those folders needs the schema too.
    place.send("PATCH", f"/permissions/metastore/{metastore(place)}", {"changes": [change]})
    assert place.post("/tables", body, by=owner)["owner"] == owner.headers["X-Name"]
    assert code(owner.post("/tables", json=registration(place, f"{root}/other")))[0] == 404


# --- A1: tokens of others ---


@contextmanager
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def forged(issuer: str, algorithm: str) -> str:
    def part(content: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    claims = {"iss": issuer, "sub": "admin", "email": "admin", "aud": "inver", "exp": 2**40}
    return f"{part({'alg': algorithm, 'typ': 'JWT', 'kid': '1'})}.{part(claims)}.c2lnbmF0dXJl"


@pytest.mark.parametrize("algorithm", ["none", "HS256", "RS512"])
def test_a1_nobody_is_asked_whether_a_token_is_good(place: Place, algorithm: str) -> None:
    with listening() as listener:
        token = forged(f"http://127.0.0.1:{listener.getsockname()[1]}", algorithm)
        for subject_type in (ACCESS_TOKEN, ID_TOKEN):
            form = {"grant_type": EXCHANGE, "subject_token_type": subject_type, "subject_token": token}
            answer = httpx.post(f"{place.server.url}/api/1.0/unity-control/auth/tokens", data=form)
            assert code(answer) == (401, "UNAUTHENTICATED")
        with unity(place.server) as stranger:
            stranger.headers["Authorization"] = f"Bearer {token}"
            assert code(stranger.get("/catalogs")) == (401, "UNAUTHENTICATED")
        with pytest.raises(BlockingIOError):
            listener.accept()


# --- B7, C14, C18: keys ---


def test_b7_keys_end_where_the_roots_do(tmp_path: Path) -> None:
    root = "abfss://data@acct.dfs.core.windows.net/lake"
    secret = {"INVER_STORAGE__AZURE_KEY": base64.b64encode(b"the key of the account").decode()}
    wide, narrow = (
        {**secret, "INVER_STORAGE__EXTERNAL_ROOTS": roots} for roots in (root, f"{root}/elsewhere")
    )
    with running_inver(tmp_path / "home", env=wide) as server:
        place = Place(server)
        table = place.post("/tables", registration(place, f"{root}/orders"))["table_id"]
        asked = (
            ("/temporary-table-credentials", {"table_id": table, "operation": "READ"}),
            ("/temporary-path-credentials", {"url": f"{root}/orders", "operation": "PATH_READ"}),
            ("/temporary-path-credentials", {"url": f"{root}/new", "operation": "PATH_CREATE_TABLE"}),
        )
        for path, body in asked:
            assert "azure_user_delegation_sas" in place.post(path, body)
        place.close()
        server.restart(narrow)
        with unity(server) as admin:
            for path, body in asked:
                answer = admin.post(path, json=body)
                assert answer.status_code in (400, 403), answer.text
                assert "sig=" not in answer.text


def test_c14_there_are_no_keys_to_what_lies_above_a_table(place: Place) -> None:
    managed, staged = place.table("managed"), place.staged("staged")
    root = f"file://{place.server.home.with_name('external')}"
    place.post("/tables", registration(place, f"{root}/{place.catalog}/deep/x"))
    above = {
        *(location.rpartition("/")[0] for location in (managed.location, staged.location)),
        f"{root}/{place.catalog}/deep",
        f"{root}/{place.catalog}",
        root,
        "file:///",
        "s3://bucket",
        "s3://bucket/",
    }
    for url in above:
        for operation in ("PATH_READ", "PATH_READ_WRITE", "PATH_CREATE_TABLE"):
            answer = place.admin.post(
                "/temporary-path-credentials", json={"url": url, "operation": operation}
            )
            assert code(answer) == DENIED, (url, operation)


def test_c18_who_has_no_right_to_keys_learns_nothing_of_places(place: Place) -> None:
    managed, staged = place.table("managed"), place.staged("staged")
    dropped = place.table("dropped")
    place.send("DELETE", f"/tables/{place.schema}.dropped")
    root = f"file://{place.server.home.with_name('external')}/{place.catalog}"
    place.post("/tables", registration(place, f"{root}/x"))
    for person in (place.person(), place.visitor("BROWSE"), place.visitor("CREATE TABLE")):
        for operation in ("PATH_READ", "PATH_READ_WRITE", "PATH_CREATE_TABLE"):
            answers = {
                (answer.status_code, answer.text)
                for url in (
                    managed.location,
                    staged.location,
                    dropped.location,
                    f"{managed.location}/_delta_log",
                    f"{root}/x",
                    f"{root}/nothing",
                    root,
                    "file:///etc",
                    "s3://bucket/x",
                )
                for answer in [
                    person.post("/temporary-path-credentials", json={"url": url, "operation": operation})
                ]
            }
            assert len(answers) == 1, answers


def test_c18_ids_of_tables_that_may_not_be_seen_are_of_none(place: Place) -> None:
    managed, staged = place.table("managed"), place.staged("staged")
    nobody = "00000000-0000-7000-8000-00000000beef"
    for person in (place.person(), place.visitor()):
        answers = set()
        for table in (managed.id, staged.id, nobody):
            body = {"table_id": table, "operation": "READ"}
            answer = person.post("/temporary-table-credentials", json=body)
            answers.add((answer.status_code, answer.text.replace(table, "")))
        assert len(answers) == 1, answers


# --- F1, F3: bad input ---


def bodies(place: Place) -> list[tuple[str, str, dict[str, Any], str]]:
    """Requests that would succeed, and the fields of each that may be null or left out."""
    root = f"file://{place.server.home.with_name('external')}/{place.catalog}"
    described = {"comment": "c", "properties": {"a": "b"}}
    table = {**registration(place, f"{root}/new"), **described, "columns": [ID]}
    optional = "comment properties storage_root columns data_source_format owner new_name"
    change = {"principal": "admin", "add": ["SELECT"], "remove": ["MODIFY"]}
    return [
        ("POST", "/catalogs", {"name": "x", "storage_root": root, **described}, optional),
        ("POST", "/schemas", {"name": "x", "catalog_name": place.catalog, **described}, optional),
        ("PATCH", f"/catalogs/{place.catalog}", {"owner": "admin", "new_name": "x", **described}, optional),
        ("PATCH", f"/schemas/{place.schema}", {"owner": "admin", "new_name": "x", **described}, optional),
        ("PATCH", f"/tables/{place.schema}.t", {"owner": "admin", "new_name": "x", "comment": "c"}, optional),
        ("POST", "/staging-tables", place.named("x"), ""),
        ("POST", "/tables", table, optional),
        ("PATCH", f"/permissions/schema/{place.schema}", {"changes": [change]}, ""),
        ("POST", "/temporary-path-credentials", {"url": f"{root}/p", "operation": "PATH_READ"}, ""),
        ("POST", "/temporary-table-credentials", {"table_id": ID["name"], "operation": "READ"}, ""),
    ]


def test_f1_wrong_types_in_every_field(place: Place) -> None:
    place.table()
    paths = (f"/catalogs/{place.catalog}", f"/schemas/{place.schema}", f"/tables/{place.schema}.t")
    before = [place.get(path) for path in paths]
    for method, path, body, optional in bodies(place):
        for field in body:
            for wrong in (5, -1.5, True, [], [1], {"a": 1}, {"a": None}, "a\x00b", None):
                if (wrong is None and field in optional) or (wrong == [] and field in LISTS):
                    continue
                answer = place.admin.request(method, path, json={**body, field: wrong})
                assert code(answer)[0] == 400, (path, field, wrong, answer.text)
                assert field in answer.text or "NUL" in answer.text, (path, field, answer.text)
    assert [place.get(path) for path in paths] == before
    assert code(place.admin.get("/catalogs/x")) == (404, "CATALOG_NOT_FOUND")
    assert place.get(f"/permissions/schema/{place.schema}") == {"privilege_assignments": []}


def test_f3_every_list_has_a_bound(place: Place) -> None:
    change = {"principal": "admin", "add": [], "remove": []}
    path = f"/permissions/schema/{place.schema}"
    root = f"file://{place.server.home.with_name('external')}/{place.catalog}"
    columns = [{"name": f"c{index}", "type_name": "LONG"} for index in range(32_769)]
    for method, where, body, field in (
        ("PATCH", path, {"changes": [change] * 201}, "changes"),
        ("PATCH", path, {"changes": [{**change, "add": ["SELECT"] * 101}]}, "add"),
        ("PATCH", path, {"changes": [{**change, "remove": ["SELECT"] * 101}]}, "remove"),
        ("POST", "/tables", {**registration(place, f"{root}/x"), "columns": columns}, "columns"),
        (
            "POST",
            "/catalogs",
            {"name": "x", "properties": dict.fromkeys(map(str, range(10_001)), "")},
            "prop",
        ),
    ):
        answer = place.admin.request(method, where, json=body)
        assert code(answer)[0] == 400, field
        assert field in answer.json()["message"]


def test_f1_a_name_that_is_too_long_for_one_is_not_told_back(place: Place) -> None:
    long = "x" * 1_000_000
    change = {"principal": long, "add": ["SELECT"], "remove": []}
    place.table()
    for method, path, body in (
        ("POST", "/schemas", {"name": "x", "catalog_name": long}),
        ("POST", "/staging-tables", place.named("x", catalog_name=long)),
        ("POST", "/staging-tables", place.named("x", schema_name=long)),
        ("POST", "/tables", {**registration(place, "file:///x"), "catalog_name": long}),
        ("POST", "/tables", {**registration(place, "file:///x"), "schema_name": long}),
        ("POST", "/tables", registration(place, long)),
        ("PATCH", f"/catalogs/{place.catalog}", {"owner": long}),
        ("PATCH", f"/schemas/{place.schema}", {"owner": long}),
        ("PATCH", f"/tables/{place.schema}.t", {"owner": long}),
        ("PATCH", f"/permissions/schema/{place.schema}", {"changes": [change]}),
        ("POST", "/temporary-table-credentials", {"table_id": long, "operation": "READ"}),
        ("POST", "/temporary-path-credentials", {"url": long, "operation": "PATH_READ"}),
        ("POST", "/temporary-path-credentials", {"url": "/x", "operation": long}),
        *(("PATCH", where, {"new_name": long}) for where in (f"/catalogs/{place.catalog}",)),
        ("POST", "/catalogs", {"name": long}),
        ("POST", "/catalogs", {"name": "." + long}),
    ):
        answer = place.admin.request(method, path, json=body)
        assert code(answer)[0] == 400, path
        assert len(answer.content) < 2_000, (path, len(answer.content))
