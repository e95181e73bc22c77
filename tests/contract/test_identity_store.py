"""Principals, credentials and grants: the behaviour that every store has, and the epoch that guards it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, get_args

import msgspec
import pytest

from inver.domain import governance as g
from inver.domain import ledger, runs
from inver.domain import shares as sh
from inver.domain.care import Job, Outcome, Result
from inver.domain.governance import MAX_GROUP_DEPTH, MAX_LIVE_SECRETS
from inver.domain.grants import Privilege
from inver.domain.ledger import Operation, Receipt
from inver.domain.principals import ADMIN, ADMINS, BUILT_IN, EVERYONE, SYSTEM, Principal, PrincipalKind, Scope
from inver.domain.securables import METASTORE_ID, SecurableKind
from inver.domain.tables import State
from inver.errors import AlreadyExists, Conflict, Invalid, NotEmpty, NotFound, Refused, Stale
from inver.ids import new_id
from inver.ports import GrantRow
from tests.fixtures.ledger import (
    AnyStore,
    Book,
    all_events,
    append,
    contents,
    create_table,
    outcome,
    outcomes,
    rows,
)

ABSENT = "00000000-0000-7000-8000-00000000dead"
K, P = SecurableKind, Privilege


async def principal(book: Book, name: str, kind: PrincipalKind = PrincipalKind.USER) -> str:
    made = g.CreatePrincipal(id=new_id(), name=name, kind=kind)
    await book.decide(made)
    return made.id


async def group(book: Book, name: str, *members: str) -> str:
    made = await principal(book, name, PrincipalKind.GROUP)
    for member in members:
        await book.decide(g.AddMember(group_id=made, member_id=member))
    return made


def grant(to: str, on: str, *privileges: Privilege, kind: SecurableKind = K.SCHEMA) -> g.Grant:
    return g.Grant(principal_id=to, kind=kind, securable_id=on, privileges=privileges)


def revoke(of: str, on: str, *privileges: Privilege, kind: SecurableKind = K.SCHEMA) -> g.Revoke:
    return g.Revoke(principal_id=of, kind=kind, securable_id=on, privileges=privileges)


def token(of: str, **fields: Any) -> g.CreateToken:
    options: dict[str, Any] = {
        "id": new_id().replace("-", ""),
        "principal_id": of,
        "hash": "0" * 64,
        "label": "laptop",
        "scope": Scope.ALL,
        "expires_at": None,
        **fields,
    }
    return g.CreateToken(**options)


def secret(of: str, **fields: Any) -> g.CreateSecret:
    options: dict[str, Any] = {
        "id": new_id(),
        "principal_id": of,
        "hash": "1" * 64,
        "label": "job",
        "expires_at": None,
        **fields,
    }
    return g.CreateSecret(**options)


def under(epoch: int | None, book: Book, *operations: Operation) -> Awaitable[Receipt]:
    """Decided as what was allowed under an epoch."""
    return book.store.decide(msgspec.structs.replace(book.transaction(*operations), epoch=epoch))


async def subjects(store: AnyStore, principal_id: str) -> set[str]:
    standing = await store.standing(Principal(principal_id, "", PrincipalKind.USER))
    return set(standing.subjects) - {principal_id, EVERYONE.id}


async def held(store: AnyStore, principal_id: str, securable_id: str) -> dict[Privilege, str]:
    standing = await store.standing(Principal(principal_id, "", PrincipalKind.USER))
    return dict(standing.grants.get(securable_id, {}))


# --- principals ---


async def test_a_principal_is_kept_as_it_was_made(book: Book):
    made = g.CreatePrincipal(id=new_id(), name="Ada", kind=PrincipalKind.SERVICE, comment="counts")
    await book.decide(made)
    found = await book.store.principal_by_name("ADA")
    assert found is not None
    assert found == await book.store.principal_by_id(made.id)
    assert (found.id, found.name, found.kind, found.comment) == (
        made.id,
        "Ada",
        PrincipalKind.SERVICE,
        "counts",
    )
    assert (found.disabled, found.etag, found.created_at) == (False, 1, book.clock.now_ms())
    assert found.created_by == ADMIN.id
    assert await book.store.principal_by_name("eve") is None
    assert await book.store.principal_by_id(ABSENT) is None


async def test_names_of_principals_differ_by_more_than_case(book: Book):
    await principal(book, "Ada")
    for name in ("ada", "ADA"):
        with pytest.raises(AlreadyExists):
            await principal(book, name)


async def test_the_built_in_principals_are_there(book: Book):
    for built_in in BUILT_IN:
        found = await book.store.principal_by_name(built_in.name)
        assert found is not None
        assert (found.id, found.kind, found.disabled) == (built_in.id, built_in.kind, False)
    assert [member.id for member in await book.store.members_of(ADMINS.id)] == [ADMIN.id]
    assert await subjects(book.store, ADMIN.id) == {ADMINS.id}


@pytest.mark.parametrize("built_in", BUILT_IN, ids=lambda who: who.name)
async def test_a_built_in_principal_can_be_neither_disabled_nor_deleted(book: Book, built_in: Principal):
    before = await contents(book.store)
    for operation in (g.AlterPrincipal(id=built_in.id, disabled=True), g.DeletePrincipal(id=built_in.id)):
        with pytest.raises(Invalid, match="built in"):
            await book.decide(operation)
    assert await contents(book.store) == before


async def test_principals_are_listed_in_pages_and_by_kind(book: Book):
    for name in ("b", "A", "d", "C"):
        await principal(book, name)
    await group(book, "team")
    builtin = {who.name for who in BUILT_IN}
    pages: list[str] = []
    while page := await book.store.principals(None, pages[-1] if pages else "", 2):
        pages += [info.name for info in page]
    assert pages == sorted({"A", "b", "C", "d", "team"} | builtin, key=str.lower)
    groups = await book.store.principals(PrincipalKind.GROUP, "", 100)
    assert [info.name for info in groups] == ["admins", "everyone", "team"]


async def test_a_principal_is_altered_under_its_etag(book: Book):
    ada = await principal(book, "ada")
    await book.decide(g.AlterPrincipal(id=ada, expect_etag=1, comment="c"))
    await book.decide(g.AlterPrincipal(id=ada, disabled=True))
    found = await book.store.principal_by_id(ada)
    assert found is not None
    assert (found.comment, found.disabled, found.etag) == ("c", True, 3)
    with pytest.raises(Conflict):
        await book.decide(g.AlterPrincipal(id=ada, expect_etag=2, disabled=False))
    with pytest.raises(NotFound):
        await book.decide(g.AlterPrincipal(id=ABSENT, comment="c"))


async def test_ids_are_shown_by_name(book: Book):
    ada = await principal(book, "ada")
    assert await book.store.names_of([ada, ABSENT, ADMIN.id, ada]) == {ada: "ada", ADMIN.id: "admin"}
    assert await book.store.names_of([]) == {}


async def test_everything_of_a_principal_goes_with_it(book: Book):
    ada, bob = await principal(book, "ada"), await principal(book, "bob")
    inner = await group(book, "inner", ada, bob)
    await group(book, "outer", inner)
    for one in (ada, bob, inner):
        await book.decide(grant(one, book.schema, P.SELECT, P.USE_SCHEMA))
    for one in (ada, bob):
        await book.decide(token(one))
        await book.decide(secret(one))
    for gone in (ada, inner):
        await book.decide(g.DeletePrincipal(id=gone))
        mentions = [
            (table, row)
            for table, found in (await contents(book.store)).items()
            for row in found
            if gone in row and table != "events"
        ]
        assert mentions == []
    assert await subjects(book.store, bob) == set()
    assert set(await held(book.store, bob, book.schema)) == {P.SELECT, P.USE_SCHEMA}
    assert len(await book.store.tokens(bob)) == len(await book.store.secrets(bob)) == 1


async def test_who_owns_something_stays(book: Book):
    ada = await principal(book, "ada")
    catalog = ledger.CreateCatalog(id=new_id(), name="hers")
    schema = ledger.CreateSchema(id=new_id(), catalog_id=book.catalog, parent_id=book.catalog, name="hers")
    table = create_table(book, "hers")
    ways_out: list[tuple[Operation, Operation]] = [
        (catalog, ledger.AlterCatalog(id=catalog.id, owner=ADMIN.id)),
        (schema, ledger.DropSchema(id=schema.id)),
        (table, ledger.AlterTable(table_id=table.id, owner=ADMIN.id)),
    ]
    for make, let_go in ways_out:
        await book.decide(make, by=ada)
        before = await contents(book.store)
        with pytest.raises(NotEmpty, match="owns"):
            await book.decide(g.DeletePrincipal(id=ada))
        assert await contents(book.store) == before
        await book.decide(let_go)
    dropped = create_table(book, "dropped")
    await book.decide(dropped, ledger.DropTable(table_id=dropped.id, purge_at=0), by=ada)
    with pytest.raises(NotEmpty, match="a table"):
        await book.decide(g.DeletePrincipal(id=ada))
    await book.decide(ledger.PurgeTable(table_id=dropped.id))
    await book.decide(g.DeletePrincipal(id=ada))
    assert await book.store.principal_by_id(ada) is None


# --- groups ---


async def test_groups_nest(book: Book):
    ada = await principal(book, "ada")
    inner = await group(book, "inner", ada)
    middle = await group(book, "middle", inner)
    outer = await group(book, "outer", middle)
    other = await group(book, "other", inner)
    assert await subjects(book.store, ada) == {inner, middle, outer, other}
    assert await subjects(book.store, middle) == {outer}
    assert [info.name for info in await book.store.groups_of(ada)] == ["inner"]
    assert [info.name for info in await book.store.groups_of(inner)] == ["middle", "other"]
    assert [info.name for info in await book.store.members_of(middle)] == ["inner"]
    await book.decide(g.RemoveMember(group_id=middle, member_id=inner))
    assert await subjects(book.store, ada) == {inner, other}


async def test_members_come_and_go_once(book: Book):
    ada = await principal(book, "ada")
    team = await group(book, "team")
    before = await book.store.last_event()
    for operation in (g.AddMember, g.RemoveMember):
        for _ in range(3):
            await book.decide(operation(group_id=team, member_id=ada))
    assert [event.kind for event in await all_events(book.store, before)] == [
        "group.member-added",
        "group.member-removed",
    ]


async def test_only_groups_have_members(book: Book):
    ada, bob = await principal(book, "ada"), await principal(book, "bob")
    team = await group(book, "team")
    with pytest.raises(Invalid, match="not a group"):
        await book.decide(g.AddMember(group_id=ada, member_id=bob))
    with pytest.raises(Invalid, match="everyone"):
        await book.decide(g.AddMember(group_id=EVERYONE.id, member_id=ada))
    for operation in (
        g.AddMember(group_id=team, member_id=ABSENT),
        g.AddMember(group_id=ABSENT, member_id=ada),
    ):
        with pytest.raises(NotFound):
            await book.decide(operation)
    assert await rows(book.store, "SELECT * FROM members") == [(ADMINS.id, ADMIN.id)]


@pytest.mark.parametrize("length", [1, 2, 3, MAX_GROUP_DEPTH])
async def test_no_group_contains_itself(book: Book, length: int):
    chain = [await group(book, f"g{number}") for number in range(length)]
    for outer, inner in itertools.pairwise(chain):
        await book.decide(g.AddMember(group_id=outer, member_id=inner))
    before = await contents(book.store)
    with pytest.raises(Refused, match="cannot contain itself"):
        await book.decide(g.AddMember(group_id=chain[-1], member_id=chain[0]))
    assert await contents(book.store) == before


async def test_groups_nest_as_deep_as_allowed_and_not_deeper(book: Book):
    ada = await principal(book, "ada")
    chain = [await group(book, f"g{number}") for number in range(MAX_GROUP_DEPTH)]
    extra = await group(book, "extra")
    middle = MAX_GROUP_DEPTH // 2
    # Joined in the middle last, so that both halves count.
    for at in [index for index in range(MAX_GROUP_DEPTH - 1) if index != middle] + [middle]:
        await book.decide(g.AddMember(group_id=chain[at], member_id=chain[at + 1]))
    await book.decide(g.AddMember(group_id=chain[-1], member_id=ada))
    assert await subjects(book.store, ada) == set(chain)
    for outer, inner in ((chain[-1], extra), (extra, chain[0])):
        with pytest.raises(Invalid, match=f"at most {MAX_GROUP_DEPTH} deep"):
            await book.decide(g.AddMember(group_id=outer, member_id=inner))
    await book.decide(g.RemoveMember(group_id=chain[middle], member_id=chain[middle + 1]))
    await book.decide(g.AddMember(group_id=chain[-1], member_id=extra))
    with pytest.raises(Invalid, match=f"at most {MAX_GROUP_DEPTH} deep"):
        await book.decide(g.AddMember(group_id=chain[middle], member_id=chain[middle + 1]))


async def test_circles_are_not_closed_by_several_at_once(book: Book):
    """Each of two changes is harmless alone; together they would close a circle of four groups."""
    for number in range(8):
        a, b, c, d = [await group(book, f"{name}{number}") for name in "abcd"]
        await book.decide(g.AddMember(group_id=a, member_id=b))
        await book.decide(g.AddMember(group_id=c, member_id=d))
        answers = await outcomes(
            book.decide(g.AddMember(group_id=b, member_id=c)),
            book.decide(g.AddMember(group_id=d, member_id=a)),
        )
        assert sum(isinstance(answer, Receipt) for answer in answers) == 1, answers


async def test_everybody_is_in_everyone(book: Book):
    ada = await principal(book, "ada")
    await book.decide(grant(EVERYONE.id, book.catalog, P.USE_CATALOG, kind=K.CATALOG))
    assert await held(book.store, ada, book.catalog) == {P.USE_CATALOG: EVERYONE.id}
    assert await held(book.store, SYSTEM.id, book.catalog) == {P.USE_CATALOG: EVERYONE.id}
    assert await book.store.members_of(EVERYONE.id) == []
    readers = await group(book, "readers", EVERYONE.id)
    await book.decide(grant(readers, book.schema, P.SELECT))
    assert await held(book.store, ada, book.schema) == {P.SELECT: readers}


async def test_a_disabled_group_gives_nothing(book: Book):
    ada = await principal(book, "ada")
    inner = await group(book, "inner", ada)
    outer = await group(book, "outer", inner)
    await book.decide(grant(outer, book.schema, P.SELECT))
    await book.decide(g.AlterPrincipal(id=inner, disabled=True))
    assert await subjects(book.store, ada) == set()
    assert await held(book.store, ada, book.schema) == {}
    await book.decide(g.AlterPrincipal(id=inner, disabled=False))
    assert await subjects(book.store, ada) == {inner, outer}


# --- tokens and secrets ---


async def test_a_token_is_found_by_its_id(book: Book):
    ada = await principal(book, "ada")
    made = token(ada, hash="ab" * 32, scope=Scope.READ, expires_at=5)
    await book.decide(made)
    found = await book.store.token(made.id)
    assert found is not None
    assert (found.id, found.hash, found.label, found.scope) == (made.id, "ab" * 32, "laptop", Scope.READ)
    assert (found.expires_at, found.revoked_at, found.last_used_at) == (5, None, None)
    assert (found.principal.id, found.principal.name, found.principal.scope) == (ada, "ada", Scope.READ)
    assert not found.disabled
    assert await book.store.tokens(ada) == [found]
    assert await book.store.token("nothing") is None
    await book.decide(g.AlterPrincipal(id=ada, disabled=True))
    disabled = await book.store.token(made.id)
    assert disabled is not None
    assert disabled.disabled


async def test_a_token_is_revoked_once(book: Book):
    ada = await principal(book, "ada")
    made = token(ada)
    await book.decide(made)
    book.clock.advance(10)
    await book.decide(g.RevokeToken(id=made.id))
    first = await book.store.token(made.id)
    assert first is not None
    assert first.revoked_at == book.clock.now_ms()
    book.clock.advance(10)
    before = await contents(book.store)
    assert (await book.decide(g.RevokeToken(id=made.id))).results[0].subject == made.id
    assert await contents(book.store) == before
    with pytest.raises(NotFound):
        await book.decide(g.RevokeToken(id="nothing"))


async def test_the_last_use_is_written_down_for_many_at_once(book: Book):
    ada = await principal(book, "ada")
    made = [token(ada) for _ in range(3)]
    await book.decide(*made)
    await book.store.touch_tokens({made[0].id: 7, made[2].id: 9, "gone meanwhile": 1})
    found = {each.id: each.last_used_at for each in await book.store.tokens(ada)}
    assert found == {made[0].id: 7, made[1].id: None, made[2].id: 9}


async def test_tokens_that_expired_long_ago_are_forgotten(book: Book):
    ada = await principal(book, "ada")
    now = book.clock.now_ms()
    long_ago, lately, never = (token(ada, expires_at=at) for at in (now + 1, now + 2, None))
    await book.decide(long_ago, lately, never)
    epoch = await book.store.epoch()
    assert await book.store.forget_tokens(now + 2) == 1
    assert {each.id for each in await book.store.tokens(ada)} == {lately.id, never.id}
    assert await book.store.forget_tokens(now + 2) == 0
    # Nobody could use them, so no right was taken away.
    assert await book.store.epoch() == epoch


async def test_a_group_has_no_credentials(book: Book):
    team = await group(book, "team")
    for operation in (token(team), secret(team)):
        with pytest.raises(Invalid, match="members have"):
            await book.decide(operation)
    for operation in (token(ABSENT), secret(ABSENT)):
        with pytest.raises(NotFound):
            await book.decide(operation)


async def test_a_third_live_secret_is_refused(book: Book):
    job = await principal(book, "job", PrincipalKind.SERVICE)
    now = book.clock.now_ms()
    short, long = secret(job, expires_at=now + 100), secret(job)
    await book.decide(short)
    await book.decide(long)
    with pytest.raises(Conflict, match=f"{MAX_LIVE_SECRETS} live secrets"):
        await book.decide(secret(job))
    book.clock.advance(100)
    third = secret(job)
    await book.decide(third)
    with pytest.raises(Conflict):
        await book.decide(secret(job))
    await book.decide(g.RevokeSecret(id=long.id, principal_id=job))
    await book.decide(secret(job))
    found = {each.id: each.revoked_at for each in await book.store.secrets(job)}
    assert len(found) == 4
    assert [each for each, revoked_at in found.items() if revoked_at is not None] == [long.id]
    other = await principal(book, "other", PrincipalKind.SERVICE)
    await book.decide(secret(other))


async def test_secrets_are_counted_although_they_are_made_at_once(book: Book):
    job = await principal(book, "job", PrincipalKind.SERVICE)
    answers = await outcomes(*(book.decide(secret(job)) for _ in range(6)))
    assert sum(isinstance(answer, Receipt) for answer in answers) == MAX_LIVE_SECRETS
    assert sum(isinstance(answer, Conflict) for answer in answers) == 6 - MAX_LIVE_SECRETS
    assert len(await book.store.secrets(job)) == MAX_LIVE_SECRETS


async def test_a_secret_is_revoked_for_its_own_principal(book: Book):
    job, other = await principal(book, "job"), await principal(book, "other")
    made = secret(job)
    await book.decide(made)
    with pytest.raises(NotFound):
        await book.decide(g.RevokeSecret(id=made.id, principal_id=other))
    await book.decide(g.RevokeSecret(id=made.id, principal_id=job))
    before = await contents(book.store)
    await book.decide(g.RevokeSecret(id=made.id, principal_id=job))
    assert await contents(book.store) == before


# --- grants ---


async def test_grants_are_given_and_taken_once(book: Book):
    ada = await principal(book, "ada")
    before = await book.store.last_event()
    await book.decide(grant(ada, book.schema, P.SELECT, P.MODIFY, P.SELECT))
    await book.decide(grant(ada, book.schema, P.SELECT, P.BROWSE))
    await book.decide(grant(ada, book.schema, P.SELECT, P.BROWSE))
    expected = [
        GrantRow(
            securable_id=book.schema,
            kind=K.SCHEMA,
            principal_id=ada,
            privilege=privilege,
            granted_at=book.clock.now_ms(),
            granted_by=ADMIN.id,
        )
        for privilege in (P.BROWSE, P.MODIFY, P.SELECT)
    ]
    assert await book.store.grants_on(book.schema) == await book.store.grants_of(ada) == expected
    await book.decide(revoke(ada, book.schema, P.MODIFY, P.MANAGE))
    await book.decide(revoke(ada, book.schema, P.MODIFY, P.MANAGE))
    assert set(await held(book.store, ada, book.schema)) == {P.BROWSE, P.SELECT}
    told = [(event.kind, event.data) for event in await all_events(book.store, before)]
    start = b'{"kind":"schema","principal_id":"%s","privileges":' % ada.encode()
    assert told == [
        ("grant.added", start + b'["SELECT","MODIFY"]}'),
        ("grant.added", start + b'["BROWSE"]}'),
        ("grant.revoked", start + b'["MODIFY"]}'),
    ]


async def test_nobody_can_be_granted_nothing(book: Book):
    with pytest.raises(NotFound):
        await book.decide(grant(ABSENT, book.schema, P.SELECT))
    assert await book.store.grants_on(book.schema) == []


async def test_grants_on_what_is_gone_are_gone(book: Book):
    ada = await principal(book, "ada")
    schema = await book.create_schema("short")
    table = await book.create_table("short")
    await book.decide(grant(ada, schema, P.SELECT), grant(ada, table, P.SELECT, kind=K.TABLE))
    await book.decide(ledger.DropSchema(id=schema), ledger.DropTable(table_id=table, purge_at=0))
    assert [row.securable_id for row in await book.store.grants_of(ada)] == [table], "it can come back"
    await book.decide(ledger.PurgeTable(table_id=table))
    assert await book.store.grants_of(ada) == []


async def test_what_stands_above_a_schema(book: Book):
    outer = await book.create_schema("outer")
    inner = await book.create_schema("inner", outer)
    chain = await book.store.chain(inner)
    assert [(node.kind, node.id, node.name) for node in chain] == [
        (K.SCHEMA, inner, ("main", "outer", "inner")),
        (K.SCHEMA, outer, ("main", "outer")),
        (K.CATALOG, book.catalog, ("main",)),
        (K.METASTORE, METASTORE_ID, ()),
    ]
    assert [node.owner for node in chain] == [ADMIN.id, ADMIN.id, ADMIN.id, ADMINS.id]
    assert await book.store.chain(ABSENT) == ()
    assert await book.store.catalog_node(book.catalog) == chain[2]
    assert await book.store.catalog_node(ABSENT) is None


# --- the epoch: it moves with every change of what somebody may do, and only then ---


class Scene:
    """One of everything that an operation can change."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.ada = self.bob = self.team = self.token = self.secret = ""
        self.bare = self.empty = self.table = self.dropped = self.staged = ""
        self.share, self.item, self.partner, self.other = (new_id() for _ in range(4))
        self.activation = ""
        self.run = new_id()
        self.cared = ""

    async def set(self) -> Scene:
        book = self.book
        self.ada, self.bob = await principal(book, "ada"), await principal(book, "bob")
        self.team = await group(book, "team", self.ada)
        self.bare = new_id()
        self.empty = await book.create_schema("empty")
        self.table, self.dropped = await book.create_table("orders"), await book.create_table("dropped")
        self.staged = await book.create_table("staged", state=State.STAGED, version=-1)
        self.cared = await book.create_table("cared")
        made_token, made_secret = token(self.ada), secret(self.ada)
        self.token, self.secret = made_token.id, made_secret.id
        made_activation = activation(self.partner)
        self.activation = made_activation.id
        await book.decide(
            ledger.CreateCatalog(id=self.bare, name="bare"),
            ledger.DropTable(table_id=self.dropped, purge_at=0),
            ledger.CreateBranch(table_id=self.table, branch="old", version=0),
            grant(self.ada, book.schema, P.BROWSE),
            made_token,
            made_secret,
            sh.CreateShare(id=self.share, name="out"),
            sh.AddToShare(item=shared(self, "orders", self.item)),
            sh.CreateRecipient(id=self.partner, name="partner", kind=sh.RecipientKind.TOKEN),
            sh.CreateRecipient(id=self.other, name="other", kind=sh.RecipientKind.TOKEN),
            sh.GrantShare(share_id=self.share, recipient_id=self.partner),
            made_activation,
            runs.StartRun(id=self.run, table_id=self.table, job=Job.VACUUM, worker="w"),
            runs.SetCarePolicy(securable_id=self.table, kind=SecurableKind.TABLE, policy=runs.NO_POLICY),
        )
        return self


