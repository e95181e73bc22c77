"""Attacks on identity and on what it may do; each test carries the id of its attack."""

from __future__ import annotations

import ast
import asyncio
import base64
import inspect
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import httpx
import pytest

from inver.auth import tokens as authentication
from inver.clock import ManualClock
from inver.domain import governance
from inver.domain.grants import Privilege
from inver.domain.ledger import Transaction
from inver.domain.principals import Principal, PrincipalKind
from inver.domain.securables import METASTORE_ID, SecurableKind
from inver.errors import RateLimited, Stale
from inver.services import tokens as token_service
from inver.services.context import Caller
from inver.services.throttle import SOURCES_LIMIT, Throttle
from tests.fixtures.house import API, Answer, House, Person, ask, house, path, table_path
from tests.fixtures.ledger import Backend
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.server import InverServer, migrate, running_inver

UNITY = "/api/2.1/unity-catalog"
T = ("main", "sales", "orders")
SALES = path("catalogs", "main", "schemas", "sales")


@pytest.fixture(scope="module")
def emptied(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    """With the table main.sales.orders."""
    async with house(tmp_path / "home") as home:
        await home.schema("main", "sales")
        yield home


@pytest.fixture
async def pair(emptied: str, tmp_path: Path) -> AsyncIterator[tuple[House, House]]:
    """Two servers on one database."""
    await Backend(tmp_path, emptied).prepare()
    async with house(tmp_path / "one", emptied) as one, house(tmp_path / "two", emptied) as two:
        await one.schema("main", "sales")
        yield one, two


async def unity(who: Person, method: str, target: str, body: Any = None, **query: Any) -> Answer:
    headers = {"Authorization": f"Bearer {who.token}"}
    return await ask(who.home.app.public, method, UNITY + target, body, headers.items(), who.address, **query)


async def commit(who: Person, table: str, version: int) -> int:
    operation = {"op": "commit", "table": {"id": table}, "version": version, "token": str(uuid4())}
    return (await who.post("/transactions", {"operations": [operation]})).status


async def loads(who: Person, table: str) -> int:
    return (await who.get(path("tables", table, "commits"))).status


# --- C6, C7: what is remembered is never a decision ---


class Rights:
    """Somebody who reads and writes a table by one right, and how that right is taken away."""

    def __init__(self, home: House) -> None:
        self.home = home
        self.table = self.token = ""

    async def found(self) -> Person:
        home = self.home
        self.table = await home.table(*T)
        await home.admin.ok("POST", "/principals", {"name": "ada"})
        made = await home.admin.ok("POST", "/tokens", {"principal": "ada"})
        self.token = made["id"]
        await home.group("writers", "ada")
        await home.grant("everyone", ["USE CATALOG", "USE SCHEMA"], "catalog", "main")
        return Person(home, "ada", made["token"])

    async def by_grant(self) -> None:
        await self.home.grant("ada", ["SELECT", "MODIFY"], "table", *T)

    async def by_inherited_grant(self) -> None:
        await self.home.grant("ada", ["SELECT", "MODIFY"], "schema", "main", "sales")

    async def by_group(self) -> None:
        await self.home.grant("writers", ["SELECT", "MODIFY"], "table", *T)

    async def by_everyone(self) -> None:
        await self.home.grant("everyone", ["SELECT", "MODIFY"], "table", *T)

    async def by_owning(self) -> None:
        await self.home.admin.ok("PATCH", table_path(T), {"owner": "ada"})

    async def by_owning_the_schema(self) -> None:
        await self.home.admin.ok("PATCH", SALES, {"owner": "writers"})

    async def revoke_token(self) -> None:
        await self.home.admin.ok("DELETE", path("tokens", self.token))

    async def disable(self) -> None:
        await self.home.admin.ok("PATCH", "/principals/ada", {"disabled": True})

    async def delete(self) -> None:
        await self.home.admin.ok("DELETE", "/principals/ada")

    async def leave(self) -> None:
        await self.home.admin.ok("DELETE", "/groups/writers/members/ada")

    async def disable_group(self) -> None:
        await self.home.admin.ok("PATCH", "/principals/writers", {"disabled": True})

    async def revoke(self) -> None:
        await self.home.revoke("ada", ["SELECT", "MODIFY"], "table", *T)

    async def revoke_inherited(self) -> None:
        await self.home.revoke("ada", ["SELECT", "MODIFY"], "schema", "main", "sales")

    async def revoke_of_everyone(self) -> None:
        await self.home.revoke("everyone", ["SELECT", "MODIFY"], "table", *T)

    async def revoke_the_way(self) -> None:
        await self.home.revoke("everyone", ["USE SCHEMA"], "catalog", "main")

    async def transfer(self) -> None:
        await self.home.admin.ok("PATCH", table_path(T), {"owner": "admin"})

    async def transfer_schema(self) -> None:
        await self.home.admin.ok("PATCH", SALES, {"owner": "admin"})

    async def move_away(self) -> None:
        await self.home.schema("main", "vault")
        await self.home.admin.ok("POST", table_path(T) + "/rename", {"to": ["main", "vault", "orders"]})


R = Rights
TAKEN = [
    ("by a grant, the token is revoked", R.by_grant, R.revoke_token, {401}),
    ("by a grant, the principal is disabled", R.by_grant, R.disable, {401}),
    ("by a grant, the principal is deleted", R.by_grant, R.delete, {401}),
    ("by a grant, it is revoked", R.by_grant, R.revoke, {403, 404}),
    ("by a grant, the way is closed", R.by_grant, R.revoke_the_way, {403, 404}),
    ("by an inherited grant, it is revoked", R.by_inherited_grant, R.revoke_inherited, {403, 404}),
    ("by an inherited grant, the table moves away", R.by_inherited_grant, R.move_away, {403, 404}),
    ("by a group, one leaves it", R.by_group, R.leave, {403, 404}),
    ("by a group, it is disabled", R.by_group, R.disable_group, {403, 404}),
    ("by everyone, it is revoked", R.by_everyone, R.revoke_of_everyone, {403, 404}),
    ("by owning, it is given to another", R.by_owning, R.transfer, {403, 404}),
    ("by owning the schema, it is given to another", R.by_owning_the_schema, R.transfer_schema, {403, 404}),
    ("by owning the schema, one leaves the group", R.by_owning_the_schema, R.leave, {403, 404}),
]
taken = pytest.mark.parametrize(
    ("given_by", "taken_by", "refused"), [pytest.param(*row[1:], id=row[0]) for row in TAKEN]
)
Step = Callable[[Rights], Any]


@taken
async def test_c6_what_is_taken_away_is_gone_with_the_next_request(
    home: House, given_by: Step, taken_by: Step, refused: set[int]
):
    rights = Rights(home)
    ada = await rights.found()
    await given_by(rights)
    # Twice, so that everything is remembered that can be.
    for version in (1, 2):
        assert await loads(ada, rights.table) == 200
        assert await commit(ada, rights.table, version) == 200
    await taken_by(rights)
    assert await commit(ada, rights.table, 3) in refused
    assert await loads(ada, rights.table) in refused
    assert (await home.admin.ok("GET", path("tables", rights.table)))["version"] == 2


@pytest.mark.postgres
@pytest.mark.parametrize("first", ["commit", "read"])
@taken
async def test_c7_what_one_server_takes_away_is_gone_at_the_other(
    pair: tuple[House, House], first: str, given_by: Step, taken_by: Step, refused: set[int]
):
    """The other server has everything remembered and is told nothing; its very next answer is no."""
    one, two = pair
    rights = Rights(one)
    ada = (await rights.found()).at(two)
    await given_by(rights)
    for version in (1, 2):
        assert await loads(ada, rights.table) == 200
        assert await commit(ada, rights.table, version) == 200
    await taken_by(rights)
    if first == "commit":
        assert await commit(ada, rights.table, 3) in refused
    assert await loads(ada, rights.table) in refused
    assert await commit(ada, rights.table, 3) in refused
    assert (await one.admin.ok("GET", path("tables", rights.table)))["version"] == 2


@pytest.mark.postgres
async def test_c7_what_one_server_gives_counts_at_the_other(pair: tuple[House, House]):
    one, two = pair
    rights = Rights(one)
    ada = (await rights.found()).at(two)
    assert await commit(ada, rights.table, 1) in (403, 404)
    await rights.by_group()
    assert await commit(ada, rights.table, 1) == 200
    await rights.leave()
    assert await commit(ada, rights.table, 2) in (403, 404)
    await one.admin.ok("PUT", "/groups/writers/members/ada")
    assert await commit(ada, rights.table, 2) == 200


async def test_c6_a_recorded_answer_is_not_given_again_to_who_may_not_see_it(home: House):
    """An idempotency key remembers that a request was made, and not that its maker may see the table."""
    rights = Rights(home)
    ada = await rights.found()
    await rights.by_grant()
    headers = {"Idempotency-Key": str(uuid4())}
    first = await ada.patch(table_path(T), {"comment": "hers"}, headers=headers)
    assert (first.status, first.json["comment"]) == (200, "hers")
    await home.admin.ok("PATCH", table_path(T), {"comment": "not for her"})
    assert (await ada.patch(table_path(T), {"comment": "hers"}, headers=headers)).json[
        "comment"
    ] == "not for her"
    await rights.revoke()
    again = await ada.patch(table_path(T), {"comment": "hers"}, headers=headers)
    assert again.status == 404
    assert b"not for her" not in again.body
    await home.grant("ada", ["BROWSE"], "table", *T)
    again = await ada.patch(table_path(T), {"comment": "hers"}, headers=headers)
    assert again.status == 200
    assert b"not for her" not in again.body


@pytest.mark.postgres
async def test_c6_a_recorded_answer_is_not_given_to_a_revoked_token(pair: tuple[House, House]):
    one, two = pair
    rights = Rights(one)
    ada = (await rights.found()).at(two)
    await rights.by_grant()
    operation = {"op": "commit", "table": {"id": rights.table}, "version": 1, "token": "t"}
    headers = {"Idempotency-Key": str(uuid4())}
    assert (await ada.post("/transactions", {"operations": [operation]}, headers=headers)).status == 200
    await rights.revoke_token()
    assert (await ada.post("/transactions", {"operations": [operation]}, headers=headers)).status == 401


async def test_c6_keys_to_a_staged_table_end_with_the_right_to_make_it(home: House):
    ada, bob = await home.user("ada"), await home.user("bob")
    await home.grant("everyone", ["USE CATALOG", "USE SCHEMA"], "catalog", "main")
    await home.grant("ada", ["CREATE TABLE"], "schema", "main", "sales")
    named = {"name": "new", "catalog_name": "main", "schema_name": "sales"}
    staged = (await unity(ada, "POST", "/staging-tables", named)).json
    by_id = {"table_id": staged["id"], "operation": "READ_WRITE"}
    by_path = {"url": staged["staging_location"], "operation": "PATH_READ_WRITE"}

    async def keys(who: Person) -> list[int]:
        return [
            (await unity(who, "POST", "/temporary-table-credentials", by_id)).status,
            (await unity(who, "POST", "/temporary-path-credentials", by_path)).status,
            (await unity(who, "GET", f"/delta/v1/staging-tables/{staged['id']}/credentials")).status,
        ]

    assert await keys(ada) == [200, 200, 200]
    assert await keys(bob) == [404, 403, 404]
    assert await keys(await ada.token_of(scope="read")) == [403, 403, 403]
    await home.grant("bob", ["CREATE TABLE"], "schema", "main", "sales")
    assert await keys(bob) == [403, 403, 403]
    await home.revoke("ada", ["CREATE TABLE"], "schema", "main", "sales")
    assert await keys(ada) == [403, 403, 403]


@pytest.mark.postgres
async def test_c6_facts_of_before_and_after_a_change_are_not_mixed(pair: tuple[House, House]):
    """Whenever she is in the group it holds nothing, and whenever it holds something she is not in it."""
    one, two = pair
    await one.user("ada")
    await one.group("team", "ada")
    found = [await one.app.store.principal_by_name(name) for name in ("ada", "team", "admin")]
    ada, team, admin = (info.id for info in found if info is not None)
    place: dict[str, Any] = {
        "principal_id": team,
        "kind": SecurableKind.METASTORE,
        "securable_id": METASTORE_ID,
        "privileges": (Privilege.CREATE_CATALOG,),
    }
    there = (governance.RemoveMember(group_id=team, member_id=ada), governance.Grant(**place))
    back = (governance.Revoke(**place), governance.AddMember(group_id=team, member_id=ada))
    changing, looks = True, 0

    async def change() -> None:
        nonlocal changing
        changes = 0
        while changes < 60 or not looks:
            operations = there if changes % 2 == 0 else back
            await one.app.store.decide(Transaction(admin, one.clock.now_ms(), operations))
            changes += 1
        changing = False

    async def look() -> None:
        nonlocal looks
        while changing:
            epoch = await two.app.store.epoch()
            caller = Caller(Principal(ada, "ada", PrincipalKind.USER, epoch=epoch))
            with suppress(Stale):
                standing = await two.app.services.access.standing(caller)
                assert METASTORE_ID not in standing.grants
                looks += 1

    await asyncio.gather(change(), *(look() for _ in range(3)))


async def test_c6_who_waits_for_events_is_asked_again_before_they_are_told(home: House):
    ada = await home.user("ada")
    await home.admin.ok("PUT", "/groups/admins/members/ada")
    last = await home.last_event()
    waiting = asyncio.ensure_future(ada.get("/events", after=last, wait=30))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await home.admin.ok("DELETE", "/groups/admins/members/ada")
    answer = await waiting
    assert answer.status == 403
    assert b"member-removed" not in answer.body


# --- the same through real processes ---


class Door:
    """One connection to one process."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def call(self, token: str, method: str, target: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return self.client.request(method, target, json=body, headers=headers)

    def process(self) -> str:
        """Request ids tell processes apart."""
        answer: httpx.Response = self.client.get("/whoami")
        return answer.headers["x-request-id"].partition("-")[0]


@contextmanager
def doors(kind: str, database: str, folder: Path) -> Iterator[tuple[str, Door, Door]]:
    """The administrator's token, and connections to two processes on one database."""
    with ExitStack() as stack:
        servers: list[InverServer]
        if kind == "workers":
            server = stack.enter_context(running_inver(folder / "home", database, ["--workers", "2"]))
            servers = [server] * 50
        else:
            servers = [stack.enter_context(running_inver(folder / f"h{n}", database)) for n in range(2)]
        found: dict[str, Door] = {}
        for server in servers:
            # Its connection is kept, and with it the process that accepted it.
            client = stack.enter_context(httpx.Client(base_url=server.url + API, timeout=30))
            door = Door(client)
            found.setdefault(door.process(), door)
            if len(found) == 2:
                break
        assert len(found) == 2, "both processes must have been met"
        one, two = found.values()
        yield servers[0].token, one, two


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["workers", "servers"])
def test_c7_two_processes_agree_at_once(kind: str, postgres_url: str, tmp_path: Path):
    """Each way to take something away, done at one process; the next request at the other is refused."""
    migrate(postgres_url)
    with doors(kind, postgres_url, tmp_path) as (admin, one, two):

        def do(method: str, target: str, body: Any = None) -> Any:
            answer = one.call(admin, method, target, body)
            assert answer.is_success, answer.text
            return answer.json() if answer.content else None

        do("POST", "/catalogs", {"name": "main"})
        do("POST", "/catalogs/main/schemas", {"path": ["sales"]})
        do("POST", "/principals", {"name": "writers", "kind": "group"})
        way = {"principal": "everyone", "privileges": ["USE CATALOG", "USE SCHEMA"]}
        do("POST", "/grants", {**way, "securable": {"kind": "catalog", "name": ["main"]}})
        for number, how in enumerate(("token", "disable", "group", "grant", "owner")):
            name = f"t{number}"
            place = {"kind": "table", "name": ["main", "sales", name]}
            held = {"privileges": ["SELECT", "MODIFY"], "securable": place}
            target = f"/catalogs/main/schemas/sales/tables/{name}"
            table = do("POST", "/catalogs/main/schemas/sales/tables", {"name": name, "format": "DELTA"})["id"]
            do("POST", "/principals", {"name": f"user{number}"})
            made = do("POST", "/tokens", {"principal": f"user{number}"})
            token = made["token"]
            if how == "owner":
                do("PATCH", target, {"owner": f"user{number}"})
            elif how == "group":
                do("PUT", f"/groups/writers/members/user{number}")
                do("POST", "/grants", {"principal": "writers", **held})
            else:
                do("POST", "/grants", {"principal": f"user{number}", **held})

            def write(door: Door, version: int, table: str = table, token: str = token) -> int:
                operation = {
                    "op": "commit",
                    "table": {"id": table},
                    "version": version,
                    "token": str(uuid4()),
                }
                return door.call(token, "POST", "/transactions", {"operations": [operation]}).status_code

            assert [write(two, version) for version in (1, 2, 3)] == [200, 200, 200], how
            assert write(one, 4) == 200
            match how:
                case "token":
                    do("DELETE", f"/tokens/{made['id']}")
                case "disable":
                    do("PATCH", f"/principals/user{number}", {"disabled": True})
                case "group":
                    do("DELETE", f"/groups/writers/members/user{number}")
                case "grant":
                    do("POST", "/grants/revoke", {"principal": f"user{number}", **held})
                case "owner":
                    do("PATCH", target, {"owner": "admin"})
            expected = 401 if how in ("token", "disable") else 404
            assert write(two, 5) == expected, how
            assert two.call(token, "GET", f"/tables/{table}").status_code == expected, how
            assert write(one, 5) == expected, how
            assert do("GET", f"/tables/{table}")["version"] == 4


