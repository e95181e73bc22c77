"""C3: every route, tried by nobody, by somebody without any right, by a reader and by an administrator.

The routes come from the router itself, and each must have a row here: a new route without one fails.
A row says with what the route is to be called so that nothing but the caller's rights decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from inver.server.router import Entry
from tests.fixtures.house import API, SEPARATOR, Answer, House, Person, ask, house, path
from tests.fixtures.lance import stage

UNITY = "/api/2.1/unity-catalog"
V1 = UNITY + "/delta/v1"
CONTROL = "/api/1.0/unity-control"
SHARING = "/delta-sharing"
SHARED_TABLE = "/shares/{share}/schemas/{schema}/tables/{table}"
ICEBERG = ("/iceberg", "/api/catalog", UNITY + "/iceberg")
FORM = {"Content-Type": "application/x-www-form-urlencoded"}

REFUSED = frozenset({403, 404})
GOOD = frozenset({200, 201, 204})


class World:
    """One of everything that a route can be asked about."""

    def __init__(self, home: House) -> None:
        self.home = home
        self.table = self.dropped = self.staged = self.location = self.staged_at = ""
        self.token = self.secret = self.transaction = ""
        self.iceberg: dict[str, Any] = {}
        self.plan = ""
        self.view: dict[str, Any] = {}
        self.lance = ""
        self.run = ""

    async def build(self) -> World:
        home, admin = self.home, self.home.admin
        await home.schema("main", "sales")
        columns = [{"name": "customer"}]
        self.table = await home.table("main", "sales", "orders", columns=columns)
        self.location = (await admin.ok("GET", path("tables", self.table)))["location"]
        self.dropped = await home.table("main", "sales", "gone")
        await admin.ok("DELETE", path("catalogs", "main", "schemas", "sales", "tables", "gone"))
        commit = {"op": "commit", "table": {"id": self.table}, "version": 1, "token": "t"}
        cursor = {"op": "move-cursor", "cursor": "c", "expect": None, "value": "1"}
        done = await admin.ok("POST", "/transactions", {"operations": [commit, cursor]})
        self.transaction = done["transaction"]
        await admin.ok("POST", "/principals", {"name": "ada"})
        await home.group("team", "ada")
        self.token = (await admin.ok("POST", "/tokens", {"principal": "ada"}))["id"]
        self.secret = (await admin.ok("POST", "/principals/ada/secrets", {}))["id"]
        await admin.ok("POST", "/shares", {"name": "s"})
        shared = {"name": ["main", "sales", "orders"], "as": ["sales", "shared"]}
        await admin.ok("POST", "/shares/s/items", shared)
        whole = {"kind": "schema", "name": ["main", "sales"], "as": ["whole"]}
        await admin.ok("POST", "/shares/s/items", whole)
        await admin.ok("POST", "/recipients", {"name": "r"})
        await admin.ok("PUT", "/shares/s/recipients/r", {})
        named = {"name": "new", "catalog_name": "main", "schema_name": "sales"}
        bearer = {"Authorization": f"Bearer {admin.token}"}
        staged = await ask(home.app.public, "POST", UNITY + "/staging-tables", named, bearer.items())
        self.staged, self.staged_at = staged.json["id"], staged.json["staging_location"]
        inside = "/iceberg/v1/main/namespaces/sales"
        table = {"name": "orders2", "schema": ICEBERG_SCHEMA}
        made = await ask(home.app.public, "POST", f"{inside}/tables", table, bearer.items())
        self.iceberg = made.json
        plan = f"{inside}/tables/orders2/plan"
        self.plan = (await ask(home.app.public, "POST", plan, {}, bearer.items())).json["plan-id"]
        view = {"name": "orders3", "schema": ICEBERG_SCHEMA, "view-version": VIEW_VERSION, "properties": {}}
        made = await ask(home.app.public, "POST", f"{inside}/views", view, bearer.items())
        self.view = made.json
        lance = "/lance/v1/table/main$sales$orders4"
        made = await ask(home.app.public, "POST", f"{lance}/declare", {}, bearer.items())
        self.lance = made.json["location"]
        first = stage(self.lance, 1)
        await ask(home.app.public, "POST", f"{lance}/version/create", first, bearer.items())
        tag = {"tag": "known", "version": 1}
        await ask(home.app.public, "POST", f"{lance}/tags/create", tag, bearer.items())
        for place in ("/catalogs/main", "/catalogs/main/schemas/sales/tables/orders"):
            await admin.ok("PUT", f"{place}/care/policy", {"options": {"retention_hours": 200}})
        run = {"table": {"name": ["main", "sales", "orders4"]}, "job": "compact", "worker": "w"}
        self.run = (await admin.ok("POST", "/care/runs", run))["run_id"]
        return self


Make = Callable[[World], Any]


@dataclass(frozen=True)
class Row:
    """How to call a route, and what others than administrators are answered."""

    args: Make = lambda w: ()
    query: Make = lambda w: {}
    body: Make = lambda w: None
    headers: dict[str, str] = field(default_factory=dict)
    stranger: frozenset[int] = REFUSED
    shows: Callable[[Any], bool] | None = None
    """For what everybody may ask: whether an answer to somebody without rights is as empty as it must be."""
    admin: frozenset[int] = GOOD
    changes: bool | None = None
    """Whether a read-only token is refused; by default that depends on the method."""


def names(*args: str) -> Make:
    return lambda w: args


def given(**values: Any) -> Make:
    return lambda w: values


NESTED = names("main", "sales")
ORDERS = names("main", "sales", "orders")
ON_ORDERS = {"kind": "table", "name": ["main", "sales", "orders"]}
CHANGE = given(principal="ada", privileges=["SELECT"], securable=ON_ORDERS)

MANAGEMENT: dict[str, Row] = {
    "GET /catalogs": Row(shows=lambda told: told["catalogs"] == []),
    "POST /catalogs": Row(body=given(name="other")),
    "GET /catalogs/{catalog}": Row(names("main")),
    "PATCH /catalogs/{catalog}": Row(names("main"), body=given(comment="x")),
    "DELETE /catalogs/{catalog}": Row(names("main"), admin=frozenset({409})),
    "GET /catalogs/{catalog}/schemas": Row(names("main")),
    "POST /catalogs/{catalog}/schemas": Row(names("main"), body=given(path=["other"])),
    "GET /catalogs/{catalog}/schemas/{schema}": Row(NESTED),
    "PATCH /catalogs/{catalog}/schemas/{schema}": Row(NESTED, body=given(comment="x")),
    "DELETE /catalogs/{catalog}/schemas/{schema}": Row(NESTED, admin=frozenset({409})),
    "GET /catalogs/{catalog}/schemas/{schema}/tables": Row(NESTED),
    "POST /catalogs/{catalog}/schemas/{schema}/tables": Row(NESTED, body=given(name="t", format="LANCE")),
    "GET /catalogs/{catalog}/schemas/{schema}/dropped": Row(NESTED),
    "GET /catalogs/{catalog}/schemas/{schema}/tables/{table}": Row(ORDERS),
    "PATCH /catalogs/{catalog}/schemas/{schema}/tables/{table}": Row(ORDERS, body=given(comment="x")),
    "DELETE /catalogs/{catalog}/schemas/{schema}/tables/{table}": Row(ORDERS),
    "GET /catalogs/{catalog}/schemas/{schema}/tables/{table}/commits": Row(ORDERS),
    "GET /catalogs/{catalog}/schemas/{schema}/tables/{table}/metrics": Row(ORDERS),
    "POST /catalogs/{catalog}/schemas/{schema}/tables/{table}/rename": Row(
        ORDERS, body=given(to=["main", "sales", "renamed"])
    ),
    "GET /tables/{id}": Row(lambda w: (w.table,)),
    "GET /tables/{id}/commits": Row(lambda w: (w.table,)),
    "POST /tables/{id}/undrop": Row(lambda w: (w.dropped,), body=given()),
    "POST /transactions": Row(
        body=lambda w: {
            "operations": [{"op": "commit", "table": {"id": w.table}, "version": 2, "token": "t2"}]
        }
    ),
    "GET /transactions/{id}": Row(lambda w: (w.transaction,)),
    "GET /events": Row(),
    "GET /cursors/{cursor}": Row(names("c")),
    "GET /info": Row(shows=lambda told: set(told) == {"name", "version", "database", "last_event"}),
    "GET /whoami": Row(shows=lambda told: (told["name"], told["groups"]) == ("stranger", [])),
    "GET /principals": Row(),
    "POST /principals": Row(body=given(name="bob")),
    "GET /principals/{name}": Row(names("ada")),
    "PATCH /principals/{name}": Row(names("ada"), body=given(comment="x")),
    "DELETE /principals/{name}": Row(names("ada")),
    "GET /groups/{group}/members": Row(names("team")),
    "PUT /groups/{group}/members/{principal}": Row(names("team", "admin")),
    "DELETE /groups/{group}/members/{principal}": Row(names("team", "ada")),
    "POST /tokens": Row(body=given(principal="ada")),
    "GET /tokens": Row(query=given(principal="ada")),
    "DELETE /tokens/{id}": Row(lambda w: (w.token,)),
    "POST /principals/{name}/secrets": Row(names("ada"), body=given()),
    "GET /principals/{name}/secrets": Row(names("ada")),
    "DELETE /principals/{name}/secrets/{id}": Row(lambda w: ("ada", w.secret)),
    "GET /grants": Row(query=given(kind="table", name=SEPARATOR.join(["main", "sales", "orders"]))),
    "POST /grants": Row(body=CHANGE),
    "POST /grants/revoke": Row(body=CHANGE),
    "POST /grants/explain": Row(
        body=given(principal="ada", action="read", securable=ON_ORDERS), changes=False
    ),
    "GET /search": Row(query=given(q="o"), shows=lambda told: told["results"] == []),
    "GET /doctor": Row(),
    "POST /doctor/retry": Row(),
    "GET /care/scheduler": Row(shows=lambda told: told["state"] == "off"),
    "GET /care/tables": Row(shows=lambda told: told["tables"] == []),
    "GET /catalogs/{catalog}/schemas/{schema}/tables/{table}/care": Row(ORDERS),
    "GET /care/plan": Row(shows=lambda told: (told["steps"], told["count"]) == ([], 0)),
    "POST /care/runs": Row(
        body=given(table={"name": ["main", "sales", "orders2"]}, job="compact", worker="w")
    ),
    "POST /care/runs/next": Row(body=given(worker="w"), shows=lambda told: told["ticket"] is None),
    "POST /care/runs/{id}/heartbeat": Row(lambda w: (w.run,), body=given(progress=0.5)),
    "POST /care/runs/{id}/finish": Row(lambda w: (w.run,), body=given(outcome="done")),
    "GET /care/runs": Row(shows=lambda told: told["runs"] == []),
    "GET /care/runs/{id}": Row(lambda w: (w.run,)),
    "GET /catalogs/{catalog}/schemas/{schema}/tables/{table}/care/runs": Row(ORDERS),
    "GET /catalogs/{catalog}/care/policy": Row(names("main")),
    "PUT /catalogs/{catalog}/care/policy": Row(names("main"), body=given(enabled=False)),
    "DELETE /catalogs/{catalog}/care/policy": Row(names("main")),
    "GET /catalogs/{catalog}/schemas/{schema}/tables/{table}/care/policy": Row(ORDERS),
    "PUT /catalogs/{catalog}/schemas/{schema}/tables/{table}/care/policy": Row(
        ORDERS, body=given(enabled=False)
    ),
    "DELETE /catalogs/{catalog}/schemas/{schema}/tables/{table}/care/policy": Row(ORDERS),
    "GET /shares": Row(shows=lambda told: told["shares"] == []),
    "POST /shares": Row(body=given(name="other")),
    "GET /shares/{share}": Row(names("s")),
    "DELETE /shares/{share}": Row(names("s")),
    "POST /shares/{share}/items": Row(
        names("s"), body=lambda w: {"name": ["main", "sales", "orders"], "as": ["sales", "more"]}
    ),
    "DELETE /shares/{share}/schemas/{schema}": Row(names("s", "whole")),
    "DELETE /shares/{share}/schemas/{schema}/tables/{table}": Row(names("s", "sales", "shared")),
    "PUT /shares/{share}/recipients/{recipient}": Row(names("s", "r"), body=given()),
    "DELETE /shares/{share}/recipients/{recipient}": Row(names("s", "r")),
    "GET /recipients": Row(shows=lambda told: told["recipients"] == []),
    "POST /recipients": Row(body=given(name="other")),
    "GET /recipients/{recipient}": Row(names("r")),
    "PATCH /recipients/{recipient}": Row(names("r"), body=given(comment="x")),
    "DELETE /recipients/{recipient}": Row(names("r")),
    "POST /recipients/{recipient}/rotate": Row(names("r"), body=given()),
    "POST /recipients/{recipient}/revoke": Row(names("r"), body=given()),
}


def in_sales(**more: Any) -> Make:
    return given(catalog_name="main", schema_name="sales", **more)


def at_table(**more: Any) -> Make:
    return lambda w: {"table_id": w.table, "table_uri": w.location, **more}


COMMIT_INFO = {
    "version": 2,
    "timestamp": 1_700_000_000_000,
    "file_name": f"{2:020d}.{uuid4()}.json",
    "file_size": 100,
    "file_modification_timestamp": 1_700_000_000_000,
}
FULL = names("main.sales.orders")
# The table was not made by a Delta client, so what only such tables can do is refused for that reason.
NOT_MANAGED = frozenset({200, 400})

UNITY_ROWS: dict[str, Row] = {
    "POST /catalogs": Row(body=given(name="other")),
    "GET /catalogs": Row(shows=lambda told: told["catalogs"] == []),
    "GET /catalogs/{name}": Row(names("main")),
    "PATCH /catalogs/{name}": Row(names("main"), body=given(comment="x")),
    "DELETE /catalogs/{name}": Row(names("main"), query=given(force="true")),
    "POST /schemas": Row(body=given(name="other", catalog_name="main")),
    "GET /schemas": Row(query=given(catalog_name="main")),
    "GET /schemas/{full_name}": Row(names("main.sales")),
    "PATCH /schemas/{full_name}": Row(names("main.sales"), body=given(comment="x")),
    "DELETE /schemas/{full_name}": Row(names("main.sales"), query=given(force="true")),
    "POST /staging-tables": Row(body=in_sales(name="fresh")),
    "POST /tables": Row(
        body=lambda w: {
            "name": "new",
            "catalog_name": "main",
            "schema_name": "sales",
            "table_type": "MANAGED",
            "data_source_format": "DELTA",
            "storage_location": w.staged_at,
            "columns": [],
        },
        admin=frozenset({400}),  # version 0 is not written
    ),
    "GET /tables": Row(query=in_sales()),
    "GET /tables/{full_name}": Row(FULL),
    "PATCH /tables/{full_name}": Row(FULL, body=given(comment="x")),
    "DELETE /tables/{full_name}": Row(FULL),
    "GET /delta/commits": Row(query=at_table(start_version=0)),
    "POST /delta/commit": Row(body=at_table(commit_info=COMMIT_INFO), admin=NOT_MANAGED),
    "POST /delta/metrics": Row(
        body=at_table(report={"commit_report": {"num_files_added": 1, "commit_version": 1}})
    ),
    "GET /delta/preview/commits": Row(query=at_table(start_version=0)),
    "POST /delta/preview/commits": Row(body=at_table(commit_info=COMMIT_INFO), admin=NOT_MANAGED),
    "POST /temporary-table-credentials": Row(body=lambda w: {"table_id": w.table, "operation": "READ_WRITE"}),
    "POST /temporary-path-credentials": Row(
        body=lambda w: {"url": w.location, "operation": "PATH_READ_WRITE"}
    ),
    "POST /temporary-volume-credentials": Row(
        body=given(), stranger=frozenset({501}), admin=frozenset({501}), changes=False
    ),
    "POST /temporary-model-version-credentials": Row(
        body=given(), stranger=frozenset({501}), admin=frozenset({501}), changes=False
    ),
    "GET /permissions/{securable_type}/{full_name}": Row(names("table", "main.sales.orders")),
    "PATCH /permissions/{securable_type}/{full_name}": Row(
        names("table", "main.sales.orders"),
        body=given(changes=[{"principal": "ada", "add": ["SELECT"], "remove": []}]),
    ),
    "GET /metastore_summary": Row(shows=lambda told: set(told) == {"metastore_id"}),
}

V1_TABLE = "/catalogs/{catalog}/schemas/{schema}/tables/{table}"
V1_ROWS: dict[str, Row] = {
    "GET /config": Row(query=given(**{"catalog": "main", "protocol-versions": "1.0"})),
    "POST /catalogs/{catalog}/schemas/{schema}/staging-tables": Row(NESTED, body=given(name="fresh")),
    "POST /catalogs/{catalog}/schemas/{schema}/tables": Row(
        NESTED,
        body=lambda w: {
            "name": "new",
            "location": w.staged_at,
            "table-type": "MANAGED",
            "columns": {"type": "struct", "fields": []},
            "protocol": {"min-reader-version": 3, "min-writer-version": 7},
            "properties": {},
            "last-commit-timestamp-ms": 1,
        },
        admin=frozenset({400}),  # version 0 is not written
    ),
    f"GET {V1_TABLE}": Row(ORDERS),
    f"POST {V1_TABLE}": Row(
        ORDERS,
        body=lambda w: {
            "requirements": [{"type": "assert-table-uuid", "uuid": w.table}],
            "updates": [{"action": "set-properties", "updates": {"a": "b"}}],
        },
        admin=NOT_MANAGED,
    ),
    f"DELETE {V1_TABLE}": Row(ORDERS),
    f"HEAD {V1_TABLE}": Row(ORDERS),
    f"POST {V1_TABLE}/rename": Row(ORDERS, body=lambda w: {"new-name": "renamed"}),
    f"GET {V1_TABLE}/credentials": Row(ORDERS, query=given(operation="READ")),
    f"POST {V1_TABLE}/metrics": Row(
        ORDERS,
        body=lambda w: {
            "table-id": w.table,
            "report": {"commit-report": {"num-files-added": 1, "commit-version": 1}},
        },
    ),
    "GET /staging-tables/{table_id}/credentials": Row(lambda w: (w.staged,), changes=True),
    "GET /temporary-path-credentials": Row(query=lambda w: {"location": w.location, "operation": "READ"}),
}

ICEBERG_SCHEMA = {
    "type": "struct",
    "fields": [{"id": 1, "name": "customer", "required": False, "type": "string"}],
}
VIEW_VERSION = {
    "version-id": 1,
    "timestamp-ms": 1,
    "schema-id": 0,
    "summary": {},
    "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
    "default-namespace": ["sales"],
}
SET_PROPERTY = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
ICEBERG_TABLE = names("main", "sales", "orders2")
ICEBERG_VIEW = names("main", "sales", "orders3")
INSIDE = "/v1/{prefix}/namespaces/{namespace}"


def moved(name: str) -> Make:
    return lambda w: {
        "source": {"namespace": ["sales"], "name": name},
        "destination": {"namespace": ["sales"], "name": "renamed"},
    }


def a_plan(w: World) -> Any:
    return "main", "sales", "orders2", w.plan


ICEBERG_ROWS: dict[str, Row] = {
    "GET /v1/config": Row(query=given(warehouse="main")),
    "GET /v1/{prefix}/namespaces": Row(names("main")),
    "POST /v1/{prefix}/namespaces": Row(names("main"), body=given(namespace=["other"])),
    f"GET {INSIDE}": Row(NESTED),
    f"HEAD {INSIDE}": Row(NESTED),
    f"DELETE {INSIDE}": Row(NESTED, admin=frozenset({409})),
    f"POST {INSIDE}/properties": Row(NESTED, body=given(updates={"a": "b"}, removals=[])),
    f"GET {INSIDE}/functions": Row(NESTED),
    f"GET {INSIDE}/functions/{{function}}": Row(names("main", "sales", "f"), admin=frozenset({404})),
    f"GET {INSIDE}/tables": Row(NESTED),
    f"POST {INSIDE}/tables": Row(NESTED, body=given(name="fresh", schema=ICEBERG_SCHEMA)),
    f"POST {INSIDE}/register": Row(
        NESTED,
        body=lambda w: {"name": "fresh", "metadata-location": w.iceberg["metadata-location"]},
        admin=frozenset({409}),  # it is a table already
    ),
    f"GET {INSIDE}/tables/{{table}}": Row(ICEBERG_TABLE),
    f"HEAD {INSIDE}/tables/{{table}}": Row(ICEBERG_TABLE),
    f"POST {INSIDE}/tables/{{table}}": Row(ICEBERG_TABLE, body=lambda w: SET_PROPERTY),
    f"DELETE {INSIDE}/tables/{{table}}": Row(ICEBERG_TABLE),
    f"POST {INSIDE}/tables/{{table}}/unregister": Row(ICEBERG_TABLE),
    f"GET {INSIDE}/tables/{{table}}/credentials": Row(ICEBERG_TABLE),
    f"POST {INSIDE}/tables/{{table}}/metrics": Row(
        ICEBERG_TABLE,
        body=lambda w: {"report-type": "scan-report", "snapshot-id": -1, "metrics": {}},
        changes=False,  # who may only read measures what they read
    ),
    f"POST {INSIDE}/tables/{{table}}/sign": Row(
        ICEBERG_TABLE,
        body=lambda w: {"region": "r", "uri": "https://s3.amazonaws.com/b/k", "method": "PUT", "headers": {}},
        admin=frozenset({400}),  # the table is in a local folder
    ),
    f"POST {INSIDE}/tables/{{table}}/plan": Row(ICEBERG_TABLE, body=given(), changes=False),
    f"GET {INSIDE}/tables/{{table}}/plan/{{plan-id}}": Row(a_plan),
    f"DELETE {INSIDE}/tables/{{table}}/plan/{{plan-id}}": Row(a_plan, changes=False),
    f"POST {INSIDE}/tables/{{table}}/tasks": Row(
        ICEBERG_TABLE,
        body=lambda w: {"plan-task": w.plan},
        changes=False,
        admin=frozenset({404}),  # a table without rows has none
    ),
    "POST /v1/{prefix}/tables/rename": Row(names("main"), body=moved("orders2")),
    "POST /v1/{prefix}/transactions/commit": Row(
        names("main"),
        body=lambda w: {
            "table-changes": [{"identifier": {"namespace": ["sales"], "name": "orders2"}, **SET_PROPERTY}]
        },
    ),
    f"GET {INSIDE}/views": Row(NESTED),
    f"POST {INSIDE}/views": Row(
        NESTED,
        body=lambda w: {
            "name": "fresh",
            "schema": ICEBERG_SCHEMA,
            "view-version": VIEW_VERSION,
            "properties": {},
        },
    ),
    f"POST {INSIDE}/register-view": Row(
        NESTED,
        body=lambda w: {"name": "fresh", "metadata-location": w.view["metadata-location"]},
        admin=frozenset({409}),  # it is a view already
    ),
    f"GET {INSIDE}/views/{{view}}": Row(ICEBERG_VIEW),
    f"HEAD {INSIDE}/views/{{view}}": Row(ICEBERG_VIEW),
    f"POST {INSIDE}/views/{{view}}": Row(ICEBERG_VIEW, body=lambda w: SET_PROPERTY),
    f"DELETE {INSIDE}/views/{{view}}": Row(ICEBERG_VIEW),
    "POST /v1/{prefix}/views/rename": Row(names("main"), body=moved("orders3")),
}

LANCE_TABLE = names("main$sales$orders4")
NOT_OFFERED = frozenset({406})
# The manifest is made by hand and has no files, and the library that works on data need not be there.
WORKED_ON = frozenset({200, 400, 404, 406, 500})
NOTHING = given()


def arrow(w: World) -> str:
    return "not looked at"


def lance(body: Make = NOTHING, changes: bool = True, **more: Any) -> Row:
    return Row(LANCE_TABLE, body=body, changes=changes, **more)


def looked_at(body: Make = NOTHING, **more: Any) -> Row:
    return lance(body, changes=False, **more)


def new_version(w: World) -> dict[str, Any]:
    return stage(w.lance, 2)


def batch(w: World) -> dict[str, Any]:
    return {
        "operations": [{"create_table_version": {"id": ["main", "sales", "orders4"], **stage(w.lance, 2)}}]
    }


def entries_of(w: World) -> dict[str, Any]:
    return {"entries": [{"id": ["main", "sales", "orders4"], **stage(w.lance, 2)}]}


SALES = names("main$sales")
LANCE_ROWS: dict[str, Row] = {
    "POST /v1/namespace/{id}/create": Row(names("main$fresh"), body=given()),
    "GET /v1/namespace/{id}/list": Row(names("main")),
    "POST /v1/namespace/{id}/describe": Row(SALES, body=given(), changes=False),
    "POST /v1/namespace/{id}/drop": Row(SALES, body=given(behavior="Cascade")),
    "POST /v1/namespace/{id}/exists": Row(SALES, body=given(), changes=False),
    "GET /v1/namespace/{id}/table/list": Row(SALES),
    "POST /v1/namespace/create": Row(body=given(), admin=frozenset({409})),
    "GET /v1/namespace/list": Row(shows=lambda told: told["namespaces"] == []),
    "POST /v1/namespace/describe": Row(
        body=given(), changes=False, shows=lambda told: told == {"properties": {}}
    ),
    "POST /v1/namespace/drop": Row(body=given(), admin=frozenset({400})),
    "POST /v1/namespace/exists": Row(body=given(), changes=False, shows=lambda told: told == {}),
    "GET /v1/namespace/table/list": Row(shows=lambda told: told["tables"] == []),
    "GET /v1/table": Row(shows=lambda told: told["tables"] == []),
    "POST /v1/table/{id}/declare": Row(names("main$sales$fresh"), body=given()),
    "POST /v1/table/{id}/register": Row(
        names("main$sales$fresh"),
        body=lambda w: {"location": w.lance},
        admin=frozenset({400}),  # it is for tables that the server places
    ),
    "POST /v1/table/{id}/describe": looked_at(),
    "POST /v1/table/{id}/exists": looked_at(),
    "POST /v1/table/{id}/drop": lance(),
    "POST /v1/table/{id}/deregister": lance(),
    "POST /v1/table/{id}/rename": lance(given(new_table_name="renamed")),
    "POST /v1/table/{id}/stats": looked_at(),
    "POST /v1/table/{id}/version/list": looked_at(),
    "POST /v1/table/{id}/version/create": lance(new_version),
    "POST /v1/table/{id}/version/describe": looked_at(given(version=1)),
    "POST /v1/table/{id}/version/delete": lance(given(ranges=[{"start_version": 0, "end_version": -1}])),
    "POST /v1/table/version/batch-create": Row(body=entries_of),
    "POST /v1/table/batch-commit": Row(body=batch),
    "POST /v1/table/{id}/tags/list": looked_at(),
    "POST /v1/table/{id}/tags/version": looked_at(given(tag="known")),
    "POST /v1/table/{id}/tags/create": lance(given(tag="fresh", version=1)),
    "POST /v1/table/{id}/tags/update": lance(given(tag="known", version=1)),
    "POST /v1/table/{id}/tags/delete": lance(given(tag="known")),
    "POST /v1/table/{id}/branches/list": looked_at(),
    "POST /v1/table/{id}/branches/create": lance(given(name="fresh"), admin=WORKED_ON),
    "POST /v1/table/{id}/branches/delete": lance(given(name="none"), admin=frozenset({404})),
    "POST /v1/table/{id}/index/list": looked_at(),
    "POST /v1/table/{id}/index/{index_name}/stats": Row(
        names("main$sales$orders4", "i"), body=given(), changes=False, admin=WORKED_ON
    ),
    "POST /v1/table/{id}/index/{index_name}/drop": Row(
        names("main$sales$orders4", "i"), body=given(), admin=WORKED_ON
    ),
    "POST /v1/table/{id}/create_index": lance(given(column="customer", index_type="BTREE"), admin=WORKED_ON),
    "POST /v1/table/{id}/create_scalar_index": lance(
        given(column="customer", index_type="BTREE"), admin=WORKED_ON
    ),
    "POST /v1/table/{id}/create": Row(names("main$sales$fresh"), body=arrow, admin=WORKED_ON, changes=True),
    "POST /v1/table/{id}/insert": lance(arrow, admin=WORKED_ON),
    "POST /v1/table/{id}/merge_insert": lance(arrow, query=given(on="customer"), admin=WORKED_ON),
    "POST /v1/table/{id}/update": lance(given(updates=[["customer", "'x'"]]), admin=WORKED_ON),
    "POST /v1/table/{id}/delete": lance(given(predicate="true"), admin=WORKED_ON),
    "POST /v1/table/{id}/restore": lance(given(version=1), admin=WORKED_ON),
    "POST /v1/table/{id}/count_rows": looked_at(admin=WORKED_ON),
    "POST /v1/table/{id}/query": looked_at(given(k=1), admin=WORKED_ON),
    "POST /v1/table/{id}/explain_plan": looked_at(given(query={"k": 1}), admin=WORKED_ON),
    "POST /v1/table/{id}/analyze_plan": looked_at(given(k=1), admin=WORKED_ON),
    "POST /v1/table/{id}/add_columns": lance(
        given(new_columns=[{"name": "x", "expression": "1"}]), admin=WORKED_ON
    ),
    "POST /v1/table/{id}/alter_columns": lance(
        given(alterations=[{"path": "customer", "rename": "x"}]), admin=WORKED_ON
    ),
    "POST /v1/table/{id}/drop_columns": lance(given(columns=["customer"]), admin=WORKED_ON),
    "POST /v1/table/{id}/schema_metadata/update": lance(given(a="b"), admin=WORKED_ON),
    "POST /v1/table/{id}/update_field_metadata": lance(
        given(updates=[{"path": "customer", "metadata": {"a": "b"}}]), admin=WORKED_ON
    ),
    **{
        f"POST {place}": Row(
            LANCE_TABLE, body=given(), changes=False, stranger=NOT_OFFERED, admin=NOT_OFFERED
        )
        for place in (
            "/v1/table/{id}/backfill_column",
            "/v1/materialized_view/{id}/create",
            "/v1/materialized_view/{id}/refresh",
        )
    },
    "POST /v1/transaction/{id}/describe": Row(lambda w: (w.transaction,), body=given(), changes=False),
    "POST /v1/transaction/{id}/alter": Row(
        lambda w: (w.transaction,),
        body=given(actions=[{"setPropertyAction": {"key": "a", "value": "b"}}]),
    ),
}

SHARED = names("s", "sales", "shared")
RECIPIENT_ROWS: dict[str, Row] = {
    "GET /shares": Row(),
    "GET /shares/{share}": Row(names("s")),
    "GET /shares/{share}/schemas": Row(names("s")),
    "GET /shares/{share}/schemas/{schema}/tables": Row(names("s", "sales")),
    "GET /shares/{share}/all-tables": Row(names("s")),
    f"GET {SHARED_TABLE}": Row(SHARED),
    f"HEAD {SHARED_TABLE}": Row(SHARED),
    f"GET {SHARED_TABLE}/version": Row(SHARED),
    f"GET {SHARED_TABLE}/metadata": Row(SHARED),
    f"POST {SHARED_TABLE}/query": Row(SHARED, body=given()),
    f"POST {SHARED_TABLE}/queries/{{id}}": Row(names("s", "sales", "shared", "q"), body=given()),
    f"GET {SHARED_TABLE}/changes": Row(SHARED, query=given(startingVersion="0")),
    f"POST {SHARED_TABLE}/temporary-table-credentials": Row(SHARED, body=given()),
    "GET /files/{grant}/{path}/{name}": Row(names("A" * 64, "YQ", "a"), stranger=frozenset({403})),
    "GET /activation/{code}": Row(names("0" * 32 + "_x")),
    "POST /activation/{code}": Row(names("0" * 32 + "_x"), stranger=frozenset({404})),
    "POST /oauth/token": Row(
        body=lambda w: b"grant_type=client_credentials&client_id=a&client_secret=b", headers=FORM
    ),
}

OPEN_TOKEN = Row(body=lambda w: b"grant_type=client_credentials&client_id=a&client_secret=b", headers=FORM)
CONTROL_ROWS = {
    "GET /scim2/Me": Row(shows=lambda told: told["userName"] == "stranger"),
}

ROWS: dict[str, Row] = {
    f"{method} {mount}{template}": row
    for mount, rows in (
        (API, MANAGEMENT),
        (UNITY, UNITY_ROWS),
        (V1, V1_ROWS),
        (CONTROL, CONTROL_ROWS),
        *((mount, ICEBERG_ROWS) for mount in ICEBERG),
        ("/lance", LANCE_ROWS),
    )
    for (method, template), row in ((key.split(" ", 1), row) for key, row in rows.items())
}

PUBLIC: dict[str, Row] = {
    "GET /livez": Row(),
    "GET /readyz": Row(),
    "GET /api/docs": Row(),
    "GET /api/docs/openapi.json": Row(),
    f"POST {API}/oauth/token": OPEN_TOKEN,
    **{f"POST {mount}/v1/oauth/tokens": OPEN_TOKEN for mount in ICEBERG},
    "POST /lance/oauth/token": OPEN_TOKEN,
    f"POST {CONTROL}/auth/tokens": OPEN_TOKEN,
    # Recipients are no principals: their face asks them itself, as `test_sharing.py` tries.
    **{route.replace(" ", f" {SHARING}"): row for route, row in RECIPIENT_ROWS.items()},
    f"POST {CONTROL}/auth/logout": Row(body=given()),
}


# --- helpers ---


def entries(home: House) -> list[Entry]:
    return list(home.app.public.router.entries)


def key_of(entry: Entry) -> str:
    """A HEAD that a GET route answers is tried with the row of the GET."""
    return f"{entry.route.method} {entry.template}"


def target(entry: Entry, row: Row, world: World) -> str:
    text = entry.template
    for value in row.args(world):
        start, end = text.index("{"), text.index("}")
        text = text[:start] + quote(value, safe="") + text[end + 1 :]
    assert "{" not in text, f"{entry.template} has more parameters than its row"
    return text


async def call(world: World, who: Person, entry: Entry, row: Row) -> Answer:
    headers = dict(row.headers)
    if who.token is not None:
        headers["Authorization"] = f"Bearer {who.token}"
    return await ask(
        world.home.app.public,
        entry.method,
        target(entry, row, world),
        row.body(world),
        headers.items(),
        # Many are refused here, and none is to be held up for the others.
        client=str(uuid4()),
        **row.query(world),
    )


def reads(entry: Entry, row: Row) -> bool:
    return entry.method in ("GET", "HEAD") if row.changes is None else not row.changes


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Shared by those who change nothing."""
    async with house(tmp_path_factory.mktemp("routes") / "home") as home:
        yield await World(home).build()


