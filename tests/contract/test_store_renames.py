"""Catalogs and schemas get other names, and nothing but names changes; on each backend."""

from __future__ import annotations

import asyncio

import pytest

from inver.domain import ledger
from inver.errors import AlreadyExists, PreconditionFailed
from tests.fixtures.ledger import Book, append, create_schema


async def paths(book: Book, catalog: str = "main") -> set[tuple[str, ...]]:
    """Every schema of a catalog, found by walking down."""
    found: set[tuple[str, ...]] = set()
    root = await book.store.catalog_by_name(catalog)
    assert root is not None
    waiting = [root.id]
    while waiting:
        for schema in await book.store.schemas(waiting.pop(), "", 100):
            again = await book.store.schema_by_path(catalog, schema.path)
            assert again == schema
            found.add(schema.path)
            waiting.append(schema.id)
    return found


async def test_a_catalog_is_renamed_with_all_that_is_inside(book: Book):
    table = await book.create_table("orders")
    epoch = await book.store.epoch()
    await book.decide(ledger.AlterCatalog(id=book.catalog, name="Primary"))
    assert await book.store.catalog_by_name("main") is None
    assert await book.store.full_name(table) == ("Primary", "sales", "orders")
    found = await book.store.table_by_name("PRIMARY", ("sales",), "orders")
    assert found is not None
    assert found.id == table
    assert await book.store.epoch() > epoch
    await book.decide(append(table, 1))


async def test_a_schema_is_renamed_with_all_that_is_inside(book: Book):
    inner = await book.create_schema("Inner", book.schema)
    await book.create_schema("Innermost", inner)
    # Neighbours whose names begin alike, also with the characters next to the one between names.
    for name in ("sales2", "sales x", "sale", "salesé"):
        other = await book.create_schema(name)
        await book.create_schema("inside", other)
    table = await book.create_table("orders")
    epoch = await book.store.epoch()
    await book.decide(ledger.AlterSchema(id=book.schema, expect_etag=1, name="Größe 🐟"))
    assert await paths(book) == {
        ("Größe 🐟",),
        ("Größe 🐟", "Inner"),
        ("Größe 🐟", "Inner", "Innermost"),
        *((name,) for name in ("sales2", "sales x", "sale", "salesé")),
        *((name, "inside") for name in ("sales2", "sales x", "sale", "salesé")),
    }
    assert await book.store.schema_by_path("main", ("sales",)) is None
    assert await book.store.full_name(table) == ("main", "Größe 🐟", "orders")
    assert await book.store.epoch() > epoch
    await book.decide(append(table, 1))
    await book.decide(ledger.AlterSchema(id=inner, name="deeper down"))
    assert await book.store.schema_by_path("main", ("GRÖSSE 🐟", "Deeper Down", "innermost")) is not None
    await book.decide(create_schema(book, "sales"))


async def test_only_the_spelling_of_a_name_may_change(book: Book):
    await book.create_schema("inside", book.schema)
    await book.decide(ledger.AlterSchema(id=book.schema, name="SALES"))
    assert await paths(book) == {("SALES",), ("SALES", "inside")}


async def test_a_name_that_is_taken_is_not_given_twice(book: Book):
    other = await book.create_schema("hr")
    await book.create_schema("inside", other)
    with pytest.raises(AlreadyExists) as refused:
        await book.decide(ledger.AlterSchema(id=other, name="Sales"))
    assert refused.value.kind == "schema"
    with pytest.raises(PreconditionFailed):
        await book.decide(ledger.AlterSchema(id=other, name="people", expect_etag=7))
    assert await paths(book) == {("sales",), ("hr",), ("hr", "inside")}


async def test_what_was_renamed_is_told(book: Book):
    await book.decide(ledger.AlterSchema(id=book.schema, name="people", comment="c"))
    await book.decide(ledger.AlterCatalog(id=book.catalog, name="first"))
    told = [event.data for event in await book.store.events(2, 10)]
    assert told == [
        b'{"changed":["comment","name"],"name":"people","old_name":"sales"}',
        b'{"changed":["name"],"name":"first","old_name":"main"}',
    ]


async def test_properties_that_were_taken_away_are_told(book: Book):
    for properties in ({"a": "1", "b": "2", "c": "3"}, {"c": "4", "d": "5"}):
        await book.decide(ledger.AlterSchema(id=book.schema, properties=properties))
        await book.decide(ledger.AlterCatalog(id=book.catalog, comment="c", properties=properties))
    told = [event.data for event in await book.store.events(2, 10)]
    assert told == [
        b'{"changed":["properties"]}',
        b'{"changed":["comment","properties"]}',
        b'{"changed":["properties"],"removed":["a","b"]}',
        b'{"changed":["comment","properties"],"removed":["a","b"]}',
    ]


@pytest.mark.postgres
async def test_schemas_are_made_inside_while_one_is_renamed(servers: tuple[Book, Book, Book]):
    first, second, third = servers
    inner = await first.create_schema("inner", first.schema)

    async def rename(times: int) -> None:
        for number in range(times):
            await second.decide(ledger.AlterSchema(id=first.schema, name=f"sales{number}"))

    async def make(book: Book, prefix: str, parent: str, times: int) -> None:
        for number in range(times):
            await book.create_schema(f"{prefix}{number}", parent)

    await asyncio.gather(rename(25), make(first, "a", inner, 25), make(third, "b", first.schema, 25))
    expected = {("sales24",), ("sales24", "inner")}
    expected |= {("sales24", "inner", f"a{number}") for number in range(25)}
    expected |= {("sales24", f"b{number}") for number in range(25)}
    assert await paths(first) == expected
