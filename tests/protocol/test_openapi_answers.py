"""A journey over every operation of a real server, each answer held against the document."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from scripts.openapi import TARGET
from tests.fixtures.openapi import Document, Journey
from tests.fixtures.server import InverServer, running_inver


@pytest.fixture(scope="module")
def api() -> Document:
    return Document(msgspec.json.decode(TARGET.read_bytes()))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    with running_inver(tmp_path_factory.mktemp("openapi") / "home") as server:
        yield server


def test_real_answers_are_as_documented(api, server):
    with Journey(api, server) as journey:
        _containers(journey)
        table_id = _tables(journey)
        _identity(journey)
        _privileges(journey)
        _sharing(journey)
        _care(journey, server)
        _feed(journey)
        _endings(journey, table_id)
        assert api.operations.keys() - journey.seen == set()


def _containers(journey: Journey) -> None:
    journey.done("create_catalog")
    journey.done("alter_catalog")
    journey.done("get_catalog")
    journey.done("list_catalogs", params={"max_results": "1"})
    journey.done("create_schema")
    journey.done("create_schema", "main", json={"path": ["sales", "eu"], "comment": "nested"})
    journey.done("alter_schema")
    journey.done("get_schema", "main", "sales\x1feu")
    journey.done("list_schemas", params={"parent": "sales"})


def _named(name: str) -> dict[str, Any]:
    return {"name": ["main", "sales", name]}


def _transact(journey: Journey, *operations: dict[str, Any]) -> Any:
    return journey.done("transact", json={"operations": operations})


def _tables(journey: Journey) -> str:
    made = journey.done("create_table", headers={"Idempotency-Key": str(uuid.uuid4())})
    for name in ("first", "second"):
        journey.done("create_table", "main", "sales", json={"name": name, "format": "LANCE"})
    journey.done("alter_table", headers={"If-Match": '"1"'})
    journey.done("get_table")
    journey.done("get_table_by_id", made["id"])
    page = journey.done("list_tables", params={"max_results": "1"})
    journey.done("list_tables", params={"page_token": page["next_page_token"]})
    result = journey.done("transact")
    assert result["results"][0]["version"] == 1
    this = {"id": made["id"]}
    done = _transact(
        journey,
        {"op": "commit", "table": this, "version": 2, "token": "a", "counts": {"rows_added": 7}},
        {"op": "create-branch", "table": this, "branch": "try", "version": 2},
        {"op": "create-table", **_named("third"), "format": "ICEBERG"},
        {"op": "rename-table", "table": _named("first"), "to": ["main", "sales", "last"]},
        {"op": "drop-table", "table": _named("second")},
        {"op": "move-cursor", "cursor": "orders-to-lance", "expect": "1", "value": None},
    )
    _transact(journey, {"op": "undrop-table", "table": {"id": done["results"][4]["id"]}})
    journey.done("get_transaction", done["transaction"])
    journey.done("table_history")
    journey.done("table_metrics")
    journey.done("history_by_id", made["id"])
    _transact(journey, {"op": "move-cursor", "cursor": "c", "expect": None, "value": "9"})
    journey.done("get_cursor", "c")
    journey.done("rename_table")
    journey.done("drop_table", "main", "sales", "purchases")
    journey.done("list_dropped")
    journey.done("undrop_table", made["id"])
    return str(made["id"])


def _identity(journey: Journey) -> None:
    journey.done("whoami")
    journey.done("create_principal")
    journey.done("create_principal", json={"name": "analysts", "kind": "group", "comment": "people"})
    journey.done("add_member")
    journey.done("list_members")
    journey.done("get_principal")
    journey.done("get_principal", "analysts")
    journey.done("list_principals", params={"kind": "service"})
    token = journey.done("create_token")
    journey.done("list_tokens", params={"principal": "etl"})
    journey.done("revoke_token", token["id"])
    secret = journey.done("create_secret")
    form = {"grant_type": "client_credentials", "client_id": "etl", "client_secret": secret["client_secret"]}
    journey.done("oauth_token", data=form)
    journey.done("oauth_token", data={**form, "scope": "read"})
    journey.done("list_secrets")
    journey.done("revoke_secret", "etl", secret["id"])
    journey.done("alter_principal")


def _privileges(journey: Journey) -> None:
    journey.done("grant")
    journey.done("list_grants", params={"kind": "table", "name": "main\x1fsales\x1forders"})
    journey.done("list_grants", params={"principal": "etl"})
    journey.done("explain")
    journey.done("revoke")
    journey.done("search", params={"q": "orders"})
    journey.done("search", params={"q": "id"})


def _sharing(journey: Journey) -> None:
    journey.done("create_share")
    journey.done("add_item")
    whole = {"kind": "schema", "name": ["main", "sales"], "as": ["all"]}
    journey.done("add_item", "partners", json=whole)
    made = journey.done("create_recipient")
    assert "/delta-sharing/activation/" in made["activation_url"]
    given = journey.done("create_recipient", json={"name": "bolt", "kind": "oauth", "activate": False})
    assert given["profile"]["shareCredentialsVersion"] == 2
    journey.done("grant_share", "partners", "acme", json={})
    journey.done("get_share")
    journey.done("list_shares")
    journey.done("alter_recipient")
    journey.done("rotate_recipient")
    journey.done("get_recipient")
    journey.done("list_recipients", params={"max_results": "1"})
    journey.done("revoke_share")
    journey.done("revoke_recipient")
    journey.done("remove_table")
    journey.done("remove_schema", "partners", "all")
    journey.done("drop_share")
    journey.done("drop_recipient")


def _care(journey: Journey, server: InverServer) -> None:
    field = {"id": 1, "name": "id", "required": False, "type": "long"}
    asked = {"name": "visits", "schema": {"type": "struct", "fields": [field]}}
    place = f"{server.url}/iceberg/v1/main/namespaces/sales/tables"
    httpx.post(place, json=asked, headers=server.headers).raise_for_status()
    visits = ("main", "sales", "visits")
    asked = {"table": {"name": visits}, "job": "expire", "worker": "w", "options": {"snapshot_hours": 48}}
    ticket = journey.done("start_care", json=asked)
    assert (ticket["format"], ticket["options"]) == ("ICEBERG", {"snapshot_hours": 48})
    problem = journey.refused(409, "start_care", json=asked)
    assert problem["conflicts"][0]["reason"] == "table-leased"
    journey.done("care_heartbeat", ticket["run_id"])
    journey.done("finish_care", ticket["run_id"])
    assert journey.done("next_care") == {"ticket": None}
    journey.refused(404, "care_heartbeat")
    journey.refused(409, "care_heartbeat", ticket["run_id"])
    (run,) = journey.done("list_runs")["runs"]
    assert journey.done("table_runs", *visits)["runs"] == [run]
    assert (run["state"], run["result"]["outcome"]) == ("finished", "done")
    assert journey.done("get_run", run["id"]) == run
    journey.refused(404, "get_run")
    page = journey.done("list_care", params={"catalog": "main", "max_results": "1"})
    journey.done("list_care", params={"page_token": page["next_page_token"]})
    journey.done("plan_care", params={"budget_seconds": "60"})
    journey.done("set_catalog_policy")
    journey.done("catalog_policy")
    short = {"options": {"retention_hours": 1}}
    assert journey.refused(400, "set_table_policy", *visits, json=short)["field"] == "options.retention_hours"
    journey.done("set_table_policy", *visits, json={"jobs": ["compact"]})
    journey.done("table_policy", *visits)
    shown = journey.done("get_care", *visits)
    assert (shown["policy"]["jobs"], shown["policy"]["options"]) == (["compact"], {"retention_hours": 336})
    journey.done("drop_table_policy", *visits)
    journey.done("drop_catalog_policy")
    assert journey.done("scheduler")["state"] == "off"


def _feed(journey: Journey) -> None:
    events = journey.done("list_events", params={"limit": "1000"})
    assert len(events["events"]) > 20
    journey.done("list_events", params={"after": events["next"], "wait": "1"})
    journey.done("server_info")
    journey.done("examine")
    assert journey.done("retry_work") == {"count": 0}


def _endings(journey: Journey, table_id: str) -> None:
    journey.done("remove_member")
    journey.done("delete_principal")
    for table in ("orders", "last", "second", "third", "visits"):
        journey.done("drop_table", "main", "sales", table)
    journey.done("drop_schema", "main", "sales\x1feu")
    journey.refused(404, "get_table_by_id", table_id)
    journey.done("drop_schema")
    journey.done("drop_catalog")


def test_refusals_are_as_documented(api, server):
    with Journey(api, server) as journey:
        journey.done("create_catalog", json={"name": "refusals"})
        journey.done("create_schema", "refusals", json={"path": ["s"]})
        made = journey.done("create_table", "refusals", "s", json={"name": "t", "format": "DELTA"})
        journey.refused(400, "create_catalog", json={"name": "x", "unknown": 1})
        journey.refused(400, "create_catalog", content=b"{")
        journey.refused(400, "list_catalogs", params={"max_results": "0"})
        journey.refused(400, "search")
        journey.refused(401, "whoami", headers={"Authorization": "Bearer inver_pat_no_token"})
        journey.refused(404, "get_catalog", "nowhere")
        journey.refused(409, "create_catalog", json={"name": "REFUSALS"})
        journey.refused(409, "drop_catalog", "refusals")
        journey.refused(412, "alter_catalog", "refusals", headers={"If-Match": '"7"'})
        problem = journey.refused(
            409,
            "transact",
            json={"operations": [{"op": "commit", "table": {"id": made["id"]}, "version": 5, "token": "a"}]},
        )
        assert problem["conflicts"][0]["reason"] == "version-gap"
        journey.refused(415, "create_catalog", content=b"x", headers={"Content-Encoding": "br"})
        key = {"Idempotency-Key": str(uuid.uuid4())}
        place = ("create_table", "refusals", "s")
        journey.done(*place, json={"name": "a", "format": "DELTA"}, headers=key)
        journey.refused(422, *place, json={"name": "b", "format": "DELTA"}, headers=key)
        journey.refused(400, "oauth_token", data={"grant_type": "password"})
        journey.refused(401, "oauth_token", data={"grant_type": "client_credentials"})


def test_forbidden_is_as_documented(api, server):
    with Journey(api, server) as journey:
        journey.done("create_principal", json={"name": "guest"})
        token = journey.done("create_token", json={"principal": "guest"})["token"]
        guest = {"Authorization": f"Bearer {token}"}
        journey.refused(403, "create_catalog", json={"name": "mine"}, headers=guest)
        journey.refused(403, "list_events", headers=guest)


def test_guessing_is_limited_as_documented(api, tmp_path):
    with running_inver(tmp_path / "home") as server, Journey(api, server) as journey:
        wrong = {"Authorization": "Bearer inver_pat_00_wrong"}
        statuses = [journey.go("whoami", headers=wrong).status_code for _ in range(25)]
        assert statuses[0] == 401
        assert statuses[-1] == 429