# --- the tests ---


async def test_c3_every_route_has_a_row_and_every_row_a_route(world: World):
    found = {key_of(entry): entry.public for entry in entries(world.home)}
    assert {key for key, public in found.items() if public} == set(PUBLIC), "public routes"
    assert {key for key, public in found.items() if not public} == set(ROWS), "routes that ask who calls"


async def test_c3_nobody_gets_past_the_door(world: World):
    """Whether a name is there, a body is good or a method exists is not for nobody to know."""
    before = await world.home.last_event()
    for entry in entries(world.home):
        if entry.public:
            continue
        row = ROWS[key_of(entry)]
        answer = await call(world, world.home.nobody, entry, row)
        assert answer.status == 401, (entry.method, entry.template, answer)
        assert answer.headers["www-authenticate"] == "Bearer"
        forged = Person(world.home, "forged", f"inver_pat_{'0' * 32}_{'x' * 43}")
        assert (await call(world, forged, entry, row)).status == 401, entry.template
    assert await world.home.last_event() == before


async def test_c3_somebody_without_rights_learns_and_changes_nothing(world: World):
    stranger = await world.home.user("stranger")
    before = await world.home.last_event()
    secrets = (world.table, world.dropped, world.staged, world.location, "orders", "customer", world.secret)
    for entry in entries(world.home):
        if entry.public:
            continue
        row = ROWS[key_of(entry)]
        answer = await call(world, stranger, entry, row)
        place = (entry.method, entry.template, answer)
        if row.shows is None:
            assert answer.status in row.stranger, place
        else:
            assert answer.status == 200, place
            if entry.method != "HEAD":
                assert row.shows(answer.json), place
            told = answer.body.decode()
            assert not any(secret in told for secret in secrets), place
    assert await world.home.last_event() == before, "a refused request left something behind"


