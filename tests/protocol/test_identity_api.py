"""Principals, groups, credentials, grants and search as the management API speaks of them."""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlencode

import pytest

from inver.domain.governance import MAX_GROUP_DEPTH
from inver.domain.ledger import Transaction
from inver.domain.principals import ADMIN, BUILT_IN
from inver.errors import Overloaded
from tests.fixtures.house import API, SEPARATOR, Answer, House, Person, ask, house, path, table_path
from tests.fixtures.ledger import Backend
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.server import running_inver

BACKENDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
HOUR = 60 * 60 * 1000


@pytest.fixture(scope="module")
def emptied(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(params=BACKENDS)
async def home(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    """A server on each backend."""
    url = request.getfixturevalue("emptied") if request.param == "postgres" else None
    await Backend(tmp_path, url).prepare()
    async with house(tmp_path / "home", url) as home:
        yield home


def problem(answer: Answer, status: int, kind: str, field: str | None = None) -> dict[str, Any]:
    assert answer.status == status, answer
    assert answer.content_type == b"application/problem+json"
    told: dict[str, Any] = answer.json
    assert told["type"] == f"urn:inver:problem:{kind}"
    assert told["status"] == status
    assert told.get("field") == field
    assert told["detail"]
    return told


# --- principals ---


async def test_a_principal_is_made_shown_changed_and_deleted(home: House):
    admin = home.admin
    made = await admin.post("/principals", {"name": "Ada", "kind": "user", "comment": "counts"})
    assert (made.status, made.headers["etag"]) == (201, '"1"')
    ada = made.json
    assert set(ada) == {"id", "name", "kind", "disabled", "comment", "created_at", "created_by"}
    assert (ada["name"], ada["kind"], ada["disabled"], ada["comment"]) == ("Ada", "user", False, "counts")

    shown = await admin.get("/principals/ada")
    assert (shown.status, shown.headers["etag"]) == (200, '"1"')
    assert shown.json == {**ada, "groups": []}

    changed = await admin.patch("/principals/ADA", {"comment": None}, headers={"If-Match": '"1"'})
    assert (changed.status, changed.headers["etag"]) == (200, '"2"')
    assert changed.json["comment"] is None
    stale = await admin.patch("/principals/ada", {"disabled": True}, headers={"If-Match": '"1"'})
    assert problem(stale, 412, "precondition-failed")["conflicts"][0]["reason"] == "etag-changed"
    for bad in ("ada", '"x"'):
        answer = await admin.patch("/principals/ada", {"disabled": True}, headers={"If-Match": bad})
        problem(answer, 400, "invalid", "If-Match")

    assert (await admin.delete("/principals/ada")).status == 204
    problem(await admin.get("/principals/ada"), 404, "not-found")
    problem(await admin.delete("/principals/ada"), 404, "not-found")
    problem(await admin.patch("/principals/ada", {"comment": "x"}), 404, "not-found")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kind": "user"}, "body"),
        ({"name": ""}, "name"),
        ({"name": "x" * 256}, "name"),
        ({"name": "a\u200bb"}, "name"),
        ({"name": "a\u0000b"}, "body"),
        ({"name": " a"}, "name"),
        ({"name": "a", "kind": "robot"}, "kind"),
        ({"name": "a", "colour": "red"}, "body"),
        (b"{", "body"),
        (b"[]", "body"),
    ],
)
async def test_a_principal_that_makes_no_sense_is_refused(home: House, body: Any, field: str):
    problem(await home.admin.post("/principals", body), 400, "invalid", field)


async def test_a_principals_name_is_taken_once(home: House):
    await home.admin.ok("POST", "/principals", {"name": "Ada"})
    for name in ("Ada", "ADA", "admin", "everyone"):
        problem(await home.admin.post("/principals", {"name": name}), 409, "already-exists")


async def test_principals_are_listed_in_pages(home: House):
    for number in range(7):
        await home.admin.ok("POST", "/principals", {"name": f"user{number}"})
    await home.group("team", "user3")
    names: list[str] = []
    token = ""
    while True:
        page = await home.admin.ok("GET", "/principals", max_results=3, page_token=token)
        assert len(page["principals"]) <= 3
        names += [each["name"] for each in page["principals"]]
        token = page["next_page_token"]
        if token is None:
            break
    assert names == sorted({"team", *(f"user{n}" for n in range(7)), *(who.name for who in BUILT_IN)})
    groups = await home.admin.ok("GET", "/principals", kind="group")
    assert [each["name"] for each in groups["principals"]] == ["admins", "everyone", "team"]
    problem(await home.admin.get("/principals", kind="robot"), 400, "invalid", "kind")
    for size in ("0", "1001", "-1", "x"):
        problem(await home.admin.get("/principals", max_results=size), 400, "invalid", "max_results")


async def test_who_owns_something_is_not_deleted(home: House):
    await home.user("ada")
    await home.schema("main", "sales")
    await home.admin.ok("PATCH", "/catalogs/main", {"owner": "ada"})
    told = problem(await home.admin.delete("/principals/ada"), 409, "not-empty")
    assert "another principal" in told["fix"]
    await home.admin.ok("PATCH", "/catalogs/main", {"owner": "admins"})
    assert (await home.admin.delete("/principals/ada")).status == 204