# --- C8: implicit groups ---


async def test_c8_a_grant_to_everyone_comes_and_goes_for_everybody(home: House):
    table = await home.table(*T)
    people = [await home.user(f"user{number}") for number in range(3)]
    for _ in range(2):
        assert [await loads(who, table) for who in people] == [404] * 3
        await home.grant("everyone", ["USE CATALOG", "USE SCHEMA", "SELECT"], "catalog", "main")
        assert [await loads(who, table) for who in people] == [200] * 3
        newcomer = await home.user(f"new{uuid4()}")
        assert await loads(newcomer, table) == 200
        await home.revoke("everyone", ["SELECT"], "catalog", "main")
        assert [await loads(who, table) for who in (*people, newcomer)] == [404] * 4
        await home.revoke("everyone", ["USE CATALOG", "USE SCHEMA"], "catalog", "main")


async def test_c8_everyone_as_a_member_of_a_group(home: House):
    table = await home.table(*T)
    ada = await home.user("ada")
    await home.group("readers")
    await home.grant("readers", ["USE CATALOG", "USE SCHEMA", "SELECT"], "catalog", "main")
    assert await loads(ada, table) == 404
    await home.admin.ok("PUT", "/groups/readers/members/everyone")
    assert await loads(ada, table) == 200
    await home.admin.ok("DELETE", "/groups/readers/members/everyone")
    assert await loads(ada, table) == 404