def shared(scene: Scene, name: str, item: str | None = None) -> sh.ShareItem:
    return sh.ShareItem(
        id=item or new_id(),
        share_id=scene.share,
        kind=sh.ItemKind.TABLE,
        securable_id=scene.table,
        schema_name="sales",
        table_name=name,
    )


def activation(recipient: str) -> sh.AddCredential:
    return sh.AddCredential(
        id=new_id(),
        recipient_id=recipient,
        kind=sh.CredentialKind.ACTIVATION,
        hash="h",
        expires_at=2**62,
    )


MOVES: dict[str, tuple[Callable[[Scene], Operation], bool]] = {
    "a catalog is made": (lambda s: ledger.CreateCatalog(id=new_id(), name="new"), False),
    "a catalog is described": (lambda s: ledger.AlterCatalog(id=s.book.catalog, comment="c"), False),
    "a catalog changes hands": (lambda s: ledger.AlterCatalog(id=s.book.catalog, owner=s.ada), True),
    "a catalog is dropped": (lambda s: ledger.DropCatalog(id=s.bare), False),
    "a schema is made": (
        lambda s: ledger.CreateSchema(
            id=new_id(), catalog_id=s.book.catalog, parent_id=s.book.catalog, name="new"
        ),
        False,
    ),
    "a schema is described": (lambda s: ledger.AlterSchema(id=s.book.schema, comment="c"), False),
    "a schema changes hands": (lambda s: ledger.AlterSchema(id=s.book.schema, owner=s.ada), True),
    "a schema is dropped": (lambda s: ledger.DropSchema(id=s.empty), True),
    "a table is made": (lambda s: create_table(s.book, "new"), False),
    "a table gets a version": (lambda s: append(s.table, 1), False),
    "a table gets a version and a definition": (
        lambda s: append(s.table, 1, definition=ledger.Definition(comment="c")),
        False,
    ),
    "a table is finished": (
        lambda s: ledger.FinishTable(
            table_id=s.staged,
            schema_id=s.book.schema,
            name="staged",
            first=append(s.staged, 0),
            definition=ledger.Definition(comment="c"),
        ),
        False,
    ),
    "a table is finished elsewhere": (
        lambda s: ledger.FinishTable(
            table_id=s.staged,
            schema_id=s.empty,
            name="staged",
            first=append(s.staged, 0),
            definition=ledger.Definition(comment="c"),
        ),
        True,
    ),
    "a table is branched": (lambda s: ledger.CreateBranch(table_id=s.table, branch="b", version=0), False),
    "a branch is dropped": (lambda s: ledger.DropBranch(table_id=s.table, branch="old"), False),
    "versions are listed": (
        lambda s: ledger.AddRecords(table_id=s.table, records=(ledger.Record(1, 0, None, b"{}"),)),
        False,
    ),
    "versions leave the list": (
        lambda s: ledger.DeleteRecords(table_id=s.table, ranges=((0, None),)),
        False,
    ),
    "a table is where it was expected": (lambda s: ledger.Expect(table_id=s.table, version=0), False),
    "a table is described": (lambda s: ledger.AlterTable(table_id=s.table, comment="c"), False),
    "a table changes hands": (lambda s: ledger.AlterTable(table_id=s.table, owner=s.ada), True),
    "a table moves": (lambda s: ledger.RenameTable(table_id=s.table, schema_id=s.empty, name="orders"), True),
    "a table gets another name where it is": (
        lambda s: ledger.RenameTable(table_id=s.table, schema_id=s.book.schema, name="purchases"),
        True,
    ),
    "a table is called by its own name": (
        lambda s: ledger.RenameTable(table_id=s.table, schema_id=s.book.schema, name="orders"),
        False,
    ),
    "a table is dropped": (lambda s: ledger.DropTable(table_id=s.table, purge_at=0), False),
    "a table comes back": (lambda s: ledger.UndropTable(table_id=s.dropped), False),
    "a table comes back elsewhere": (
        lambda s: ledger.UndropTable(table_id=s.dropped, schema_id=s.empty),
        True,
    ),
    "a table is purged": (lambda s: ledger.PurgeTable(table_id=s.dropped), False),
    "a cursor moves": (lambda s: ledger.MoveCursor(name="c", expect=None, value="1"), False),
    "a share is made": (lambda s: sh.CreateShare(id=new_id(), name="new"), False),
    "a share is dropped": (lambda s: sh.DropShare(id=s.share), True),
    "something is shared": (lambda s: sh.AddToShare(item=shared(s, "new")), False),
    "something is shared no more": (lambda s: sh.RemoveFromShare(id=s.item, share_id=s.share), True),
    "a share is given": (lambda s: sh.GrantShare(share_id=s.share, recipient_id=s.other), False),
    "a share is given otherwise": (
        lambda s: sh.GrantShare(share_id=s.share, recipient_id=s.partner, filters={"t": "a = 1"}),
        True,
    ),
    "a share is taken back": (lambda s: sh.RevokeShare(share_id=s.share, recipient_id=s.partner), True),
    "a share is taken from nobody": (lambda s: sh.RevokeShare(share_id=s.share, recipient_id=s.other), False),
    "a recipient is made": (
        lambda s: sh.CreateRecipient(id=new_id(), name="new", kind=sh.RecipientKind.TOKEN),
        False,
    ),
    "a recipient is described": (lambda s: sh.AlterRecipient(id=s.partner, comment="c"), False),
    "a recipient gets other networks": (
        lambda s: sh.AlterRecipient(id=s.partner, networks=("10.0.0.0/8",)),
        True,
    ),
    "a recipient is dropped": (lambda s: sh.DropRecipient(id=s.partner), True),
    "a recipient gets a credential": (lambda s: activation(s.partner), False),
    "a recipient is rotated": (lambda s: sh.RotateRecipient(recipient_id=s.partner, until=1), True),
    "a recipient is revoked": (lambda s: sh.RevokeRecipient(recipient_id=s.partner), True),
    "a recipient is activated": (
        lambda s: sh.UseActivation(id=s.activation, recipient_id=s.partner),
        False,
    ),
    "a recipient has read": (
        lambda s: sh.RecordAccess(recipient_id=s.partner, share_id=s.share, subject=s.table, action="query"),
        False,
    ),
    "a table is cared for": (
        lambda s: runs.StartRun(id=new_id(), table_id=s.cared, job=Job.VACUUM, worker="w"),
        False,
    ),
    "care ends": (
        lambda s: runs.FinishRun(id=s.run, result=Result(outcome=Outcome.DONE)),
        False,
    ),
    "a policy of care is set": (
        lambda s: runs.SetCarePolicy(
            securable_id=s.book.catalog, kind=SecurableKind.CATALOG, policy=runs.NO_POLICY
        ),
        False,
    ),
    "a policy of care is dropped": (lambda s: runs.DropCarePolicy(securable_id=s.table), False),
    "a principal is made": (
        lambda s: g.CreatePrincipal(id=new_id(), name="new", kind=PrincipalKind.USER),
        False,
    ),
    "a principal is described": (lambda s: g.AlterPrincipal(id=s.ada, comment="c"), False),
    "a principal is disabled": (lambda s: g.AlterPrincipal(id=s.ada, disabled=True), True),
    "an enabled principal is enabled": (lambda s: g.AlterPrincipal(id=s.ada, disabled=False), False),
    "a principal is deleted": (lambda s: g.DeletePrincipal(id=s.ada), True),
    "a member is added": (lambda s: g.AddMember(group_id=s.team, member_id=s.bob), True),
    "a member is added again": (lambda s: g.AddMember(group_id=s.team, member_id=s.ada), False),
    "a member is removed": (lambda s: g.RemoveMember(group_id=s.team, member_id=s.ada), True),
    "nobody is removed": (lambda s: g.RemoveMember(group_id=s.team, member_id=s.bob), False),
    "a token is made": (lambda s: token(s.ada), False),
    "a token is revoked": (lambda s: g.RevokeToken(id=s.token), True),
    "a secret is made": (lambda s: secret(s.ada), False),
    "a secret is revoked": (lambda s: g.RevokeSecret(id=s.secret, principal_id=s.ada), True),
    "something is granted": (lambda s: grant(s.ada, s.book.schema, P.SELECT), True),
    "something is granted again": (lambda s: grant(s.ada, s.book.schema, P.BROWSE), False),
    "something is taken back": (lambda s: revoke(s.ada, s.book.schema, P.BROWSE), True),
    "nothing is taken back": (lambda s: revoke(s.ada, s.book.schema, P.SELECT), False),
    "somebody was denied": (
        lambda s: g.RecordDenial(principal_id=s.ada, action="read", subject=s.table, times=1),
        False,
    ),
}


