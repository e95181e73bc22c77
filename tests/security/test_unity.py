"""Attacks on the Unity faces: places, keys and tokens that are not the caller's."""

from __future__ import annotations

import httpx

from tests.fixtures.unity import Place, code

DENIED = (403, "PERMISSION_DENIED")


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
