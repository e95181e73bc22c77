"""What every store promises about catalogs, schemas, tables and their names, on each backend."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest

from inver.domain import care, ledger, runs
from inver.domain.ledger import Operation, Receipt, Result, Work
from inver.domain.securables import MAX_SCHEMA_DEPTH, Catalog, Schema, SecurableKind
from inver.domain.tables import Format, State, TableDetails, TableKind
from inver.errors import AlreadyExists, Conflict, Invalid, NotEmpty, NotFound, PreconditionFailed, Refused
from inver.ids import new_id
from tests.fixtures.ledger import (
    BY,
    Book,
    all_events,
    append,
    contents,
    create_schema,
    create_table,
    keyed,
    outcome,
    outcomes,
)

ABSENT = new_id()


# --- catalogs and schemas ---


async def test_a_catalog_is_kept_as_it_was_made(book: Book):
    catalog_id = new_id()
    receipt = await book.decide(
        ledger.CreateCatalog(
            id=catalog_id, name="Größe", comment="c", properties={"a": "1"}, storage_root="s3://b/x"
        )
    )
    assert receipt.results == (Result(catalog_id),)
    now = book.clock.now_ms()
    assert await book.store.catalog_by_name("GRÖSSE") == Catalog(
        id=catalog_id,
        name="Größe",
        comment="c",
        properties={"a": "1"},
        storage_root="s3://b/x",
        owner=BY,
        etag=1,
        created_at=now,
        created_by=BY,
        updated_at=now,
        updated_by=BY,
    )
    assert await book.store.catalog_by_name("Grösse2") is None


async def test_an_altered_catalog_changes_only_what_was_named(book: Book):
    store = book.store
    catalog_id = new_id()
    await book.decide(
        ledger.CreateCatalog(
            id=catalog_id, name="a", comment="c", properties={"k": "v"}, storage_root="s3://b"
        )
    )
    before = await store.catalog_by_name("a")
    assert before is not None
    book.clock.advance(5)
    await book.decide(ledger.AlterCatalog(id=catalog_id, expect_etag=1, comment=None), by="someone")
    expected = msgspec.structs.replace(
        before, comment=None, etag=2, updated_at=book.clock.now_ms(), updated_by="someone"
    )
    assert await store.catalog_by_name("a") == expected
    await book.decide(ledger.AlterCatalog(id=catalog_id, properties={}), by="someone")
    expected = msgspec.structs.replace(expected, properties={}, etag=3)
    assert await store.catalog_by_name("a") == expected
    await book.decide(ledger.AlterCatalog(id=catalog_id, name="B", owner="new"), by="someone")
    assert await store.catalog_by_name("a") is None
    assert await store.catalog_by_name("b") == msgspec.structs.replace(
        expected, name="B", owner="new", etag=4
    )


async def test_a_name_may_change_its_spelling(book: Book):
    await book.decide(ledger.AlterCatalog(id=book.catalog, name="MAIN"))
    catalog = await book.store.catalog_by_name("main")
    assert catalog is not None
    assert catalog.name == "MAIN"


async def test_an_empty_catalog_can_be_dropped_and_its_name_used_again(book: Book):
    first, second = new_id(), new_id()
    await book.decide(ledger.CreateCatalog(id=first, name="a"))
    await book.decide(ledger.DropCatalog(id=first, expect_etag=1))
    assert await book.store.catalog_by_name("a") is None
    await book.decide(ledger.CreateCatalog(id=second, name="A"))
    catalog = await book.store.catalog_by_name("a")
    assert catalog is not None
    assert catalog.id == second


async def test_schemas_nest_and_are_found_by_path_in_any_case(book: Book):
    outer = await book.create_schema("Outer")
    inner = await book.create_schema("In ner", outer)
    now = book.clock.now_ms()
    assert await book.store.schema_by_path("MAIN", ("OUTER", "in ner")) == Schema(
        id=inner,
        catalog_id=book.catalog,
        parent_id=outer,
        name="In ner",
        path=("Outer", "In ner"),
        comment=None,
        properties={},
        storage_root=None,
        owner=BY,
        etag=1,
        created_at=now,
        created_by=BY,
        updated_at=now,
        updated_by=BY,
    )
    assert await book.store.schema_by_path("main", ("in ner",)) is None
    assert await book.store.schema_by_path("other", ("outer",)) is None
    assert [schema.name for schema in await book.store.schemas(outer, "", 10)] == ["In ner"]


async def test_a_dot_in_a_name_is_no_path(book: Book):
    dotted = await book.create_schema("a.b")
    outer = await book.create_schema("a")
    nested = await book.create_schema("b", outer)
    for path, expected in ((("a.b",), dotted), (("a", "b"), nested)):
        schema = await book.store.schema_by_path("main", path)
        assert schema is not None
        assert schema.id == expected


async def test_an_altered_schema_changes_only_what_was_named(book: Book):
    before = await book.store.schema_by_path("main", ("sales",))
    assert before is not None
    await book.decide(ledger.AlterSchema(id=book.schema, expect_etag=1, properties={"k": "v"}))
    await book.decide(ledger.AlterSchema(id=book.schema, expect_etag=2, comment="c", owner="new"))
    assert await book.store.schema_by_path("main", ("sales",)) == msgspec.structs.replace(
        before, comment="c", properties={"k": "v"}, owner="new", etag=3
    )


async def test_a_schema_with_nothing_alive_in_it_can_be_dropped(book: Book):
    table = await book.create_table()
    await book.decide(ledger.DropTable(table_id=table, purge_at=0))
    await book.decide(ledger.DropSchema(id=book.schema, expect_etag=1))
    assert await book.store.schema_by_path("main", ("sales",)) is None
    assert await book.store.full_name(table) is None
    await book.decide(ledger.DropCatalog(id=book.catalog))
    assert await book.store.catalogs("", 10) == []


async def test_schemas_nest_to_a_limit(book: Book):
    parent = book.catalog
    for depth in range(MAX_SCHEMA_DEPTH):
        parent = await book.create_schema(f"s{depth}", parent)
    with pytest.raises(Invalid, match=f"at most {MAX_SCHEMA_DEPTH} deep"):
        await book.decide(create_schema(book, "one more", parent=parent))


# --- tables ---


async def test_a_table_is_kept_as_it_was_made(book: Book):
    operation = create_table(
        book,
        "Orders",
        format=Format.ICEBERG,
        kind=TableKind.EXTERNAL,
        state=State.DECLARED,
        location="s3a://Bucket/a b/ü/",
        version=7,
        head=b"\x00\xff",
        comment="c",
        properties={"k": "v", "": "\u00e9\U0001f41f"},
        columns=b'[{"name": "id"}]',
    )
    receipt = await book.decide(operation)
    assert receipt.results == (Result(operation.id, 7),)
    table = await book.table(operation.id)
    now = book.clock.now_ms()
    assert (table.id, table.catalog_id, table.schema_id) == (operation.id, book.catalog, book.schema)
    assert (table.name, table.format, table.kind) == ("Orders", Format.ICEBERG, TableKind.EXTERNAL)
    assert (table.state, table.version, table.etag) == (State.DECLARED, 7, 1)
    assert (table.location, bytes(table.head or b"")) == ("s3a://Bucket/a b/ü", b"\x00\xff")
    assert (table.owner, table.created_by, table.updated_by, table.dropped_at) == (BY, BY, BY, None)
    assert (table.created_at, table.updated_at) == (now, now)
    assert await book.store.details(operation.id) == TableDetails(
        comment="c", properties={"k": "v", "": "\u00e9\U0001f41f"}, columns=b'[{"name": "id"}]'
    )
    assert await book.store.table_by_name("main", ["sales"], "ORDERS") == table
    assert await book.store.full_name(operation.id) == ("main", "sales", "Orders")


async def test_what_was_never_made_is_not_there(book: Book):
    store = book.store
    assert await store.table_by_id(ABSENT) is None
    assert await store.table_by_name("main", ["sales"], "orders") is None
    assert await store.details(ABSENT) is None
    assert await store.full_name(ABSENT) is None
    assert await store.cursor("c") is None
    assert await store.commits(ABSENT, "", 0, 10, 10) == []
    assert await store.transaction_events(10_000) == []


async def test_listings_are_sorted_by_key_and_continue_after_a_name(book: Book):
    names = ["b", "A", "Ä", "a2", "C", "z/z", "ß"]
    for name in names:
        await book.create_table(name)
    await book.create_table("staged", state=State.STAGED)
    gone = await book.create_table("gone")
    await book.decide(ledger.DropTable(table_id=gone, purge_at=0))
    in_order = ["A", "a2", "b", "C", "ß", "z/z", "Ä"]
    assert [table.name for table in await book.store.tables(book.schema, "", 100)] == in_order
    paged: list[str] = []
    while page := await book.store.tables(book.schema, paged[-1] if paged else "", 2):
        paged += [table.name for table in page]
    assert paged == in_order
    assert [table.name for table in await book.store.tables(book.schema, "B", 1)] == ["C"]
    assert [table.id for table in await book.store.dropped_tables(book.schema, 10)] == [gone]


async def test_catalogs_and_schemas_are_listed_in_pages(book: Book):
    for name in ("c", "B", "a"):
        await book.decide(ledger.CreateCatalog(id=new_id(), name=name))
        await book.create_schema(name)
    assert [catalog.name for catalog in await book.store.catalogs("", 10)] == ["a", "B", "c", "main"]
    assert [catalog.name for catalog in await book.store.catalogs("A", 2)] == ["B", "c"]
    assert [schema.name for schema in await book.store.schemas(book.catalog, "b", 10)] == ["c", "sales"]


async def test_an_altered_table_changes_only_what_was_named(book: Book):
    table = await book.create_table("orders", comment="c", properties={"k": "v"}, columns=b"[1]")
    await book.decide(append(table, 1))
    before = await book.table(table)
    book.clock.advance(5)
    receipt = await book.decide(ledger.AlterTable(table_id=table, expect_etag=1, properties={}), by="x")
    assert receipt.results == (Result(table, 1),)
    assert await book.table(table) == msgspec.structs.replace(
        before, etag=2, updated_at=book.clock.now_ms(), updated_by="x"
    )
    assert await book.store.details(table) == TableDetails(comment="c", properties={}, columns=b"[1]")
    await book.decide(ledger.AlterTable(table_id=table, comment=None, columns=b"[2]", owner="new"))
    assert await book.store.details(table) == TableDetails(comment=None, properties={}, columns=b"[2]")
    changed = await book.table(table)
    assert (changed.owner, changed.etag, changed.version) == ("new", 3, 1)


async def test_a_commit_touches_nothing_but_the_version(book: Book):
    table = await book.create_table("orders", comment="c", properties={"k": "v"}, head=b"h", columns=b"[1]")
    before, details = await book.table(table), await book.store.details(table)
    book.clock.advance(5)
    await book.decide(append(table, 1), by="x")
    assert await book.table(table) == msgspec.structs.replace(
        before, version=1, updated_at=book.clock.now_ms(), updated_by="x"
    )
    assert await book.store.details(table) == details


def finish(book: Book, table: str, **fields: Any) -> ledger.FinishTable:
    first = append(table, 3, "first", operation="CREATE")
    options = {"schema_id": book.schema, "name": "finished", "definition": ledger.Definition(), **fields}
    return ledger.FinishTable(table_id=table, first=first, **options)


async def test_a_staged_table_has_no_name_until_it_is_finished(book: Book):
    staged = await book.create_table("wanted", state=State.STAGED, comment="c", properties={"k": "v"})
    assert (await all_events(book.store))[-1].kind == "table.staged"
    assert await book.store.table_by_name("main", ["sales"], "wanted") is None
    await book.create_table("wanted")
    schema = await book.create_schema("other")
    definition = ledger.Definition(comment="d", columns=b'[{"name":"id"}]', column_names=("id",))
    receipt = await book.decide(
        finish(book, staged, schema_id=schema, name="Wanted", definition=definition), by="someone"
    )
    assert receipt.results == (Result(staged, 3),)
    table = await book.table(staged)
    assert (table.state, table.version, table.name) == (State.LIVE, 3, "Wanted")
    assert await book.store.full_name(staged) == ("main", "other", "Wanted")
    assert await book.store.details(staged) == TableDetails(
        comment="d", properties={"k": "v"}, columns=b'[{"name":"id"}]'
    )
    assert await book.tokens(staged) == ["first"]
    event = (await all_events(book.store))[-1]
    assert (event.kind, event.subject, event.version, event.by) == ("table.created", staged, 3, "someone")
    await book.decide(append(staged, 4))


async def test_a_commit_may_carry_a_definition(book: Book):
    table = await book.create_table("orders", comment="c", properties={"k": "v"})
    definition = ledger.Definition(properties={"k": "w"}, columns=b"[1]")
    await book.decide(append(table, 1, definition=definition, expect_etag=1))
    assert await book.store.details(table) == TableDetails(comment="c", properties={"k": "w"}, columns=b"[1]")
    found = await book.table(table)
    assert (found.version, found.etag) == (1, 2)
    before = await contents(book.store)
    with pytest.raises(Conflict):
        await book.decide(append(table, 1, definition=ledger.Definition(comment="lost")))
    assert await contents(book.store) == before


# --- names ---

SAME = [
    ("orders", "ORDERS"),
    ("caf\u00e9", "cafe\u0301"),
    ("CAFE\u0301", "caf\u00e9"),
    ("stra\u00dfe", "STRASSE"),
    ("\u03c3\u03b9\u03c3", "\u03a3\u0399\u03a3"),
    ("\ufb01sh", "fish"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
async def test_names_are_one_if_their_keys_are_one(book: Book, one: str, other: str):
    table = await book.create_table(one)
    found = await book.store.table_by_name("main", ["sales"], other)
    assert found is not None
    assert (found.id, found.name) == (table, one)
    for again in (
        create_table(book, other),
        ledger.RenameTable(table_id=await book.create_table("x"), schema_id=book.schema, name=other),
    ):
        with pytest.raises(AlreadyExists) as refused:
            await book.decide(again)
        assert refused.value.kind == "table"


async def test_different_names_stay_apart(book: Book):
    names = ["I", "\u0131", "a", "\u00e0", "\uff41", "K2", "a.b", "a/b", "50%", "'; --", "a\u00a0b", "a b"]
    made = {await book.create_table(name): name for name in names}
    for table, name in made.items():
        found = await book.store.table_by_name("main", ["sales"], name)
        assert found is not None
        assert (found.id, found.name) == (table, name)


async def test_one_of_many_who_want_a_name_gets_it(book: Book):
    spellings = ["Café", "café", "CAFÉ", unicodedata.normalize("NFD", "café")] * 4
    made = [create_table(book, name) for name in spellings]
    answers = await outcomes(*(book.decide(operation) for operation in made))
    winners = [answer for answer in answers if isinstance(answer, Receipt)]
    assert len(winners) == 1
    assert all(isinstance(answer, Receipt | AlreadyExists) for answer in answers)
    found = await book.store.table_by_name("main", ["sales"], "café")
    assert found is not None
    assert found.id == winners[0].results[0].subject
    assert len(await book.store.tables(book.schema, "", 100)) == 1


@pytest.mark.postgres
async def test_one_of_many_servers_gets_a_name(servers: tuple[Book, Book, Book]):
    first = servers[0]
    tables = [await first.create_table(f"t{index}") for index in range(6)]
    operations: list[Callable[[Book], Operation]] = [
        *(lambda book: create_table(book, "Wanted") for _ in range(6)),
        *(
            lambda book, table=table: ledger.RenameTable(table_id=table, schema_id=book.schema, name="wanted")
            for table in tables
        ),
    ]
    answers = await outcomes(
        *(servers[i % 3].decide(operation(first)) for i, operation in enumerate(operations))
    )
    assert sum(isinstance(answer, Receipt) for answer in answers) == 1
    assert all(isinstance(answer, Receipt | AlreadyExists) for answer in answers)


async def test_a_rename_moves_the_name_and_nothing_else(book: Book):
    table = await book.create_table("orders")
    await book.decide(append(table, 1, "t1"))
    before = await book.table(table)
    book.clock.advance(5)
    receipt = await book.decide(
        ledger.RenameTable(table_id=table, schema_id=book.schema, name="Sold", expect_etag=1)
    )
    assert receipt.results == (Result(table, 1),)
    assert await book.table(table) == msgspec.structs.replace(
        before, name="Sold", etag=2, updated_at=book.clock.now_ms()
    )
    assert await book.store.table_by_name("main", ["sales"], "orders") is None
    assert await book.tokens(table) == ["t1"]
    await book.create_table("orders")


async def test_a_rename_across_catalogs(book: Book):
    other, far = new_id(), new_id()
    await book.decide(
        ledger.CreateCatalog(id=other, name="other"),
        ledger.CreateSchema(id=far, catalog_id=other, parent_id=other, name="far"),
    )
    table = await book.create_table("orders")
    await book.decide(ledger.RenameTable(table_id=table, schema_id=far, name="orders"))
    moved = await book.table(table)
    assert (moved.catalog_id, moved.schema_id) == (other, far)
    assert await book.store.full_name(table) == ("other", "far", "orders")
    assert await book.store.table_by_name("other", ["far"], "orders") == moved
    assert await book.store.table_by_name("main", ["sales"], "orders") is None


async def test_a_rename_to_its_own_name_does_nothing(book: Book):
    table = await book.create_table("orders")
    before = await contents(book.store)
    receipt = await book.decide(ledger.RenameTable(table_id=table, schema_id=book.schema, name="orders"))
    assert receipt.results == (Result(table, 0),)
    assert await contents(book.store) == before
    await book.decide(ledger.RenameTable(table_id=table, schema_id=book.schema, name="ORDERS"))
    assert (await book.table(table)).name == "ORDERS"


async def test_a_rename_over_another_is_refused_until_that_is_gone(book: Book):
    one, two = await book.create_table("one"), await book.create_table("two")
    rename = ledger.RenameTable(table_id=one, schema_id=book.schema, name="TWO")
    with pytest.raises(AlreadyExists):
        await book.decide(rename)
    await book.decide(ledger.DropTable(table_id=two, purge_at=0))
    await book.decide(rename)
    assert await book.store.full_name(one) == ("main", "sales", "TWO")


# --- drop, undrop, purge ---


async def test_a_dropped_table_frees_its_name_and_comes_back_as_it_was(book: Book):
    table = await book.create_table("orders", comment="c")
    await book.decide(append(table, 1, "t1"))
    before = await book.table(table)
    book.clock.advance(5)
    receipt = await book.decide(ledger.DropTable(table_id=table, purge_at=99, expect_etag=1))
    assert receipt.results == (Result(table, 1),)
    dropped = await book.table(table)
    assert (dropped.state, dropped.dropped_at) == (State.DROPPED, book.clock.now_ms())
    assert await book.store.table_by_name("main", ["sales"], "orders") is None
    other = await book.create_table("Orders")
    with pytest.raises(AlreadyExists) as refused:
        await book.decide(ledger.UndropTable(table_id=table))
    assert refused.value.fix
    await book.decide(ledger.UndropTable(table_id=table, name="old orders"))
    back = await book.table(table)
    assert back == msgspec.structs.replace(
        before, name="old orders", etag=3, updated_at=book.clock.now_ms(), updated_by=BY
    )
    assert await book.tokens(table) == ["t1"]
    await book.decide(append(table, 2), append(other, 1))


async def test_undrop_into_another_schema_when_its_own_is_gone(book: Book):
    table = await book.create_table("orders")
    await book.decide(ledger.DropTable(table_id=table, purge_at=0), ledger.DropSchema(id=book.schema))
    with pytest.raises(NotFound) as refused:
        await book.decide(ledger.UndropTable(table_id=table))
    assert refused.value.kind == "schema"
    schema = await book.create_schema("rescue")
    await book.decide(ledger.UndropTable(table_id=table, schema_id=schema))
    assert await book.store.full_name(table) == ("main", "rescue", "orders")


async def test_a_purged_table_is_gone_for_good_and_frees_its_location(book: Book):
    table = await book.create_table("orders", location="s3://b/x", kind=TableKind.EXTERNAL)
    await book.decide(ledger.DropTable(table_id=table, purge_at=0))
    with pytest.raises(AlreadyExists) as refused:
        await book.create_table("other", location="s3://b/x")
    assert refused.value.kind == "location"
    receipt = await book.decide(ledger.PurgeTable(table_id=table))
    assert receipt.results == (Result(table, 0),)
    assert (await book.table(table)).state is State.PURGED
    await book.create_table("other", location="s3://b/x")
    before = await contents(book.store)
    await book.decide(ledger.PurgeTable(table_id=table))
    assert await contents(book.store) == before


# --- locations ---


PLACES = {
    "s3://b/lake/orders": False,
    "s3a://b/lake/orders/": False,
    "s3://b/lake/orders/inside": False,
    "s3://b/lake/orders/a/b/c": False,
    "s3://b/lake": False,
    "s3://b/orders": True,
    "s3://b/lake/orders2": True,
    "s3://b/lake/order": True,
    "s3://b/lake/orders.": True,
    "s3://b/lake/orders-": True,
    "s3://b/lake/orders0": True,
    "s3://b/lake/Orders": True,
    "s3://b/LAKE": True,
    "s3://b2/lake/orders": True,
    "gs://b/lake/orders": True,
    "file:///b/lake/orders": True,
}


@pytest.mark.parametrize("kind", TableKind)
async def test_no_table_lies_inside_another(book: Book, kind: TableKind):
    await book.create_table("orders", location="s3://b/lake/orders", kind=TableKind.EXTERNAL)
    for asked, free in PLACES.items():
        operation = create_table(book, asked, location=asked, kind=kind)
        answer = await outcome(book.decide(operation))
        if free:
            assert isinstance(answer, Receipt), asked
            assert (await book.table(operation.id)).location == asked
        else:
            assert isinstance(answer, AlreadyExists), asked
            assert answer.kind == "location"
            # Whose it is is not for everybody to know.
            assert "orders" not in answer.message


async def test_one_of_many_who_want_a_place_gets_it(book: Book):
    places = ["s3://b/a", "s3://b/a/b", "s3://b/a/b/c", "s3://b/a/b/c/d"] * 3
    answers = await outcomes(
        *(
            book.decide(create_table(book, f"t{index}", location=place, kind=TableKind.EXTERNAL))
            for index, place in enumerate(places)
        )
    )
    assert sum(isinstance(answer, Receipt) for answer in answers) == 1
    assert all(isinstance(answer, Receipt | AlreadyExists) for answer in answers)


@pytest.mark.postgres
async def test_one_of_many_servers_gets_a_place(servers: tuple[Book, Book, Book]):
    """Also against a managed table that would lie inside."""
    for attempt in range(5):
        root = f"s3://b/{attempt}"
        asked = [
            (root, TableKind.EXTERNAL),
            (f"{root}/x", TableKind.EXTERNAL),
            (f"{root}/x/y", TableKind.MANAGED),
        ] * 2
        answers = await outcomes(
            *(
                servers[i % 3].decide(create_table(servers[0], f"{attempt}-{i}", location=place, kind=kind))
                for i, (place, kind) in enumerate(asked)
                # Two managed tables never meet: the server chose their folders.
                if i != 5
            )
        )
        assert sum(isinstance(answer, Receipt) for answer in answers) == 1, answers


# --- what is refused leaves nothing ---


class World:
    """One of everything, in each state that a refusal can rest on."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.empty = self.outer = self.inner = self.bare = ""
        self.orders = self.taken = self.gone = self.burnt = self.staged = self.stranded = ""
        self.ended = ""

    async def build(self) -> World:
        book = self.book
        self.bare = new_id()
        await book.decide(ledger.CreateCatalog(id=self.bare, name="bare"))
        self.empty = await book.create_schema("empty")
        self.outer = await book.create_schema("outer")
        self.inner = await book.create_schema("inner", self.outer)
        self.orders = await book.create_table("orders", location="s3://b/lake/orders")
        self.taken = await book.create_table("taken")
        self.staged = await book.create_table("staged", state=State.STAGED)
        self.gone = await book.create_table("gone")
        self.burnt = await book.create_table("burnt")
        lost = await book.create_schema("lost")
        self.stranded = await book.create_table("stranded", schema_id=lost)
        await book.decide(
            append(self.orders, 1, "t1"),
            append(self.orders, 2, "t2"),
            ledger.CreateBranch(table_id=self.orders, branch="dev", version=2),
            append(self.orders, 3, "b3", branch="dev"),
            *(
                ledger.DropTable(table_id=table, purge_at=0)
                for table in (self.gone, self.burnt, self.stranded)
            ),
            ledger.PurgeTable(table_id=self.burnt),
            ledger.DropSchema(id=lost),
            ledger.MoveCursor(name="c", expect=None, value="1"),
        )
        ended = care_of(self.orders)
        self.ended = ended.id
        beaten = care.Result(outcome=care.Outcome.LOST)
        await book.decide(ended, runs.FinishRun(id=ended.id, result=beaten), care_of(self.orders))
        return self

    def rename(self, table: str, **fields: Any) -> ledger.RenameTable:
        return ledger.RenameTable(table_id=table, **{"schema_id": self.book.schema, "name": "new", **fields})


