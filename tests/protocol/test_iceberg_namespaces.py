"""Iceberg REST through real HTTP: configuration, namespaces, functions."""

from __future__ import annotations

import uuid
from urllib.parse import quote

import httpx
import pytest

from tests.fixtures.iceberg import Lake, error, kind, segment
from tests.fixtures.server import InverServer

NAMES = ["with space", "a+b", "a/b", "a.b", "50%", "ünïcode", "q?x=1&y#z", "%2F"]


def namespaces(lake: Lake, **params: str) -> list[list[str]]:
    found: list[list[str]] = lake.get("/namespaces", params=params)["namespaces"]
    return found


# --- configuration ---


def config(lake: Lake, warehouse: str | None, by: httpx.Client | None = None) -> httpx.Response:
    params = {} if warehouse is None else {"warehouse": warehouse}
    return (by or lake.admin).get(f"{lake.base}/config", params=params)


def test_config_names_the_prefix_and_every_endpoint(lake: Lake) -> None:
    told = config(lake, lake.catalog).json()
    assert told["overrides"]["prefix"] == lake.catalog
    assert told["defaults"] == {}
    assert told["idempotency-key-lifetime"] == "PT30M"
    namespaces = "/v1/{prefix}/namespaces"
    namespace = namespaces + "/{namespace}"
    tables, views = f"{namespace}/tables", f"{namespace}/views"
    table, view = tables + "/{table}", views + "/{view}"
    # All operations of the specification but the configuration itself and tokens.
    assert sorted(told["endpoints"]) == sorted(
        f"{method} {path}"
        for path, methods in {
            namespaces: "GET POST",
            namespace: "GET HEAD DELETE",
            f"{namespace}/properties": "POST",
            f"{namespace}/functions": "GET",
            f"{namespace}/functions/{{function}}": "GET",
            f"{namespace}/register": "POST",
            f"{namespace}/register-view": "POST",
            tables: "GET POST",
            table: "GET HEAD POST DELETE",
            f"{table}/unregister": "POST",
            f"{table}/credentials": "GET",
            f"{table}/sign": "POST",
            f"{table}/metrics": "POST",
            f"{table}/plan": "POST",
            f"{table}/plan/{{plan-id}}": "GET DELETE",
            f"{table}/tasks": "POST",
            views: "GET POST",
            view: "GET HEAD POST DELETE",
            "/v1/{prefix}/tables/rename": "POST",
            "/v1/{prefix}/views/rename": "POST",
            "/v1/{prefix}/transactions/commit": "POST",
        }.items()
        for method in methods.split()
    )


def test_config_of_a_catalog_with_a_difficult_name(lake: Lake) -> None:
    name = f"50% of a/b {uuid.uuid4()}"
    lake.management("POST", "/catalogs", {"name": name})
    prefix = config(lake, name).json()["overrides"]["prefix"]
    made = lake.admin.post(f"{lake.base}/{prefix}/namespaces", json={"namespace": ["x"]})
    assert made.status_code == 200, made.text


def test_config_without_a_warehouse_or_with_an_unknown_one(lake: Lake) -> None:
    assert kind(config(lake, "nowhere")) == (404, "NoSuchWarehouseException")
    other = f"other{uuid.uuid4()}"
    lake.management("POST", "/catalogs", {"name": other})
    assert kind(config(lake, None)) == (400, "BadRequestException")
    only_one = lake.person(("USE CATALOG", "catalog", []))
    assert config(lake, None, only_one).json()["overrides"]["prefix"] == lake.catalog
    assert kind(config(lake, other, only_one)) == (404, "NoSuchWarehouseException")


@pytest.mark.parametrize("mount", ["/api/2.1/unity-catalog/iceberg", "/api/catalog"])
def test_the_face_has_other_addresses(shared_inver: InverServer, mount: str) -> None:
    lake = Lake(shared_inver, mount)
    assert config(lake, lake.catalog).status_code == 200
    assert namespaces(lake) == [["ns"]]
    lake.close()


# --- namespaces ---


def test_create_load_and_drop(lake: Lake) -> None:
    body = {"namespace": ["sales"], "properties": {"owner": "ann", "comment": "what was sold"}}
    assert lake.post("/namespaces", body) == body
    assert lake.get("/namespaces/sales") == body
    assert lake.admin.head("/namespaces/sales").status_code == 204
    schema = lake.management("GET", f"/catalogs/{lake.catalog}/schemas/sales")
    assert schema["comment"] == "what was sold"
    assert namespaces(lake) == [["ns"], ["sales"]]
    again = lake.admin.post("/namespaces", json=body)
    assert error(again) == (409, "AlreadyExistsException", "Namespace already exists: sales")
    assert lake.admin.delete("/namespaces/sales").status_code == 204
    gone = (404, "NoSuchNamespaceException", "Namespace does not exist: sales")
    assert error(lake.admin.delete("/namespaces/sales")) == gone
    assert error(lake.admin.get("/namespaces/sales")) == gone
    assert lake.admin.head("/namespaces/sales").status_code == 404