async def test_c3_a_refusal_tells_no_more_than_the_request(world: World):
    """Nothing in it that the caller did not send: no id, no owner, no location, no other name."""
    stranger = await world.home.admin.token_of("ada")
    for entry in entries(world.home):
        if entry.public or entry.method == "HEAD":
            continue
        row = ROWS[key_of(entry)]
        answer = await call(world, stranger, entry, row)
        if answer.status not in REFUSED:
            continue
        sent = f"{target(entry, row, world)} {row.query(world)} {row.body(world)}"
        for secret in (world.table, world.dropped, world.staged, world.location, "customer", world.secret):
            assert secret in sent or secret not in answer.body.decode(), (entry.template, answer)


HIDDEN = [
    ("who knows nothing", [], ["main", "sales", "orders"]),
    ("who sees the catalog", ["USE CATALOG"], ["sales", "orders"]),
    ("who sees the schema", ["USE CATALOG", "USE SCHEMA"], ["orders"]),
]


@pytest.mark.parametrize(("held", "hidden"), [pytest.param(*row[1:], id=row[0]) for row in HIDDEN])
async def test_c18_what_one_may_not_see_is_told_like_what_is_not_there(
    world: World, held: list[str], hidden: list[str]
):
    """The same request about something that never was: the same answer, but for the name."""
    name = f"curious{uuid4()}"
    curious = await world.home.user(name)
    if held:
        await world.home.grant(name, held, "catalog", "main")
    real = {each: each[::-1] for each in hidden}
    for each in (world.table, world.dropped, world.staged, world.run):
        real[each] = str(uuid4())
    real |= {world.token: "0" * 32, world.secret: str(uuid4()), world.location: world.location[:-1] + "z"}
    compared = 0
    for entry in entries(world.home):
        if entry.public or entry.method == "HEAD":
            continue
        row = ROWS[key_of(entry)]
        if row.shows is not None or row.admin in ({501}, NOT_OFFERED):
            continue
        there = await call(world, curious, entry, row)
        absent = never_was(row, real)
        answer = await call(world, curious, entry, absent)
        if there.status not in REFUSED:
            # Lists and containers that may be seen; what is hidden in them is not in them.
            assert held, (entry.template, there)
            assert not any(each in there.body.decode() for each in (world.table, "customer", world.location))
            continue
        back = {fake: each for each, fake in real.items()}
        assert comparable(there) == comparable(answer, back), (entry.method, entry.template)
        compared += 1
    assert compared > 40