@pytest.mark.parametrize("change", MOVES)
async def test_the_epoch_moves_exactly_when_rights_do(book: Book, change: str):
    make, moves = MOVES[change]
    scene = await Scene(book).set()
    before = await book.store.epoch()
    await book.decide(make(scene))
    assert await book.store.epoch() == before + moves
    assert book.store.known_epoch == before + moves


async def test_every_operation_says_whether_it_moves_the_epoch(book: Book):
    scene = await Scene(book).set()
    known = {kind for each in get_args(Operation) for kind in (get_args(each) or (each,))}
    assert {type(make(scene)) for make, _ in MOVES.values()} == known


async def test_a_refusal_leaves_the_epoch(book: Book):
    scene = await Scene(book).set()
    before = await book.store.epoch()
    for operations in (
        (grant(scene.ada, book.schema, P.SELECT), ledger.DropCatalog(id=book.catalog)),
        (ledger.AlterTable(table_id=scene.table, owner=scene.bob), append(scene.table, 9)),
        (g.AlterPrincipal(id=scene.ada, disabled=True), grant(ABSENT, book.schema, P.SELECT)),
    ):
        assert isinstance(await outcome(book.decide(*operations)), Refused)
    assert await book.store.epoch() == before
    await under(before, book, append(scene.table, 1))


