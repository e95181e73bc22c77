"""Every refusal that the specification of managed tables lists, and the envelope of all others.

Each is sent as a client would send it, and leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.fixtures.delta import DeltaTable, unity
from tests.fixtures.unity import Place, code, properties, proposal

NOBODY = "00000000-0000-0000-0000-000000000007"
STAGE, CREATE, GET = "POST /staging-tables", "POST /tables", "GET /tables"
COMMITS, COMMIT, METRICS = "GET /delta/commits", "POST /delta/commit", "POST /delta/metrics"
INVALID = (400, "INVALID_PARAMETER_VALUE")
DENIED = (403, "PERMISSION_DENIED")
NO_CATALOG, NO_SCHEMA, NO_TABLE = ((404, f"{kind}_DOES_NOT_EXIST") for kind in ("CATALOG", "SCHEMA", "TABLE"))
TAKEN = (400, "TABLE_ALREADY_EXISTS")


class World:
    """A table at version 1, one that is staged, and the request of each route that would succeed."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.table = place.table("t")
        place.post("/delta/commit", proposal(self.table, 1))
        self.staged = place.staged("later")
        at = {"table_id": self.table.id, "table_uri": self.table.location}
        report = {"commit_report": {"num_files_added": 1, "commit_version": 1}}
        self.bodies: dict[str, dict[str, Any]] = {
            STAGE: place.named("new"),
            CREATE: place.creation(self.staged),
            GET: {"name": f"{place.schema}.t"},
            COMMITS: at,
            COMMIT: proposal(self.table, 2),
            METRICS: {**at, "report": report},
        }

    def send(self, route: str, by: httpx.Client | None = None, **changed: Any) -> httpx.Response:
        """The request with some fields of another value, and without those given as `...`."""
        body = {**self.bodies[route], **changed}
        body = {name: value for name, value in body.items() if value is not ...}
        method, path = route.split()
        client = by or self.place.admin
        if route == GET:
            return client.get(f"{path}/{body['name']}")
        return client.request(method, path, json=body)

    def info(self, **changed: Any) -> dict[str, Any]:
        given = {**self.bodies[COMMIT]["commit_info"], **changed}
        return {name: value for name, value in given.items() if value is not ...}

    def state(self) -> Any:
        place = self.place
        listed = place.get(f"/tables?catalog_name={place.catalog}&schema_name=s")
        with place.server.client() as management:
            history = management.get(f"/tables/{self.table.id}/commits").raise_for_status().json()
            url = f"/catalogs/{place.catalog}/schemas/s/tables/t/metrics"
            return listed, history, management.get(url).raise_for_status().json()


@pytest.fixture
def world(place: Place) -> World:
    return World(place)


Row = tuple[str, tuple[int, str], Callable[[World], httpx.Response]]


def without(world: World, *keys: str) -> dict[str, str]:
    return {key: value for key, value in properties(world.staged).items() if key not in keys}