# --- C9: what tells of the data needs the right to the data ---


async def test_c9_who_merely_sees_a_table_learns_nothing_of_its_data(home: House):
    columns = [{"name": "salary", "type_text": "bigint"}]
    table = await home.table(*T, columns=columns, comment="confidential", properties={"key": "internal"})
    assert await commit(home.admin, table, 1) == 200
    ada = await home.user("ada")
    await home.grant("ada", ["USE CATALOG", "USE SCHEMA", "BROWSE", "MANAGE"], "catalog", "main")
    told = []
    for target in (table_path(T), path("tables", table), SALES + "/tables"):
        answer = await ada.get(target)
        assert answer.status == 200
        told.append(answer)
    for target in (table_path(T) + "/commits", path("tables", table, "commits"), table_path(T) + "/metrics"):
        answer = await ada.get(target)
        assert answer.status == 403, target
        told.append(answer)
    told.append(await ada.get("/search", q="salary"))
    told.append(await unity(ada, "GET", "/tables", catalog_name="main", schema_name="sales"))
    assert told[-1].status == 200
    for answer in (
        await unity(ada, "GET", "/tables/main.sales.orders"),
        await unity(ada, "GET", "/delta/commits", table_id=table, table_uri="file:///x", start_version="0"),
        await unity(ada, "GET", "/delta/v1/catalogs/main/schemas/sales/tables/orders"),
        await unity(ada, "POST", "/temporary-table-credentials", {"table_id": table, "operation": "READ"}),
    ):
        assert answer.status == 403, answer
        told.append(answer)
    everything = b"".join(answer.body for answer in told)
    for secret in (b"salary", b"confidential", b"internal"):
        assert secret not in everything