async def test_a_new_epoch_is_never_seen_before_what_it_stands_for(book: Book):
    """Whoever reads the epoch and then a fact must not take an old fact for one of the new epoch."""
    ada = await principal(book, "ada")
    for number in range(10):
        before = await book.store.epoch()
        change = grant if number % 2 == 0 else revoke
        deciding = asyncio.ensure_future(_awaited(book.decide(change(ada, book.schema, P.SELECT))))
        seen: list[tuple[int, bool]] = []
        while not deciding.done():
            epoch = await book.store.epoch()
            seen.append((epoch, P.SELECT in await held(book.store, ada, book.schema)))
            await asyncio.sleep(0)
        await deciding
        changed = number % 2 == 0
        assert all(fact is changed for epoch, fact in seen if epoch > before), seen
        assert await book.store.epoch() == before + 1


async def _awaited(answer: Awaitable[Receipt]) -> Receipt:
    return await answer


# --- the fence: what was allowed under an old epoch is not done ---


async def moved(book: Book) -> tuple[int, int]:
    """The epoch before and after a change of somebody's rights."""
    before = await book.store.epoch()
    await book.decide(grant(await principal(book, f"p{new_id()}"), book.schema, P.SELECT))
    after = await book.store.epoch()
    assert after == before + 1
    return before, after