@pytest.mark.parametrize("name", [who.name for who in BUILT_IN])
async def test_built_in_principals_stay(home: House, name: str):
    problem(await home.admin.delete(path("principals", name)), 400, "invalid", "principal")
    answer = await home.admin.patch(path("principals", name), {"disabled": True})
    problem(answer, 400, "invalid", "disabled")


async def test_names_of_principals_need_no_taming(home: House):
    """What is allowed in a name travels through paths, bodies and answers."""
    for name in ("ada@example.com", "a/b", "ünï", "with space", "50%", "a+b", "a.b", "o'brien"):
        made = await home.user(name)
        assert (await home.admin.ok("GET", path("principals", name)))["name"] == name
        await home.group(f"group {name}", name)
        assert (await made.ok("GET", "/whoami"))["groups"] == [f"group {name}"]
        assert (await home.admin.ok("GET", "/tokens", principal=name))["tokens"][0]["principal"] == name


async def test_everybody_knows_who_they_are(home: House):
    ada = await home.user("ada")
    await home.group("inner", "ada")
    await home.group("outer", "inner")
    told = await ada.ok("GET", "/whoami")
    assert told == {"id": told["id"], "name": "ada", "kind": "user", "groups": ["inner"]}
    assert (await home.admin.ok("GET", "/whoami"))["groups"] == ["admins"]


# --- groups ---


async def test_members_come_and_go(home: House):
    await home.user("ada")
    await home.group("team")
    for _ in range(2):
        assert (await home.admin.put("/groups/team/members/ada")).status == 204
    members = (await home.admin.ok("GET", "/groups/team/members"))["members"]
    assert [each["name"] for each in members] == ["ada"]
    assert (await home.admin.ok("GET", "/principals/team"))["members"] == ["ada"]
    assert (await home.admin.ok("GET", "/principals/ada"))["groups"] == ["team"]
    for _ in range(2):
        assert (await home.admin.delete("/groups/team/members/ada")).status == 204
    assert (await home.admin.ok("GET", "/groups/team/members"))["members"] == []


async def test_memberships_that_make_no_sense_are_refused(home: House):
    await home.user("ada")
    await home.group("inner")
    await home.group("outer", "inner")
    admin = home.admin
    problem(await admin.put("/groups/ada/members/inner"), 400, "invalid", "group")
    problem(await admin.get("/groups/ada/members"), 400, "invalid", "group")
    problem(await admin.put("/groups/everyone/members/ada"), 400, "invalid", "group")
    problem(await admin.put("/groups/inner/members/outer"), 409, "refused")
    problem(await admin.put("/groups/inner/members/inner"), 409, "refused")
    problem(await admin.put("/groups/nothing/members/ada"), 404, "not-found")
    problem(await admin.put("/groups/inner/members/nobody"), 404, "not-found")
    problem(await admin.delete("/groups/inner/members/nobody"), 404, "not-found")


async def test_groups_nest_to_a_limit(home: House):
    for number in range(MAX_GROUP_DEPTH + 1):
        await home.group(f"g{number}")
    for number in range(MAX_GROUP_DEPTH - 1):
        await home.admin.ok("PUT", f"/groups/g{number}/members/g{number + 1}")
    last = f"/groups/g{MAX_GROUP_DEPTH - 1}/members/g{MAX_GROUP_DEPTH}"
    problem(await home.admin.put(last), 400, "invalid", "member")


# --- tokens ---


async def test_a_token_is_shown_once(home: House):
    ada = await home.user("ada")
    asked = {"label": "laptop", "expires_in_s": 60}
    made = await ada.ok("POST", "/tokens", asked)
    assert set(made) == {"token", "id", "principal", "label", "scope", "expires_at"}
    assert made["token"].startswith(f"inver_pat_{made['id']}_")
    assert (made["principal"], made["label"], made["scope"]) == ("ada", "laptop", "all")
    assert made["expires_at"] == home.clock.now_ms() + 60_000
    listed = await ada.get("/tokens")
    assert [each["label"] for each in listed.json["tokens"]] == ["", "laptop"]
    assert set(listed.json["tokens"][1]) == {
        "id",
        "principal",
        "label",
        "scope",
        "created_at",
        "expires_at",
        "last_used_at",
        "revoked_at",
    }
    secret = made["token"][-20:]
    everything = [listed, await home.admin.get("/tokens", principal="ada"), await home.admin.get("/events")]
    assert not any(secret.encode() in answer.body for answer in everything)


async def test_tokens_of_others_are_for_admins(home: House):
    ada, bob = await home.user("ada"), await home.user("bob")
    hers = (await ada.ok("POST", "/tokens", {}))["id"]
    problem(await bob.get("/tokens", principal="ada"), 403, "forbidden")
    problem(await bob.post("/tokens", {"principal": "ada"}), 403, "forbidden")
    # Somebody who is not there is refused in the same way.
    problem(await bob.get("/tokens", principal="nobody"), 403, "forbidden")
    problem(await home.admin.get("/tokens", principal="nobody"), 404, "not-found")
    assert len((await home.admin.ok("GET", "/tokens", principal="ada"))["tokens"]) == 2
    mine, absent = await bob.delete(path("tokens", hers)), await bob.delete(path("tokens", "0" * 32))
    assert problem(mine, 404, "not-found")["detail"] == problem(absent, 404, "not-found")["detail"]
    assert (await ada.ok("GET", "/tokens"))["tokens"][1]["revoked_at"] is None