@pytest.mark.parametrize(
    ("privilege", "details", "history"),
    [("SELECT", True, True), ("MODIFY", True, False), ("MAINTAIN", True, False), ("BROWSE", False, False)],
)
async def test_c9_which_right_shows_what(home: House, privilege: str, details: bool, history: bool):
    table = await home.table(*T, columns=[{"name": "salary"}])
    ada = await home.user("ada")
    await home.grant("ada", ["USE CATALOG", "USE SCHEMA", privilege], "catalog", "main")
    assert ("columns" in (await ada.ok("GET", path("tables", table)))) is details
    assert (await loads(ada, table) == 200) is history


# --- C10: every way to a table asks for the same ---

VIEWS = {
    "load": (
        lambda ada, table: ada.get(path("tables", table)),
        lambda ada, table: unity(ada, "GET", "/tables/main.sales.orders"),
    ),
    "commit": (
        lambda ada, table: ada.post(
            "/transactions",
            {"operations": [{"op": "commit", "table": {"id": table}, "version": 99, "token": "t"}]},
        ),
        lambda ada, table: unity(
            ada,
            "POST",
            "/delta/v1/catalogs/main/schemas/sales/tables/orders",
            {
                "requirements": [{"type": "assert-table-uuid", "uuid": table}],
                "updates": [{"action": "set-latest-backfilled-version", "latest-published-version": 0}],
            },
        ),
    ),
    "alter": (
        lambda ada, table: ada.patch(table_path(T), {"comment": "x"}),
        lambda ada, table: unity(ada, "PATCH", "/tables/main.sales.orders", {"comment": "x"}),
    ),
    "transfer": (
        lambda ada, table: ada.patch(table_path(T), {"owner": "admin"}),
        lambda ada, table: unity(ada, "PATCH", "/tables/main.sales.orders", {"owner": "admin"}),
    ),
    "give": (
        lambda ada, table: ada.post(
            "/grants",
            {"principal": "ada", "privileges": ["BROWSE"], "securable": {"kind": "table", "name": list(T)}},
        ),
        lambda ada, table: unity(
            ada,
            "PATCH",
            "/permissions/table/main.sales.orders",
            {"changes": [{"principal": "ada", "add": ["BROWSE"], "remove": []}]},
        ),
    ),
    "rename": (
        lambda ada, table: ada.post(table_path(T) + "/rename", {"to": list(T)}),
        lambda ada, table: unity(
            ada,
            "POST",
            "/delta/v1/catalogs/main/schemas/sales/tables/orders/rename",
            {"new-name": "orders"},
        ),
    ),
}  # fmt: skip
HOLDINGS = [
    set(),
    {"BROWSE"},
    {"SELECT"},
    {"MODIFY"},
    {"MAINTAIN"},
    {"MANAGE"},
    {"MANAGE", "CREATE TABLE"},
    {"ALL PRIVILEGES"},
]