@pytest.mark.parametrize(
    "operations",
    [
        lambda book, table: (append(table, 1),),
        lambda book, table: (append(table, 1, head=b"{}"),),
        lambda book, table: (append(table, 1), append(table, 2)),
        lambda book, table: (ledger.AlterTable(table_id=table, comment="c"),),
        lambda book, table: (ledger.CreateCatalog(id=new_id(), name="new"),),
        lambda book, table: (grant(ADMIN.id, book.schema, P.SELECT),),
        lambda book, table: (ledger.RenameTable(table_id=table, schema_id=book.schema, name="new"),),
        lambda book, table: (append(table, 1), ledger.CreateCatalog(id=new_id(), name="new")),
    ],
    ids=["append", "append with a head", "two appends", "alter", "create", "grant", "rename", "mixed"],
)
async def test_what_was_allowed_before_is_stale(
    book: Book, operations: Callable[[Book, str], tuple[Operation, ...]]
):
    table = await book.create_table()
    old, new = await moved(book)
    before = await contents(book.store)
    for epoch in (old, old - 1, new + 1):
        with pytest.raises(Stale):
            await under(epoch, book, *operations(book, table))
    assert await contents(book.store) == before
    await under(new, book, *operations(book, table))


async def test_a_repeated_commit_is_stale_too(book: Book):
    """That it was done once is not for somebody to know who may not know it any more."""
    table = await book.create_table()
    done = append(table, 1)
    await book.decide(done)
    old, new = await moved(book)
    with pytest.raises(Stale):
        await under(old, book, done)
    assert (await under(new, book, done)).replayed


