"""Where a Delta table stands and what of it may not be published, on each backend."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from inver.domain import ledger
from inver.errors import Conflict, NotFound
from inver.ports import LogTail
from tests.fixtures.ledger import Book, append

LAST = 2**63 - 1


def versions(tail: LogTail | None) -> list[int]:
    assert tail is not None
    return [each["v"] for each in msgspec.json.decode(tail.commits)]


async def advance(book: Book, table: str, first: int, last: int) -> None:
    for version in range(first, last + 1):
        payload = msgspec.json.encode({"v": version, "é": '"'})
        await book.decide(msgspec.structs.replace(append(table, version), payload=payload))


async def test_commits_are_told_newest_first_until_they_are_published(book: Book):
    table = await book.create_table("orders")
    found = await book.store.tail(table, 0, LAST)
    assert found is not None
    assert (found.table.id, found.table.version, found.commits) == (table, 0, b"[]")
    await advance(book, table, 1, 12)
    assert versions(await book.store.tail(table, 0, LAST)) == [*range(12, 0, -1)]
    assert versions(await book.store.tail(table, 3, 5)) == [5, 4, 3]
    assert versions(await book.store.tail(table, 13, LAST)) == []
    named = await book.store.tail_by_name("MAIN", ("Sales",), "Orders")
    assert named == await book.store.tail(table, 0, LAST)
    await book.store.mark_published({table: 4})
    assert versions(await book.store.tail(table, 0, LAST)) == [*range(12, 4, -1)]
    assert versions(await book.store.tail(table, 2, 6)) == [6, 5]


async def test_a_mark_never_goes_back_nor_ahead(book: Book):
    first, second = await book.create_table("a"), await book.create_table("b")
    await advance(book, first, 1, 5)
    await advance(book, second, 1, 2)
    await book.store.mark_published({})
    await book.store.mark_published({first: 4, second: 2, "00000000-0000-7000-8000-000000000000": 1})
    await book.store.mark_published({first: 3, second: 9})
    assert versions(await book.store.tail(first, 0, LAST)) == [5]
    assert versions(await book.store.tail(second, 0, LAST)) == []
    await advance(book, second, 3, 3)
    assert versions(await book.store.tail(second, 0, LAST)) == [3]


async def test_a_commit_notes_how_far_the_log_was_seen_to_go(book: Book):
    table, other = await book.create_table("a"), await book.create_table("b")
    await advance(book, table, 1, 3)

    def seen(version: int, published: int | None) -> ledger.Append:
        payload = msgspec.json.encode({"v": version})
        return msgspec.structs.replace(append(table, version), payload=payload, published=published)

    noted = await book.decide(seen(4, 2))
    assert noted.published == 2
    assert versions(await book.store.tail(table, 0, LAST)) == [4, 3]
    # Together with others, with less than is known already, and with nothing.
    both = await asyncio.gather(book.decide(seen(5, 1)), book.decide(append(other, 1)))
    assert [each.published for each in both] == [2, 0]
    assert (await book.decide(seen(6, None))).published == 2
    assert versions(await book.store.tail(table, 0, LAST)) == [6, 5, 4, 3]
    with pytest.raises(Conflict):
        await book.decide(msgspec.structs.replace(seen(6, 5), token="another"))
    assert versions(await book.store.tail(table, 0, LAST)) == [6, 5, 4, 3]


async def test_receipts_tell_what_others_changed_since_the_version_before(book: Book):
    table = await book.create_table("a")

    async def met(version: int, **more: int) -> tuple[int | None, int | None]:
        receipt = await book.decide(msgspec.structs.replace(append(table, version), **more))
        return receipt.etag, receipt.published

    assert [await met(version) for version in (1, 2, 3)] == [(1, 0)] * 3
    await book.store.mark_published({table: 2})
    assert [await met(4), await met(5)] == [(1, 2)] * 2
    await book.decide(ledger.AlterTable(table_id=table, comment="c"))
    assert [await met(6), await met(7, published=6), await met(8, published=3)] == [(2, 2), (2, 6), (2, 6)]
    await book.decide(ledger.DropTable(table_id=table, purge_at=0))
    with pytest.raises(NotFound):
        await met(9)


async def test_what_has_no_name_has_no_tail(book: Book):
    table = await book.create_table("orders")
    assert await book.store.tail("00000000-0000-7000-8000-000000000000", 0, LAST) is None
    assert await book.store.tail_by_name("main", ("sales",), "none") is None
    assert await book.store.tail_by_name("main", ("none",), "orders") is None
    assert await book.store.tail_by_name("none", ("sales",), "orders") is None
    await book.decide(ledger.DropTable(table_id=table, purge_at=0))
    assert await book.store.tail(table, 0, LAST) is None
    assert await book.store.tail_by_name("main", ("sales",), "orders") is None


async def test_a_tail_has_the_epoch_of_its_look(book: Book):
    table = await book.create_table("orders")
    before = await book.store.tail(table, 0, LAST)
    await book.decide(ledger.AlterSchema(id=book.schema, owner="new"))
    after = await book.store.tail(table, 0, LAST)
    assert before is not None
    assert after is not None
    assert before.epoch < after.epoch == await book.store.epoch()


async def test_many_ask_at_once_and_each_gets_its_own_answer(book: Book):
    tables = [await book.create_table(f"t{number}") for number in range(8)]
    for number, table in enumerate(tables):
        await advance(book, table, 1, number)
    absent = "00000000-0000-7000-8000-000000000000"
    asked = [book.store.tail(table, 0, LAST) for table in (*tables, absent) * 40]
    named = [book.store.tail_by_name("main", ("sales",), f"t{number}") for number in range(9)]
    found = await asyncio.gather(*asked)
    for index, tail in enumerate(found):
        number = index % 9
        if number == 8:
            assert tail is None
        else:
            assert versions(tail) == [*range(number, 0, -1)]
    assert [*await asyncio.gather(*named)] == found[:9]