async def test_a_revoked_token_is_worth_nothing(home: House):
    ada = await home.user("ada")
    second = await ada.token_of()
    listed = (await ada.ok("GET", "/tokens"))["tokens"]
    assert (await ada.delete(path("tokens", listed[1]["id"]))).status == 204
    problem(await second.get("/whoami"), 401, "unauthenticated")
    assert (await ada.get("/whoami")).status == 200
    assert (await home.admin.delete(path("tokens", listed[0]["id"]))).status == 204
    problem(await ada.get("/whoami"), 401, "unauthenticated")
    # Again is fine; what was never there is not.
    assert (await home.admin.delete(path("tokens", listed[0]["id"]))).status == 204
    problem(await home.admin.delete(path("tokens", "0" * 32)), 404, "not-found")
    problem(await home.admin.delete(path("tokens", "x" * 300)), 404, "not-found")


async def test_a_token_expires(home: House):
    ada = await home.user("ada")
    short = await ada.token_of(expires_in_s=10)
    assert (await short.get("/whoami")).status == 200
    home.clock.advance(9_999)
    assert (await short.get("/whoami")).status == 200
    home.clock.advance(1)
    assert "expired" in problem(await short.get("/whoami"), 401, "unauthenticated")["detail"]
    assert (await ada.get("/whoami")).status == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"expires_in_s": 0}, "expires_in_s"),
        ({"expires_in_s": 10 * 365 * 24 * 3600 + 1}, "expires_in_s"),
        ({"scope": "write"}, "scope"),
        ({"label": "x" * 256}, "label"),
        ({"principal": ""}, "principal"),
    ],
)
async def test_a_token_that_makes_no_sense_is_refused(home: House, body: dict[str, Any], field: str):
    problem(await home.admin.post("/tokens", body), 400, "invalid", field)


async def test_a_disabled_principal_is_nobody_until_enabled(home: House):
    ada = await home.user("ada")
    await home.admin.ok("PATCH", "/principals/ada", {"disabled": True})
    problem(await ada.get("/whoami"), 401, "unauthenticated")
    await home.admin.ok("PATCH", "/principals/ada", {"disabled": False})
    assert (await ada.get("/whoami")).status == 200
    await home.admin.ok("DELETE", "/principals/ada")
    problem(await ada.get("/whoami"), 401, "unauthenticated")
    # Somebody new under the old name has nothing of it.
    await home.admin.ok("POST", "/principals", {"name": "ada"})
    problem(await ada.get("/whoami"), 401, "unauthenticated")


async def test_the_last_use_of_a_token_is_known(home: House):
    ada = await home.user("ada")
    assert (await home.admin.ok("GET", "/tokens", principal="ada"))["tokens"][0]["last_used_at"] is None
    for _ in range(3):
        home.clock.advance(1_000)
        await ada.ok("GET", "/whoami")
    used = home.clock.now_ms()
    home.clock.advance(1_000)
    await home.app.authenticator.flush_last_used()
    assert (await home.admin.ok("GET", "/tokens", principal="ada"))["tokens"][0]["last_used_at"] == used


async def test_a_read_only_token_reads_and_makes_no_other(home: House):
    reader = await home.admin.token_of(scope="read")
    assert (await reader.ok("GET", "/whoami"))["name"] == "admin"
    for target in ("/principals", "/principals/admin", "/groups/admins/members", "/tokens", "/events"):
        assert (await reader.get(target)).status == 200, target
    mine = (await reader.ok("GET", "/tokens"))["tokens"][-1]["id"]
    for answer in (
        await reader.post("/tokens", {"scope": "read"}),
        await reader.post("/tokens", {"principal": "everyone", "scope": "read"}),
        await reader.post("/principals/admin/secrets"),
        await reader.delete(path("tokens", mine)),
        await reader.post("/principals", {"name": "x"}),
    ):
        assert "read-only" in problem(answer, 403, "forbidden")["fix"]
    assert (await home.admin.ok("GET", "/tokens", principal="admin"))["tokens"][-1]["revoked_at"] is None


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer ",
        "Bearer x",
        "Bearer inver_pat_",
        "Bearer inver_pat_0_0",
        "Bearer inver_pat_" + "0" * 32 + "_",
        "Bearer inver_pat_é_é",
        "Basic YWRtaW46YWRtaW4=",
        "inver_pat_0_0",
        "",
    ],
)
async def test_what_is_no_token_is_refused(home: House, header: str):
    answer = await home.nobody.get("/whoami", headers={"Authorization": header})
    problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


# --- client secrets and OAuth ---

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
TOKEN_ROUTES = [
    API + "/oauth/token",
    "/iceberg/v1/oauth/tokens",
    "/api/catalog/v1/oauth/tokens",
    "/api/2.1/unity-catalog/iceberg/v1/oauth/tokens",
]


async def exchange(
    home: House, route: str = TOKEN_ROUTES[0], basic: tuple[str, str] | None = None, **form: str
) -> Answer:
    headers = dict(FORM)
    if basic is not None:
        pair = ":".join(quote_plus(part) for part in basic)
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    body = urlencode({"grant_type": "client_credentials", **form}).encode()
    return await ask(home.app.public, "POST", route, body, headers.items())