async def test_neighbours_in_a_batch_are_judged_each_by_its_own_epoch(book: Book):
    tables = [await book.create_table(f"t{number}") for number in range(12)]
    old, new = await moved(book)
    epochs = [old, new, None]
    answers = await outcomes(
        *(under(epochs[at % 3], book, append(table, 1)) for at, table in enumerate(tables))
    )
    for at, answer in enumerate(answers):
        assert isinstance(answer, Stale if at % 3 == 0 else Receipt), (at, answer)
    assert [await book.version(table) for table in tables] == [0, 1, 1] * 4


@pytest.mark.parametrize("order", ["stale first", "stale last"])
async def test_a_stale_rival_takes_no_version(book: Book, order: str):
    """Both want the same version of the same table, and one of them may not."""
    for number in range(5):
        table = await book.create_table(f"t{number}")
        old, new = await moved(book)
        mine, theirs = append(table, 1), append(table, 1)
        asked = [(new, mine), (old, theirs)]
        if order == "stale first":
            asked.reverse()
        answers = await outcomes(*(under(epoch, book, each) for epoch, each in asked))
        if order == "stale first":
            answers.reverse()
        assert isinstance(answers[0], Receipt)
        assert isinstance(answers[1], Stale)
        assert await book.tokens(table) == [mine.token]