@pytest.mark.parametrize("held", HOLDINGS, ids=lambda held: "+".join(sorted(held)) or "nothing")
async def test_c10_no_protocol_is_weaker_than_another(home: House, held: set[str]):
    table = await home.table(*T)
    ada = await home.user("ada")
    await home.grant("ada", ["USE CATALOG", "USE SCHEMA"], "catalog", "main")
    if held:
        await home.grant("ada", sorted(held), "schema", "main", "sales")
    for what, ways in VIEWS.items():
        verdicts = []
        for way in ways:
            answer = await way(ada, table)
            refused = answer.status in (403, 404)
            if what == "load" and answer.status == 200:
                # This API shows those who merely see a table that it is there, and not what it is.
                refused = "columns" not in answer.json
            verdicts.append(refused)
        assert verdicts[0] is verdicts[1], (what, held)


# --- C12: names mean nothing without what is above them ---


async def test_c12_the_same_names_elsewhere_are_something_else(home: House):
    here = await home.table(*T)
    await home.schema("other", "sales")
    there = await home.table("other", "sales", "orders")
    await home.schema("main", "sales", "sales")
    below = await home.table("main", "sales", "sales", "orders")
    ada = await home.user("ada")
    await home.grant("ada", ["USE CATALOG"], "catalog", "main")
    await home.grant("ada", ["USE CATALOG"], "catalog", "other")
    await home.grant("ada", ["USE SCHEMA", "SELECT"], "schema", "main", "sales", "sales")
    assert [await loads(ada, table) for table in (here, there, below)] == [404, 404, 404]
    await home.grant("ada", ["USE SCHEMA"], "schema", "main", "sales")
    assert [await loads(ada, table) for table in (here, there, below)] == [404, 404, 200]
    await home.grant("ada", ["SELECT"], "table", *T)
    assert [await loads(ada, table) for table in (here, there, below)] == [200, 404, 200]


