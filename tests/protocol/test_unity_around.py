"""What Unity clients need around managed tables, where its edges are: names, no changes, force, paging."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.fixtures.unity import Place, code

INVALID = (400, "INVALID_ARGUMENT")
INVALID_MANAGED = (400, "INVALID_PARAMETER_VALUE")


def external(place: Place, name: str, **fields: Any) -> dict[str, Any]:
    """The request that registers an external table below the root of such tables."""
    root = place.server.home.with_name("external") / place.catalog
    return place.named(
        name,
        **{
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": [],
            "storage_location": f"file://{root}/{name}",
            **fields,
        },
    )


def events(place: Place, *subjects: str) -> list[str]:
    """What has happened to these, oldest first."""
    found: list[str] = []
    after = "0"
    with place.server.client() as management:
        while page := management.get("/events", params={"after": after, "limit": 1000}).json()["events"]:
            found += [each["type"] for each in page if each["subject"] in subjects]
            after = page[-1]["id"]
    return found


# --- names ---


@pytest.mark.parametrize("name", ["a.b", ".a", "a.", ".", "..", "a..b"])
def test_a_name_that_no_full_name_could_say_is_refused(place: Place, name: str) -> None:
    table = place.table()
    asked: list[tuple[str, str, dict[str, Any], str]] = [
        ("POST", "/catalogs", {"name": name}, "name"),
        ("POST", "/schemas", {"name": name, "catalog_name": place.catalog}, "name"),
        ("POST", "/staging-tables", place.named(name), "name"),
        ("POST", "/tables", external(place, name, storage_location="file:///x"), "name"),
        ("POST", "/tables", place.creation(place.staged("staged"), name=name), "name"),
        ("PATCH", f"/catalogs/{place.catalog}", {"new_name": name}, "new_name"),
        ("PATCH", f"/schemas/{place.schema}", {"new_name": name}, "new_name"),
        ("PATCH", f"/tables/{place.schema}.t", {"new_name": name}, "new_name"),
    ]
    for method, path, body, field in asked:
        answer = place.admin.request(method, path, json=body)
        assert code(answer) in (INVALID, INVALID_MANAGED), (method, path)
        assert answer.json()["message"].startswith(f"{field} "), answer.text
    assert place.get(f"/tables/{place.schema}.t")["table_id"] == table.id
    assert [each["name"] for each in place.get(f"/schemas?catalog_name={place.catalog}")["schemas"]] == ["s"]
    assert [each["name"] for each in place.get(tables_of(place))["tables"]] == ["t"]


def tables_of(place: Place) -> str:
    return f"/tables?catalog_name={place.catalog}&schema_name=s"


@pytest.mark.parametrize("name", ["", " a", "a\tb", "x" * 256, "\u200b"])
def test_a_wrong_new_name_is_called_by_its_field(place: Place, name: str) -> None:
    place.table()
    for path in (f"/catalogs/{place.catalog}", f"/schemas/{place.schema}", f"/tables/{place.schema}.t"):
        answer = place.admin.patch(path, json={"new_name": name, "comment": "lost"})
        assert code(answer) in (INVALID, INVALID_MANAGED)
        assert answer.json()["message"].startswith("new_name "), answer.text
        assert "comment" not in place.get(path)


def test_names_with_every_other_character_are_found_again(place: Place) -> None:
    for name in ("a/b", "a%2Fb", "a b", "a+b", "a?b#c", "'\"`", "Größe", "💥", "*"):
        made = place.post("/schemas", {"name": name, "catalog_name": place.catalog})
        path = "/schemas/" + quote(made["full_name"], safe="")
        assert place.get(path) == made
        assert place.send("DELETE", path) == {}


def test_names_are_the_same_whatever_their_case_and_normal_form(place: Place) -> None:
    place.post("/schemas", {"name": "Straße", "catalog_name": place.catalog})
    place.post("/schemas", {"name": "caf\u00e9", "catalog_name": place.catalog})
    for same in ("STRASSE", "straSSe", "CAF\u00c9", "cafe\u0301"):
        answer = place.admin.post("/schemas", json={"name": same, "catalog_name": place.catalog})
        assert code(answer) == (400, "SCHEMA_ALREADY_EXISTS"), same


def test_a_wrong_location_is_called_by_its_field(place: Place) -> None:
    for location in ("", "/", "/etc", "file:///x/../y", "s3://nobody/x", "http://169.254.169.254/x"):
        answer = place.admin.post("/tables", json=external(place, "x", storage_location=location))
        assert code(answer) == INVALID_MANAGED, location
        assert answer.json()["message"].startswith("storage_location"), answer.text


# --- changes that change nothing ---


def test_a_change_of_nothing_leaves_no_trace(place: Place) -> None:
    table = place.table()
    paths = (f"/catalogs/{place.catalog}", f"/schemas/{place.schema}", f"/tables/{place.schema}.t")
    etag = table.load()["metadata"]["etag"]
    before = [place.get(path) for path in paths]
    ids = (before[0]["id"], before[1]["schema_id"], table.id)
    seen = events(place, *ids)
    assert len(seen) >= 3
    for path, shown in zip(paths, before, strict=True):
        assert place.send("PATCH", path, {}) == shown
        assert place.send("PATCH", path, {"new_name": shown["name"]}) == shown
        assert place.get(path) == shown
    assert events(place, *ids) == seen
    assert table.load()["metadata"]["etag"] == etag
    # It takes the right to change all the same.
    reader = place.visitor("SELECT")
    for path in paths[:2]:
        assert code(reader.patch(path, json={})) == (403, "PERMISSION_DENIED")


def test_null_is_as_good_as_left_out_of_a_change_but_takes_a_comment_away(place: Place) -> None:
    place.table()
    path = f"/tables/{place.schema}.t"
    shown = place.send("PATCH", path, {"comment": "ours"})
    nothing = {"owner": None, "new_name": None, "columns": None, "properties": None, "storage_location": None}
    assert place.send("PATCH", path, nothing) == shown
    assert "comment" not in place.send("PATCH", path, {**nothing, "comment": None})
    for path in (f"/catalogs/{place.catalog}", f"/schemas/{place.schema}"):
        shown = place.send("PATCH", path, {"comment": "ours", "properties": {"a": "b"}})
        assert (
            place.send("PATCH", path, dict.fromkeys(("comment", "properties", "owner", "new_name"))) == shown
        )


def test_a_rename_is_one_event(place: Place) -> None:
    table = place.table()
    seen = events(place, table.id)
    place.send("PATCH", f"/tables/{place.schema}.t", {"new_name": "other"})
    assert events(place, table.id)[len(seen) :] == ["io.inver.table.renamed.v1"]


# --- force ---


@pytest.mark.parametrize("force", ["true", "false"])
def test_what_is_missing_is_told_alike_with_and_without_force(place: Place, force: str) -> None:
    def drop(name: str, by: httpx.Client) -> tuple[int, str]:
        return code(by.delete(f"/schemas/{name}", params={"force": force}))

    stranger = place.person()
    assert drop("nowhere.s", place.admin) == (404, "CATALOG_NOT_FOUND")
    assert drop(f"{place.catalog}.nothing", place.admin) == (404, "SCHEMA_NOT_FOUND")
    assert drop("nowhere.s", stranger) == drop(place.schema, stranger) == (404, "CATALOG_NOT_FOUND")
    assert code(stranger.delete(f"/catalogs/{place.catalog}", params={"force": force})) == (
        404,
        "CATALOG_NOT_FOUND",
    )


# --- permissions and credentials ---


def test_one_finds_oneself_by_every_spelling_of_ones_name(place: Place) -> None:
    visitor = place.visitor("SELECT")
    name = visitor.headers["X-Name"]
    path = f"/permissions/schema/{place.schema}"
    mine = [{"principal": name, "privileges": ["SELECT", "USE SCHEMA"]}]
    for asked in (name, name.upper(), ""):
        shown = visitor.get(path, params={"principal": asked})
        assert shown.json() == {"privilege_assignments": mine}, asked


@pytest.mark.parametrize(
    "operation", ["READ", "CREATE_TABLE", "path_read", "PATH_", "UNKNOWN_PATH_OPERATION"]
)
def test_an_operation_on_a_path_has_exactly_its_name(place: Place, operation: str) -> None:
    body = {"url": external(place, "x")["storage_location"], "operation": operation}
    answer = place.admin.post("/temporary-path-credentials", json=body)
    assert code(answer) == INVALID
    assert "PATH_READ, PATH_READ_WRITE, PATH_CREATE_TABLE" in answer.json()["message"]


# --- words that clients know ---


def test_a_list_can_be_read_by_clients_that_do_not_know_every_format(place: Place) -> None:
    place.table("delta")
    place.post("/tables", external(place, "iceberg", data_source_format="ICEBERG"))
    told = {"data_source_format": "TEXT", "properties": {"table_type": "LANCE", "k": "v"}}
    made = place.post("/tables", external(place, "lance", **told))
    assert (made["data_source_format"], made["properties"]) == ("TEXT", {"table_type": "lance", "k": "v"})
    listed = {each["name"]: each for each in place.get(tables_of(place))["tables"]}
    assert {name: each.get("data_source_format") for name, each in listed.items()} == {
        "delta": "DELTA",
        "iceberg": None,
        "lance": "TEXT",
    }
    assert listed["lance"] == made == place.get(f"/tables/{place.schema}.lance")
    assert listed["iceberg"]["properties"] == {"table_type": "iceberg"}
    shown = place.get(f"/tables/{place.schema}.iceberg")
    assert (shown["data_source_format"], shown["properties"]) == ("ICEBERG", {})
    with place.server.client() as management:
        kept = management.get(f"/catalogs/{place.catalog}/schemas/s/tables/lance").json()
    assert (kept["format"], kept["properties"]) == ("LANCE", {"k": "v"})
    plain = place.admin.post("/tables", json=external(place, "text", data_source_format="TEXT"))
    assert code(plain) == INVALID_MANAGED


def test_privileges_that_the_protocol_has_no_word_for_stand_apart(place: Place) -> None:
    person = place.person()
    name = person.headers["X-Name"]
    path = f"/permissions/schema/{place.schema}"
    change = {"principal": name, "add": ["SELECT", "MANAGE", "ALL PRIVILEGES", "USE SCHEMA"], "remove": []}
    mine = {
        "principal": name,
        "privileges": ["SELECT", "USE SCHEMA"],
        "further_privileges": ["ALL PRIVILEGES", "MANAGE"],
    }
    assert place.send("PATCH", path, {"changes": [change]}) == {"privilege_assignments": [mine]}
    assert place.get(path) == {"privilege_assignments": [mine]}


# --- external tables that come back ---


def test_the_place_of_a_dropped_external_table_is_free_for_the_next(place: Place) -> None:
    body = external(place, "t", comment="first")
    location = body["storage_location"]

    def keys(operation: str, url: str = location, by: httpx.Client = place.admin) -> int:
        asked = {"url": url, "operation": operation}
        return by.post("/temporary-path-credentials", json=asked).status_code

    first = place.post("/tables", body)
    assert keys("PATH_CREATE_TABLE") == 400
    assert place.send("DELETE", f"/tables/{place.schema}.t") == {}
    assert keys("PATH_CREATE_TABLE") == keys("PATH_CREATE_TABLE", location + "/below") == 200
    assert keys("PATH_CREATE_TABLE", location.rpartition("/")[0]) == 200
    # Its files are for those who could read the table, should it come back.
    assert keys("PATH_READ") == keys("PATH_READ_WRITE") == 403
    assert keys("PATH_CREATE_TABLE", by=place.visitor("CREATE TABLE")) == 403

    # Who may not make a table there takes nothing away either.
    refused = place.visitor("CREATE TABLE").post("/tables", json=body)
    assert code(refused) == (403, "PERMISSION_DENIED")
    place.post("/tables", external(place, "taken"))
    taken = place.admin.post("/tables", json={**body, "name": "taken"})
    assert code(taken) == (400, "TABLE_ALREADY_EXISTS")
    with place.server.client() as management:
        dropped = management.get(f"/catalogs/{place.catalog}/schemas/s/dropped").json()["tables"]
        assert [each["id"] for each in dropped] == [first["table_id"]]
        again = place.post("/tables", {**body, "comment": "second"})
        assert again["table_id"] != first["table_id"]
        assert (again["storage_location"], again["comment"]) == (location, "second")
        assert management.get(f"/catalogs/{place.catalog}/schemas/s/dropped").json()["tables"] == []
        gone = management.post(f"/tables/{first['table_id']}/undrop", json={})
        assert gone.status_code == 404, gone.text
    assert place.get(f"/tables/{place.schema}.t") == again


def test_the_place_of_a_dropped_managed_table_is_not_free(place: Place) -> None:
    table = place.table()
    place.send("DELETE", f"/tables/{place.schema}.t")
    for url in (table.location, table.location + "/x"):
        asked = {"url": url, "operation": "PATH_CREATE_TABLE"}
        answer = place.admin.post("/temporary-path-credentials", json=asked)
        assert code(answer) == (403, "PERMISSION_DENIED")
        assert place.admin.post("/tables", json=external(place, "x", storage_location=url)).is_client_error


# --- the control API ---

ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


def token(place: Place, query: str = "", **form: str) -> httpx.Response:
    return httpx.post(f"{place.server.url}/api/1.0/unity-control/auth/tokens{query}", data=form)


def test_an_exchange_says_what_it_shows_and_for_whom(place: Place) -> None:
    mine = {"subject_token": place.server.token}
    good = {"grant_type": EXCHANGE, "subject_token_type": ACCESS_TOKEN, **mine}
    assert token(place, **good).status_code == 200
    # What may be asked for has one value, so it need not be said.
    assert token(place, **good, requested_token_type=ACCESS_TOKEN, scope="all-apis").status_code == 200
    untyped = token(place, grant_type=EXCHANGE, **mine)
    assert code(untyped) == INVALID
    assert "subject_token_type" in untyped.json()["message"]
    for actor in ({"actor_token": "x"}, {"actor_token_type": ACCESS_TOKEN}):
        refused = token(place, **good, **actor)
        assert code(refused) == INVALID
        assert next(iter(actor)) in refused.json()["message"]


def test_a_token_is_never_put_into_a_cookie(place: Place) -> None:
    good = {"grant_type": EXCHANGE, "subject_token_type": ACCESS_TOKEN, "subject_token": place.server.token}
    for ext in ("cookie", "frob"):
        answer = token(place, f"?ext={ext}", **good)
        assert code(answer) == (501, "UNIMPLEMENTED")
        assert "set-cookie" not in answer.headers
        assert "Authorization" in answer.json()["message"]
    assert token(place, "?ext=", **good).status_code == 200
    url = f"{place.server.url}/api/2.1/unity-catalog/catalogs"
    assert code(httpx.get(url, headers={"Cookie": f"UC_TOKEN={place.server.token}"})) == (
        401,
        "UNAUTHENTICATED",
    )


def test_a_client_is_told_how_to_ask_for_a_token(place: Place) -> None:
    other = token(place, grant_type="password").json()
    assert other["error"] == "unsupported_grant_type"
    assert EXCHANGE in other["error_description"]
    assert "client_credentials" in other["error_description"]
    wrong = token(place, grant_type="client_credentials", client_id="nobody", client_secret="wrong")
    assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_client")
    assert wrong.headers["www-authenticate"].startswith("Basic ")


@pytest.mark.parametrize("kind", ["user", "service", "group"])
def test_whoever_shows_a_token_is_told_who_they_are(place: Place, kind: str) -> None:
    name = f"{kind}-{place.catalog}"
    with place.server.client() as management:
        made = management.post("/principals", json={"name": name, "kind": kind}).raise_for_status().json()
        shown = management.post("/tokens", json={"principal": name})
    if kind == "group":
        assert shown.is_client_error
        return
    url = f"{place.server.url}/api/1.0/unity-control/scim2/Me"
    me = httpx.get(url, headers={"Authorization": f"Bearer {shown.json()['token']}"}).json()
    assert (me["id"], me["userName"], me["displayName"], me["active"]) == (made["id"], name, name, True)
    assert me["schemas"] == ["urn:ietf:params:scim:schemas:core:2.0:User"]
    assert me["meta"]["created"] == me["meta"]["lastModified"]


# --- pages ---


def test_pages_go_on_when_what_they_ended_with_is_gone(place: Place) -> None:
    for number in range(6):
        place.post("/tables", external(place, f"t{number}"))
    first = place.get(tables_of(place) + "&max_results=3")
    assert [each["name"] for each in first["tables"]] == ["t0", "t1", "t2"]
    place.send("DELETE", f"/tables/{place.schema}.t2")
    place.send("DELETE", f"/tables/{place.schema}.t4")
    place.post("/tables", external(place, "t1a"))
    place.post("/tables", external(place, "t3a"))
    rest = place.get(tables_of(place) + f"&max_results=3&page_token={first['next_page_token']}")
    assert [each["name"] for each in rest["tables"]] == ["t3", "t3a", "t5"]
    assert "next_page_token" not in rest


def test_a_page_token_shows_nobody_more_than_they_may_see(place: Place) -> None:
    for name in ("a", "b", "c"):
        place.post("/tables", external(place, name))
    token = place.get(tables_of(place) + "&max_results=1")["next_page_token"]
    change = {"principal": (reader := place.visitor()).headers["X-Name"], "add": ["SELECT"], "remove": []}
    place.send("PATCH", f"/permissions/table/{place.schema}.c", {"changes": [change]})
    for given in (token, "", "a", "A", "no such name", "\U0001f4a5"):
        shown = reader.get(tables_of(place), params={"page_token": given, **where(place)}).json()
        names = [each["name"] for each in shown["tables"]]
        assert names == (["c"] if given[:1].lower() < "c" else []), given
    stranger = place.person().get("/tables", params={"page_token": token, **where(place)})
    assert code(stranger) == (404, "CATALOG_DOES_NOT_EXIST")


def where(place: Place) -> dict[str, str]:
    return {"catalog_name": place.catalog, "schema_name": "s"}


@pytest.mark.parametrize("path", ["/catalogs", "/schemas", "/tables"])
@pytest.mark.parametrize("size", ["-1", "x", "1.5", "", "+1", "9" * 30, "\u0663"])
def test_sizes_of_pages_that_are_none(place: Place, path: str, size: str) -> None:
    answer = place.admin.get(path, params={**where(place), "max_results": size})
    assert code(answer) in (INVALID, INVALID_MANAGED)
    assert "max_results" in answer.json()["message"]