REFUSALS: dict[str, tuple[type[Refused], Callable[[World], Operation]]] = {
    "a catalog's name is taken": (AlreadyExists, lambda w: ledger.CreateCatalog(id=new_id(), name="MAIN")),
    "a catalog's id is taken": (AlreadyExists, lambda w: ledger.CreateCatalog(id=w.book.catalog, name="x")),
    "alter no catalog": (NotFound, lambda w: ledger.AlterCatalog(id=ABSENT, comment="x")),
    "rename a catalog over another": (
        AlreadyExists,
        lambda w: ledger.AlterCatalog(id=w.bare, name="Main"),
    ),
    "alter a changed catalog": (
        PreconditionFailed,
        lambda w: ledger.AlterCatalog(id=w.bare, expect_etag=2, comment="x"),
    ),
    "drop no catalog": (NotFound, lambda w: ledger.DropCatalog(id=ABSENT)),
    "drop a full catalog": (NotEmpty, lambda w: ledger.DropCatalog(id=w.book.catalog)),
    "drop a changed catalog": (PreconditionFailed, lambda w: ledger.DropCatalog(id=w.bare, expect_etag=2)),
    "a schema in no catalog": (
        NotFound,
        lambda w: ledger.CreateSchema(id=new_id(), catalog_id=ABSENT, parent_id=ABSENT, name="x"),
    ),
    "a schema in no schema": (NotFound, lambda w: create_schema(w.book, "x", parent=ABSENT)),
    "a schema in another catalog's schema": (
        NotFound,
        lambda w: ledger.CreateSchema(id=new_id(), catalog_id=w.bare, parent_id=w.outer, name="x"),
    ),
    "a schema's name is taken": (AlreadyExists, lambda w: create_schema(w.book, "SALES")),
    "a nested schema's name is taken": (
        AlreadyExists,
        lambda w: create_schema(w.book, "INNER", parent=w.outer),
    ),
    "alter no schema": (NotFound, lambda w: ledger.AlterSchema(id=ABSENT, comment="x")),
    "alter a changed schema": (
        PreconditionFailed,
        lambda w: ledger.AlterSchema(id=w.empty, expect_etag=9, comment="x"),
    ),
    "drop no schema": (NotFound, lambda w: ledger.DropSchema(id=ABSENT)),
    "drop a schema with a schema": (NotEmpty, lambda w: ledger.DropSchema(id=w.outer)),
    "drop a schema with a table": (NotEmpty, lambda w: ledger.DropSchema(id=w.book.schema)),
    "drop a changed schema": (PreconditionFailed, lambda w: ledger.DropSchema(id=w.empty, expect_etag=9)),
    "a table in no schema": (NotFound, lambda w: create_table(w.book, "x", schema_id=ABSENT)),
    "a table's name is taken": (AlreadyExists, lambda w: create_table(w.book, "Orders")),
    "a table's id is taken": (AlreadyExists, lambda w: create_table(w.book, "x", id=w.gone)),
    "a table's place is taken": (
        AlreadyExists,
        lambda w: create_table(w.book, "x", location="s3://b/lake/orders/y"),
    ),
    "commit to no table": (NotFound, lambda w: append(ABSENT, 1)),
    "commit to a dropped table": (NotFound, lambda w: append(w.gone, 1)),
    "commit to a purged table": (NotFound, lambda w: append(w.burnt, 1)),
    "commit to a staged table": (NotFound, lambda w: append(w.staged, 1)),
    "commit a taken version": (Conflict, lambda w: append(w.orders, 2)),
    "commit an old version": (Conflict, lambda w: append(w.orders, 1)),
    "commit beyond a gap": (Conflict, lambda w: append(w.orders, 4)),
    "commit version zero": (Conflict, lambda w: append(w.taken, 0)),
    "commit to a changed table": (PreconditionFailed, lambda w: append(w.orders, 3, expect_etag=2)),
    "commit to no branch": (NotFound, lambda w: append(w.orders, 1, branch="none")),
    "commit a taken version of a branch": (Conflict, lambda w: append(w.orders, 3, branch="dev")),
    "commit a gap to a branch": (Conflict, lambda w: append(w.orders, 5, branch="dev")),
    "commit to a dropped table's branch": (NotFound, lambda w: append(w.gone, 1, branch="dev")),
    "finish no table": (NotFound, lambda w: finish(w.book, ABSENT)),
    "finish a table that is not staged": (AlreadyExists, lambda w: finish(w.book, w.orders)),
    "finish a table in no schema": (NotFound, lambda w: finish(w.book, w.staged, schema_id=ABSENT)),
    "finish a table under a taken name": (AlreadyExists, lambda w: finish(w.book, w.staged, name="Orders")),
    "branch no table": (NotFound, lambda w: ledger.CreateBranch(table_id=ABSENT, branch="x", version=1)),
    "branch a dropped table": (
        NotFound,
        lambda w: ledger.CreateBranch(table_id=w.gone, branch="x", version=1),
    ),
    "a branch's name is taken": (
        Conflict,
        lambda w: ledger.CreateBranch(table_id=w.orders, branch="dev", version=1),
    ),
    "a branch of a version that does not exist": (
        Invalid,
        lambda w: ledger.CreateBranch(table_id=w.orders, branch="new", version=3),
    ),
    "a branch without a name": (
        Invalid,
        lambda w: ledger.CreateBranch(table_id=w.orders, branch="", version=1),
    ),
    "alter no table": (NotFound, lambda w: ledger.AlterTable(table_id=ABSENT, comment="x")),
    "alter a dropped table": (NotFound, lambda w: ledger.AlterTable(table_id=w.gone, comment="x")),
    "alter a changed table": (
        PreconditionFailed,
        lambda w: ledger.AlterTable(table_id=w.orders, expect_etag=0, comment="x"),
    ),
    "rename no table": (NotFound, lambda w: w.rename(ABSENT)),
    "rename a dropped table": (NotFound, lambda w: w.rename(w.gone)),
    "rename a staged table": (NotFound, lambda w: w.rename(w.staged)),
    "rename into no schema": (NotFound, lambda w: w.rename(w.orders, schema_id=ABSENT)),
    "rename over another": (AlreadyExists, lambda w: w.rename(w.orders, name="TAKEN")),
    "rename a changed table": (PreconditionFailed, lambda w: w.rename(w.orders, expect_etag=9)),
    "drop no table": (NotFound, lambda w: ledger.DropTable(table_id=ABSENT, purge_at=0)),
    "drop a dropped table": (NotFound, lambda w: ledger.DropTable(table_id=w.gone, purge_at=0)),
    "drop a changed table": (
        PreconditionFailed,
        lambda w: ledger.DropTable(table_id=w.orders, purge_at=0, expect_etag=9),
    ),
    "undrop no table": (NotFound, lambda w: ledger.UndropTable(table_id=ABSENT)),
    "undrop a live table": (NotFound, lambda w: ledger.UndropTable(table_id=w.orders)),
    "undrop a purged table": (NotFound, lambda w: ledger.UndropTable(table_id=w.burnt)),
    "undrop over another": (AlreadyExists, lambda w: ledger.UndropTable(table_id=w.gone, name="orders")),
    "undrop into no schema": (NotFound, lambda w: ledger.UndropTable(table_id=w.stranded)),
    "purge no table": (NotFound, lambda w: ledger.PurgeTable(table_id=ABSENT)),
    "purge a live table": (Refused, lambda w: ledger.PurgeTable(table_id=w.orders)),
    "purge a changed table": (
        PreconditionFailed,
        lambda w: ledger.PurgeTable(table_id=w.gone, expect_etag=1),
    ),
    "expect a version that is not there": (Conflict, lambda w: ledger.Expect(table_id=w.orders, version=3)),
    "expect something of no table": (NotFound, lambda w: ledger.Expect(table_id=w.gone, version=0)),
    "list versions of no table": (
        NotFound,
        lambda w: ledger.AddRecords(table_id=w.gone, records=(ledger.Record(1, 0, None, b"{}"),)),
    ),
    "take versions from no table": (
        NotFound,
        lambda w: ledger.DeleteRecords(table_id=w.gone, ranges=((0, None),)),
    ),
    "drop no branch": (NotFound, lambda w: ledger.DropBranch(table_id=w.orders, branch="prod")),
    "move a cursor that is elsewhere": (
        Conflict,
        lambda w: ledger.MoveCursor(name="c", expect="0", value="2"),
    ),
    "make a cursor that is there": (
        Conflict,
        lambda w: ledger.MoveCursor(name="c", expect=None, value="2"),
    ),
    "move a cursor that is not there": (
        Conflict,
        lambda w: ledger.MoveCursor(name="d", expect="1", value="2"),
    ),
    "care for no table": (NotFound, lambda w: care_of(ABSENT)),
    "care for a dropped table": (NotFound, lambda w: care_of(w.gone)),
    "care for a table that is cared for": (Conflict, lambda w: care_of(w.orders)),
    "end no run": (NotFound, lambda w: care_ended(ABSENT)),
    "end a run otherwise": (Conflict, lambda w: care_ended(w.ended)),
    "a policy of nothing": (
        NotFound,
        lambda w: runs.SetCarePolicy(securable_id=ABSENT, kind=SecurableKind.CATALOG, policy=runs.NO_POLICY),
    ),
    "drop no policy": (NotFound, lambda w: runs.DropCarePolicy(securable_id=w.orders)),
}


