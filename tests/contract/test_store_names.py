"""What every store promises about long listings: names in order, of tables whose state it has."""

from __future__ import annotations

from inver.domain import ledger
from inver.domain.tables import Format, TableKind
from tests.fixtures.ledger import Book, append

HEAD = b"{}"


async def made(book: Book, name: str, format: Format = Format.ICEBERG, bare: bool = False) -> str:
    table = await book.create_table(name, format=format)
    if not bare:
        await book.decide(append(table, 1, head=HEAD))
    return table


async def listed(book: Book, limit: int, after: str = "") -> list[str]:
    return (await book.store.table_names(book.schema, after, limit, Format.ICEBERG)).names


async def test_tables_without_a_state_are_left_out_and_pages_are_full_all_the_same(book: Book):
    for number in range(12):
        await made(book, f"T{number:02}", bare=number % 4 != 0)
    assert await listed(book, 100) == ["T00", "T04", "T08"]
    for limit in (1, 2, 3):
        assert await listed(book, limit) == ["T00", "T04", "T08"][:limit]
    assert await listed(book, 2, "t00") == ["T04", "T08"]
    assert await listed(book, 2, "T08") == []


async def test_a_table_is_listed_from_its_first_state_on_and_under_its_own_name(book: Book):
    table = await made(book, "one", bare=True)
    assert await listed(book, 10) == []
    await book.decide(append(table, 1, head=HEAD))
    assert await listed(book, 10) == ["one"]
    await book.decide(ledger.RenameTable(table_id=table, schema_id=book.schema, name="Two"))
    assert await listed(book, 10) == ["Two"]


async def test_a_dropped_table_neither_is_listed_nor_hides_the_next_of_its_name(book: Book):
    for bare in (True, False):
        table = await made(book, "again", bare=bare)
        await book.decide(ledger.DropTable(table_id=table, purge_at=0))
        assert await listed(book, 10) == []
    await made(book, "again")
    assert await listed(book, 10) == ["again"]


async def test_tables_of_other_formats_come_with_what_they_are_and_views_apart(book: Book):
    await made(book, "a")
    await made(book, "b", Format.DELTA)
    await made(book, "c", Format.LANCE, bare=True)
    view = await book.create_table("d", format=Format.ICEBERG, kind=TableKind.VIEW)
    await book.decide(append(view, 1, head=HEAD))
    found = await book.store.table_names(book.schema, "", 10, Format.ICEBERG)
    assert found.names == ["a", "b"]
    assert {name: found.others[name] for name in found.names if name in found.others} == {
        "b": (Format.DELTA, HEAD)
    }
    assert (await book.store.table_names(book.schema, "", 10, Format.ICEBERG, True)).names == ["d"]