def test_a_namespace_with_something_in_it_stays(lake: Lake) -> None:
    lake.table("t")
    full = (409, "NamespaceNotEmptyException", "Namespace ns is not empty")
    assert error(lake.admin.delete("/namespaces/ns")) == full
    lake.admin.delete("/namespaces/ns/tables/t")
    lake.view("v")
    assert error(lake.admin.delete("/namespaces/ns")) == full
    lake.admin.delete("/namespaces/ns/views/v")
    lake.post("/namespaces", {"namespace": ["ns", "inner"]})
    assert error(lake.admin.delete("/namespaces/ns")) == full
    lake.admin.delete(f"/namespaces/{segment('ns', 'inner')}")
    assert lake.admin.delete("/namespaces/ns").status_code == 204


def test_nested(lake: Lake) -> None:
    for path in (["ns", "a"], ["ns", "a", "b"], ["ns", "c"]):
        lake.post("/namespaces", {"namespace": path})
    assert namespaces(lake) == [["ns"]]
    assert namespaces(lake, parent="ns") == [["ns", "a"], ["ns", "c"]]
    assert namespaces(lake, parent="ns\x1fa") == [["ns", "a", "b"]]
    assert namespaces(lake, parent="ns\x1fa\x1fb") == []
    table = lake.table("t", ("ns", "a", "b"))
    assert table.load()["metadata"]["table-uuid"]
    lake.post("/namespaces", {"namespace": ["ns", "ü+ 50%"]})
    lake.post("/namespaces", {"namespace": ["ns", "ü+ 50%", "d"]})
    for parent in ("ns\x1fü+ 50%", "ns\x1f" + quote("ü+ 50%", safe="")):
        assert namespaces(lake, parent=parent) == [["ns", "ü+ 50%", "d"]]
    missing = lake.admin.get("/namespaces", params={"parent": "ns\x1fz"})
    assert error(missing) == (404, "NoSuchNamespaceException", "Namespace does not exist: ns.z")
    orphan = lake.admin.post("/namespaces", json={"namespace": ["z", "y"]})
    assert error(orphan) == (404, "NoSuchNamespaceException", "Namespace does not exist: z")


@pytest.mark.parametrize("name", NAMES)
def test_difficult_names(lake: Lake, name: str) -> None:
    path = [name, f"inner {name}"]
    lake.post("/namespaces", {"namespace": path[:1]})
    lake.post("/namespaces", {"namespace": path})
    assert lake.get(f"/namespaces/{segment(*path)}")["namespace"] == path
    table = lake.table(name, tuple(path))
    listed = lake.get(f"/namespaces/{segment(*path)}/tables")["identifiers"]
    assert listed == [{"namespace": path, "name": name}]
    # As Java writes it: a form, in which a space is a plus sign.
    assert lake.admin.get(table.url.replace("%20", "+")).status_code == 200
    assert name not in table.metadata["location"]


@pytest.mark.parametrize(
    "body",
    [
        {"namespace": []},
        {"namespace": [""]},
        {"namespace": ["a\u0007"]},
        {"namespace": ["x" * 300]},
        {"namespace": "ns"},
        {"namespace": [1]},
        {"namespace": ["ok"], "properties": {"a": 1}},
        {},
        [],
    ],
)
def test_bad_names_and_bodies(lake: Lake, body: object) -> None:
    assert kind(lake.admin.post("/namespaces", json=body)) == (400, "BadRequestException")
    assert namespaces(lake) == [["ns"]]


def test_properties(lake: Lake) -> None:
    def update(**body: object) -> httpx.Response:
        return lake.admin.post("/namespaces/ns/properties", json=body)

    told = update(updates={"a": "1", "comment": "said"}, removals=[]).json()
    assert told == {"updated": ["a", "comment"], "removed": [], "missing": []}
    told = update(updates={"b": "2"}, removals=["a", "z", "comment"]).json()
    assert told == {"updated": ["b"], "removed": ["a", "comment"], "missing": ["z"]}
    assert lake.get("/namespaces/ns")["properties"] == {"b": "2"}
    assert kind(update(updates={"a": "1"}, removals=["a"])) == (422, "UnprocessableEntityException")
    assert lake.get("/namespaces/ns")["properties"] == {"b": "2"}
    missing = lake.admin.post("/namespaces/nowhere/properties", json={"updates": {"a": "1"}})
    assert error(missing) == (404, "NoSuchNamespaceException", "Namespace does not exist: nowhere")


