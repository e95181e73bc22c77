"""Polars' catalog client lists everything and reads the tables that its Delta reader can read."""

from __future__ import annotations

import pytest

from tests.fixtures.clients import Client
from tests.fixtures.delta import new_table
from tests.fixtures.server import InverServer


@pytest.fixture(scope="module")
def call(polars: Client, server: InverServer, tmp_path_factory: pytest.TempPathFactory):
    """Make calls one after the other: a method and its arguments."""
    given = {"url": server.url, "token": server.token}
    with polars.session("polars_client.py", given, tmp_path_factory.mktemp("polars") / "stderr") as lines:
        yield lambda *calls: [lines.ask(each) for each in calls]


def test_catalogs_schemas_and_tables_are_listed(call, http, schema):
    catalog, name = schema.split(".")
    table = new_table(http, f"{schema}.orders")
    catalogs, namespaces, tables, info = call(
        ("list_catalogs",),
        ("list_namespaces", catalog),
        ("list_tables", catalog, name),
        ("get_table_info", catalog, name, "orders"),
    )
    assert catalog in [each["name"] for each in catalogs]
    assert name in [each["name"] for each in namespaces]
    assert [each["name"] for each in tables] == ["orders"]
    assert (info["table_id"], info["storage_location"]) == (table.id, table.location)
    assert (info["table_type"], info["data_source_format"]) == ("MANAGED", "DELTA")
    assert [each["name"] for each in info["columns"]] == ["id"]


def test_an_external_table_is_read(call, deltalake, http, schema, external):
    """delta-rs writes it, the catalog knows it, Polars reads it."""
    catalog, name = schema.split(".")
    folder = external / schema
    deltalake.run("deltalake_client.py", {"folder": str(folder), "steps": [["append", 0, 4]]})
    http.post(
        "/tables",
        json={
            "name": "outside",
            "catalog_name": catalog,
            "schema_name": name,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": [],
            "storage_location": folder.as_uri(),
        },
    ).raise_for_status()
    [rows] = call(("scan", catalog, name, "outside"))
    assert sorted(row["id"] for row in rows) == [0, 1, 2, 3]


def test_tables_of_every_format_are_listed(call, http, schema, external):
    catalog, name = schema.split(".")
    for form in ("DELTA", "ICEBERG", "LANCE"):
        http.post(
            "/tables",
            json={
                "name": form.lower(),
                "catalog_name": catalog,
                "schema_name": name,
                "table_type": "EXTERNAL",
                "data_source_format": form,
                "columns": [{"name": "id", "type_name": "LONG"}],
                "storage_location": (external / schema / form).as_uri(),
            },
        ).raise_for_status()
    [listed] = call(("list_tables", catalog, name))
    assert [(each["name"], each["data_source_format"]) for each in listed] == [
        ("delta", "DELTA"),
        ("iceberg", None),
        ("lance", "TEXT"),
    ]
