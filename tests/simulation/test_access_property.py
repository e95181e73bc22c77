"""Whatever is granted, taken back, renamed, dropped and made again: nobody gets what nothing explains.

A machine changes grants, groups, owners and names in any order and through every way there is. After
each step everybody tries every table, and each answer must be the one that the plainest reading of the
rules gives, with reasons that name a grant or an ownership of this very moment.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from inver.domain.grants import GRANTABLE, Action, Node, Privilege, Standing
from inver.domain.securables import METASTORE_ID, SecurableKind
from tests.fixtures.house import Answer, House, Person, house, path, table_path
from tests.fixtures.ledger import Backend
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.rules import reference_allowed, reference_visible

T = TypeVar("T")
A, K, P = Action, SecurableKind, Privilege

PEOPLE = ("ada", "bob", "cy")
GROUPS = ("red", "blue")
SUBJECTS = (*PEOPLE, *GROUPS, "everyone")
CATALOGS = ("main", "other")
SCHEMAS = (("main", "a"), ("main", "b"), ("main", "a", "deep"), ("other", "a"))
NAMES = ("t", "u")
GIVEN = (
    P.USE_CATALOG,
    P.USE_SCHEMA,
    P.SELECT,
    P.MODIFY,
    P.MANAGE,
    P.BROWSE,
    P.CREATE_TABLE,
    P.ALL_PRIVILEGES,
)
PROBED = (A.SEE, A.LOAD, A.READ, A.COMMIT, A.DROP)


# --- what there is: facts only, nothing that follows from them ---


@dataclass
class Thing:
    kind: SecurableKind
    owner: str
    parent: str | None
    name: str


@dataclass
class World:
    things: dict[str, Thing] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    grants: set[tuple[str, str, Privilege]] = field(default_factory=set)
    members: set[tuple[str, str]] = field(default_factory=lambda: {("admins", "admin")})
    disabled: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.things[METASTORE_ID] = Thing(K.METASTORE, "admins", None, "")

    def standing(self, who: str) -> Standing:
        subjects = {who, "everyone"}
        while True:
            more = {
                group
                for group, member in self.members
                if member in subjects and group not in subjects and group not in self.disabled
            }
            if not more:
                break
            subjects |= more
        grants: dict[str, dict[Privilege, str]] = {}
        for securable, principal, privilege in self.grants:
            if principal in subjects:
                grants.setdefault(securable, {})[privilege] = principal
        return Standing(frozenset(subjects), grants)

    def chain(self, securable: str) -> tuple[Node, ...]:
        things = [(securable, self.things[securable])]
        while (parent := things[-1][1].parent) is not None:
            # A dropped table outlives its schema, and then stands below the metastore.
            parent = parent if parent in self.things else METASTORE_ID
            things.append((parent, self.things[parent]))
        names = [thing.name for _, thing in reversed(things)][1:]
        return tuple(
            Node(thing.kind, each, thing.owner, tuple(names[: len(names) - level]))
            for level, (each, thing) in enumerate(things)
        )

    def may(self, who: str, action: Action, securable: str) -> bool:
        if who in self.disabled:
            return False
        return reference_allowed(self.standing(who), action, self.chain(securable))

    def sees(self, who: str, securable: str) -> bool:
        return reference_visible(self.standing(who), self.chain(securable))

    def name(self, securable: str) -> tuple[str, ...]:
        return self.chain(securable)[0].name

    def facts(self, who: str, securable: str) -> Iterator[str]:
        """Everything that is a reason, in the words of an explanation."""
        standing = self.standing(who)
        for node in self.chain(securable):
            if node.owner in standing.subjects:
                yield f"{node.owner} owns {node.shown()}"
            for each, principal, privilege in self.grants:
                if each == node.id and principal in standing.subjects:
                    yield f"{privilege} on {node.shown()}, granted to {principal}"

    def tables(self) -> list[str]:
        return [each for each, thing in self.things.items() if thing.kind is K.TABLE]

    def live(self) -> list[str]:
        return [each for each in self.tables() if each not in self.dropped]

    def find(self, name: tuple[str, ...]) -> str | None:
        for each, thing in self.things.items():
            if thing.kind is not K.METASTORE and each not in self.dropped and self.name(each) == name:
                return each
        return None

    def existing(self, name: tuple[str, ...]) -> str:
        found = self.find(name)
        assert found is not None
        return found


# --- the machine ---

people = st.sampled_from(PEOPLE)
callers = st.sampled_from((*PEOPLE, "admin"))
subjects = st.sampled_from(SUBJECTS)
schemas = st.sampled_from(SCHEMAS)
names = st.sampled_from(NAMES)
picks = st.integers(0, 11)


class Access(RuleBasedStateMachine):
    """Every change is asked of one server and tried at all of them."""

    servers = 1
    database: str | None = None
    thorough = True

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.folder = tempfile.TemporaryDirectory(prefix="inver-access-")
        self.homes: list[House] = []
        self.people: dict[str, Person] = {}
        self.world = World()
        self.turn = 0
        self.addresses = count()

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return self.runner.run(wait())

    def teardown(self) -> None:
        try:
            self.run(self.stack.aclose())
        finally:
            self.runner.close()
            self.folder.cleanup()

    def ask(self, who: str, method: str, target: str, body: Any = None) -> Answer:
        return self.run(self._ask(who, method, target, body))

    async def _ask(self, who: str, method: str, target: str, body: Any = None) -> Answer:
        person = self.people[who].at(self.homes[self.turn % len(self.homes)])
        # Who is disabled fails all the time, and is not to be held up for it.
        person.address = f"address {next(self.addresses)}"
        return await person.ask(method, target, body)

    def admin(self, method: str, target: str, body: Any = None) -> Any:
        answer = self.ask("admin", method, target, body)
        assert 200 <= answer.status < 300, (method, target, answer)
        return answer.json if answer.body else None

    @initialize()
    def found(self) -> None:
        self.run(self._open())
        for catalog in CATALOGS:
            made = self.admin("POST", "/catalogs", {"name": catalog})
            self.world.things[made["id"]] = Thing(K.CATALOG, "admin", METASTORE_ID, catalog)
        for schema in SCHEMAS:
            self._make_schema(schema)
            self._make_table("admin", (*schema, "t"))
        # Else a random walk hardly ever finds a way in.
        for privilege in (P.USE_CATALOG, P.USE_SCHEMA):
            self._change("/grants", "everyone", privilege, self.world.existing(("main",)))

    async def _open(self) -> None:
        folder = Path(self.folder.name)
        if self.database is not None:
            await Backend(folder, self.database).prepare()
        for number in range(self.servers):
            home = house(folder / f"home{number}", self.database)
            self.homes.append(await self.stack.enter_async_context(home))
        first = self.homes[0]
        self.people = {name: await first.user(name) for name in PEOPLE}
        self.people["admin"] = first.admin
        for name in GROUPS:
            await first.group(name)

    def _make_schema(self, name: tuple[str, ...]) -> None:
        made = self.admin("POST", path("catalogs", name[0], "schemas"), {"path": list(name[1:])})
        parent = self.world.existing(name[:-1])
        self.world.things[made["id"]] = Thing(K.SCHEMA, "admin", parent, name[-1])

    def _make_table(self, by: str, name: tuple[str, ...]) -> Answer:
        target = path("catalogs", name[0], "schemas", name[1:-1], "tables")
        answer = self.ask(by, "POST", target, {"name": name[-1], "format": "DELTA"})
        if answer.status == 201:
            schema = self.world.existing(name[:-1])
            self.world.things[answer.json["id"]] = Thing(K.TABLE, by, schema, name[-1])
        return answer

    def _change(self, target: str, principal: str, privilege: Privilege, securable: str) -> None:
        node = self.world.chain(securable)[0]
        asked = {
            "principal": principal,
            "privileges": [privilege],
            "securable": {"kind": node.kind, "name": list(node.name)},
        }
        self.admin("POST", target, asked)
        change = (securable, principal, privilege)
        if target == "/grants":
            self.world.grants.add(change)
        else:
            self.world.grants.discard(change)

    def _pick(self, among: list[str], pick: int) -> str | None:
        return among[pick % len(among)] if among else None

    # --- rules ---

    @rule(who=subjects, privilege=st.sampled_from(GIVEN), pick=picks)
    def grant(self, who: str, privilege: Privilege, pick: int) -> None:
        places = [
            each
            for each, thing in self.world.things.items()
            if privilege in GRANTABLE[thing.kind] and each not in self.world.dropped
        ]
        self._change("/grants", who, privilege, places[pick % len(places)])

    @rule(pick=picks)
    def revoke(self, pick: int) -> None:
        held = sorted(each for each in self.world.grants if each[0] not in self.world.dropped)
        if held:
            securable, who, privilege = held[pick % len(held)]
            self._change("/grants/revoke", who, privilege, securable)

    @rule(group=st.sampled_from(GROUPS), member=st.sampled_from((*PEOPLE, "blue", "everyone")))
    def join(self, group: str, member: str) -> None:
        answer = self.ask("admin", "PUT", path("groups", group, "members", member))
        if group == member:
            assert answer.status == 409
        else:
            assert answer.status == 204
            self.world.members.add((group, member))

    @rule(pick=picks)
    def leave(self, pick: int) -> None:
        members = sorted(self.world.members - {("admins", "admin")})
        if members:
            group, member = members[pick % len(members)]
            self.admin("DELETE", path("groups", group, "members", member))
            self.world.members.discard((group, member))

    @rule(who=st.sampled_from((*PEOPLE, *GROUPS)), disabled=st.booleans())
    def disable(self, who: str, disabled: bool) -> None:
        self.admin("PATCH", path("principals", who), {"disabled": disabled})
        if disabled:
            self.world.disabled.add(who)
        else:
            self.world.disabled.discard(who)

    @rule(by=callers, schema=schemas, name=names)
    def create(self, by: str, schema: tuple[str, ...], name: str) -> None:
        target = self.world.existing(schema)
        taken = self.world.find((*schema, name)) is not None
        answer = self._make_table(by, (*schema, name))
        if not self.world.may(by, A.CREATE_TABLE, target):
            self._refused(by, answer, target)
        else:
            assert answer.status == (409 if taken else 201), answer

    @rule(by=callers, pick=picks, schema=schemas, name=names)
    def rename(self, by: str, pick: int, schema: tuple[str, ...], name: str) -> None:
        table = self._pick(self.world.live(), pick)
        if table is None:
            return
        grants = self._all_grants()
        target = self.world.existing(schema)
        old = self.world.name(table)
        answer = self.ask(by, "POST", table_path(old) + "/rename", {"to": [*schema, name]})
        if not self.world.may(by, A.RENAME, table):
            self._refused(by, answer, table)
        elif not self.world.may(by, A.CREATE_TABLE, target):
            self._refused(by, answer, target)
        elif self.world.find((*schema, name)) not in (None, table):
            assert answer.status == 409, answer
        else:
            assert answer.status == 200, answer
            thing = self.world.things[table]
            thing.parent, thing.name = target, name
        assert self._all_grants() == grants, "a rename moved a grant"

    @rule(by=callers, pick=picks)
    def drop(self, by: str, pick: int) -> None:
        table = self._pick(self.world.live(), pick)
        if table is None:
            return
        answer = self.ask(by, "DELETE", table_path(self.world.name(table)))
        if not self.world.may(by, A.DROP, table):
            self._refused(by, answer, table)
        else:
            assert answer.status == 204, answer
            self.world.dropped.add(table)

    @rule(by=callers, pick=picks, to=st.none() | st.tuples(schemas, names))
    def undrop(self, by: str, pick: int, to: tuple[tuple[str, ...], str] | None) -> None:
        table = self._pick(sorted(self.world.dropped), pick)
        if table is None:
            return
        thing = self.world.things[table]
        body = {} if to is None else {"to": [*to[0], to[1]]}
        target = thing.parent if to is None else self.world.existing(to[0])
        name = thing.name if to is None else to[1]
        answer = self.ask(by, "POST", path("tables", table, "undrop"), body)
        if not self.world.may(by, A.DROP, table):
            self._refused(by, answer, table)
        elif target not in self.world.things:
            assert answer.status == 404, answer
        elif not self.world.may(by, A.CREATE_TABLE, target):
            self._refused(by, answer, target)
        elif self.world.find((*self.world.name(target), name)) is not None:
            assert answer.status == 409, answer
        else:
            assert answer.status == 200, answer
            thing.parent, thing.name = target, name
            self.world.dropped.discard(table)

    @rule(by=callers, to=subjects, pick=picks)
    def transfer(self, by: str, to: str, pick: int) -> None:
        things = [
            each
            for each, thing in self.world.things.items()
            if thing.kind is not K.METASTORE and each not in self.world.dropped
        ]
        each = things[pick % len(things)]
        name = self.world.name(each)
        target = {
            K.CATALOG: lambda: path("catalogs", *name),
            K.SCHEMA: lambda: path("catalogs", name[0], "schemas", name[1:]),
            K.TABLE: lambda: table_path(name),
        }[self.world.things[each].kind]()
        answer = self.ask(by, "PATCH", target, {"owner": to})
        if not self.world.may(by, A.TRANSFER, each):
            self._refused(by, answer, each)
        else:
            assert answer.status == 200, answer
            self.world.things[each].owner = to

    @rule(schema=st.sampled_from((("main", "b"), ("main", "a", "deep"))))
    def make_schema_anew(self, schema: tuple[str, ...]) -> None:
        """The same name, and nothing of what was granted under it."""
        old = self.world.existing(schema)
        answer = self.ask("admin", "DELETE", path("catalogs", schema[0], "schemas", schema[1:]))
        if any(self.world.things[table].parent == old for table in self.world.live()):
            assert answer.status == 409, answer
            return
        assert answer.status == 204, answer
        del self.world.things[old]
        self.world.grants = {each for each in self.world.grants if each[0] != old}
        self._make_schema(schema)

    # --- what must hold ---

    def _refused(self, who: str, answer: Answer, securable: str) -> None:
        if who in self.world.disabled:
            assert answer.status == 401, answer
        else:
            assert answer.status == (403 if self.world.sees(who, securable) else 404), answer

    def _all_grants(self) -> set[tuple[str, str, Privilege]]:
        store = self.homes[0].app.store
        found: set[tuple[str, str, Privilege]] = set()
        for name in SUBJECTS:
            info = self.run(store.principal_by_name(name))
            assert info is not None
            rows = self.run(store.grants_of(info.id))
            found |= {(row.securable_id, name, row.privilege) for row in rows}
        return found

    @invariant()
    def grants_are_what_was_granted(self) -> None:
        if self.homes:
            assert self._all_grants() == self.world.grants

    @invariant()
    def nobody_has_what_nothing_explains(self) -> None:
        if self.homes:
            self.run(self._everybody_tries())

    async def _everybody_tries(self) -> None:
        self.turn += 1
        for number, who in enumerate(PEOPLE):
            if not self.thorough and (number + self.turn) % len(PEOPLE):
                continue
            for _ in self.homes:
                self.turn += 1
                for table in self.world.tables():
                    await self._try(who, table)
                for schema in SCHEMAS:
                    await self._list(who, schema)
        await self._explain(PEOPLE[self.turn % len(PEOPLE)])

    async def _try(self, who: str, table: str) -> None:
        """See, load, read and commit: exactly what the rules say, and of a dropped table nothing."""
        shown = await self._ask(who, "GET", path("tables", table))
        read = await self._ask(who, "GET", path("tables", table, "commits"))
        attempt = {"op": "commit", "table": {"id": table}, "version": 999, "token": str(uuid4())}
        commit = await self._ask(who, "POST", "/transactions", {"operations": [attempt]})
        if who in self.world.disabled:
            assert (shown.status, read.status, commit.status) == (401, 401, 401)
            return
        sees = self.world.sees(who, table)
        refused = 403 if sees else 404
        if table in self.world.dropped:
            # Whether a commit happened while the table was there is told to who may commit to it.
            told = 404 if self.world.may(who, A.COMMIT, table) else refused
            assert (shown.status, read.status, commit.status) == (404, 404, told)
            return
        assert shown.status == (200 if sees else 404), (who, self.world.name(table), shown)
        if sees:
            assert ("columns" in shown.json) is self.world.may(who, A.LOAD, table)
        assert read.status == (200 if self.world.may(who, A.READ, table) else refused)
        # A version far ahead is a conflict for who may commit, and changes nothing.
        assert commit.status == (409 if self.world.may(who, A.COMMIT, table) else refused)

    async def _list(self, who: str, name: tuple[str, ...]) -> None:
        answer = await self._ask(who, "GET", path("catalogs", name[0], "schemas", name[1:], "tables"))
        if who in self.world.disabled:
            assert answer.status == 401
            return
        schema = self.world.existing(name)
        if not (self.world.sees(who, self.world.existing(name[:1])) and self.world.sees(who, schema)):
            assert answer.status == 404
            return
        inside = [table for table in self.world.live() if self.world.things[table].parent == schema]
        expected = sorted(table for table in inside if self.world.sees(who, table))
        assert sorted(table["id"] for table in answer.json["tables"]) == expected

    async def _explain(self, who: str) -> None:
        for table in self.world.live():
            facts = set(self.world.facts(who, table))
            name = list(self.world.name(table))
            for action in PROBED:
                asked = {"principal": who, "action": action, "securable": {"kind": "table", "name": name}}
                told = (await self._ask("admin", "POST", "/grants/explain", asked)).json
                assert told["allowed"] is self.world.may(who, action, table), told
                assert set(told["because"]) <= facts, told
                assert told["because"] if told["allowed"] else told["missing"]


def run_machine(machine: type[RuleBasedStateMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            # A failing history is short enough to read; making it shorter takes minutes.
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_nobody_gets_what_nothing_explains():
    run_machine(Access, 12, 20)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nobody_gets_what_nothing_explains_after_many_changes():
    run_machine(Access, 25, 50)


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(600)
def test_nobody_gets_what_nothing_explains_at_either_of_two_servers(postgres_server: PostgresServer):
    url = postgres_server.create_database()

    class Servers(Access):
        servers = 2
        database = url
        thorough = False

    try:
        run_machine(Servers, 8, 25)
    finally:
        postgres_server.drop_database(url)


# --- the two histories that matter most, told one by one (C13) ---


@pytest.fixture
async def home(tmp_path: Path):
    async with house(tmp_path / "home") as home:
        await home.schema("main", "a")
        await home.schema("main", "b")
        for privilege in ("USE CATALOG", "USE SCHEMA"):
            await home.grant("everyone", [privilege], "catalog", "main")
        yield home


async def reads(who: Person, table: str) -> int:
    return (await who.get(path("tables", table, "commits"))).status


async def test_c13_a_table_made_again_under_an_old_name_inherits_no_grant(home: House):
    ada = await home.user("ada")
    old = await home.table("main", "a", "t")
    await home.grant("ada", ["SELECT"], "table", "main", "a", "t")
    assert await reads(ada, old) == 200
    await home.admin.ok("DELETE", table_path(("main", "a", "t")))
    new = await home.table("main", "a", "t")
    assert (await reads(ada, old), await reads(ada, new)) == (404, 404)
    # The old one comes back under another name, and its grant with it.
    await home.admin.ok("POST", path("tables", old, "undrop"), {"to": ["main", "a", "old"]})
    assert (await reads(ada, old), await reads(ada, new)) == (200, 404)


async def test_c13_a_rename_takes_explicit_grants_along_and_leaves_inherited_ones(home: House):
    ada, bob = await home.user("ada"), await home.user("bob")
    table = await home.table("main", "a", "t")
    await home.grant("ada", ["SELECT"], "table", "main", "a", "t")
    await home.grant("bob", ["SELECT"], "schema", "main", "a")
    assert (await reads(ada, table), await reads(bob, table)) == (200, 200)
    await home.admin.ok("POST", table_path(("main", "a", "t")) + "/rename", {"to": ["main", "b", "t"]})
    assert (await reads(ada, table), await reads(bob, table)) == (200, 404)
    successor = await home.table("main", "a", "t")
    assert (await reads(ada, successor), await reads(bob, successor)) == (404, 200)


async def test_c13_coming_back_elsewhere_leaves_inherited_grants_behind(home: House):
    bob = await home.user("bob")
    table = await home.table("main", "a", "t")
    await home.grant("bob", ["SELECT", "MODIFY"], "schema", "main", "a")
    assert await reads(bob, table) == 200
    await home.admin.ok("DELETE", table_path(("main", "a", "t")))
    await home.admin.ok("POST", path("tables", table, "undrop"), {"to": ["main", "b", "t"]})
    assert await reads(bob, table) == 404


async def test_c13_a_dropped_table_inherits_nothing_of_a_schema_that_is_gone(home: House):
    ada = await home.user("ada")
    table = await home.table("main", "a", "t")
    await home.grant("ada", ["MANAGE"], "schema", "main", "a")
    await home.grant("ada", ["CREATE TABLE"], "schema", "main", "b")
    await home.admin.ok("DELETE", table_path(("main", "a", "t")))
    listed = await ada.ok("GET", path("catalogs", "main", "schemas", "a", "dropped"))
    assert [each["id"] for each in listed["tables"]] == [table], "she could bring it back"
    await home.admin.ok("DELETE", path("catalogs", "main", "schemas", "a"))
    taken = await ada.post(path("tables", table, "undrop"), {"to": ["main", "b", "t"]})
    assert taken.status == 404
    # Nor does a schema of the same name bring anything back.
    await home.schema("main", "a")
    assert (await ada.post(path("tables", table, "undrop"), {"to": ["main", "b", "t"]})).status == 404
    await home.admin.ok("POST", path("tables", table, "undrop"), {"to": ["main", "b", "t"]})