async def test_a_stale_rival_of_a_transaction_takes_no_version(book: Book):
    tables = [await book.create_table(f"t{number}") for number in range(3)]
    old, new = await moved(book)
    answers = await outcomes(
        under(old, book, *(append(table, 1) for table in tables)),
        under(new, book, append(tables[1], 1)),
        under(new, book, append(tables[2], 1)),
    )
    assert [type(answer) for answer in answers] == [Stale, Receipt, Receipt]
    assert [await book.version(table) for table in tables] == [0, 1, 1]


async def test_commits_beside_a_change_of_rights_are_before_it_or_stale(book: Book):
    """Whatever is asked for after the change was answered is stale; nothing is done twice or half."""
    ada = await principal(book, "ada")
    tables = [await book.create_table(f"t{number}") for number in range(20)]
    old = await book.store.epoch()
    half = len(tables) // 2
    early = [asyncio.ensure_future(outcome(under(old, book, append(each, 1)))) for each in tables[:half]]
    await book.decide(grant(ada, book.schema, P.SELECT))
    late = await outcomes(*(under(old, book, append(each, 1)) for each in tables[half:]))
    assert all(isinstance(answer, Stale) for answer in late)
    answers = [*await asyncio.gather(*early), *late]
    for table, answer in zip(tables, answers, strict=True):
        assert isinstance(answer, Receipt | Stale)
        assert await book.version(table) == isinstance(answer, Receipt)