ROWS: list[Row] = [
    (STAGE, NO_CATALOG, lambda w: w.send(STAGE, catalog_name="nowhere")),
    (STAGE, NO_SCHEMA, lambda w: w.send(STAGE, schema_name="nowhere")),
    (STAGE, TAKEN, lambda w: w.send(STAGE, name="T")),
    (STAGE, DENIED, lambda w: w.send(STAGE, w.place.visitor("SELECT", "MODIFY"))),
    (STAGE, DENIED, lambda w: w.send(STAGE, seer(w.place, "CREATE TABLE"))),
    (STAGE, INVALID, lambda w: w.send(STAGE, name=...)),
    (STAGE, INVALID, lambda w: w.send(STAGE, name="a.b")),
    (CREATE, NO_CATALOG, lambda w: w.send(CREATE, catalog_name="nowhere")),
    (CREATE, NO_SCHEMA, lambda w: w.send(CREATE, schema_name="nowhere")),
    (CREATE, TAKEN, lambda w: w.send(CREATE, name="T")),
    (CREATE, NO_TABLE, lambda w: w.send(CREATE, storage_location=w.staged.location + "x")),
    (CREATE, DENIED, lambda w: w.send(CREATE, w.place.visitor("SELECT", "MODIFY"))),
    (CREATE, DENIED, lambda w: w.send(CREATE, w.place.visitor("CREATE TABLE"))),
    (CREATE, DENIED, lambda w: w.send(CREATE, seer(w.place, "CREATE TABLE"))),
    (CREATE, INVALID, lambda w: w.send(CREATE, storage_location=...)),
    (CREATE, INVALID, lambda w: w.send(CREATE, table_type=...)),
    (CREATE, INVALID, lambda w: w.send(CREATE, name="a.b")),
    (CREATE, INVALID, lambda w: no_log(w).send(CREATE)),
    (CREATE, INVALID, lambda w: w.send(CREATE, properties=without(w, "delta.feature.catalogManaged"))),
    (CREATE, INVALID, lambda w: w.send(CREATE, properties=without(w, "io.unitycatalog.tableId"))),
    (GET, NO_CATALOG, lambda w: w.send(GET, name="nowhere.s.t")),
    (GET, NO_SCHEMA, lambda w: w.send(GET, name=f"{w.place.catalog}.nowhere.t")),
    (GET, NO_TABLE, lambda w: w.send(GET, name=f"{w.place.schema}.nothing")),
    (GET, NO_TABLE, lambda w: w.send(GET, name=f"{w.place.schema}.later")),
    (GET, DENIED, lambda w: w.send(GET, w.place.visitor("BROWSE"))),
    (COMMITS, NO_TABLE, lambda w: w.send(COMMITS, table_id=NOBODY)),
    (COMMITS, NO_TABLE, lambda w: w.send(COMMITS, table_id=w.staged.id, table_uri=w.staged.location)),
    (COMMITS, DENIED, lambda w: w.send(COMMITS, w.place.visitor("BROWSE"))),
    (COMMITS, INVALID, lambda w: w.send(COMMITS, table_id=...)),
    (COMMITS, INVALID, lambda w: w.send(COMMITS, table_id="no-uuid")),
    (COMMITS, INVALID, lambda w: w.send(COMMITS, table_uri=...)),
    (COMMITS, INVALID, lambda w: w.send(COMMITS, start_version=-1)),
    (COMMITS, INVALID, lambda w: w.send(COMMITS, start_version=2, end_version=1)),
    (COMMIT, NO_TABLE, lambda w: w.send(COMMIT, table_id=NOBODY)),
    (COMMIT, DENIED, lambda w: w.send(COMMIT, w.place.visitor("SELECT"))),
    (COMMIT, INVALID, lambda w: w.send(COMMIT, table_id=...)),
    (COMMIT, INVALID, lambda w: w.send(COMMIT, commit_info=...)),
    *(
        (
            COMMIT,
            INVALID,
            lambda w, name=name, value=value: w.send(COMMIT, commit_info=w.info(**{name: value})),
        )
        for name in ("version", "timestamp", "file_size", "file_modification_timestamp")
        for value in (..., None, 0, -1, True, 2.0, "2")
    ),
    (COMMIT, INVALID, lambda w: w.send(COMMIT, commit_info=w.info(file_name=...))),
    (COMMIT, INVALID, lambda w: w.send(COMMIT, commit_info=w.info(file_name=""))),
    (COMMIT, INVALID, lambda w: w.send(COMMIT, commit_info=w.info(version=3))),
    (COMMIT, INVALID, lambda w: w.send(COMMIT, latest_published_version=2)),
    (COMMIT, INVALID, lambda w: w.send(COMMIT, commit_info=..., latest_published_version=2)),
    (
        COMMIT,
        (409, "ALREADY_EXISTS"),
        lambda w: w.place.admin.post("/delta/commit", json=proposal(w.table, 1)),
    ),
    (METRICS, NO_TABLE, lambda w: w.send(METRICS, table_id=NOBODY)),
    (METRICS, DENIED, lambda w: w.send(METRICS, w.place.visitor("BROWSE"))),
    (METRICS, INVALID, lambda w: w.send(METRICS, table_id=...)),
    (METRICS, INVALID, lambda w: w.send(METRICS, table_id="no-uuid")),
    (METRICS, INVALID, lambda w: w.send(METRICS, table_id="no-uuid", report=...)),
    (METRICS, INVALID, lambda w: w.send(METRICS, report={"commit_report": {"num_files_added": 1}})),
    (METRICS, INVALID, lambda w: w.send(METRICS, report={"commit_report": {"commit_version": 2}})),
]


