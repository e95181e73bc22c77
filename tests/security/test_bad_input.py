"""Hostile requests, named by their id in the attack list.

Each attack runs beside neighbours who commit all the time: all of theirs succeed, the attack gets a
well-formed 4xx, and afterwards the event feed holds the neighbours' commits and nothing else.
"""

from __future__ import annotations

import copy
import gzip
import http.client
import itertools
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.crowd import NEIGHBOURS, Target, make_place, refusal, without_request_id
from tests.fixtures.server import API, InverServer
from tests.simulation.clients import commits
from tests.simulation.history import Write

MIB = 2**20
WAIT_S = 30


@pytest.fixture(scope="module")
def attacker(shared_inver: InverServer) -> Iterator[httpx.Client]:
    with shared_inver.client(timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def neighbours(attacker: httpx.Client) -> list[str]:
    return make_place(attacker, [f"n{number}" for number in range(NEIGHBOURS)])[1]


@pytest.fixture
def target(shared_inver: InverServer, attacker: httpx.Client, neighbours: list[str]) -> Target:
    return Target(shared_inver, attacker, neighbours)


# --- F1: sizes ---


def test_f1_a_body_beyond_the_limit(target: Target):
    with target.unharmed():
        body = refusal(target.client.post("/transactions", content=b" " * (32 * MIB + 1)), 413)
        assert body["field"] == "body"

        def endless() -> Iterator[bytes]:
            for _ in range(64):
                yield b" " * MIB

        # Without a length in front, the server finds out as it reads; it may hang up before we are done.
        try:
            answer = target.client.post("/transactions", content=endless())
        except httpx.WriteError:
            return
        assert refusal(answer, 413)["field"] == "body"


def test_f1_a_small_body_that_unpacks_to_a_large_one(target: Target):
    bombs = [gzip.compress(bytes(64 * MIB)), gzip.compress(b"[" + b" " * (33 * MIB) + b"]")]
    with target.unharmed():
        for bomb in bombs:
            assert len(bomb) < MIB
            answer = target.client.post("/transactions", content=bomb, headers={"Content-Encoding": "gzip"})
            assert refusal(answer, 413)["field"] == "body"
        # A bomb in a bomb is unpacked once, and is then no JSON.
        nested = gzip.compress(gzip.compress(bytes(64 * MIB)))
        headers = {"Content-Encoding": "gzip"}
        assert (
            refusal(target.client.post("/transactions", content=nested, headers=headers))["field"] == "body"
        )
        headers = {"Content-Encoding": "gzip, gzip"}
        refusal(target.client.post("/transactions", content=nested, headers=headers), 415)
        for damaged in (nested[:-9], b"\x1f\x8b", b"no gzip", nested + nested):
            answer = target.client.post(
                "/transactions", content=damaged, headers={"Content-Encoding": "gzip"}
            )
            assert refusal(answer)["field"] == "body"


def test_f1_deep_nesting(target: Target):
    deep = 100_000
    commit = json.dumps(commits([Write(target.table, 1, "x")])["operations"][0])[:-1]
    bodies = [
        b"[" * deep,
        b"[" * deep + b"]" * deep,
        b'{"a":' * deep + b"1" + b"}" * deep,
        b'{"operations":' + b"[" * deep + b"]" * deep + b"}",
        b'{"operations":[' + commit.encode() + b',"payload":' + b"[" * deep + b"]" * deep + b"}]}",
        b'{"operations":[' + commit.encode() + b',"payload":' + b"[" * 65 + b"]" * 65 + b"}]}",
    ]
    with target.unharmed():
        for body in bodies:
            assert refusal(target.client.post("/transactions", content=body))["field"] == "body"


def test_f1_long_numbers(target: Target):
    start = f'{{"operations":[{{"op":"commit","table":{{"id":"{target.table}"}},"token":"x",'
    tables = f"{target.schema}/tables"
    with target.unharmed():
        for digits, sign in itertools.product((19, 20, 200, 5_000, 200_000), ("", "-")):
            number = sign + "9" * digits
            for path, body, field in (
                ("/transactions", f'{start}"version":{number}}}]}}', "operations[0].version"),
                (
                    "/transactions",
                    f'{start}"version":1,"counts":{{"rows_added":{number}}}}}]}}',
                    "operations[0].counts.rows_added",
                ),
                (tables, f'{{"name":"x","format":"DELTA","version":{number}}}', "version"),
            ):
                answer = target.client.post(path, content=body)
                assert refusal(answer)["field"] == field, (digits, answer.text)
            for name in ("after", "limit", "wait"):
                assert refusal(target.client.get(f"/events?{name}={number[:1000]}"))["field"] == name
        answer = target.client.post(tables, content=b'{"name":"x","format":"DELTA","version":1e400}')
        assert refusal(answer)["field"] == "version"


@pytest.mark.slow
def test_f1_many_operations(target: Target):
    one = json.dumps(commits([Write(target.table, 1, "x")])["operations"][0]).encode()
    tiny = b'{"op":"drop-table","table":{}}'
    with target.unharmed():
        for operation, number in ((tiny, 1_000_000), (one, 10_000), (one, 1_001), (b"1", 1_000_000)):
            body = b'{"operations":[' + b",".join([operation] * number) + b"]}"
            assert len(body) < 32 * MIB
            field = refusal(target.client.post("/transactions", content=body))["field"]
            assert field.startswith("operations"), field
        other = [
            {"op": "create-table", "name": [*target.names()[:2], f"x{number}"], "format": "LANCE"}
            for number in range(10_000)
        ]
        answer = target.client.post("/transactions", json={"operations": other})
        assert refusal(answer)["field"] == "operations"
        assert refusal(target.client.post("/transactions", json={"operations": []}))["field"] == "operations"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "x" * 256}, "name"),
        ({"name": "é" * 128}, "name"),
        ({"name": "x", "comment": "x" * 4097}, "comment"),
        ({"name": "x", "properties": {"k" * 256: "v"}}, "properties"),
        ({"name": "x", "properties": {"k": "v" * 4097}}, "properties"),
        ({"name": "x", "properties": {str(number): "v" for number in range(1001)}}, "properties"),
        ({"name": "x", "storage_root": "s3://b/" + "x" * 4096}, "storage_root"),
    ],
)
def test_f1_long_texts_and_lists(target: Target, body: dict[str, Any], field: str):
    with target.unharmed():
        assert refusal(target.client.post("/catalogs", json=body))["field"].partition("[")[0] == field