async def job_with_secret(home: House) -> tuple[Person, dict[str, Any]]:
    job = await home.user("etl job", "service")
    return job, await job.ok("POST", "/principals/etl job/secrets".replace(" ", "%20"), {"label": "first"})


@pytest.mark.parametrize("route", TOKEN_ROUTES)
@pytest.mark.parametrize("way", ["basic", "form"])
@pytest.mark.parametrize("known_by", ["id", "name"])
async def test_a_secret_is_exchanged_for_a_token(home: House, route: str, way: str, known_by: str):
    _, made = await job_with_secret(home)
    client = made["client_id"] if known_by == "id" else "etl job"
    if way == "basic":
        answer = await exchange(home, route, (client, made["client_secret"]))
    else:
        answer = await exchange(home, route, client_id=client, client_secret=made["client_secret"])
    assert answer.status == 200, answer
    assert answer.headers["cache-control"] == "no-store"
    told = answer.json
    assert (told["token_type"], told["expires_in"], told["scope"]) == ("bearer", 3600, "all")
    holder = Person(home, "etl job", told["access_token"])
    assert (await holder.ok("GET", "/whoami"))["name"] == "etl job"
    home.clock.advance(HOUR)
    problem(await holder.get("/whoami"), 401, "unauthenticated")


async def test_basic_wins_over_the_form(home: House):
    _, made = await job_with_secret(home)
    good = (made["client_id"], made["client_secret"])
    assert (await exchange(home, basic=good, client_id="x", client_secret="x")).status == 200
    bad = await exchange(home, basic=("x", "x"), client_id=good[0], client_secret=good[1])
    assert bad.status == 401


async def test_an_exchanged_token_can_be_read_only(home: House):
    _, made = await job_with_secret(home)
    good = (made["client_id"], made["client_secret"])
    told = (await exchange(home, basic=good, scope="read")).json
    assert told["scope"] == "read"
    problem(await Person(home, "etl", told["access_token"]).post("/tokens", {}), 403, "forbidden")
    # A client that asks for what some other server offers gets what there is.
    assert (await exchange(home, basic=good, scope="all-apis")).json["scope"] == "all"


async def test_whatever_is_wrong_with_a_secret_the_answer_is_the_same(home: House):
    job, made = await job_with_secret(home)
    other = await home.user("other", "service")
    others = await other.ok("POST", "/principals/other/secrets", {"expires_in_s": 10})
    client, secret = made["client_id"], made["client_secret"]

    wrong = [
        await exchange(home, client_id=client, client_secret="wrong"),
        await exchange(home, client_id=client, client_secret=""),
        await exchange(home, client_id="nobody", client_secret=secret),
        await exchange(home, client_id="00000000-0000-7000-8000-00000000dead", client_secret=secret),
        await exchange(home, client_id=client, client_secret=others["client_secret"]),
        await exchange(home, client_id="admin", client_secret=secret),
        await exchange(home, basic=("a\u0000b", secret)),
    ]
    home.clock.advance(10_000)
    wrong.append(await exchange(home, client_id="other", client_secret=others["client_secret"]))
    await job.ok("DELETE", path("principals", "etl job", "secrets", made["id"]))
    wrong.append(await exchange(home, client_id=client, client_secret=secret))
    again = await job.ok("POST", path("principals", "etl job", "secrets"), {})
    await home.admin.ok("PATCH", path("principals", "etl job"), {"disabled": True})
    wrong.append(await exchange(home, client_id=client, client_secret=again["client_secret"]))
    assert {(answer.status, answer.body) for answer in wrong} == {
        (401, b'{"error":"invalid_client","error_description":"the client id or secret is not valid"}')
    }


@pytest.mark.parametrize(
    ("body", "headers", "status", "error"),
    [
        (b"", {}, 400, "unsupported_grant_type"),
        (b"grant_type=password&username=a&password=b", {}, 400, "unsupported_grant_type"),
        (b"grant_type=client_credentials", {}, 401, "invalid_client"),
        (b"grant_type=client_credentials&client_id=a", {}, 401, "invalid_client"),
        (b"grant_type=client_credentials&grant_type=password", {}, 400, "invalid_request"),
        (b"grant_type=client_credentials&client_id=a%00&client_secret=b", {}, 400, "invalid_request"),
        (b"\xff\xfe", {}, 400, "invalid_request"),
        (b"grant_type=client_credentials&client_id=%ff&client_secret=b", {}, 400, "invalid_request"),
        (b"grant_type=client_credentials", {"Authorization": "Basic !!!"}, 401, "invalid_client"),
        (b"grant_type=client_credentials", {"Authorization": "Basic /w=="}, 401, "invalid_client"),
        (b"grant_type=client_credentials", {"Authorization": "Basic YWRtaW4="}, 401, "invalid_client"),
        (b"&".join(b"a%d=1" % number for number in range(100)), {}, 400, "invalid_request"),
    ],
)
async def test_a_request_for_a_token_that_makes_no_sense(
    home: House, body: bytes, headers: dict[str, str], status: int, error: str
):
    answer = await ask(home.app.public, "POST", TOKEN_ROUTES[0], body, {**FORM, **headers}.items())
    assert (answer.status, answer.json["error"]) == (status, error)
    assert answer.json["error_description"]
    assert answer.headers["cache-control"] == "no-store"