# --- several servers ---


@pytest.mark.postgres
async def test_one_server_takes_away_what_another_allowed(servers: tuple[Book, Book, Book]):
    first, second, third = servers
    table = await first.create_table()
    ada = await principal(first, "ada")
    await first.decide(grant(ada, first.schema, P.MODIFY))
    epoch = await second.store.epoch()
    assert second.store.known_epoch == epoch
    await under(epoch, second, append(table, 1))

    await first.decide(revoke(ada, first.schema, P.MODIFY))
    for attempt in (append(table, 2), append(table, 2, head=b"{}")):
        for book in (second, third):
            with pytest.raises(Stale):
                await under(epoch, book, attempt)
    assert await first.version(table) == 1
    assert await second.store.epoch() == epoch + 1
    assert await held(second.store, ada, first.schema) == {}


@pytest.mark.postgres
@pytest.mark.parametrize("plain", [True, False])
async def test_who_was_stale_knows_the_new_epoch(servers: tuple[Book, Book, Book], plain: bool):
    """Else a server would take the same credentials for known, and be stale for ever."""
    first, second, _ = servers
    table = await first.create_table()
    old = await second.store.epoch()
    await first.decide(grant(ADMIN.id, first.schema, P.SELECT))
    assert second.store.known_epoch == old
    with pytest.raises(Stale):
        await under(old, second, append(table, 1, head=None if plain else b"{}"))
    assert second.store.known_epoch == old + 1


@pytest.mark.postgres
async def test_many_who_ask_for_the_epoch_at_once_get_the_one_of_now(servers: tuple[Book, Book, Book]):
    first, second, _ = servers
    for number in range(5):
        before = await first.store.epoch()
        asked = [second.store.epoch() for _ in range(20)]
        await first.decide(grant(ADMIN.id, first.schema, list(Privilege)[number]))
        asked += [second.store.epoch() for _ in range(20)]
        seen = await gathered(asked)
        assert set(seen[:20]) <= {before, before + 1}
        assert set(seen[20:]) == {before + 1}


async def gathered(answers: Iterable[Awaitable[int]]) -> list[int]:
    return [await answer for answer in answers]