def never_was(row: Row, names: dict[str, str]) -> Row:
    def swapped(make: Make) -> Make:
        return lambda w: json.loads(swap(json.dumps(make(w)), names))

    return Row(swapped(row.args), swapped(row.query), swapped(row.body))


def swap(text: str, names: dict[str, str]) -> str:
    """Whole names only: `main.sales` has two, and `domain` none."""
    for each, other in names.items():
        text = re.sub(rf"(?<![A-Za-z]){re.escape(each)}(?![A-Za-z])", other, text)
    return text


def comparable(answer: Answer, names: dict[str, str] | None = None) -> tuple[int, bytes, str]:
    text = re.sub(r'"request_id":"[^"]*"', "", answer.body.decode())
    return answer.status, answer.content_type, swap(text, names or {})


async def test_c3_a_reader_reads_everything_and_changes_nothing(world: World):
    """The token of an administrator, made for reading only."""
    reader = await world.home.admin.token_of(scope="read")
    before = await world.home.last_event()
    for entry in entries(world.home):
        if entry.public:
            continue
        row = ROWS[key_of(entry)]
        answer = await call(world, reader, entry, row)
        if reads(entry, row):
            assert answer.status in row.admin, (entry.method, entry.template, answer)
        else:
            assert answer.status == 403, (entry.method, entry.template, answer)
    assert await world.home.last_event() == before, "a read-only token changed something"
    assert (await world.home.admin.ok("GET", path("tables", world.table)))["version"] == 1