async def test_secrets_are_rotated_without_a_pause(home: House):
    job, first = await job_with_secret(home)
    target = path("principals", "etl job", "secrets")
    second = await job.ok("POST", target, {"label": "second"})
    problem(await job.post(target, {"label": "third"}), 409, "conflict")
    for made in (first, second):
        good = await exchange(home, client_id=made["client_id"], client_secret=made["client_secret"])
        assert good.status == 200
    await job.ok("DELETE", target + "/" + first["id"])
    assert (await exchange(home, client_id="etl job", client_secret=first["client_secret"])).status == 401
    assert (await exchange(home, client_id="etl job", client_secret=second["client_secret"])).status == 200
    await job.ok("POST", target, {"label": "third"})
    listed = await job.get(target)
    assert [(each["label"], each["revoked_at"] is None) for each in listed.json["secrets"]] == [
        ("first", False),
        ("second", True),
        ("third", True),
    ]
    assert set(listed.json["secrets"][0]) == {"id", "label", "created_at", "expires_at", "revoked_at"}
    for made in (first, second):
        assert made["client_secret"].encode() not in listed.body


async def test_secrets_of_others_are_for_admins(home: House):
    _, made = await job_with_secret(home)
    eve = await home.user("eve")
    target = path("principals", "etl job", "secrets")
    problem(await eve.get(target), 403, "forbidden")
    problem(await eve.post(target), 403, "forbidden")
    problem(await eve.delete(target + "/" + made["id"]), 403, "forbidden")
    problem(await eve.get("/principals/nobody/secrets"), 403, "forbidden")
    # Nor does one's own path open somebody else's.
    problem(await eve.delete(path("principals", "eve", "secrets", made["id"])), 404, "not-found")
    assert len((await home.admin.ok("GET", target))["secrets"]) == 1
    problem(await home.admin.get("/principals/nobody/secrets"), 404, "not-found")
    await home.group("team")
    problem(await home.admin.post("/principals/team/secrets"), 400, "invalid", "principal")
    problem(await home.admin.post("/tokens", {"principal": "team"}), 400, "invalid", "principal")


