"""Unity Catalog's own Python client."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.clients import Client
from tests.fixtures.delta import UNITY, new_table
from tests.fixtures.server import InverServer

COLUMN = {
    "name": "id",
    "type_name": "LONG",
    "type_text": "bigint",
    "type_json": '{"name":"id","type":"long","nullable":true,"metadata":{}}',
    "position": 0,
    "nullable": True,
}


@pytest.fixture(scope="module")
def call(unitycatalog: Client, server: InverServer, tmp_path_factory: pytest.TempPathFactory):
    """Make calls one after the other: `(api, method, arguments)`."""
    given = {"url": server.url + UNITY, "token": server.token}
    errors = tmp_path_factory.mktemp("unitycatalog") / "stderr"
    with unitycatalog.session("unitycatalog_client.py", given, errors) as lines:
        yield lambda *calls: [lines.ask(each) for each in calls]


def catalogs(method: str, **arguments: Any) -> tuple[str, str, dict[str, Any]]:
    return "CatalogsApi", method, arguments


def schemas(method: str, **arguments: Any) -> tuple[str, str, dict[str, Any]]:
    return "SchemasApi", method, arguments


def tables(method: str, **arguments: Any) -> tuple[str, str, dict[str, Any]]:
    return "TablesApi", method, arguments


def test_catalogs(call):
    made, again, found, listed, changed, _, gone = call(
        catalogs("create_catalog", create_catalog=["CreateCatalog", {"name": "sales", "comment": "ours"}]),
        catalogs("create_catalog", create_catalog=["CreateCatalog", {"name": "sales"}]),
        catalogs("get_catalog", name="sales"),
        catalogs("list_catalogs"),
        catalogs("update_catalog", name="sales", update_catalog=["UpdateCatalog", {"comment": "theirs"}]),
        catalogs("delete_catalog", name="sales"),
        catalogs("get_catalog", name="sales"),
    )
    assert (made["name"], made["comment"]) == ("sales", "ours")
    assert isinstance(made["created_at"], int)
    assert again == {"status": 400, "error_code": "CATALOG_ALREADY_EXISTS"}
    assert found == made
    assert "sales" in [each["name"] for each in listed["catalogs"]]
    assert (changed["id"], changed["comment"]) == (made["id"], "theirs")
    assert gone == {"status": 404, "error_code": "CATALOG_NOT_FOUND"}


def test_schemas(call, schema):
    catalog, name = schema.split(".")
    found, listed, again, changed, _, gone = call(
        schemas("get_schema", full_name=schema),
        schemas("list_schemas", catalog_name=catalog),
        schemas("create_schema", create_schema=["CreateSchema", {"name": name, "catalog_name": catalog}]),
        schemas("update_schema", full_name=schema, update_schema=["UpdateSchema", {"comment": "new"}]),
        schemas("delete_schema", full_name=schema),
        schemas("get_schema", full_name=schema),
    )
    assert (found["full_name"], found["catalog_name"]) == (schema, catalog)
    assert name in [each["name"] for each in listed["schemas"]]
    assert again == {"status": 400, "error_code": "SCHEMA_ALREADY_EXISTS"}
    assert (changed["schema_id"], changed["comment"]) == (found["schema_id"], "new")
    assert gone == {"status": 404, "error_code": "SCHEMA_NOT_FOUND"}


def test_a_managed_table_is_shown_and_dropped(call, http, schema):
    table = new_table(http, f"{schema}.orders")
    found, listed, _, gone = call(
        tables("get_table", full_name=table.name),
        tables("list_tables", catalog_name="lake", schema_name=schema.split(".")[1]),
        tables("delete_table", full_name=table.name),
        tables("get_table", full_name=table.name),
    )
    assert (found["table_id"], found["table_type"], found["data_source_format"]) == (
        table.id,
        "MANAGED",
        "DELTA",
    )
    assert found["storage_location"] == table.location
    assert [(each["name"], each["type_text"]) for each in found["columns"]] == [("id", "bigint")]
    assert found["properties"]["delta.feature.catalogManaged"] == "supported"
    assert [each["name"] for each in listed["tables"]] == ["orders"]
    # The name that the protocol's own document gives it.
    assert gone == {"status": 404, "error_code": "TABLE_DOES_NOT_EXIST"}


def test_pages_of_tables(call, http, schema):
    names = [f"t{number}" for number in range(5)]
    for name in names:
        new_table(http, f"{schema}.{name}")
    place = {"catalog_name": "lake", "schema_name": schema.split(".")[1]}
    found = []
    token = None
    for _ in names:
        [page] = call(tables("list_tables", **place, max_results=2, page_token=token))
        found += [each["name"] for each in page["tables"]]
        token = page.get("next_page_token")
        if not token:
            break
    assert found == names


def test_a_staging_table(call, schema):
    catalog, name = schema.split(".")
    fields = {"name": "new", "catalog_name": catalog, "schema_name": name}
    [first, second] = call(
        *[tables("create_staging_table", create_staging_table=["CreateStagingTable", fields])] * 2
    )
    assert first["id"] != second["id"]
    assert first["staging_location"] != second["staging_location"]
    credentials = {"table_id": first["id"], "operation": "READ_WRITE"}
    [vended] = call(
        (
            "TemporaryCredentialsApi",
            "generate_temporary_table_credentials",
            {
                "generate_temporary_table_credential": [
                    "GenerateTemporaryTableCredential",
                    credentials,
                ]
            },
        )
    )
    assert "status" not in vended


def test_an_external_table(call, schema, external):
    catalog, name = schema.split(".")
    fields = {
        "name": "outside",
        "catalog_name": catalog,
        "schema_name": name,
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "columns": [COLUMN],
        "storage_location": (external / schema).as_uri(),
    }
    elsewhere = {**fields, "storage_location": (external / "elsewhere").as_uri()}
    made, found, again = call(
        tables("create_table", create_table=["CreateTable", fields]),
        tables("get_table", full_name=f"{schema}.outside"),
        tables("create_table", create_table=["CreateTable", elsewhere]),
    )
    assert (made["table_type"], made["storage_location"]) == ("EXTERNAL", fields["storage_location"])
    assert found["columns"][0]["type_json"] == COLUMN["type_json"]
    assert again == {"status": 400, "error_code": "TABLE_ALREADY_EXISTS"}


def test_grants(call, server, schema):
    with server.client() as management:
        management.post("/principals", json={"name": "ana", "kind": "user"}).raise_for_status()
    change = {"changes": [{"principal": "ana", "add": ["USE SCHEMA", "SELECT"], "remove": []}]}
    place = {"securable_type": "schema", "full_name": schema}
    changed, shown = call(
        ("GrantsApi", "update", {**place, "update_permissions": ["UpdatePermissions", change]}),
        ("GrantsApi", "get", place),
    )
    for answer in (changed, shown):
        held = {each["principal"]: each["privileges"] for each in answer["privilege_assignments"]}
        assert sorted(held["ana"]) == ["SELECT", "USE SCHEMA"]


def test_metastore(call):
    [summary] = call(("MetastoresApi", "summary", {}))
    assert summary["metastore_id"]


def test_tables_of_every_format_are_listed(call, schema, external):
    catalog, name = schema.split(".")
    for form in ("DELTA", "ICEBERG", "TEXT"):
        fields = {
            "name": form.lower(),
            "catalog_name": catalog,
            "schema_name": name,
            "table_type": "EXTERNAL",
            "data_source_format": form,
            "columns": [COLUMN],
            "storage_location": (external / schema / form).as_uri(),
            "properties": {"table_type": "lance"} if form == "TEXT" else {},
        }
        [made] = call(tables("create_table", create_table=["CreateTable", fields]))
        assert made["data_source_format"] == form
        assert call(tables("get_table", full_name=f"{schema}.{form.lower()}")) == [made]
    [listed] = call(tables("list_tables", catalog_name=catalog, schema_name=name))
    assert [each["name"] for each in listed["tables"]] == ["delta", "iceberg", "text"]
    assert listed["tables"][2]["properties"] == {"table_type": "lance"}


def test_grants_that_the_protocol_has_no_name_for(call, server, schema):
    with server.client() as management:
        management.post("/principals", json={"name": "ben", "kind": "user"}).raise_for_status()
        for privilege in ("SELECT", "MANAGE", "MAINTAIN"):
            grant = {
                "principal": "ben",
                "privileges": [privilege],
                "securable": {"kind": "schema", "name": schema.split(".")},
            }
            management.post("/grants", json=grant).raise_for_status()
    [shown] = call(("GrantsApi", "get", {"securable_type": "schema", "full_name": schema}))
    held = {each["principal"]: each["privileges"] for each in shown["privilege_assignments"]}
    assert held["ben"] == ["SELECT"]