async def test_c3_an_administrator_is_let_in_everywhere(world: World, tmp_path: Path):
    for number, entry in enumerate(entries(world.home)):
        if entry.public:
            continue
        row = ROWS[key_of(entry)]
        if reads(entry, row):
            answer = await call(world, world.home.admin, entry, row)
        else:
            # What changes something gets a world of its own.
            async with house(tmp_path / str(number)) as home:
                own = await World(home).build()
                answer = await call(own, home.admin, entry, row)
        assert answer.status in row.admin, (entry.method, entry.template, answer)


@pytest.mark.postgres
async def test_c7_a_revoked_token_opens_no_route_of_another_server(postgres_url: str, tmp_path: Path):
    """The other server knows the token for good, and this is its first request after the revocation."""
    async with house(tmp_path / "one", postgres_url) as one, house(tmp_path / "two", postgres_url) as two:
        world = await World(one).build()
        there = World(two)
        vars(there).update({**vars(world), "home": two})
        before = await one.last_event()
        made = 0
        for entry in entries(two):
            if entry.public or entry.method == "HEAD":
                continue
            token = await one.admin.ok("POST", "/tokens", {})
            holder = Person(two, "admin", token["token"])
            assert (await holder.get("/whoami")).status == 200
            await one.admin.ok("DELETE", path("tokens", token["id"]))
            made += 1
            row = ROWS[key_of(entry)]
            answer = await call(there, holder, entry, row)
            assert answer.status == 401 or row.admin == {501}, (entry.method, entry.template, answer)
        assert await one.last_event() == before + 2 * made, "nothing but these tokens came and went"


async def test_c3_public_routes_say_nothing_about_the_catalog(world: World):
    for entry in entries(world.home):
        if not entry.public:
            continue
        row = PUBLIC[key_of(entry)]
        answer = await call(world, world.home.nobody, entry, row)
        expected = (200, 401) if row.stranger is REFUSED else row.stranger
        assert answer.status in expected, (entry.method, entry.template, answer)
        told = answer.body.decode()
        for secret in (world.table, world.staged, world.location, world.secret, world.token):
            assert secret not in told, entry.template


async def test_c2_the_private_listener_has_probes_and_metrics_and_nothing_else(world: World):
    templates = {(entry.method, entry.template) for entry in world.home.app.private.router.entries}
    assert templates == {
        (method, template) for method in ("GET", "HEAD") for template in ("/metrics", "/livez", "/readyz")
    }
    public = {entry.template for entry in world.home.app.public.router.entries}
    assert "/metrics" not in public
    answer = await ask(world.home.app.public, "GET", "/metrics")
    assert answer.status == 404
