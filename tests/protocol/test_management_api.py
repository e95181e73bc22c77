"""The management API through real HTTP: every route, every kind of refusal, on both stores."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import threading
import uuid
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from inver.protocols.management.catalogs import CatalogRoutes
from inver.protocols.management.changes import ChangeRoutes
from inver.protocols.management.tables import TableRoutes
from tests.fixtures.server import API, InverServer
from tests.simulation.clients import Client

ADMIN = "00000000-0000-7000-8000-000000000002"
TABLE_FIELDS = {
    "id", "name", "full_name", "catalog_id", "schema_id", "format", "kind", "state", "location", "version",
    "owner", "comment", "properties", "columns", "created_at", "created_by", "updated_at", "updated_by",
}  # fmt: skip
CATALOG_FIELDS = {
    "id", "name", "comment", "properties", "storage_root", "owner", "created_at", "created_by", "updated_at",
    "updated_by",
}  # fmt: skip
SCHEMA_FIELDS = CATALOG_FIELDS | {"catalog_id", "path"}
_numbers = itertools.count(1)


class Place:
    """A schema of one test's own, and the words in which to talk about it."""

    def __init__(self, server: InverServer, client: httpx.Client) -> None:
        self.server = server
        self.client = client
        self.catalog = f"c{next(_numbers)}"
        self.path = f"/catalogs/{self.catalog}/schemas/s"
        self.post("/catalogs", {"name": self.catalog}, status=201)
        self.post(f"/catalogs/{self.catalog}/schemas", {"path": ["s"]}, status=201)

    def send(self, method: str, path: str, body: Any = None, *, status: int = 200, **headers: str) -> Any:
        """The decoded body of an answer that has the expected status."""
        spelled = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.client.request(method, path, json=body, headers=spelled)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        if status >= 400:
            return problem(answer)
        return answer.json() if answer.content else None

    def get(self, path: str, **options: Any) -> Any:
        return self.send("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        return self.send("POST", path, body, **options)

    def table(self, name: str = "t", **fields: Any) -> dict[str, Any]:
        made = self.post(f"{self.path}/tables", {"name": name, "format": "DELTA", **fields}, status=201)
        assert isinstance(made, dict)
        return made

    def transact(self, *operations: dict[str, Any], **options: Any) -> Any:
        return self.post("/transactions", {"operations": list(operations)}, **options)

    def last_event(self) -> int:
        return int(self.get("/info")["last_event"])

    def name(self, table: str = "t") -> list[str]:
        return [self.catalog, "s", table]


def problem(answer: httpx.Response) -> dict[str, Any]:
    """The body of a refusal, which has RFC 9457's form whatever was refused."""
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert isinstance(body, dict)
    assert body["status"] == answer.status_code
    assert body["type"] == "urn:inver:problem:" + body["title"].replace(" ", "-")
    assert body["detail"]
    assert body["request_id"] == answer.headers["x-request-id"]
    return body


def kind(body: dict[str, Any]) -> str:
    return str(body["type"]).rpartition(":")[2]


def commit(table: str, version: int, token: str = "x", **fields: Any) -> dict[str, Any]:
    return {"op": "commit", "table": {"id": table}, "version": version, "token": token, **fields}


@pytest.fixture(scope="module")
def shared_client(shared_inver: InverServer) -> Iterator[httpx.Client]:
    with shared_inver.client() as client:
        yield client


@pytest.fixture
def place(shared_inver: InverServer, shared_client: httpx.Client) -> Place:
    return Place(shared_inver, shared_client)


# --- catalogs and schemas ---


def test_info(place: Place):
    info = place.get("/info")
    assert set(info) == {"name", "version", "database", "last_event"}
    assert info["name"] == "inver"
    assert info["database"] == ("sqlite" if place.server.database is None else "postgresql")
    place.post("/catalogs", {"name": place.catalog + "x"}, status=201)
    assert place.last_event() == int(info["last_event"]) + 1


def test_the_life_of_a_catalog(place: Place):
    name = f"Life {next(_numbers)}/+%"
    properties = {"team": "sales", "é": "ü\n"}
    body = {"name": name, "comment": "first", "properties": properties, "storage_root": "s3a://b/x/"}
    made = place.post("/catalogs", body, status=201)
    assert set(made) == CATALOG_FIELDS
    assert made["name"] == name
    assert made["properties"] == properties
    assert made["storage_root"] == "s3://b/x"
    assert made["owner"] == made["created_by"] == made["updated_by"] == ADMIN
    path = "/catalogs/" + quote(name)
    assert place.get(path) == made
    assert place.get("/catalogs/" + quote(name.upper())) == made, "names are compared without case"
    assert place.client.head(path).status_code == 200

    altered = place.send("PATCH", path, {"comment": None})
    assert altered["comment"] is None
    assert altered["properties"] == properties, "what is not named stays"
    assert place.send("PATCH", path, {"properties": {}})["properties"] == {}

    assert kind(place.post("/catalogs", {"name": name.lower()}, status=409)) == "already-exists"
    assert place.send("DELETE", path, status=204) is None
    assert kind(place.get(path, status=404)) == "not-found"
    assert kind(place.send("DELETE", path, status=404)) == "not-found"


def quote(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def test_the_life_of_a_schema(place: Place):
    schemas = f"/catalogs/{place.catalog}/schemas"
    made = place.post(schemas, {"path": ["a.b"], "comment": "top"}, status=201)
    assert set(made) == SCHEMA_FIELDS
    assert made["path"] == ["a.b"]
    inner = place.post(schemas, {"path": ["a.b", "c/d"]}, status=201)
    assert inner["path"] == ["a.b", "c/d"]
    assert inner["name"] == "c/d"
    path = f"{schemas}/a.b%1Fc%2Fd"
    assert place.get(path) == inner
    assert [s["path"] for s in place.get(schemas)["schemas"]] == [["a.b"], ["s"]]
    assert [s["path"] for s in place.get(f"{schemas}?parent=a.b")["schemas"]] == [["a.b", "c/d"]]

    assert place.send("PATCH", path, {"comment": "inner"})["comment"] == "inner"
    assert kind(place.send("DELETE", f"{schemas}/a.b", status=409)) == "not-empty"
    assert kind(place.send("DELETE", f"/catalogs/{place.catalog}", status=409)) == "not-empty"
    assert kind(place.post(schemas, {"path": ["A.B"]}, status=409)) == "already-exists"
    assert kind(place.post(schemas, {"path": ["nowhere", "x"]}, status=404)) == "not-found"
    place.send("DELETE", path, status=204)
    place.send("DELETE", f"{schemas}/a.b", status=204)
    assert kind(place.get(path, status=404)) == "not-found"


# --- tables ---


def test_the_life_of_a_table(place: Place):
    columns = [{"name": "id", "type": "long", "nested": {"a": [1, 2.5, None, True]}}]
    made = place.table("T 1", format="ICEBERG", comment="c", properties={"k": "v"}, columns=columns)
    assert set(made) == TABLE_FIELDS
    assert made["full_name"] == place.name("T 1")
    assert (made["format"], made["kind"], made["state"], made["version"]) == ("ICEBERG", "MANAGED", "live", 0)
    assert made["location"].endswith(f"/{made['id']}"), "no name is part of a managed location"
    assert made["columns"] == columns
    path = f"{place.path}/tables/T%201"
    assert place.get(path) == place.get(f"/tables/{made['id']}") == made
    assert place.get(f"/tables/{made['id'].upper()}") == made
    listed = place.get(f"{place.path}/tables")["tables"]
    assert [table["name"] for table in listed] == ["T 1"]

    altered = place.send("PATCH", path, {"comment": "d", "columns": []})
    assert (altered["comment"], altered["columns"], altered["properties"]) == ("d", [], {"k": "v"})

    place.post(f"/catalogs/{place.catalog}/schemas", {"path": ["other"]}, status=201)
    renamed = place.post(f"{path}/rename", {"to": [place.catalog, "other", "t2"]})
    assert renamed["id"] == made["id"]
    assert renamed["full_name"] == [place.catalog, "other", "t2"]
    assert place.get(path, status=404)

    path = f"/catalogs/{place.catalog}/schemas/other"
    assert place.send("DELETE", f"{path}/tables/t2", status=204) is None
    assert place.get(f"/tables/{made['id']}", status=404)
    dropped = place.get(f"{path}/dropped")["tables"]
    assert [(table["id"], table["state"]) for table in dropped] == [(made["id"], "dropped")]
    assert dropped[0]["dropped_at"] >= made["created_at"]
    back = place.post(f"/tables/{made['id']}/undrop", {})
    assert back["full_name"] == [place.catalog, "other", "t2"]
    assert place.get(f"{path}/dropped")["tables"] == []
    assert kind(place.post(f"/tables/{made['id']}/undrop", {}, status=404)) == "not-found"


def test_a_dropped_table_comes_back_under_another_name(place: Place):
    first = place.table("t")
    place.send("DELETE", f"{place.path}/tables/t", status=204)
    second = place.table("t")
    assert second["id"] != first["id"]
    refused = place.post(f"/tables/{first['id']}/undrop", {}, status=409)
    assert kind(refused) == "already-exists"
    assert refused["fix"]
    back = place.post(f"/tables/{first['id']}/undrop", {"to": place.name("old")})
    assert back["full_name"] == place.name("old")


def test_an_external_table_lies_where_the_operator_allows(place: Place):
    root = place.server.home.with_name("external") / place.catalog
    made = place.table("x", kind="EXTERNAL", location=f"file://{root}/a/")
    assert made["kind"] == "EXTERNAL"
    assert made["location"] == f"file://{root}/a"
    tables = f"{place.path}/tables"
    for location, status, what in (
        (f"{root}/a", 409, "already-exists"),
        (f"{root}/a/b", 409, "already-exists"),
        (str(root), 409, "already-exists"),
        ("s3://elsewhere/x", 400, "invalid"),
        ("/", 400, "invalid"),
    ):
        body = {"name": "y", "format": "LANCE", "kind": "EXTERNAL", "location": location}
        assert kind(place.post(tables, body, status=status)) == what, location
    assert place.table("y", kind="EXTERNAL", location=f"{root}/a2")
    body = {"name": "z", "format": "LANCE", "location": f"{root}/z"}
    assert place.post(tables, body, status=400)["field"] == "location"
    body = {"name": "z", "format": "LANCE", "kind": "EXTERNAL"}
    assert place.post(tables, body, status=400)["field"] == "location"


def test_a_table_may_begin_at_any_version(place: Place):
    made = place.table("t", version=41)
    assert made["version"] == 41
    place.transact(commit(made["id"], 42))
    assert place.get(f"/tables/{made['id']}")["version"] == 42


def test_history(place: Place):
    made = place.table("t")
    for version in range(1, 6):
        counts = {"rows_added": version, "files_removed": 0}
        payload = {"n": version, "big": 10**30, "float": 1.50}
        place.transact(
            commit(made["id"], version, f"v{version}", operation="append", counts=counts, payload=payload)
        )
    history = place.get(f"{place.path}/tables/t/commits")["commits"]
    assert [row["version"] for row in history] == [5, 4, 3, 2, 1]
    newest = history[0]
    assert set(newest) == {"version", "at", "by", "operation", "token", "transaction", "payload", "counts"}
    assert (newest["by"], newest["operation"], newest["token"]) == (ADMIN, "append", "v5")
    assert newest["payload"] == {"n": 5, "big": 10**30, "float": 1.5}
    assert newest["counts"] == {"rows_added": 5, "files_removed": 0}
    assert [row["at"] for row in history] == sorted((row["at"] for row in history), reverse=True)
    by_id = f"/tables/{made['id']}/commits"
    assert place.get(by_id)["commits"] == history
    assert place.get(f"{by_id}?first=2&last=4")["commits"] == history[1:4]
    assert place.get(f"{by_id}?max_results=2")["commits"] == history[:2]
    assert place.get(f"{by_id}?branch=none")["commits"] == []
    assert place.get(f"{by_id}?first=x", status=400)["field"] == "first"
    assert place.get(f"{by_id}?max_results=0", status=400)["field"] == "max_results"


def test_what_clients_measured_is_empty_at_first(place: Place):
    place.table("t")
    assert place.get(f"{place.path}/tables/t/metrics") == {"reports": []}
    assert kind(place.get(f"{place.path}/tables/none/metrics", status=404)) == "not-found"


# --- transactions ---


def test_a_transaction_over_formats(place: Place):
    ids = [place.table(f"t{n}", format=f)["id"] for n, f in enumerate(("DELTA", "ICEBERG", "LANCE"))]
    before = place.last_event()
    result = place.transact(*(commit(table, 1) for table in ids))
    assert set(result) == {"transaction", "at", "replayed", "results"}
    assert result["transaction"] == str(before + 1)
    assert result["replayed"] is False
    assert result["results"] == [{"id": table, "version": 1} for table in ids]
    shown = place.get(f"/transactions/{result['transaction']}")
    assert set(shown) == {"transaction", "at", "by", "events"}
    assert (shown["transaction"], shown["at"], shown["by"]) == (result["transaction"], result["at"], ADMIN)
    assert [event["subject"] for event in shown["events"]] == ids
    assert shown["events"] == place.get(f"/events?after={before}")["events"]
    assert kind(place.get("/transactions/999999999", status=404)) == "not-found"
    assert kind(place.get(f"/transactions/{before + 2}", status=404)) == "not-found", "not its first event"
    assert place.get("/transactions/x", status=400)["field"] == "id"


def test_a_conflict_names_the_winner_and_changes_nothing(place: Place):
    first, second = place.table("a")["id"], place.table("b")["id"]
    won = place.transact(commit(first, 1, "winner"))
    before = place.last_event()
    lost = place.transact(commit(second, 1, "loser"), commit(first, 1, "loser"), status=409)
    assert kind(lost) == "conflict"
    (conflict,) = lost["conflicts"]
    assert conflict["operation"] == 1
    assert conflict["subject"] == first
    assert conflict["reason"] == "version-taken"
    assert (conflict["expected"], conflict["current"]) == (0, 1)
    assert conflict["winner"] == {
        "version": 1, "transaction": won["transaction"], "at": won["at"], "by": ADMIN
    }  # fmt: skip
    gap = place.transact(commit(first, 5), status=409)["conflicts"][0]
    assert (gap["reason"], gap["expected"], gap["current"]) == ("version-gap", 4, 1)
    assert "winner" not in gap
    assert "winner" not in lost["detail"], "the token of another is not shown"
    assert place.last_event() == before
    assert place.get(f"/tables/{second}")["version"] == 0


def test_a_replay_is_told_what_happened(place: Place):
    ids = [place.table(name)["id"] for name in ("a", "b")]
    operations = [commit(table, 1, "same") for table in ids]
    first = place.transact(*operations)
    before = place.last_event()
    assert place.transact(*operations) == {**first, "replayed": True}
    place.transact(commit(ids[0], 2, "later"))
    assert place.transact(*operations) == {**first, "replayed": True}
    assert place.last_event() == before + 1
    assert (
        kind(place.transact(commit(ids[0], 1, "same"), commit(ids[1], 1, "other"), status=409)) == "conflict"
    )


def test_every_kind_of_operation_in_one_transaction(place: Place):
    old, gone = place.table("old")["id"], place.table("gone")["id"]
    dead = place.table("dead")["id"]
    place.send("DELETE", f"{place.path}/tables/dead", status=204)
    before = place.last_event()
    result = place.transact(
        {"op": "create-table", "name": place.name("new"), "format": "LANCE"},
        {"op": "commit", "table": {"name": place.name("new")}, "version": 1, "token": "n"},
        {"op": "create-branch", "table": {"id": old}, "branch": "dev", "version": 0},
        commit(old, 1, "d", branch="dev"),
        {"op": "rename-table", "table": {"id": old}, "to": place.name("renamed")},
        {"op": "drop-table", "table": {"name": place.name("gone")}},
        {"op": "undrop-table", "table": {"id": dead}, "to": place.name("alive")},
        {"op": "move-cursor", "cursor": f"cursor/{place.catalog}", "expect": None, "value": "17"},
    )
    events = place.get(f"/events?after={before}")["events"]
    assert [event["type"] for event in events] == [
        f"io.inver.{what}.v1"
        for what in (
            "table.created", "table.committed", "table.branched", "table.committed", "table.renamed",
            "table.dropped", "table.undropped", "cursor.moved",
        )
    ]  # fmt: skip
    assert {event["invertransaction"] for event in events} == {result["transaction"]}
    new = result["results"][0]["id"]
    assert place.get(f"/tables/{new}")["version"] == 1
    assert place.get(f"/tables/{old}")["full_name"] == place.name("renamed")
    assert place.get(f"/tables/{old}")["version"] == 0, "a branch moves by itself"
    assert place.get(f"/tables/{old}/commits?branch=dev")["commits"][0]["token"] == "d"
    assert place.get(f"/tables/{gone}", status=404)
    assert place.get(f"/tables/{dead}")["full_name"] == place.name("alive")
    cursor = f"/cursors/cursor%2F{place.catalog}"
    assert place.get(cursor) == {"cursor": f"cursor/{place.catalog}", "value": "17"}


def test_a_cursor_moves_only_from_where_it_is(place: Place):
    def move(expect: str | None, value: str | None, **options: Any) -> Any:
        operation = {"op": "move-cursor", "cursor": name, "expect": expect, "value": value}
        return place.transact(operation, commit(table, len(moved) + 1, f"m{len(moved)}"), **options)

    name, table = f"cursor-{place.catalog}", place.table()["id"]
    moved: list[Any] = []
    assert kind(place.get(f"/cursors/{name}", status=404)) == "not-found"
    for expect, value in ((None, "1"), ("1", ""), ("", "3"), ("3", None), (None, "5")):
        refused = move("elsewhere", value, status=409)
        assert refused["conflicts"][0]["reason"] == "cursor-moved"
        assert refused["conflicts"][0]["current"] == expect
        moved.append(move(expect, value))
        if value is None:
            place.get(f"/cursors/{name}", status=404)
        else:
            assert place.get(f"/cursors/{name}")["value"] == value
    assert place.get(f"/tables/{table}")["version"] == len(moved)


# --- ETags ---


def test_etags(place: Place):
    place.table("t")
    for path in (f"/catalogs/{place.catalog}", place.path, f"{place.path}/tables/t"):
        first = place.client.get(path).headers["etag"]
        changed = place.client.patch(path, json={"comment": "1"}, headers={"If-Match": first})
        assert changed.status_code == 200
        second = changed.headers["etag"]
        assert second != first
        assert place.client.get(path).headers["etag"] == second
        for method, body in (("PATCH", {"comment": "2"}), ("DELETE", None)):
            stale = place.send(method, path, body, status=412, If_Match=first)
            assert kind(stale) == "precondition-failed"
            (conflict,) = stale["conflicts"]
            assert conflict["reason"] == "etag-changed"
            assert [conflict["expected"], conflict["current"]] == [int(first[1:-1]), int(second[1:-1])]
        assert place.send("PATCH", path, {"comment": "3"}, If_Match="*")["comment"] == "3"
        assert (
            place.send("PATCH", path, {"comment": "4"}, status=400, If_Match='"abc"')["field"] == "If-Match"
        )
        assert place.get(path)["comment"] == "3"
    path = f"{place.path}/tables/t"
    etag = place.client.get(path).headers["etag"]
    place.transact({"op": "commit", "table": {"name": place.name()}, "version": 1, "token": "x"})
    assert place.client.get(path).headers["etag"] == etag, "a commit does not change the definition"
    assert place.send("DELETE", path, status=204, If_Match=etag) is None


# --- pages ---


def pages(place: Place, path: str, kind: str, size: int) -> list[str]:
    names: list[str] = []
    token: str | None = None
    while True:
        query = {"max_results": str(size), **({} if token is None else {"page_token": token})}
        answer = place.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert 1 <= len(page[kind]) <= size or token is None
        names += [item["name"] for item in page[kind]]
        token = page["next_page_token"]
        if token is None:
            return names
        assert len(page[kind]) == size


def test_pages_have_no_gaps_and_no_duplicates(place: Place):
    names = [f"{letter}{number}" for letter in ("a", "B", "é", "ß", "z +&%/=", "日") for number in range(4)]
    for name in names:
        place.table(name)
        place.post(f"/catalogs/{place.catalog}/schemas", {"path": [name]}, status=201)
    for size in (1, 5, 23, 24, 25, 1000):
        found = pages(place, f"{place.path}/tables", "tables", size)
        assert sorted(found) == sorted(names)
        assert found == pages(place, f"{place.path}/tables", "tables", 100)
        schemas = pages(place, f"/catalogs/{place.catalog}/schemas", "schemas", size)
        assert sorted(schemas) == sorted([*names, "s"])
    for path in (f"{place.path}/tables", f"/catalogs/{place.catalog}/schemas", "/catalogs"):
        for wrong in ("0", "1001", "-1", "x", "1.5", ""):
            assert place.get(f"{path}?max_results={wrong}", status=400)["field"] == "max_results"


def test_pages_of_catalogs(place: Place):
    names = {f"{place.catalog}-{number}" for number in range(7)}
    for name in names:
        place.post("/catalogs", {"name": name}, status=201)
    found = pages(place, "/catalogs", "catalogs", 3)
    assert len(found) == len(set(found))
    assert names < set(found)


def test_the_largest_page_has_a_next_one(place: Place):
    """A page of the largest size must not be taken for the last."""
    operations = [
        {"op": "create-table", "name": place.name(f"t{number:04}"), "format": "LANCE"}
        for number in range(1001)
    ]
    place.transact(*operations[:1000])
    place.transact(operations[1000])
    assert pages(place, f"{place.path}/tables", "tables", 1000) == [f"t{number:04}" for number in range(1001)]


def test_a_page_goes_on_where_it_was_although_names_come_and_go(place: Place):
    for name in ("b", "d", "f"):
        place.table(name)
    first = place.get(f"{place.path}/tables?max_results=2")
    assert [table["name"] for table in first["tables"]] == ["b", "d"]
    place.table("a")
    place.table("e")
    place.send("DELETE", f"{place.path}/tables/d", status=204)
    rest = place.get(f"{place.path}/tables?max_results=9&page_token={first['next_page_token']}")
    assert [table["name"] for table in rest["tables"]] == ["e", "f"]


# --- events ---


def test_events_are_cloud_events(place: Place):
    before = place.last_event()
    made = place.table("t", comment="secret plan")
    place.transact(commit(made["id"], 1, "private-token", operation="append", counts={"rows_added": 3}))
    page = place.get(f"/events?after={before}")
    created, committed = page["events"]
    assert page["next"] == committed["id"] == str(before + 2)
    assert set(created) == {
        "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "invertransaction",
        "data",
    }  # fmt: skip
    assert (created["specversion"], created["datacontenttype"]) == ("1.0", "application/json")
    assert created["source"].startswith("urn:inver:")
    assert created["subject"] == committed["subject"] == made["id"]
    assert committed["data"] == {
        "operation": "append",
        "counts": {"rows_added": 3},
        "by": ADMIN,
        "version": 1,
    }
    assert committed["time"].endswith("Z")
    assert "private-token" not in str(page)


def test_the_feed_can_be_read_from_any_point(place: Place):
    before = place.last_event()
    table = place.table()["id"]
    for version in range(1, 20):
        place.transact(commit(table, version))
    whole = place.get(f"/events?after={before}&limit=1000")["events"]
    assert [int(event["id"]) for event in whole] == list(range(before + 1, before + 21))
    found, after = [], str(before)
    while events := (page := place.get(f"/events?after={after}&limit=3"))["events"]:
        found += events
        assert page["next"] == events[-1]["id"]
        after = page["next"]
    assert found == whole
    assert page["next"] == after
    for name, value in (("after", "x"), ("after", "-1"), ("limit", "0"), ("limit", "1001"), ("wait", "61")):
        assert place.get(f"/events?{name}={value}", status=400)["field"] == name
    assert place.get("/events?after=1&after=2", status=400)["field"] == "after"
    assert place.get(f"/events?after={2**63 - 1}")["events"] == []


async def test_a_long_poll_wakes_up_when_something_happens(shared_inver: InverServer):
    async with Client(shared_inver) as poller, Client(shared_inver) as writer:
        last = (await writer.get("/info"))["last_event"]
        polling = asyncio.ensure_future(poller.call("GET", f"/events?after={last}&wait=60"))
        # Long enough for the server's own housekeeping to write something that is no event.
        done, _ = await asyncio.wait([polling], timeout=2.5)
        assert not done, f"the poll did not wait: {polling.result()}"
        made = await writer.call("POST", "/catalogs", {"name": f"woken-{uuid.uuid4()}"})
        answer = await asyncio.wait_for(polling, 30)
    assert answer.status == 200
    assert [event["subject"] for event in answer.body["events"]] == [made.body["id"]]
    assert answer.body["next"] == str(int(last) + 1)


def test_a_long_poll_ends_with_nothing_when_nothing_happens(place: Place):
    last = str(place.last_event())
    assert place.get(f"/events?after={last}&wait=1") == {"events": [], "next": last}


# --- idempotency keys ---


def test_a_key_makes_a_request_happen_once(place: Place):
    table = place.table()["id"]
    key = str(uuid.uuid4())
    operations = [commit(table, 1), {"op": "create-table", "name": place.name("n"), "format": "DELTA"}]
    first = place.transact(*operations, Idempotency_Key=key)
    before = place.last_event()
    again = place.transact(*operations, Idempotency_Key=key.upper())
    assert again == {**first, "replayed": True}
    assert place.last_event() == before
    # The same meaning in other bytes is the same request.
    spelled = place.client.post(
        "/transactions",
        content=b' { "operations" : [ {"version":1, "token":"\\u0078", "op":"commit", "table":{"id":"%b"}}, '
        b'{"name":["%b","s","n"],"format":"DELTA","op":"create-table"}] } '
        % (table.encode(), place.catalog.encode()),
        headers={"Idempotency-Key": key},
    )
    assert (spelled.status_code, spelled.json()) == (200, again)


def test_a_key_belongs_to_one_request(place: Place):
    table = place.table()["id"]
    key = str(uuid.uuid4())
    place.transact(commit(table, 1), Idempotency_Key=key)
    for other in (commit(table, 2), commit(table, 1, "y"), commit(table, 1, payload={"a": 1})):
        assert kind(place.transact(other, status=422, Idempotency_Key=key)) == "idempotency-key-reused"
    path = f"{place.path}/tables"
    place.post(path, {"name": "t2", "format": "DELTA"}, status=422, Idempotency_Key=key)
    assert place.get(f"/tables/{table}")["version"] == 1


def test_a_refusal_under_a_key_is_repeated_word_for_word(place: Place):
    table = place.table()["id"]
    key = str(uuid.uuid4())
    refused = place.transact(commit(table, 2), status=409, Idempotency_Key=key)
    place.transact(commit(table, 1))
    again = place.transact(commit(table, 2), status=409, Idempotency_Key=key)
    del refused["request_id"], again["request_id"]
    assert again == refused, "a client may have deleted its files since"
    assert place.transact(commit(table, 2), Idempotency_Key=str(uuid.uuid4()))["replayed"] is False


@pytest.mark.parametrize(
    "key", ["x", "", "1234", str(uuid.UUID(int=1))[:-1], str(uuid.UUID(int=1)) + "0", "é" * 36]
)
def test_a_malformed_key_is_refused(place: Place, key: str):
    table = place.table()["id"]
    headers = {b"Idempotency-Key": key.encode()}
    answer = place.client.post("/transactions", json={"operations": [commit(table, 1)]}, headers=headers)
    assert answer.status_code == 400
    assert problem(answer)["field"] == "Idempotency-Key"
    assert place.get(f"/tables/{table}")["version"] == 0


def test_two_keys_are_refused(place: Place):
    table = place.table()["id"]
    headers = [("Idempotency-Key", str(uuid.UUID(int=n))) for n in (1, 2)]
    answer = place.client.post("/transactions", json={"operations": [commit(table, 1)]}, headers=headers)
    assert answer.status_code == 400
    assert problem(answer)["field"] == "Idempotency-Key"


def test_every_table_route_takes_a_key(place: Place):
    """Sent twice under a key each takes effect once, also where the second would be refused without one."""
    tables, before = f"{place.path}/tables", place.last_event()
    other = place.name("t2")
    steps: list[tuple[str, str, Any, int]] = [
        ("POST", tables, {"name": "t", "format": "DELTA"}, 201),
        ("PATCH", f"{tables}/t", {"comment": "x"}, 200),
        ("POST", f"{tables}/t/rename", {"to": other}, 200),
        ("DELETE", f"{tables}/t2", None, 204),
    ]
    made: Any = None
    for count, (method, path, body, status) in enumerate(steps, start=1):
        key = str(uuid.uuid4())
        first = place.send(method, path, body, status=status, Idempotency_Key=key)
        assert place.send(method, path, body, status=status, Idempotency_Key=key) == first
        assert place.last_event() == before + count, (method, path)
        made = made or first
    key, undrop = str(uuid.uuid4()), f"/tables/{made['id']}/undrop"
    assert place.post(undrop, {}, Idempotency_Key=key) == place.post(undrop, {}, Idempotency_Key=key)
    assert place.last_event() == before + len(steps) + 1


def test_one_key_at_once_from_many_clients_takes_effect_once(place: Place):
    table, key = place.table()["id"], str(uuid.uuid4())
    before = place.last_event()
    answers: list[httpx.Response] = []
    body = {"operations": [commit(table, 1)]}

    def send() -> None:
        answers.append(
            place.server.call(
                "POST", "/transactions", json=body, headers={**place.server.headers, "Idempotency-Key": key}
            )
        )

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200] * 8
    assert sorted(answer.json()["replayed"] for answer in answers) == [False] + [True] * 7
    assert len({answer.json()["transaction"] for answer in answers}) == 1
    assert place.last_event() == before + 1


# --- refusals ---


def test_unknown_paths_and_methods(place: Place):
    for path in (
        "/nothing",
        "/catalogs/x/y",
        "/tables",
        f"{place.path}/tables/t/commits/1",
        "/transactions/1/2",
    ):
        assert kind(place.get(path, status=404)) == "not-found"
    for url in ("/", "/api", "/api/management/v2/info", "/favicon.ico", "//api/management/v1/info"):
        answer = httpx.get(place.server.url + url, headers=place.server.headers)
        assert answer.status_code == 404, url
        assert kind(problem(answer)) == "not-found"
    answer = place.client.put("/catalogs", json={})
    assert answer.status_code == 405
    assert kind(problem(answer)) == "method-not-allowed"
    assert answer.headers["allow"] == "GET, HEAD, POST"
    answer = place.client.request("BREW", "/catalogs")
    assert answer.status_code in (400, 405)
    problem(answer)


def test_what_is_missing_is_named(place: Place):
    nobody = str(uuid.uuid4())
    for path in (
        "/catalogs/none",
        "/catalogs/none/schemas",
        "/catalogs/none/schemas/s/tables",
        f"/tables/{nobody}",
    ):
        refused = place.get(path, status=404)
        assert kind(refused) == "not-found"
        assert "none" in refused["detail"] or nobody in refused["detail"]
    for operation in (
        commit(nobody, 1),
        {"op": "commit", "table": {"name": place.name("none")}, "version": 1, "token": "x"},
        {"op": "create-table", "name": [place.catalog, "none", "t"], "format": "DELTA"},
        {"op": "rename-table", "table": {"id": nobody}, "to": place.name("t")},
        {"op": "drop-table", "table": {"id": nobody}},
        {"op": "undrop-table", "table": {"id": nobody}},
        {"op": "create-branch", "table": {"id": nobody}, "branch": "b", "version": 0},
    ):
        assert kind(place.transact(operation, status=404)) == "not-found", operation


def test_a_body_that_is_no_json_is_refused(place: Place):
    for content in (
        b"",
        b"{",
        b"nonsense",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b'{"name": "\xff"}',
        b"{}trailing",
    ):
        answer = place.client.post("/catalogs", content=content)
        assert answer.status_code == 400, content
        assert problem(answer)["field"] is not None
    assert place.post("/catalogs", {}, status=400)


def test_a_body_that_is_too_large_is_refused(place: Place):
    answer = place.client.post("/catalogs", content=b" " * (32 * 2**20 + 1))
    assert answer.status_code == 413
    assert kind(problem(answer)) == "too-large"


def test_every_route_needs_a_token(shared_inver: InverServer):
    with httpx.Client(base_url=shared_inver.url + API) as stranger:
        for method, path in sorted(ROUTES):
            answer = stranger.request(method, path.replace("{", "").replace("}", ""))
            assert answer.status_code == 401, (method, path)
            assert kind(problem(answer)) == "unauthenticated"
            assert answer.headers["www-authenticate"].startswith("Bearer")


def test_the_request_id_is_echoed(place: Place):
    answer = place.client.get("/info", headers={"X-Request-Id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    answer = place.client.get("/catalogs/none", headers={"X-Request-Id": "mine-2"})
    assert problem(answer)["request_id"] == "mine-2"
    made = {place.client.get("/info").headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    for bad in ("", "a b", "x" * 129):
        assert place.client.get("/info", headers={"X-Request-Id": bad}).headers["x-request-id"] != bad


def test_compressed_requests_are_understood(place: Place):
    squeezed: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
    for encoding, squeeze in squeezed.items():
        body = squeeze(json.dumps({"name": f"{place.catalog}-{encoding}"}).encode())
        answer = place.client.post("/catalogs", content=body, headers={"Content-Encoding": encoding})
        assert answer.status_code == 201, answer.text
    answer = place.client.post("/catalogs", content=b"x", headers={"Content-Encoding": "br"})
    assert answer.status_code == 415
    problem(answer)


# --- all of it ---

_nothing: Any = None
ROUTES = {
    (endpoint.method, endpoint.path)
    for endpoint in (
        *CatalogRoutes(_nothing).endpoints(),
        *TableRoutes(_nothing, _nothing).endpoints(),
        *ChangeRoutes(_nothing, _nothing, "", "", _nothing).endpoints(),
    )
}


def test_every_route_was_answered_well_by_these_tests(
    shared_inver: InverServer, request: pytest.FixtureRequest
):
    """Stands last. A new route without a test here fails."""
    here = [item for item in request.session.items if item.path == request.path]
    if len({item.name.partition("[")[0] for item in here}) < sum(
        name.startswith("test_") for name in globals()
    ):
        pytest.skip("only some of this module's tests run")
    lines = httpx.get(shared_inver.management_url + "/metrics").text.splitlines()
    for method, path in sorted(ROUTES):
        start = f'inver_http_requests_total{{method="{method}",route="{API}{path}",status="20'
        assert any(line.startswith(start) for line in lines), f"{method} {path} was never answered well"