def test_pages(lake: Lake) -> None:
    names = [f"n{number:02d}" for number in range(7)]
    for name in names:
        lake.post("/namespaces", {"namespace": ["ns", name]})
    found: list[str] = []
    token = ""
    sizes = []
    while token is not None:
        page = lake.get("/namespaces", params={"parent": "ns", "pageToken": token, "pageSize": "3"})
        sizes.append(len(page["namespaces"]))
        found += [path[-1] for path in page["namespaces"]]
        token = page["next-page-token"]
        lake.admin.delete(f"/namespaces/{segment('ns', names[0])}")
    assert (found, sizes) == (names, [3, 3, 1])
    for params in ({"pageSize": "0"}, {"pageSize": "-1"}, {"pageSize": "x"}, {"pageToken": "é"}):
        assert kind(lake.admin.get("/namespaces", params=params)) == (400, "BadRequestException")


def test_keys(lake: Lake) -> None:
    """A mutation under a key takes effect once, and so does its refusal."""

    def keyed() -> dict[str, str]:
        return {"Idempotency-Key": str(uuid.uuid4())}

    key = keyed()
    for _ in range(2):
        made = lake.admin.post("/namespaces", json={"namespace": ["k"]}, headers=key)
        assert (made.status_code, made.json()["namespace"]) == (200, ["k"])
    other = lake.admin.post("/namespaces", json={"namespace": ["l"]}, headers=key)
    assert kind(other) == (422, "UnprocessableEntityException")
    refused = keyed()
    for _ in range(2):
        again = lake.admin.post("/namespaces", json={"namespace": ["k"]}, headers=refused)
        assert error(again) == (409, "AlreadyExistsException", "Namespace already exists: k")
        lake.admin.delete("/namespaces/k")
    key = keyed()
    lake.post("/namespaces", {"namespace": ["k"]})
    for _ in range(2):
        assert lake.admin.delete("/namespaces/k", headers=key).status_code == 204
    bad = lake.admin.post("/namespaces", json={"namespace": ["m"]}, headers={"Idempotency-Key": "x"})
    assert kind(bad) == (400, "BadRequestException")


def test_an_update_that_is_sent_again_is_answered_as_the_first_time(lake: Lake) -> None:
    def update(key: dict[str, str], **body: object) -> object:
        answer = lake.admin.post("/namespaces/ns/properties", json=body, headers=key)
        assert answer.status_code == 200, answer.text
        return answer.json()

    first, second = ({"Idempotency-Key": str(uuid.uuid4())} for _ in range(2))
    set_up = {"updates": {"a": "1", "b": "2", "comment": "said"}, "removals": ["z", "y"]}
    told = {"updated": ["a", "b", "comment"], "removed": [], "missing": ["z", "y"]}
    assert update(first, **set_up) == told
    change = {"updates": {"c": "3"}, "removals": ["z", "comment", "a", "z"]}
    assert update(second, **change) == {"updated": ["c"], "removed": ["comment", "a"], "missing": ["z"]}
    update({}, updates={"z": "1", "comment": "again"}, removals=["b"])
    assert update(first, **set_up) == told
    assert update(second, **change) == {"updated": ["c"], "removed": ["comment", "a"], "missing": ["z"]}
    assert lake.get("/namespaces/ns")["properties"] == {"c": "3", "z": "1", "comment": "again"}
    # Without a key it is another update, which finds what there is now.
    assert update({}, **change) == {"updated": ["c"], "removed": ["z", "comment"], "missing": ["a"]}


def test_functions(lake: Lake) -> None:
    assert lake.get("/namespaces/ns/functions") == {"identifiers": [], "next-page-token": None}
    one = lake.admin.get("/namespaces/ns/functions/f")
    assert error(one) == (404, "NoSuchFunctionException", "Function does not exist: ns.f")
    assert kind(lake.admin.get("/namespaces/nowhere/functions")) == (404, "NoSuchNamespaceException")


def test_rights(lake: Lake) -> None:
    stranger, seer = lake.person(), lake.visitor()
    body = {"namespace": ["mine"]}
    assert kind(stranger.get("/namespaces")) == (404, "NoSuchWarehouseException")
    assert kind(stranger.get("/namespaces/ns")) == (404, "NoSuchNamespaceException")
    assert kind(stranger.post("/namespaces", json=body)) == (404, "NoSuchWarehouseException")
    assert seer.get("/namespaces").json()["namespaces"] == [["ns"]]
    assert kind(seer.post("/namespaces", json=body)) == (403, "ForbiddenException")
    assert kind(seer.delete("/namespaces/ns")) == (403, "ForbiddenException")
    update = {"updates": {"a": "b"}}
    assert kind(seer.post("/namespaces/ns/properties", json=update)) == (403, "ForbiddenException")
    maker = lake.person(("USE CATALOG", "catalog", []), ("CREATE SCHEMA", "catalog", []))
    assert maker.post("/namespaces", json=body).status_code == 200
    assert maker.delete("/namespaces/mine").status_code == 204