def seer(place: Place, *privileges: str) -> httpx.Client:
    """Somebody with privileges on the schema, who may not use it."""
    held = ((privilege, "schema", place.schema) for privilege in privileges)
    return place.person(("USE CATALOG", "catalog", place.catalog), *held)


def no_log(world: World) -> World:
    (world.staged.folder / "_delta_log" / f"{0:020d}.json").unlink()
    return world


def shown(row: Row) -> str:
    return f"{row[0].replace(' /', '-')}-{row[1][1]}"


def test_what_would_succeed(world: World) -> None:
    """Or nothing would be said by the refusals of requests that differ from these in one thing."""
    for route in world.bodies:
        answer = world.send(route)
        assert answer.status_code == 200, (route, answer.text)


@pytest.mark.parametrize("row", ROWS, ids=shown)
def test_each_row_of_the_tables_of_errors(world: World, row: Row) -> None:
    before = world.state()
    answer = row[2](world)
    assert code(answer) == row[1], answer.text
    assert world.state() == before


ROUTES = (
    STAGE,
    CREATE,
    GET,
    COMMITS,
    COMMIT,
    METRICS,
    "GET /delta/preview/commits",
    "POST /delta/preview/commits",
)


@pytest.mark.parametrize("route", ROUTES)
def test_what_never_comes_to_a_handler_is_refused_in_the_same_words(place: Place, route: str) -> None:
    method, path = route.split()
    path = f"{path}/a.b.c" if route == GET else path
    name = "INVALID_ARGUMENT" if "preview" in path else "INVALID_PARAMETER_VALUE"
    with unity(place.server) as stranger:
        del stranger.headers["Authorization"]
        for given in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic eDp5"}):
            answer = stranger.request(method, path, headers=given)
            assert code(answer) == (401, "UNAUTHENTICATED")
            assert answer.headers["www-authenticate"] == "Bearer"
    assert code(place.admin.put(path)) == (405, "UNIMPLEMENTED")
    assert code(place.admin.request(method, path + "/more/and/more")) == (404, "NOT_FOUND")
    if route == GET:
        return
    for body in (b"{", b"[]", b"null", b"\xff", b"\xef\xbb\xbf{}", b'{"table_id":NaN}', b'{"a":"\\u0000"}'):
        assert code(place.admin.request(method, path, content=body)) == (400, name), body
    deep = b'{"a":' * 100_000
    assert code(place.admin.request(method, path, content=deep))[0] == 400
    large = b'{"name":"' + b"x" * (33 * 2**20) + b'"}'
    assert code(place.admin.request(method, path, content=large)) == (413, name)
    damaged = place.admin.request(method, path, content=b"no gzip", headers={"Content-Encoding": "gzip"})
    assert code(damaged) == (400, name)


@pytest.mark.parametrize("version", ["1.0", "1e0", "null", "true", "+1", "0x1", "١", "9" * 19, "9" * 30])
def test_a_version_in_a_query_is_a_whole_number(place: Place, version: str) -> None:
    table = place.table("t")
    asked = {"table_id": table.id, "table_uri": table.location}
    for name in ("start_version", "end_version"):
        for route, wrong in (
            ("/delta/commits", "INVALID_PARAMETER_VALUE"),
            ("/delta/preview/commits", "INVALID_ARGUMENT"),
        ):
            answer = place.admin.get(route, params={**asked, name: version})
            assert code(answer) == (400, wrong)
            assert name in answer.json()["message"]


def test_names_that_no_full_name_can_hold_are_refused(place: Place) -> None:
    """A table of such a name could be made, and then neither be found nor dropped."""
    table: DeltaTable = place.table("t")
    external = place.named("a.b", table_type="EXTERNAL", data_source_format="DELTA", columns=[])
    folder = place.server.home.with_name("external") / place.catalog
    for answer in (
        place.admin.post("/tables", json={**external, "storage_location": str(folder)}),
        place.admin.patch(f"/tables/{table.name}", json={"new_name": "a.b"}),
    ):
        assert code(answer) == INVALID
        assert "name" in answer.json()["message"]
    listed = place.get(f"/tables?catalog_name={place.catalog}&schema_name=s")["tables"]
    assert [each["name"] for each in listed] == ["t"]