async def test_a_secret_that_is_revoked_during_the_exchange_makes_no_token(home: House):
    job, made = await job_with_secret(home)
    target = path("principals", "etl job", "secrets")
    for _ in range(5):
        start = await home.last_event()
        home.clock.advance(HOUR // 60)  # failures are forgiven
        answers = await asyncio.gather(
            *(exchange(home, client_id="etl job", client_secret=made["client_secret"]) for _ in range(4)),
            job.delete(target + "/" + made["id"]),
            *(exchange(home, client_id="etl job", client_secret=made["client_secret"]) for _ in range(4)),
        )
        assert answers[4].status == 204
        assert {answer.status for answer in answers} <= {200, 204, 401}
        late = await exchange(home, client_id="etl job", client_secret=made["client_secret"])
        assert late.status == 401
        kinds = [event["type"] for event in await home.events(start)]
        assert kinds.count("io.inver.token.created.v1") == sum(answer.status == 200 for answer in answers)
        if home.app.settings.database is None:
            # With one writer, what is on record after the revocation was decided after it.
            assert kinds[-1] == "io.inver.secret.revoked.v1"
        made = await job.ok("POST", target, {})


async def test_no_secret_is_in_the_database(tmp_path: Path):
    async with house(tmp_path / "home") as home:
        job, made = await job_with_secret(home)
        given = (await exchange(home, client_id="etl job", client_secret=made["client_secret"])).json
        await job.get("/whoami")
        key = "00000000-0000-4000-8000-000000000001"
        await home.admin.ok("POST", "/tokens", {}, headers={"Idempotency-Key": key})
        tokens = [home.admin.token, job.token, given["access_token"]]
        secrets = [str(token).split("_", 3)[3] for token in tokens]
        secrets.append(made["client_secret"].removeprefix("inver_secret_"))
    assert all(len(secret) == 43 for secret in secrets)
    files = [file for file in (tmp_path / "home").rglob("inver.db*") if file.is_file()]
    assert files
    for file in files:
        data = file.read_bytes()
        assert not any(secret.encode() in data for secret in secrets), file
    with sqlite3.connect(tmp_path / "home" / "inver.db") as database:
        hashes = [
            row[0] for row in database.execute("SELECT hash FROM tokens UNION ALL SELECT hash FROM secrets")
        ]
    database.close()
    assert len(hashes) == 5
    assert all(len(value) == 64 and set(value) <= set("0123456789abcdef") for value in hashes)


# --- grants ---


async def world(home: House) -> str:
    """A table in main.sales; its id."""
    await home.schema("main", "sales")
    return await home.table("main", "sales", "orders", columns=[{"name": "customer"}, {"name": "amount"}])


def on(kind: str, *name: str) -> dict[str, Any]:
    return {"kind": kind, "name": list(name)}


async def test_grants_are_given_listed_and_taken(home: House):
    table = await world(home)
    await home.user("ada")
    asked = {
        "principal": "ada",
        "privileges": ["select", "MODIFY"],
        "securable": on("table", "main", "sales", "orders"),
    }
    told = await home.admin.ok("POST", "/grants", asked)
    place = {"kind": "table", "name": ["main", "sales", "orders"], "id": table}
    expected = [
        {
            "principal": "ada",
            "privilege": privilege,
            "securable": place,
            "granted_at": home.clock.now_ms(),
            "granted_by": "admin",
        }
        for privilege in ("MODIFY", "SELECT")
    ]
    assert told == {"grants": expected}
    assert await home.admin.ok("POST", "/grants", asked) == told
    name = SEPARATOR.join(["MAIN", "sales", "Orders"])
    assert await home.admin.ok("GET", "/grants", kind="table", name=name) == told
    assert await home.admin.ok("GET", "/grants", kind="table", name=name, principal="ada") == told
    assert await home.admin.ok("GET", "/grants", principal="ada") == told
    empty = await home.admin.ok("GET", "/grants", kind="table", name=name, principal="everyone")
    assert empty == {"grants": []}
    asked["privileges"] = ["SELECT", "MANAGE"]
    assert await home.admin.ok("POST", "/grants/revoke", asked) == {"grants": expected[:1]}
    assert await home.admin.ok("POST", "/grants/revoke", asked) == {"grants": expected[:1]}


async def test_a_grant_is_shown_under_the_name_of_now(home: House):
    await world(home)
    ada = await home.user("ada")
    await home.grant("ada", ["SELECT"], "table", "main", "sales", "orders")
    await home.grant("ada", ["USE CATALOG"], "catalog", "main")
    await home.grant("ada", ["USE SCHEMA"], "schema", "main", "sales")
    await home.grant("ada", ["CREATE CATALOG"], "metastore")
    await home.admin.ok(
        "POST", table_path(("main", "sales", "orders")) + "/rename", {"to": ["main", "sales", "new"]}
    )
    told = (await ada.ok("GET", "/grants", principal="ada"))["grants"]
    assert {(each["privilege"], tuple(each["securable"]["name"])) for each in told} == {
        ("SELECT", ("main", "sales", "new")),
        ("USE CATALOG", ("main",)),
        ("USE SCHEMA", ("main", "sales")),
        ("CREATE CATALOG", ()),
    }


@pytest.mark.parametrize("route", ["/grants", "/grants/revoke"])
@pytest.mark.parametrize(
    ("change", "status", "kind", "field"),
    [
        ({"privileges": []}, 400, "invalid", "privileges"),
        ({"privileges": ["FLY"]}, 400, "invalid", "privileges"),
        ({"privileges": ["USE CATALOG"]}, 400, "invalid", "privileges"),
        ({"principal": "nobody"}, 404, "not-found", None),
        ({"securable": {"kind": "table", "name": ["main", "sales", "gone"]}}, 404, "not-found", None),
        ({"securable": {"kind": "schema", "name": ["main", "gone"]}}, 404, "not-found", None),
        ({"securable": {"kind": "schema", "name": ["gone", "sales"]}}, 404, "not-found", None),
        ({"securable": {"kind": "catalog", "name": ["gone"]}}, 404, "not-found", None),
        ({"securable": {"kind": "volume", "name": ["main", "sales", "files"]}}, 404, "not-found", None),
        ({"securable": {"kind": "table", "name": ["main", "sales"]}}, 400, "invalid", "securable.name"),
        ({"securable": {"kind": "metastore", "name": ["main"]}}, 400, "invalid", "securable.name"),
        ({"securable": {"kind": "catalog"}}, 400, "invalid", "securable.name"),
        ({"securable": {"kind": "planet"}}, 400, "invalid", "securable.kind"),
    ],
)
async def test_a_grant_that_makes_no_sense_is_refused(
    home: House, route: str, change: dict[str, Any], status: int, kind: str, field: str | None
):
    await world(home)
    await home.user("ada")
    before = await home.last_event()
    asked = {
        "principal": "ada",
        "privileges": ["SELECT"],
        "securable": on("table", "main", "sales", "orders"),
        **change,
    }
    problem(await home.admin.post(route, asked), status, kind, field)
    assert await home.last_event() == before


async def test_lists_of_grants_ask_for_something(home: House):
    await world(home)
    problem(await home.admin.get("/grants"), 400, "invalid", "kind")
    problem(await home.admin.get("/grants", kind="planet"), 400, "invalid", "kind")
    problem(await home.admin.get("/grants", kind="table", name="main"), 400, "invalid", "securable.name")
    problem(await home.admin.get("/grants", principal="nobody"), 404, "not-found")
    problem(
        await home.admin.get("/grants", kind="catalog", name="main", principal="nobody"), 404, "not-found"
    )


async def test_grants_of_others_are_for_who_manages(home: House):
    await world(home)
    ada, bob = await home.user("ada"), await home.user("bob")
    await home.grant("ada", ["USE CATALOG", "USE SCHEMA", "SELECT"], "catalog", "main")
    place = SEPARATOR.join(["main", "sales", "orders"])
    problem(await ada.get("/grants", kind="table", name=place), 403, "forbidden")
    problem(await bob.get("/grants", kind="table", name=place), 404, "not-found")
    problem(await bob.get("/grants", principal="ada"), 403, "forbidden")
    problem(await bob.get("/grants", principal="nobody"), 403, "forbidden")
    assert (await bob.ok("GET", "/grants", principal="bob"))["grants"] == []
    give = {"principal": "ada", "privileges": ["MODIFY"], "securable": on("table", "main", "sales", "orders")}
    told = problem(await ada.post("/grants", give), 403, "forbidden")
    assert told["fix"] == "needed: MANAGE on table main.sales.orders"
    problem(await bob.post("/grants", give), 404, "not-found")
    # Who manages a table gives it away, and nothing above it.
    await home.grant("ada", ["MANAGE"], "table", "main", "sales", "orders")
    give["principal"] = "bob"
    await ada.ok("POST", "/grants", give)
    assert len((await ada.ok("GET", "/grants", kind="table", name=place))["grants"]) == 2
    problem(await ada.post("/grants", {**give, "securable": on("schema", "main", "sales")}), 403, "forbidden")


async def test_decisions_are_explained(home: House):
    table = await world(home)
    ada, bob = await home.user("ada"), await home.user("bob")
    await home.group("analysts", "ada")
    await home.grant("everyone", ["USE CATALOG"], "catalog", "main")
    await home.grant("analysts", ["USE SCHEMA", "SELECT"], "schema", "main", "sales")
    place = on("table", "main", "sales", "orders")
    told = await ada.ok("POST", "/grants/explain", {"principal": "ada", "action": "read", "securable": place})
    assert told == {
        "allowed": True,
        "principal": "ada",
        "action": "read",
        "securable": {**place, "id": table},
        "because": [
            "USE CATALOG on catalog main, granted to everyone",
            "USE SCHEMA on schema main.sales, granted to analysts",
            "SELECT on schema main.sales, granted to analysts",
        ],
        "missing": [],
    }
    asked = {"principal": "ada", "action": "COMMIT", "securable": place}
    told = await home.admin.ok("POST", "/grants/explain", asked)
    assert (told["allowed"], told["missing"]) == (False, ["MODIFY on table main.sales.orders"])
    told = await home.admin.ok("POST", "/grants/explain", {**asked, "principal": "admin"})
    assert told["because"] == ["admins owns metastore"]
    # About others only who manages, and about what one cannot see nobody.
    problem(await ada.post("/grants/explain", {**asked, "principal": "bob"}), 403, "forbidden")
    problem(await bob.post("/grants/explain", {**asked, "principal": "bob"}), 404, "not-found")
    problem(await home.admin.post("/grants/explain", {**asked, "principal": "nobody"}), 404, "not-found")
    problem(await ada.post("/grants/explain", {**asked, "action": "fly"}), 400, "invalid", "action")
    await home.admin.ok("PATCH", "/principals/ada", {"disabled": True})
    told = await home.admin.ok("POST", "/grants/explain", {**asked, "action": "read"})
    assert (told["allowed"], told["missing"]) == (False, ["to be enabled: ada is disabled"])


# --- search ---


async def found(who: Person, q: str, **options: Any) -> list[tuple[str, ...]]:
    """Names of all hits, over all pages."""
    names: list[tuple[str, ...]] = []
    token = ""
    while True:
        page = await who.ok("GET", "/search", q=q, page_token=token, **options)
        names += [(*hit["name"], *([hit["column"]] if "column" in hit else [])) for hit in page["results"]]
        token = page["next_page_token"]
        if token is None:
            return names


async def test_search_finds_what_one_may_see(home: House):
    await world(home)
    await home.schema("main", "orders_archive")
    ada = await home.user("ada")
    everything = [("main", "sales", "orders"), ("main", "orders_archive")]
    assert await found(home.admin, "ORDER") == everything
    assert await found(home.admin, "order", kind="schema") == everything[1:]
    assert await found(ada, "order") == []
    await home.grant("ada", ["BROWSE"], "schema", "main", "sales")
    assert await found(ada, "order") == everything[:1]
    assert await found(ada, "main") == []
    await home.grant("ada", ["USE CATALOG"], "catalog", "main")
    assert await found(ada, "main") == [("main",)]
    problem(await ada.get("/search"), 400, "invalid", "q")
    problem(await ada.get("/search", q="  "), 400, "invalid", "q")
    problem(await ada.get("/search", q="x", kind="planet"), 400, "invalid", "kind")
    problem(await ada.get("/search", q="x", max_results="201"), 400, "invalid", "max_results")


async def test_columns_are_found_by_who_may_load_their_table(home: House):
    """They are part of the definition, which is not shown to who merely sees the table."""
    table = await world(home)
    ada = await home.user("ada")
    await home.grant("ada", ["USE CATALOG", "USE SCHEMA", "BROWSE"], "catalog", "main")
    assert "columns" not in await ada.ok("GET", path("tables", table))
    assert await found(ada, "order") == [("main", "sales", "orders")]
    assert await found(ada, "customer") == []
    await home.grant("ada", ["SELECT"], "table", "main", "sales", "orders")
    assert await found(ada, "customer") == [("main", "sales", "orders", "customer")]


async def test_searches_are_paged_without_gaps(home: House):
    """Many columns of one table match, and tables of one name are in several schemas."""
    expected = []
    for schema in ("a", "b", "c"):
        await home.schema("main", schema)
        for name in ("x1", "x2"):
            columns = [{"name": f"hit{number}"} for number in range(5)]
            await home.table("main", schema, name, columns=columns)
            expected.append(("main", schema, name, "hit0"))
    for size in (1, 2, 3, 100):
        names = await found(home.admin, "hit", max_results=size)
        assert sorted(names) == sorted(expected)


@pytest.mark.parametrize(("q", "hits"), [("100%", 1), ("_", 1), ("\\", 1), ("%", 1), ("a_b", 1), ("axb", 0)])
async def test_signs_of_patterns_mean_themselves(home: House, q: str, hits: int):
    await home.schema("main", "s")
    for name in ("100%", "a_b", "back\\slash", "plain"):
        await home.table("main", "s", name)
    assert len(await found(home.admin, q)) == hits


# --- what is on record ---


async def test_every_change_is_an_event_with_who_made_it(home: House):
    ada = await home.user("ada")
    start = await home.last_event()
    me = (await ada.ok("GET", "/whoami"))["id"]
    token = (await ada.ok("POST", "/tokens", {"label": "l"}))["id"]
    await ada.ok("DELETE", path("tokens", token))
    secret = (await ada.ok("POST", "/principals/ada/secrets", {}))["id"]
    await ada.ok("DELETE", path("principals", "ada", "secrets", secret))
    await home.admin.ok("PATCH", "/principals/ada", {"comment": "c"})
    await home.group("team", "ada")
    await home.admin.ok("DELETE", "/groups/team/members/ada")
    await home.grant("team", ["CREATE CATALOG", "BROWSE"], "metastore")
    await home.revoke("team", ["BROWSE"], "metastore")
    await home.admin.ok("DELETE", "/principals/team")
    events = await home.events(start)
    admin = (await home.admin.ok("GET", "/whoami"))["id"]
    assert [(event["type"], event["data"]["by"]) for event in events] == [
        ("io.inver.token.created.v1", me),
        ("io.inver.token.revoked.v1", me),
        ("io.inver.secret.created.v1", me),
        ("io.inver.secret.revoked.v1", me),
        ("io.inver.principal.altered.v1", admin),
        ("io.inver.principal.created.v1", admin),
        ("io.inver.group.member-added.v1", admin),
        ("io.inver.group.member-removed.v1", admin),
        ("io.inver.grant.added.v1", admin),
        ("io.inver.grant.revoked.v1", admin),
        ("io.inver.principal.deleted.v1", admin),
    ]
    assert (events[0]["subject"], events[2]["subject"], events[4]["subject"]) == (token, secret, me)
    assert events[8]["data"]["privileges"] == ["CREATE CATALOG", "BROWSE"]


async def test_denials_are_events_with_a_count(home: House):
    table = await world(home)
    ada = await home.user("ada")
    me = (await ada.ok("GET", "/whoami"))["id"]
    start = await home.last_event()
    for _ in range(7):
        assert (await ada.get(path("tables", table))).status == 404
    for _ in range(3):
        assert (await ada.get("/principals")).status == 403
    events = await home.events(start)
    assert {event["type"] for event in events} == {"io.inver.access.denied.v1"}
    told = {(event["subject"], event["data"]["action"]): event["data"] for event in events}
    assert told[(table, "see")]["times"] == 7
    metastore = "00000000-0000-7000-8000-000000000001"
    assert told[(metastore, "read-principals")]["times"] == 3
    assert {data["principal_id"] for data in told.values()} == {me}
    assert await home.events(start) == events, "nothing new, nothing again"
    assert (await ada.get(path("tables", table))).status == 404
    assert (await home.events(start))[-1]["data"]["times"] == 1


async def test_denials_that_could_not_be_written_are_written_later(home: House):
    ada = await home.user("ada")
    start = await home.last_event()
    assert (await ada.get("/principals")).status == 403
    store, audit = home.app.store, home.app.services.audit

    def fill_the_queue() -> None:
        while True:
            store.decide(Transaction(ADMIN.id, 0, ()))

    with pytest.raises(Overloaded):
        fill_the_queue()
    with pytest.raises(Overloaded):
        await audit.flush()
    assert (await ada.get("/principals")).status == 403
    assert (await ada.get("/events")).status == 403
    while store.queued:
        await asyncio.sleep(0.01)
    events = await home.events(start)
    assert sorted(event["data"]["times"] for event in events) == [1, 2]


async def test_many_denials_do_not_flood_the_record(home: House):
    await home.schema("main", "s")
    ada = await home.user("ada")
    operations = [
        {"op": "create-table", "name": ["main", "s", f"t{number}"], "format": "DELTA"}
        for number in range(600)
    ]
    made = await home.admin.ok("POST", "/transactions", {"operations": operations})
    start = await home.last_event()
    for result in made["results"]:
        assert (await ada.get(path("tables", result["id"]))).status == 404
    assert len(await home.events(start)) == 500
    assert home.app.services.audit.dropped == 100


def test_a_server_that_stops_writes_down_what_it_knows(tmp_path: Path):
    """Denials and last uses are gathered in memory, and must not be lost with the process."""
    with running_inver(tmp_path / "home") as server:
        with server.client() as admin:
            admin.post("/principals", json={"name": "ada"}).raise_for_status()
            token = admin.post("/tokens", json={"principal": "ada"}).json()["token"]
        with server.client(headers={"Authorization": f"Bearer {token}"}) as ada:
            assert ada.get("/principals").status_code == 403
        server.restart()
        with server.client() as admin:
            events = admin.get("/events").json()["events"]
            assert [event["type"] for event in events][-1] == "io.inver.access.denied.v1"
            listed = admin.get("/tokens", params={"principal": "ada"}).json()["tokens"]
            assert listed[0]["last_used_at"] is not None
        assert json.loads((tmp_path / "home.ready.json").read_text())["pid"] == server.pid