async def test_c12_somebody_new_under_an_old_name_has_nothing_of_it(home: House):
    table = await home.table(*T)
    await home.user("ada")
    await home.group("team", "ada")
    await home.grant("ada", ["USE CATALOG", "USE SCHEMA", "SELECT"], "catalog", "main")
    await home.grant("team", ["MODIFY"], "catalog", "main")
    await home.admin.ok("DELETE", "/principals/ada")
    await home.admin.ok("DELETE", "/principals/team")
    ada = await home.user("ada")
    await home.group("team", "ada")
    assert await loads(ada, table) == 404
    assert (await ada.ok("GET", "/grants", principal="ada"))["grants"] == []


# --- C13: renaming ---


@pytest.mark.parametrize(
    ("on_source", "on_target", "status"),
    [
        ({"MANAGE"}, {"CREATE TABLE", "USE SCHEMA"}, 200),
        ({"MANAGE"}, {"USE SCHEMA"}, 403),
        ({"MANAGE"}, {"CREATE TABLE"}, 403),
        ({"MANAGE"}, set(), 404),
        ({"MODIFY", "SELECT", "MAINTAIN"}, {"CREATE TABLE", "USE SCHEMA"}, 403),
        ({"ALL PRIVILEGES"}, {"ALL PRIVILEGES"}, 403),
        ({"BROWSE"}, {"CREATE TABLE", "USE SCHEMA"}, 403),
        (set(), {"CREATE TABLE", "USE SCHEMA", "MANAGE"}, 404),
    ],
)
@pytest.mark.parametrize("way", ["route", "transaction"])
async def test_c13_a_rename_takes_from_one_place_and_makes_in_another(
    home: House, way: str, on_source: set[str], on_target: set[str], status: int
):
    await home.table(*T)
    await home.schema("main", "vault")
    ada = await home.user("ada")
    await home.grant("ada", ["USE CATALOG"], "catalog", "main")
    await home.grant("ada", ["USE SCHEMA"], "schema", "main", "sales")
    if on_source:
        await home.grant("ada", sorted(on_source), "table", *T)
    if on_target:
        await home.grant("ada", sorted(on_target), "schema", "main", "vault")
    to = ["main", "vault", "orders"]
    if way == "route":
        answer = await ada.post(table_path(T) + "/rename", {"to": to})
    else:
        operation = {"op": "rename-table", "table": {"name": list(T)}, "to": to}
        answer = await ada.post("/transactions", {"operations": [operation]})
    assert answer.status == status, answer
    place = T if status != 200 else tuple(to)
    assert (await home.admin.get(table_path(place))).status == 200


async def test_c13_a_new_name_in_the_same_transaction_gives_no_new_right(home: House):
    """Who may rename a table, and not write to it, does not write to it under its new name."""
    table = await home.table(*T)
    ada = await home.user("ada")
    await home.grant("ada", ["USE CATALOG", "USE SCHEMA", "CREATE TABLE"], "catalog", "main")
    await home.grant("ada", ["MANAGE"], "table", *T)
    rename = {"op": "rename-table", "table": {"name": list(T)}, "to": ["main", "sales", "new"]}
    write = {"op": "commit", "table": {"name": ["main", "sales", "new"]}, "version": 1, "token": "t"}
    answer = await ada.post("/transactions", {"operations": [rename, write]})
    assert answer.status == 403, answer
    assert (await home.admin.ok("GET", path("tables", table)))["name"] == "orders"
    # What one makes oneself is one's own from the start.
    create = {"op": "create-table", "name": ["main", "sales", "mine"], "format": "DELTA"}
    write["table"] = {"name": ["main", "sales", "mine"]}
    assert (await ada.post("/transactions", {"operations": [create, write]})).status == 200