def care_of(table: str) -> runs.StartRun:
    return runs.StartRun(id=new_id(), table_id=table, job=care.Job.COMPACT, worker="w")


def care_ended(run: str) -> runs.FinishRun:
    return runs.FinishRun(id=run, result=care.Result(outcome=care.Outcome.DONE))


async def test_a_refused_transaction_leaves_nothing(book: Book):
    """Alone, and after operations of its own transaction that went well."""
    world = await World(book).build()
    before = await contents(book.store)
    for case, (error, operation) in REFUSALS.items():
        well = (
            ledger.CreateCatalog(id=new_id(), name="well"),
            create_schema(book, "well"),
            create_table(book, "well"),
            append(world.taken, 1),
            ledger.MoveCursor(name="well", expect=None, value="1"),
        )
        work = [Work(kind="k", subject="s")]
        for operations, options in (
            ((operation(world),), {}),
            ((*well, operation(world)), {"keyed": keyed(), "work": work}),
        ):
            with pytest.raises(error) as refused:
                await book.decide(*operations, **options)
            assert type(refused.value) is error, case
            if isinstance(refused.value, Conflict):
                (detail,) = refused.value.conflicts
                assert detail.operation == len(operations) - 1, case
            assert await contents(book.store) == before, case


async def test_a_refused_transaction_leaves_no_gap(book: Book):
    world = await World(book).build()
    last = await book.store.last_event()
    for _, operation in REFUSALS.values():
        with pytest.raises(Refused):
            await book.decide(append(world.taken, 1), operation(world))
    receipt = await book.decide(append(world.taken, 1), ledger.MoveCursor(name="n", expect=None, value="1"))
    assert receipt.transaction == last + 1
    assert [event.seq for event in await all_events(book.store, last)] == [last + 1, last + 2]


