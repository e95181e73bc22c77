"""No recipient reaches a file, a version, a table or a share that was not shared with it.

Tests are named by the ids of the attack list: B5 and B11 (paths), C9 (everything needs the same right as
data), C15 and C16 (secrets), C17 (one token, one recipient), C18 (existence), and the rules of signed URLs.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from inver.errors import InverError
from inver.protocols.http import Request, Response
from tests.fixtures.delta_log import FIELDS, PROTOCOL, LogFolder, add, metadata, remove
from tests.fixtures.house import House, ask, house, path

MOUNT = "/delta-sharing"
FEED = {"delta__enableChangeDataFeed": "true"}
HOUR_MS = 3_600_000
ROUTES = [
    ("GET", "/shares"),
    ("GET", "/shares/s"),
    ("GET", "/shares/s/schemas"),
    ("GET", "/shares/s/schemas/sales/tables"),
    ("GET", "/shares/s/all-tables"),
    ("GET", "/shares/s/schemas/sales/tables/orders"),
    ("HEAD", "/shares/s/schemas/sales/tables/orders"),
    ("GET", "/shares/s/schemas/sales/tables/orders/version"),
    ("GET", "/shares/s/schemas/sales/tables/orders/metadata"),
    ("POST", "/shares/s/schemas/sales/tables/orders/query"),
    ("POST", "/shares/s/schemas/sales/tables/orders/queries/x"),
    ("GET", "/shares/s/schemas/sales/tables/orders/changes"),
    ("POST", "/shares/s/schemas/sales/tables/orders/temporary-table-credentials"),
]
ABOUT_A_TABLE = [route for route in ROUTES if "/tables/orders" in route[1]]


class Answered:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]

    def __repr__(self) -> str:
        return f"{self.status} {self.body[:300]!r}"


class World:
    """Two shares with a table each, and a recipient for each of them."""

    def __init__(self, home: House, lake: Path) -> None:
        self.home, self.lake = home, lake
        self.tokens: dict[str, str] = {}

    async def build(self) -> World:
        admin = self.home.admin
        await self.home.schema("main", "sales")
        for name in ("orders", "wages"):
            log = LogFolder(self.lake / name)
            log.commit(
                0, PROTOCOL, metadata((), FIELDS, **FEED), add("day=1/a.parquet", 5), add("b.parquet", 5)
            )
            log.commit(1, remove("b.parquet", size=5), add("c.parquet", 5))
            (log.folder / "day=1").mkdir()
            for file in ("day=1/a.parquet", "b.parquet", "c.parquet"):
                (log.folder / file).write_bytes(b"12345")
            await self.home.table("main", "sales", name, kind="EXTERNAL", location=str(log.folder))
        for share, name in (("s", "orders"), ("t", "wages")):
            await admin.ok("POST", "/shares", {"name": share})
            await admin.ok("POST", f"/shares/{share}/items", {"name": ["main", "sales", name]})
        for name, share in (("acme", "s"), ("bolt", "t")):
            await self.recipient(name, share)
        return self

    async def recipient(self, name: str, *shares: str, **options: Any) -> str:
        made = await self.home.admin.ok("POST", "/recipients", {"name": name, "activate": False, **options})
        for share in shares:
            await self.home.admin.ok("PUT", path("shares", share, "recipients", name), {})
        self.tokens[name] = made["profile"]["bearerToken"]
        return self.tokens[name]

    async def ask(
        self,
        who: str | None,
        method: str,
        target: str,
        body: Any = None,
        client: str = "10.0.0.1",
        **query: Any,
    ) -> Answered:
        """`who` is a recipient, or a token itself."""
        token = self.tokens.get(who or "", who)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return await self.raw(method, MOUNT + target, urlencode(query), headers, body, client)

    async def raw(
        self,
        method: str,
        target: str,
        query: str = "",
        headers: dict[str, str] | None = None,
        body: Any = None,
        client: str = "10.0.0.1",
    ) -> Answered:
        sent = b"" if body is None else json.dumps(body).encode()
        given = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        request = Request(method, target.encode(), query.encode(), given, sent, client, "r")
        result = self.home.app.public.dispatch(request)
        response = result if isinstance(result, Response) else await result
        if not isinstance(response.body, bytes):
            response = await self._poured(request, response, response.body)
        data = response.body
        assert isinstance(data, bytes)
        told = {name.decode().lower(): value.decode() for name, value in response.headers}
        return Answered(response.status, told, data)

    async def _poured(self, request: Request, response: Response, pieces: AsyncIterator[bytes]) -> Response:
        """As a socket does it: what fails before the first piece is still refused properly."""
        if request.method == "HEAD":
            return Response(response.status, b"", response.content_type, response.headers)
        found: list[bytes] = []
        try:
            async for piece in pieces:
                found.append(piece)
        except InverError as error:
            assert not found
            return self.home.app.public.refuse(error, request)
        return Response(response.status, b"".join(found), response.content_type, response.headers)

    async def urls(self, who: str = "acme", share: str = "s", table: str = "orders") -> list[str]:
        answer = await self.ask(who, "POST", f"/shares/{share}/schemas/sales/tables/{table}/query", {})
        assert answer.status == 200, answer
        return [line["file"]["url"] for line in answer.lines if "file" in line]

    async def fetch(self, url: str, **options: Any) -> Answered:
        parts = urlsplit(url)
        return await self.raw(options.pop("method", "GET"), parts.path, parts.query, **options)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    lake = tmp_path / "lake"
    lake.mkdir()
    async with house(tmp_path / "home", external_roots=(str(lake),)) as home:
        yield await World(home, lake).build()


# --- C17: one token, one recipient ---


async def test_c17_every_route_asks_for_a_recipients_token(world: World):
    user = world.home.admin.token
    forged = f"inver_rcp_{'0' * 32}_{'x' * 43}"
    for method, target in ROUTES:
        for token in (None, user, forged, "x", ""):
            answer = await world.ask(
                token, method, target, {}, client=f"10.0.{len(target)}.{len(token or '')}"
            )
            assert answer.status == 401, (method, target, token, answer)
            assert answer.headers["www-authenticate"] == "Bearer"
            if method != "HEAD":
                assert answer.json["errorCode"] == "UNAUTHENTICATED"
        assert (await world.ask("acme", method, target, {}, startingVersion=0)).status in (200, 400), target


async def test_c17_a_recipients_token_opens_nothing_else(world: World):
    bearer = {"Authorization": f"Bearer {world.tokens['acme']}"}
    for target in ("/api/management/v1/whoami", "/api/2.1/unity-catalog/catalogs", "/iceberg/v1/config"):
        answer = await ask(world.home.app.public, "GET", target, None, bearer.items())
        assert answer.status == 401, target


async def test_c17_a_token_opens_the_shares_of_its_recipient_alone(world: World):
    assert [item["name"] for item in (await world.ask("acme", "GET", "/shares")).json["items"]] == ["s"]
    assert [item["name"] for item in (await world.ask("bolt", "GET", "/shares")).json["items"]] == ["t"]
    for method, target in ROUTES[1:]:
        answer = await world.ask("bolt", method, target, {}, startingVersion=0)
        assert answer.status == 404, (method, target, answer)


async def test_c17_revocation_is_immediate(world: World):
    admin = world.home.admin
    url = (await world.urls())[0]
    assert (await world.fetch(url)).status == 200
    await admin.ok("DELETE", "/shares/s/recipients/acme")
    for method, target in ABOUT_A_TABLE:
        assert (await world.ask("acme", method, target, {}, startingVersion=0)).status == 404
    assert (await world.fetch(url)).status == 403
    await admin.ok("PUT", "/shares/s/recipients/acme", {})
    assert (await world.fetch(url)).status == 200
    await admin.ok("POST", "/recipients/acme/revoke", {})
    assert (await world.ask("acme", "GET", "/shares")).status == 401
    assert (await world.fetch(url)).status == 403


async def test_c17_a_table_taken_out_is_gone_at_once(world: World):
    url = (await world.urls())[0]
    await world.home.admin.ok("DELETE", "/shares/s/schemas/sales/tables/orders")
    assert (await world.ask("acme", "GET", ABOUT_A_TABLE[0][1])).status == 404
    assert (await world.fetch(url)).status == 403


async def test_c17_urls_end_when_the_partition_filter_changes(world: World):
    log = LogFolder(world.lake / "parts")
    log.commit(0, PROTOCOL, metadata(("day",)), add("a.parquet", 5, {"day": "2024-01-01"}))
    (log.folder / "a.parquet").write_bytes(b"12345")
    await world.home.table("main", "sales", "parts", kind="EXTERNAL", location=str(log.folder))
    await world.home.admin.ok("POST", "/shares/s/items", {"name": ["main", "sales", "parts"]})
    (url,) = await world.urls(table="parts")
    assert (await world.fetch(url)).status == 200
    where = {"schema": "sales", "table": "parts", "where": "day = '2024-01-02'"}
    await world.home.admin.ok("PUT", "/shares/s/recipients/acme", {"filters": [where]})
    assert await world.urls(table="parts") == []
    assert (await world.fetch(url)).status == 403


async def test_c17_tokens_end_and_are_rotated_with_grace(world: World):
    admin, clock = world.home.admin, world.home.clock
    made = await admin.ok("POST", "/recipients/acme/rotate", {"grace_s": 60, "activate": False})
    new = made["profile"]["bearerToken"]
    assert (await world.ask("acme", "GET", "/shares")).status == 200
    assert (await world.ask(new, "GET", "/shares")).status == 200
    clock.advance(60_000)
    answer = await world.ask("acme", "GET", "/shares")
    assert (answer.status, "expired" in answer.json["message"]) == (401, True)
    assert (await world.ask(new, "GET", "/shares")).status == 200
    clock.advance(91 * 24 * HOUR_MS)
    assert (await world.ask(new, "GET", "/shares")).status == 401
    await admin.ok("POST", "/recipients/acme/revoke", {})
    made = await admin.ok("POST", "/recipients/acme/rotate", {"activate": False, "expires_in_s": 5})
    assert (await world.ask(made["profile"]["bearerToken"], "GET", "/shares")).status == 200
    clock.advance(5_000)
    assert (await world.ask(made["profile"]["bearerToken"], "GET", "/shares")).status == 401


async def test_c17_an_activation_link_is_good_once(world: World):
    made = await world.home.admin.ok("POST", "/recipients", {"name": "new"})
    assert made["profile"] is None
    link = urlsplit(made["activation_url"]).path
    for _ in range(2):
        looked = await world.raw("GET", link)
        assert (looked.status, b"<form method" in looked.body) == (200, True)
        assert "default-src 'none'" in looked.headers["content-security-policy"]
    first = await world.raw("POST", link)
    assert first.status == 200
    assert first.json["shareCredentialsVersion"] == 1
    assert (await world.ask(first.json["bearerToken"], "GET", "/shares")).status == 200
    assert (await world.raw("POST", link)).status == 404
    assert (await world.raw("POST", link + "x")).status == 404
    again = await world.home.admin.ok("POST", "/recipients/new/rotate", {"expires_in_s": 10})
    world.home.clock.advance(10_000)
    assert (await world.raw("POST", urlsplit(again["activation_url"]).path)).status == 404


async def test_c17_a_link_that_was_replaced_is_good_no_more(world: World):
    made = await world.home.admin.ok("POST", "/recipients", {"name": "new"})
    newer = await world.home.admin.ok("POST", "/recipients/new/rotate", {"grace_s": 3600})
    assert (await world.raw("POST", urlsplit(made["activation_url"]).path)).status == 404
    assert (await world.raw("POST", urlsplit(newer["activation_url"]).path)).status == 200


async def test_c17_oauth_clients(world: World):
    admin = world.home.admin
    made = await admin.ok("POST", "/recipients", {"name": "oa", "kind": "oauth"})
    profile = made["profile"]
    assert (profile["shareCredentialsVersion"], profile["type"]) == (2, "oauth_client_credentials")
    await admin.ok("PUT", "/shares/s/recipients/oa", {})

    async def token(client_id: str, secret: str) -> Answered:
        basic = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
        request = Request(
            "POST",
            urlsplit(profile["tokenEndpoint"]).path.encode(),
            headers=[(b"authorization", f"Basic {basic}".encode())],
            body=b"grant_type=client_credentials",
            client="10.1.1.1",
        )
        result = world.home.app.public.dispatch(request)
        response = result if isinstance(result, Response) else await result
        assert isinstance(response.body, bytes)
        return Answered(response.status, {}, response.body)

    granted = await token(profile["clientId"], profile["clientSecret"])
    assert (granted.status, granted.json["expires_in"]) == (200, 3600)
    access = granted.json["access_token"]
    assert [each["name"] for each in (await world.ask(access, "GET", "/shares")).json["items"]] == ["s"]
    for wrong in ((profile["clientId"], "x"), ("x", profile["clientSecret"]), (profile["clientId"], access)):
        assert (await token(*wrong)).status == 401
    # A client secret is no bearer token, and a user's secret opens nothing here.
    assert (await world.ask(profile["clientSecret"], "GET", "/shares")).status == 401
    world.home.clock.advance(HOUR_MS)
    assert (await world.ask(access, "GET", "/shares")).status == 401
    again = (await token(profile["clientId"], profile["clientSecret"])).json["access_token"]
    await admin.ok("POST", "/recipients/oa/revoke", {})
    assert (await world.ask(again, "GET", "/shares")).status == 401
    assert (await token(profile["clientId"], profile["clientSecret"])).status == 401


async def test_c17_networks(world: World):
    await world.recipient("near", "s", networks=["10.9.0.0/16", "2001:db8::/32"])
    url = (await world.urls())[0]
    assert (await world.ask("near", "GET", "/shares", client="10.9.1.1")).status == 200
    assert (await world.ask("near", "GET", "/shares", client="2001:db8::1")).status == 200
    assert (await world.ask("near", "GET", "/shares", client="::ffff:10.9.1.1")).status == 200
    for client in ("10.8.1.1", "2001:db9::1", "", "x"):
        answer = await world.ask("near", "GET", "/shares", client=client)
        assert (answer.status, answer.json["errorCode"]) == (403, "PERMISSION_DENIED"), client
    await world.home.admin.ok("PATCH", "/recipients/acme", {"networks": ["10.9.0.0/16"]})
    assert (await world.ask("acme", "GET", "/shares")).status == 403
    assert (await world.fetch(url)).status == 403
    assert (await world.fetch(url, client="10.9.0.1")).status == 200


# --- C18: existence ---


async def test_c18_what_is_not_shared_is_told_like_what_is_not_there(world: World):
    def comparable(answer: Answered, real: str, fake: str) -> tuple[int, bytes]:
        return answer.status, answer.body.replace(real.encode(), fake.encode())

    for method, target in ROUTES[1:]:
        if method == "HEAD":
            continue
        target = re.sub("^/shares/s", "/shares/t", target).replace("orders", "wages")
        there = await world.ask("acme", method, target, {}, startingVersion=0)
        absent = await world.ask(
            "acme", method, target.replace("/shares/t", "/shares/q"), {}, startingVersion=0
        )
        assert there.status == 404, (method, target, there)
        assert comparable(there, "'t", "'q") == comparable(absent, "'q", "'q"), (method, target)


# --- C9: everything about a table needs the same right as its data ---


async def test_c9_history_stats_and_changes_need_what_data_needs(world: World):
    await world.home.admin.ok("DELETE", "/shares/s/schemas/sales/tables/orders")
    limited = {"name": ["main", "sales", "orders"], "start_version": 1}
    await world.home.admin.ok("POST", "/shares/s/items", limited)
    table = "/shares/s/schemas/sales/tables/orders"
    assert (await world.ask("acme", "POST", f"{table}/query", {"version": 1})).status == 200
    refused = [
        await world.ask("acme", "POST", f"{table}/query", {"version": 0}),
        await world.ask("acme", "POST", f"{table}/query", {"startingVersion": 0}),
        await world.ask("acme", "GET", f"{table}/metadata", version=0),
        await world.ask("acme", "GET", f"{table}/changes", startingVersion=0),
        await world.ask("acme", "POST", f"{table}/temporary-table-credentials", {}),
    ]
    assert [answer.status for answer in refused] == [400] * 5
    assert not any(b"b.parquet" in answer.body for answer in refused)


async def test_c9_a_share_gives_only_what_its_maker_could_give(world: World):
    ada = await world.home.user("ada")
    await world.home.grant("ada", ["CREATE SHARE", "CREATE RECIPIENT"], "metastore")
    await world.home.grant("ada", ["USE CATALOG", "USE SCHEMA", "SELECT"], "catalog", "main")
    await ada.ok("POST", "/shares", {"name": "mine"})
    item = {"name": ["main", "sales", "orders"]}
    assert (await ada.post("/shares/mine/items", item)).status == 403
    assert (await ada.post("/shares/mine/items", {"kind": "schema", "name": ["main", "sales"]})).status == 403
    await world.home.grant("ada", ["MANAGE"], "table", "main", "sales", "orders")
    await ada.ok("POST", "/shares/mine/items", item)
    assert (await ada.post("/shares/mine/items", {"name": ["main", "sales", "wages"]})).status == 403
    # Other people's shares and recipients are not hers, and she cannot tell whether they are there.
    assert (await ada.post("/shares/s/items", {**item, "as": ["a", "b"]})).status == 403
    assert (await ada.ask("PUT", "/shares/mine/recipients/acme", {})).status == 403
    for name in ("acme", "nobody"):
        assert (await ada.get(f"/recipients/{name}")).status == 403
    await ada.ok("POST", "/recipients", {"name": "hers"})
    await ada.ok("PUT", "/shares/mine/recipients/hers", {})
    assert [each["name"] for each in (await ada.get("/shares")).json["shares"]] == ["mine"]
    assert [each["name"] for each in (await ada.get("/recipients")).json["recipients"]] == ["hers"]


async def test_tokens_for_pages_and_refreshes_end(world: World):
    table = "/shares/s/schemas/sales/tables/orders"
    asked = {"maxFiles": 1, "includeRefreshToken": True}
    end = (await world.ask("acme", "POST", f"{table}/query", asked)).lines[-1]["endStreamAction"]
    again = {"maxFiles": 1, "pageToken": end["nextPageToken"]}
    refresh = {"refreshToken": end["refreshToken"]}
    world.home.clock.advance(HOUR_MS - 1)
    for body in (again, refresh):
        assert (await world.ask("acme", "POST", f"{table}/query", body)).status == 200
    world.home.clock.advance(1)
    answer = await world.ask("acme", "POST", f"{table}/query", refresh)
    assert (answer.status, answer.json["message"]) == (400, "The refresh token has expired")
    world.home.clock.advance(71 * HOUR_MS)
    answer = await world.ask("acme", "POST", f"{table}/query", again)
    assert (answer.status, answer.json["message"]) == (400, "The page token has expired")
    # One kind of token is not another.
    answer = await world.ask("acme", "POST", f"{table}/query", {"refreshToken": end["nextPageToken"]})
    assert answer.json["message"] == "Error decoding the refresh token"


# --- signed URLs, B5 and B11 ---


async def test_urls_let_read_one_file_until_they_end(world: World):
    urls = await world.urls()
    assert len(urls) == 2
    answer = await world.fetch(urls[0])
    assert (answer.status, answer.body) == (200, b"12345")
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == "attachment"
    world.home.clock.advance(HOUR_MS - 1_000)
    assert (await world.fetch(urls[0])).status == 200
    world.home.clock.advance(1_000)
    assert (await world.fetch(urls[0])).status == 403


@pytest.mark.parametrize(
    ("range", "status", "body", "place"),
    [
        ("bytes=0-4", 206, b"12345", "bytes 0-4/5"),
        ("bytes=0-0", 206, b"1", "bytes 0-0/5"),
        ("bytes=1-2", 206, b"23", "bytes 1-2/5"),
        ("bytes=3-", 206, b"45", "bytes 3-4/5"),
        ("bytes=-2", 206, b"45", "bytes 3-4/5"),
        ("bytes=-9", 206, b"12345", "bytes 0-4/5"),
        ("bytes=2-99", 206, b"345", "bytes 2-4/5"),
        ("bytes=5-", 416, None, None),
        ("bytes=-0", 416, None, None),
        ("bytes=0-0,2-2", 200, b"12345", None),
        ("bytes=3-1", 200, b"12345", None),
        ("lines=1-2", 200, b"12345", None),
        ("bytes=-", 200, b"12345", None),
    ],
)
async def test_ranges_of_files(world: World, range: str, status: int, body: bytes | None, place: str | None):
    answer = await world.fetch((await world.urls())[0], headers={"Range": range})
    assert answer.status == status
    assert answer.headers.get("content-range") == place
    if body is not None:
        assert answer.body == body


async def test_a_url_that_was_changed_opens_nothing(world: World):
    url = (await world.urls())[0]
    parts = urlsplit(url)
    _, _, _, who, file, name = parts.path.split("/")

    def encoded(path: str) -> str:
        return base64.urlsafe_b64encode(path.encode()).decode().rstrip("=")

    other = urlsplit((await world.urls("bolt", "t", "wages"))[0])
    for target in (
        f"{MOUNT}/files/{who}/{encoded('b.parquet')}/b.parquet",
        f"{MOUNT}/files/{who}/{encoded('_delta_log/' + '0' * 20 + '.json')}/{'0' * 20}.json",
        f"{MOUNT}/files/{who}/{encoded('../wages/c.parquet')}/c.parquet",
        f"{MOUNT}/files/{other.path.split('/')[3]}/{file}/{name}",
        f"{MOUNT}/files/{who}/{file}/other.parquet",
        f"{MOUNT}/files/{who}/{file}=/{name}",
        f"{MOUNT}/files/x/{file}/{name}",
    ):
        answer = await world.raw("GET", target, parts.query)
        assert (answer.status, answer.json["errorCode"]) == (403, "PERMISSION_DENIED"), target
    expires = re.search("Expires=([0-9]+)", parts.query)
    assert expires is not None
    for query in (
        "",
        parts.query.replace(expires[1], str(int(expires[1]) + 1)),
        parts.query + "&a=b",
        parts.query + "&" + parts.query,
        parts.query[:-1],
        parts.query.upper(),
        other.query,
    ):
        assert (await world.raw("GET", parts.path, query)).status == 403, query
    assert (await world.raw("PUT", parts.path, parts.query)).status == 405
    assert (await world.raw("DELETE", parts.path, parts.query)).status == 405


HOSTILE = [
    "../wages/c.parquet",
    "day=1/../../wages/c.parquet",
    "%2e%2e/wages/c.parquet",
    "./c.parquet",
    "day=1//a.parquet",
    "link/c.parquet",
    "link.parquet",
    "/etc/passwd",
    "file:///etc/passwd",
]


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_b11_a_log_cannot_lead_out_of_its_table(world: World, hostile: str):
    """A log is written by others: what it names is not what may be read."""
    folder = world.lake / "orders"
    os.symlink(world.lake / "wages", folder / "link")
    os.symlink(world.lake / "wages" / "c.parquet", folder / "link.parquet")
    (folder / "_delta_log" / f"{2:020d}.json").write_text(json.dumps(add(hostile, 5)) + "\n")
    answer = await world.ask("acme", "POST", "/shares/s/schemas/sales/tables/orders/query", {})
    if answer.status == 200:
        urls = [line["file"]["url"] for line in answer.lines if "file" in line]
        answers = [await world.fetch(url) for url in urls]
        assert sorted(each.status for each in answers)[:2] == [200, 200]
        assert [each.status for each in answers].count(200) == 2, "the hostile one was served"
    else:
        assert answer.status == 400


async def test_b5_a_sibling_with_the_same_prefix_is_another_table(world: World):
    log = LogFolder(world.lake / "orders2")
    log.commit(0, PROTOCOL, metadata(), add("secret.parquet", 6))
    (log.folder / "secret.parquet").write_bytes(b"secret")
    for path_ in (
        str(log.folder / "secret.parquet"),
        f"file://{log.folder}/secret.parquet",
        "../orders2/secret.parquet",
    ):
        (world.lake / "orders" / "_delta_log" / f"{2:020d}.json").write_text(json.dumps(add(path_, 6)) + "\n")
        answer = await world.ask("acme", "POST", "/shares/s/schemas/sales/tables/orders/query", {})
        if answer.status == 200:
            for line in answer.lines[2:]:
                assert (await world.fetch(line["file"]["url"])).body != b"secret"
        else:
            assert answer.status == 400


# --- F2, C15, and the record ---


async def test_f2_forwarded_headers_do_not_steer_urls(world: World):
    headers = {
        "Authorization": f"Bearer {world.tokens['acme']}",
        "Host": "inver.example:8181",
        "X-Forwarded-Host": "evil.example",
        "Forwarded": "host=evil.example",
    }
    target = f"{MOUNT}/shares/s/schemas/sales/tables/orders/query"
    answer = await world.raw("POST", target, headers=headers, body={})
    assert b"http://inver.example:8181/delta-sharing/files/" in answer.body
    assert b"evil" not in answer.body
    answer = await world.raw("POST", target, headers={**headers, "Host": "a/b?c"}, body={})
    assert answer.status == 400


async def test_every_access_is_on_record(world: World):
    before = await world.home.last_event()
    table = "/shares/s/schemas/sales/tables/orders"
    await world.ask("acme", "GET", "/shares")
    await world.ask("acme", "GET", f"{table}/version")
    await world.ask("acme", "POST", f"{table}/query", {})
    await world.ask("acme", "GET", f"{table}/changes", startingVersion=0)
    for url in await world.urls():
        await world.fetch(url)
    await world.home.app.sharing.visits.flush()
    found = [e["data"] for e in await world.home.events(before) if e["type"] == "io.inver.share.accessed.v1"]
    recipient = (await world.home.admin.ok("GET", "/recipients/acme"))["id"]
    assert {each["recipient_id"] for each in found} == {recipient} == {each["by"] for each in found}
    assert [each["action"] for each in found] == [
        *("list-shares", "get-version", "query", "query-changes", "query", "read-files"),
    ]
    assert found[-1]["times"] == 2
    assert [each.get("version") for each in found[1:5]] == [1, 1, 0, 1]


async def test_refusals_are_on_record(world: World):
    before = await world.home.last_event()
    await world.ask("acme", "GET", "/shares/t/schemas/sales/tables/wages/version")
    await world.ask("acme", "GET", "/shares/s/schemas/sales/tables/wages/version")
    recipient = (await world.home.admin.ok("GET", "/recipients/acme"))["id"]
    share = (await world.home.admin.ok("GET", "/shares/s"))["id"]
    found = [e for e in await world.home.events(before) if e["type"] == "io.inver.access.denied.v1"]
    assert {event["subject"] for event in found} == {recipient, share}
    assert {event["data"]["principal_id"] for event in found} == {recipient}


async def test_c15_no_secret_is_kept_or_told_again(world: World, tmp_path: Path):
    made = await world.home.admin.ok("POST", "/recipients", {"name": "new"})
    oauth = await world.home.admin.ok("POST", "/recipients", {"name": "oa", "kind": "oauth"})
    secrets = [
        world.tokens["acme"].split("_", 3)[3],
        made["activation_url"].rpartition("/")[2].partition("_")[2],
        oauth["profile"]["clientSecret"].split("_", 3)[3],
    ]
    told = [
        json.dumps(await world.home.admin.ok("GET", target))
        for target in ("/recipients", "/recipients/acme", "/recipients/new", "/recipients/oa", "/shares/s")
    ]
    told.append(json.dumps(await world.home.events()))
    stored = b"".join(file.read_bytes() for file in (tmp_path / "home").glob("inver.db*"))
    for secret in secrets:
        assert len(secret) > 20
        assert not any(secret in text for text in told)
        assert secret.encode() not in stored