def test_f1_a_deep_tree_of_schemas(target: Target):
    with target.unharmed():
        path = [str(number) for number in range(19)]
        answer = target.client.post(f"/catalogs/{target.catalog}/schemas", json={"path": path})
        assert refusal(answer)["field"] == "path"


# --- every field of every request ---


def requests_of(target: Target) -> dict[str, tuple[str, str, Any]]:
    """A valid request of each kind; each would change something if it were sent as it is."""
    name, table = target.names(), {"id": target.table}

    def one(**operation: Any) -> tuple[str, str, Any]:
        return "POST", "/transactions", {"operations": [operation]}

    described = {"comment": "c", "properties": {"k": "v"}}
    tables = f"{target.schema}/tables"
    counts = dict.fromkeys(sorted(COUNTS), 1)
    return {
        "commit": one(
            op="commit", table=table, version=1, token="x", branch="", operation="append", payload={"a": 1},
            counts=counts,
        ),
        "commit-by-name": one(op="commit", table={"name": name}, version=1, token="x"),
        "create-table-op": one(
            op="create-table", name=[*name[:2], "new"], format="DELTA", kind="MANAGED", location=None,
            version=0, columns=[{"name": "c"}], **described,
        ),
        "create-branch": one(op="create-branch", table=table, branch="b", version=0),
        "rename": one(op="rename-table", table=table, to=[*name[:2], "renamed"]),
        "drop": one(op="drop-table", table=table),
        "undrop": one(op="undrop-table", table={"id": str(uuid.uuid4())}, to=[*name[:2], "back"]),
        "cursor": one(op="move-cursor", cursor="c", expect=None, value="v"),
        "create-catalog": ("POST", "/catalogs", {"name": "x", "storage_root": None, **described}),
        "alter-catalog": ("PATCH", f"/catalogs/{target.catalog}", described),
        "create-schema": ("POST", f"/catalogs/{target.catalog}/schemas", {"path": ["x"], **described}),
        "alter-schema": ("PATCH", target.schema, described),
        "create-table": (
            "POST", tables,
            {
                "name": "x", "format": "DELTA", "kind": "MANAGED", "version": 0, "columns": [{"a": 1}],
                **described,
            },
        ),
        "alter-table": ("PATCH", f"{tables}/t", {"columns": [{"a": 1}], **described}),
        "rename-table": ("POST", f"{tables}/t/rename", {"to": [*name[:2], "renamed"]}),
        "undrop-table": ("POST", f"/tables/{target.table}/undrop", {"to": [*name[:2], "back"]}),
    }  # fmt: skip