async def test_every_operation_that_can_be_refused_is_in_the_list(book: Book):
    world = await World(book).build()
    modules = (ledger.__name__, runs.__name__)
    known = {kind for kind in get_args(ledger.Operation) if kind.__module__ in modules}
    assert {type(operation(world)) for _, operation in REFUSALS.values()} == known


async def test_a_refusal_tells_what_stands(book: Book):
    world = await World(book).build()
    for operation, expected, current in (
        (ledger.AlterTable(table_id=world.orders, expect_etag=9, comment="x"), 9, 1),
        (ledger.CreateBranch(table_id=world.orders, branch="dev", version=1), None, 3),
        (ledger.MoveCursor(name="c", expect="0", value="2"), "0", "1"),
        (ledger.MoveCursor(name="d", expect="0", value="2"), "0", None),
    ):
        with pytest.raises(Conflict) as refused:
            await book.decide(operation)
        (detail,) = refused.value.conflicts
        assert (detail.expected, detail.current) == (expected, current)


# --- what two requests do to each other ---


async def test_no_table_is_made_in_a_schema_that_is_being_dropped(book: Book):
    for attempt in range(8):
        schema = await book.create_schema(f"s{attempt}")
        made = [create_table(book, f"t{index}", schema_id=schema) for index in range(3)]
        answers = await outcomes(
            book.decide(made[0]),
            book.decide(ledger.DropSchema(id=schema)),
            book.decide(made[1]),
            book.decide(made[2]),
        )
        left = await book.store.schema_by_path("main", (f"s{attempt}",))
        tables = await book.store.tables(schema, "", 10)
        if left is None:
            assert tables == []
            assert all(isinstance(answers[index], NotFound) for index in (0, 2, 3))
        else:
            assert isinstance(answers[1], NotEmpty)
            assert len(tables) == 3


async def test_properties_are_kept_as_they_were_given(book: Book):
    properties = {"delta.feature": "x", "": "", "a\nb": '"\\\u2028\x00\x7f', "é": "\U0001f41f" * 50}
    await book.decide(ledger.AlterSchema(id=book.schema, properties=properties))
    schema = await book.store.schema_by_path("main", ("sales",))
    assert schema is not None
    assert json.dumps(schema.properties) == json.dumps(properties)