async def test_c13_what_was_inherited_at_the_old_place_does_not_count_at_the_new_one(home: House):
    await home.table(*T)
    await home.schema("main", "vault")
    ada = await home.user("ada")
    await home.grant("ada", ["USE CATALOG"], "catalog", "main")
    await home.grant("ada", ["USE SCHEMA", "MANAGE", "MODIFY"], "schema", "main", "sales")
    await home.grant("ada", ["USE SCHEMA", "CREATE TABLE"], "schema", "main", "vault")
    to = ["main", "vault", "orders"]
    rename = {"op": "rename-table", "table": {"name": list(T)}, "to": to}
    write = {"op": "commit", "table": {"name": to}, "version": 1, "token": "t"}
    assert (await ada.post("/transactions", {"operations": [rename, write]})).status in (403, 404)
    assert (await ada.post("/transactions", {"operations": [write, rename]})).status == 404
    write["table"] = {"name": list(T)}
    assert (await ada.post("/transactions", {"operations": [write, rename]})).status == 200


# --- C15: secrets do not travel ---


async def test_c15_no_secret_is_logged_recorded_or_answered_twice(
    home: House, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    told: list[Answer] = []
    job = await home.user("job", "service")
    made = await job.ok("POST", "/principals/job/secrets", {})
    secret = made["client_secret"]
    form = f"grant_type=client_credentials&client_id=job&client_secret={secret}"
    exchanged = await ask(home.app.public, "POST", API + "/oauth/token", form.encode())
    token = exchanged.json["access_token"]
    basic = "Basic " + base64.b64encode(f"nobody:{secret}".encode()).decode()
    holder = Person(home, "job", token)
    for who in (job, holder):
        told += [
            await who.get("/whoami"),
            await who.get("/tokens"),
            await who.get("/principals/job/secrets"),
            await who.get(path("catalogs", token)),
            await who.post("/tokens", {"label": 5}),
            await who.post("/tokens", {"principal": "nobody"}),
            await who.get("/whoami", headers={"Authorization": f"Bearer {token}x"}),
            await who.get("/whoami", headers={"Authorization": f"Basic {token}"}),
            await who.get("/events"),
        ]
    wrong = form.replace("client_id=job", "client_id=jo")
    told.append(await ask(home.app.public, "POST", API + "/oauth/token", wrong.encode()))
    told.append(
        await ask(
            home.app.public,
            "POST",
            API + "/oauth/token",
            b"grant_type=client_credentials",
            [("Authorization", basic)],
        )
    )
    # What one sends oneself in a path comes back in its own refusal, and only there.
    told = [answer for answer in told if b"catalog '" not in answer.body]
    told.append(await home.admin.get("/events", limit=1000))
    recorded = (
        b"".join(answer.body for answer in told).decode() + caplog.text + repr(home.app.public.failures)
    )
    for hidden in (secret, token, str(job.token), str(home.admin.token)):
        assert hidden[-20:] not in recorded


async def test_c15_an_unexpected_failure_does_not_print_credentials(
    home: House, caplog: pytest.LogCaptureFixture
):
    """The worst case: the database is closed under a request, and the driver tells what it was doing."""
    ada = await home.user("ada")
    await ada.ok("GET", "/whoami")
    fresh = await home.admin.token_of("ada")
    connection = home.app.store._reader  # type: ignore[attr-defined]
    connection.close()
    answer = await fresh.get("/whoami")
    home.app.store._reader = home.app.store._connect()  # type: ignore[attr-defined]
    assert answer.status >= 500
    assert caplog.records
    for hidden in (str(fresh.token), str(fresh.token)[-20:]):
        assert hidden not in caplog.text
        assert hidden not in answer.body.decode()


# --- C16: nothing is learnt by trying ---


async def test_c16_unknown_ids_and_wrong_secrets_are_one_answer(home: House):
    ada = await home.user("ada")
    assert ada.token is not None
    token_id = ada.token.split("_")[2]
    revoked = await home.admin.token_of("ada")
    listed = (await home.admin.ok("GET", "/tokens", principal="ada"))["tokens"]
    await home.admin.ok("DELETE", path("tokens", next(t["id"] for t in listed if t["id"] != token_id)))
    bob = await home.user("bob")
    await home.admin.ok("PATCH", "/principals/bob", {"disabled": True})
    bodies = set()
    for token in (
        f"inver_pat_{token_id}_{'x' * 43}",
        f"inver_pat_{'0' * 32}_{'x' * 43}",
        f"inver_pat_{'0' * 32}_{ada.token.split('_', 3)[3]}",
        revoked.token,
        bob.token,
    ):
        answer = await Person(home, "?", token, str(uuid4())).get("/whoami")
        assert answer.status == 401
        told = answer.json
        del told["request_id"]
        bodies.add((json.dumps(told), tuple(sorted(answer.headers.items()))))
    assert len(bodies) == 1


@pytest.mark.parametrize("module", [authentication, token_service], ids=lambda module: module.__name__)
def test_c16_hashes_are_compared_in_constant_time(module: ModuleType):
    """Read from the source: no hash or secret is an operand of ==, != or `in`."""
    tree = ast.parse(inspect.getsource(module))
    compared = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    assert compared
    assert not [text for text in compared if "hash" in text or "secret" in text or "given" in text]
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert "hmac.compare_digest" in called


async def test_c16_guessing_is_slowed_down_per_address(home: House):
    ada = await home.user("ada")
    await ada.ok("GET", "/whoami")
    guess = Person(home, "?", f"inver_pat_{'0' * 32}_{'x' * 43}", ada.address)
    answers = [await guess.get("/whoami") for _ in range(30)]
    statuses = [answer.status for answer in answers]
    assert statuses == [401] * 20 + [429] * 10
    last = answers[-1]
    assert last.content_type == b"application/problem+json"
    assert last.json["type"] == "urn:inver:problem:rate-limited"
    assert int(last.headers["retry-after"]) >= 1
    # The same for secrets, which are guessed from the same address.
    form = b"grant_type=client_credentials&client_id=ada&client_secret=x"
    exchange = await ask(home.app.public, "POST", API + "/oauth/token", form, client=ada.address)
    assert (exchange.status, exchange.content_type) == (429, b"application/problem+json")
    assert int(exchange.headers["retry-after"]) >= 1
    # Who is known is not held up by others at the same address, not even when grants change.
    assert (await ada.get("/whoami")).status == 200
    await home.grant("everyone", ["BROWSE"], "metastore")
    assert (await ada.get("/whoami")).status == 200
    # Other addresses are not concerned, and time heals.
    guess.address = "10.9.9.9"
    assert (await guess.get("/whoami")).status == 401
    guess.address = ada.address
    home.clock.advance(int(last.headers["retry-after"]) * 1000)
    assert (await guess.get("/whoami")).status == 401
    assert (await guess.get("/whoami")).status == 429


def test_c16_guesses_from_very_many_addresses_take_bounded_memory():
    clock = ManualClock()
    throttle = Throttle(clock, burst=2, refill_ms=1_000)
    for number in range(SOURCES_LIMIT * 2):
        throttle.failed(f"address {number}")
        clock.advance(0 if number % 1_000 else 1)
    assert len(vars(throttle)["_failures"]) <= SOURCES_LIMIT
    latest = f"address {SOURCES_LIMIT * 2 - 1}"
    throttle.failed(latest)
    with pytest.raises(RateLimited) as limited:
        throttle.check(latest)
    assert limited.value.retry_after >= 1
    clock.advance(10_000)
    throttle.failed("another")
    throttle.check(latest)


async def test_c16_a_token_that_stopped_being_good_is_held_up_like_any_other(home: House):
    ada = await home.user("ada")
    await ada.ok("GET", "/whoami")
    await home.admin.ok("PATCH", "/principals/ada", {"disabled": True})
    ada.address = "10.8.8.8"
    statuses = [(await ada.get("/whoami")).status for _ in range(25)]
    assert statuses == [401] * 20 + [429] * 5


# --- E2: exactly one creation wins ---


@pytest.mark.postgres
@pytest.mark.parametrize("what", ["catalog", "schema", "table", "principal", "member"])
async def test_e2_of_two_who_create_the_same_one_has_created_it(pair: tuple[House, House], what: str):
    one, two = pair
    people = [one.admin, two.admin] * 4
    await one.group("team")
    for number in range(5):
        target, body = {
            "catalog": ("/catalogs", {"name": f"c{number}"}),
            "schema": ("/catalogs/main/schemas", {"path": [f"s{number}"]}),
            "table": (SALES + "/tables", {"name": f"t{number}", "format": "DELTA"}),
            "principal": ("/principals", {"name": f"p{number}"}),
            "member": ("/principals", {"name": f"m{number}"}),
        }[what]
        before = await one.last_event()
        answers = await asyncio.gather(*(who.post(target, body) for who in people))
        statuses = sorted(answer.status for answer in answers)
        assert statuses == [201] + [409] * (len(people) - 1)
        if what == "member":
            await asyncio.gather(*(who.put(f"/groups/team/members/m{number}") for who in people))
        kinds = [event["type"] for event in await one.events(before)]
        assert len(kinds) == (2 if what == "member" else 1), "one event for one creation"
        won = next(answer.json for answer in answers if answer.status == 201)
        shown = await two.admin.ok("GET", path("principals", won["name"])) if what == "principal" else won
        assert shown["id"] == won["id"]


async def test_e2_one_server_has_one_winner_too(home: House):
    answers = await asyncio.gather(*(home.admin.post("/catalogs", {"name": "Twice"}) for _ in range(8)))
    assert sorted(answer.status for answer in answers) == [201] + [409] * 7