KINDS = (
    "commit", "commit-by-name", "create-table-op", "create-branch", "rename", "drop", "undrop", "cursor",
    "create-catalog", "alter-catalog", "create-schema", "alter-schema", "create-table", "alter-table",
    "rename-table", "undrop-table",
)  # fmt: skip
# What is inside these is the client's own, and any JSON.
OPAQUE = {"payload", "columns"}
COUNTS = {f"{what}_{done}" for what in ("rows", "files", "bytes") for done in ("added", "removed")}
NULLABLE = COUNTS | {"comment", "location", "storage_root", "counts", "expect", "value"}
Path_ = tuple[str | int, ...]


def places(value: Any, at: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every value inside a request, with the way to it."""
    if at:
        yield at, value
    if at and at[-1] in OPAQUE:
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*at, key))


def changed(body: Any, at: Path_, value: Any) -> Any:
    body = copy.deepcopy(body)
    inside = body
    for step in at[:-1]:
        inside = inside[step]
    inside[at[-1]] = value
    return body


def named(field: str, at: Path_) -> bool:
    """Whether a refusal's field is the place of the wrong value, or the object that holds it."""
    spelled = ""
    for step in at:
        spelled += f"[{step}]" if isinstance(step, int) else f".{step}"
    spelled = spelled.lstrip(".")
    # A map's values are shown as [...], and not by their keys.
    loose = spelled.replace(".properties.k", ".properties[...]").replace("properties.k", "properties[...]")
    return field in (spelled, loose) or (spelled.startswith(field) and field != "")


SAMPLES: tuple[Any, ...] = (None, True, 0, -1, 1.5, 2**63, "", "text", [], [1], [[]], {}, {"a": 1})


def json_type(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(type(value))
    return "number" if isinstance(value, int) else str(type(value))


@pytest.mark.parametrize("kind", KINDS)
def test_f1_wrong_types_in_every_field(target: Target, kind: str):
    method, path, body = requests_of(target)[kind]
    with target.unharmed():
        for at, good in places(body):
            if at[-1] in OPAQUE:
                continue
            for sample in SAMPLES:
                nullable = at[-1] in NULLABLE or (at[-1] == "to" and kind.startswith("undrop"))
                if json_type(sample) == json_type(good) or (sample is None and nullable):
                    continue
                if good is None and isinstance(sample, str):
                    continue
                answer = target.client.request(method, path, json=changed(body, at, sample))
                field = refusal(answer)["field"]
                assert named(field, at), f"{sample!r} at {at}: {field!r}"


@pytest.mark.parametrize("kind", KINDS)
def test_f1_unknown_and_missing_fields_are_named(target: Target, kind: str):
    method, path, body = requests_of(target)[kind]
    with target.unharmed():
        objects = [((), body), *((at, v) for at, v in places(body) if isinstance(v, dict))]
        for at, value in objects:
            if at and (at[-1] in OPAQUE or at[-1] == "properties"):
                continue
            extra = {**value, "unforeseen": 1}
            answer = target.client.request(method, path, json=changed(body, at, extra) if at else extra)
            told = refusal(answer)
            assert "unforeseen" in told["detail"] + told["field"]
        for at, _ in places(body):
            if at[-1] in ("op", "version", "token", "format", "cursor", "expect", "value", "branch", "table"):
                refused = without(target, method, path, body, at)
                if refused is not None:
                    assert str(at[-1]) in refused["detail"] + refused["field"], refused


def without(target: Target, method: str, path: str, body: Any, at: Path_) -> dict[str, Any] | None:
    """The refusal of a request that lacks one field; None if the field may be left out."""
    optional = {"commit": ("branch",), "create-table": ("version",), "create-table-op": ("version",)}
    operation = body["operations"][0]["op"] if "operations" in body else ""
    if at[-1] in optional.get(operation, ()) or (operation in ("", "create-table") and at[-1] == "version"):
        return None
    body = copy.deepcopy(body)
    inside = body
    for step in at[:-1]:
        inside = inside[step]
    del inside[at[-1]]
    return refusal(target.client.request(method, path, json=body))


@pytest.mark.parametrize("kind", KINDS)
def test_f1_nul_in_every_text(target: Target, kind: str):
    method, path, body = requests_of(target)[kind]
    with target.unharmed():
        for at, good in places(body):
            for bad in nul_in(good):
                answer = target.client.request(method, path, json=changed(body, at, bad))
                refusal(answer)
        # And where nobody decodes it, beside its harmless double.
        if kind == "commit":
            opaque = changed(body, ("operations", 0, "payload"), {"a": "\x00"})
            refusal(target.client.request(method, path, json=opaque))


def nul_in(value: Any) -> Iterator[Any]:
    if isinstance(value, str):
        yield from ("\x00", value + "\x00", "a\x00b")
    elif isinstance(value, dict) and set(value) == {"k"}:
        yield {"k\x00": "v"}


HIDDEN = ("\x01", "\x1f", "\x7f", "\x85", "\u200b", "\u202e", "\u2028", "\ue000", "\U000e0041")


@pytest.mark.parametrize("hidden", HIDDEN, ids=ascii)
def test_f1_characters_that_nobody_sees_in_names(target: Target, hidden: str):
    with target.unharmed():
        for name in (f"a{hidden}b", hidden, f"{hidden}a"):
            for path, body, field in (
                ("/catalogs", {"name": name}, "name"),
                (f"/catalogs/{target.catalog}/schemas", {"path": [name]}, "name"),
                (f"{target.schema}/tables", {"name": name, "format": "DELTA"}, "name"),
                (f"{target.schema}/tables/t/rename", {"to": [*target.names()[:2], name]}, "to"),
            ):
                told = refusal(target.client.post(path, json=body))
                assert told["field"] == field
                assert f"U+{ord(hidden):04X}" in told["detail"]
            for operation, field in (
                (
                    {"op": "create-branch", "table": {"id": target.table}, "branch": name, "version": 0},
                    "branch",
                ),
                ({"op": "move-cursor", "cursor": name, "expect": None, "value": "1"}, "cursor"),
            ):
                told = refusal(target.client.post("/transactions", json={"operations": [operation]}))
                assert told["field"] == f"operations[0].{field}"
            # A table that cannot exist is not found, and nothing worse.
            gone = {"op": "drop-table", "table": {"name": [*target.names()[:2], name]}}
            refusal(target.client.post("/transactions", json={"operations": [gone]}), 400, 404)


def test_f1_text_that_is_no_text(target: Target):
    """Bytes that are not UTF-8 never get in: they would come out again in everybody's history."""
    commit = json.dumps(commits([Write(target.table, 1, "x")])["operations"][0])[:-1].encode()
    bodies = [
        b'{"operations":[' + commit + b',"payload":{"a":"%b"}}]}' % bad
        for bad in (
            b"\xff",
            b"\xc0\x80",
            b"\xed\xa0\x80",
            b"\xf5\x80\x80\x80",
            b"a\x01",
            b"a\nb",
            b"\\ud800",
            b"\\x",
        )
    ]
    with target.unharmed():
        for body in bodies:
            assert refusal(target.client.post("/transactions", content=body))["field"] == "body"


@pytest.mark.parametrize("version", [-1, -(2**63), -(2**63) - 1, 2**63, 2**64, 10**30])
def test_f1_versions_out_of_range(target: Target, version: int):
    table = {"id": target.table}
    with target.unharmed():
        for operation in (
            {"op": "commit", "table": table, "version": version, "token": "x"},
            {"op": "create-branch", "table": table, "branch": "b", "version": version},
            {"op": "create-table", "name": [*target.names()[:2], "v"], "format": "DELTA", "version": version},
        ):
            answer = target.client.post("/transactions", json={"operations": [operation]})
            assert refusal(answer)["field"] == "operations[0].version"
        for name in ("first", "last"):
            answer = target.client.get(f"/tables/{target.table}/commits?{name}={version}")
            assert refusal(answer)["field"] == name


def test_f1_the_last_version_of_all(target: Target):
    last = 2**63 - 1
    with target.unharmed():
        for version in (0, 2, last):
            operation = {"op": "commit", "table": {"id": target.table}, "version": version, "token": "x"}
            refusal(target.client.post("/transactions", json={"operations": [operation]}), 409)
    made = target.client.post(
        f"{target.schema}/tables", json={"name": "end", "format": "DELTA", "version": last - 1}
    )
    table = made.json()["id"]
    for version, statuses in ((last, (200,)), (last, (200,)), (last - 1, (409,))):
        operation = {"op": "commit", "table": {"id": table}, "version": version, "token": "x"}
        answer = target.client.post("/transactions", json={"operations": [operation]})
        assert answer.status_code in statuses, answer.text
    assert target.client.get(f"/tables/{table}/commits").json()["commits"][0]["version"] == last


# --- B10: paths ---

LOCATIONS = [
    "", "relative/path", "..", "/../etc/passwd", "/warehouse/../../etc", "/warehouse/./x", "//host/share",
    "/a//b",
    "/a/%2e%2e/b", "/a/%2E%2e/b", "/a%2fb", "/a%5c..%5cb", "/a%00b", "/a\x00b", "/a\tb", "/a\nb", "/a\\..\\b",
    "/a?b", "/a#b", " /a", "/a ", "file://host/a", "file:a", "file:///..", "file:///a/../b", "file:///a/%2e%2e",
    "s3://", "s3:///a", "s3://b..c/a", "s3://b./a", "s3://user@b/a", "s3://b:9000/a", "s3://b/../c", "s3://b/a//c",
    "s3://b/%2e%2e/c", "s3://b/a\u200bc", "s3://b/a\U000e0041c", "S3://b/a", "http://169.254.169.254/latest",
    "https://b/a", "ftp://b/a", "jdbc:x", "javascript:alert(1)", "data:,x", "abfss://C@a/x", "gs://",
]  # fmt: skip


def test_b10_a_location_that_could_mean_two_things_is_refused(target: Target):
    schemas, tables = f"/catalogs/{target.catalog}/schemas", f"{target.schema}/tables"
    external = {"name": "x", "format": "DELTA", "kind": "EXTERNAL"}
    with target.unharmed():
        for location in LOCATIONS:
            for path, body, field in (
                ("/catalogs", {"name": "x", "storage_root": location}, "storage_root"),
                (schemas, {"path": ["x"], "storage_root": location}, "storage_root"),
                (tables, {**external, "location": location}, "location"),
            ):
                answer = target.client.post(path, json=body)
                assert answer.status_code == 400, (location, answer.text)
                told = refusal(answer)
                assert told["field"] == ("body" if "\x00" in location else field), (location, told)


def test_b10_an_external_location_stays_below_its_root(target: Target):
    root = target.server.home.with_name("external")
    with target.unharmed():
        for location in (
            str(root) + "2/x",
            str(root.parent),
            "/etc/passwd",
            f"{target.server.home}/inver.db",
            "s3://b/x",
        ):
            body = {"name": "x", "format": "DELTA", "kind": "EXTERNAL", "location": location}
            told = refusal(target.client.post(f"{target.schema}/tables", json=body))
            assert told["field"] == "location"


def test_b10_names_never_become_paths(target: Target):
    """What looks like a way out of the warehouse is a name like any other."""
    folder = target.server.home.parent
    before = tree(folder)
    wild = [
        "../../x",
        "..%2f..%2fx",
        "/etc/passwd",
        "a/../b",
        "C:\\x",
        "~",
        "$HOME",
        "`id`",
        "'; DROP TABLE tables; --",
        "*",
        "%2e%2e",
    ]
    for name in wild:
        made = target.client.post(f"{target.schema}/tables", json={"name": name, "format": "DELTA"})
        assert made.status_code == 201, made.text
        table = made.json()
        assert table["location"] == f"file://{target.server.home}/warehouse/{table['id']}"
        path = f"{target.schema}/tables/" + "".join(f"%{byte:02x}" for byte in name.encode())
        assert target.client.get(path).json()["id"] == table["id"]
        assert target.client.delete(path).status_code == 204
    for name in (".", "..", " ", ""):
        body = {"name": name, "format": "DELTA"}
        assert "name" in refusal(target.client.post(f"{target.schema}/tables", json=body))["field"]
    assert tree(folder) == before
    listed = target.client.get(f"{target.schema}/tables").json()["tables"]
    assert [table["name"] for table in listed] == ["t"]


def tree(folder: Path) -> set[str]:
    """Every file, but those whose coming and going is the database's own business."""
    return {
        os.path.relpath(path, folder)
        for path in folder.rglob("*")
        if not path.name.startswith(("inver.db", ".inver.db"))
    }


PATHS = (
    "/catalogs/../info", "/catalogs/%2e%2e/info", "/catalogs/..%2finfo", "/./info", "//info", "/info//",
    "/catalogs/%00", "/catalogs/%ff", "/catalogs/%", "/catalogs/%zz", "/catalogs/a%2f..%2f..",
    "/tables/..%2f..%2fetc%2fpasswd", "/tables/not-a-uuid", "/cursors/%2e%2e", "/transactions/-1",
    "/transactions/99999999999999999999", "/catalogs/x/schemas/%1f", "/events?after=%00",
    "/events?after=%ff", "/events?after=1;limit=2", "/catalogs?page_token=%00",
)  # fmt: skip


def test_b10_paths_are_read_once_and_literally(target: Target):
    """Sent as they are; an HTTP library would tidy them up first."""
    with target.unharmed():
        for path in PATHS:
            status, body = raw(target.server, path)
            assert status in (400, 404), (path, status, body)
            assert json.loads(body)["status"] == status


def raw(server: InverServer, path: str) -> tuple[int, bytes]:
    address = httpx.URL(server.url)
    with closing(http.client.HTTPConnection(address.host, address.port, timeout=WAIT_S)) as connection:
        connection.putrequest("GET", API + path, skip_accept_encoding=True)
        connection.putheader("Authorization", server.headers["Authorization"])
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()


# --- F2: forwarded headers ---

FORWARDED = {
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Port": "666",
    "X-Forwarded-Prefix": "/evil.example",
    "X-Forwarded-For": "evil.example, 10.0.0.1",
    "X-Forwarded-Server": "evil.example",
    "X-Original-URL": "/evil.example",
    "X-Rewrite-URL": "/api/management/v1/evil.example",
    "Forwarded": "for=10.0.0.1;host=evil.example;proto=https",
    "X-Host": "evil.example",
    "X-HTTP-Method-Override": "DELETE",
    "Origin": "https://evil.example",
    "Referer": "https://evil.example/x",
}


def test_f2_forwarded_headers_change_nothing(target: Target):
    paths = (
        f"/catalogs/{target.catalog}", target.schema, f"{target.schema}/tables/t", f"/tables/{target.table}",
        f"/tables/{target.table}/commits", "/events?limit=3", "/nothing", "/catalogs/none",
        "/catalogs?max_results=1",
    )  # fmt: skip
    with target.unharmed():
        for path in paths:
            plain = target.client.get(path)
            for headers in (FORWARDED, {"Host": "evil.example"}):
                answer = target.client.get(path, headers=headers)
                assert answer.status_code == plain.status_code
                assert without_request_id(answer) == without_request_id(plain)
                assert "evil.example" not in answer.text
                assert "evil.example" not in str(answer.headers)
                assert "access-control-allow-origin" not in answer.headers
