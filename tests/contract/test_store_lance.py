"""What every store promises about versions that are listed, and can be taken from the list again."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from inver.domain import ledger
from inver.domain.ledger import Reason, Record
from inver.domain.tables import Format
from inver.errors import Conflict, Invalid, NotFound
from inver.stores.migrations import LATEST, MIGRATIONS
from inver.stores.postgres import PostgresStore
from inver.stores.sql import postgres_text, sqlite_text
from inver.stores.sqlite import SqliteStore
from tests.fixtures.ledger import AnyStore, Book, append

LAST = 2**63 - 1


def record(version: int, key: str | None = None, data: bytes | None = None) -> Record:
    return Record(version, 1_000 + version, key, f'{{"v":{version}}}'.encode(), data)


def recorded(table: str, version: int, key: str | None = None, **more: Any) -> ledger.Append:
    data = more.pop("data", None)
    return append(table, version, key or f"token {version}", record=record(version, key, data), **more)


async def listed(book: Book, table: str, branch: str = "", **more: Any) -> list[int]:
    given = {"first": 0, "last": LAST, "limit": 100, **more}
    return [each.version for each in await book.store.records(table, branch, **given)]


async def filled(book: Book, count: int = 5) -> str:
    table = await book.create_table(format=Format.LANCE)
    for version in range(1, count + 1):
        await book.decide(recorded(table, version, f"key {version}"))
    return table


async def test_records_come_with_their_versions_in_either_order(book: Book):
    table = await filled(book)
    assert await listed(book, table) == [5, 4, 3, 2, 1]
    assert await listed(book, table, newest_first=False, limit=2) == [1, 2]
    assert await listed(book, table, first=2, last=3) == [3, 2]
    [found] = await book.store.records(table, "", 4, 4, 1)
    assert found == record(4, "key 4")
    by_key = await book.store.record_by_key(table, "", "key 2")
    assert by_key is not None
    assert by_key.version == 2
    assert await book.store.record_by_key(table, "", "none") is None


async def test_a_key_is_there_once_in_a_branch(book: Book):
    table = await filled(book, 2)
    before = await book.store.last_event()
    with pytest.raises(Conflict) as refused:
        await book.decide(recorded(table, 3, "key 1"))
    [detail] = refused.value.conflicts
    assert (detail.reason, detail.current, refused.value.operation) == (Reason.COMMITTED_BEFORE, 1, 0)
    assert await book.store.last_event() == before
    assert await listed(book, table) == [2, 1]
    # Versions without a key, and the same key in another branch, are nobody's repetition.
    await book.decide(recorded(table, 3), recorded(table, 4))
    branch = ledger.CreateBranch(table_id=table, branch="dev", version=0)
    await book.decide(branch, recorded(table, 1, "key 1", branch="dev"))
    assert await listed(book, table, "dev") == [1]


async def test_the_same_commit_is_a_repetition_and_not_a_conflict(book: Book):
    table = await filled(book, 2)
    receipt = await book.decide(recorded(table, 2, "key 2"))
    assert receipt.replayed
    assert await listed(book, table) == [2, 1]


async def test_ranges_leave_the_list_and_nothing_else(book: Book):
    table = await filled(book)
    gone = ledger.DeleteRecords(table_id=table, ranges=((1, 3), (2, 4)))
    receipt = await book.decide(gone)
    assert receipt.results[0].count == 3
    assert await listed(book, table) == [5, 4]
    commits = await book.store.commits(table, "", 0, LAST, 100)
    assert [commit.version for commit in commits] == [5, 4, 3, 2, 1]


@pytest.mark.parametrize("ranges", [((5, None),), ((1, 6),), ((0, 2), (5, 6)), ((3, None),)])
async def test_the_newest_version_stays(book: Book, ranges: Any):
    table = await filled(book)
    before = await book.store.last_event()
    with pytest.raises(Conflict) as refused:
        await book.decide(ledger.DeleteRecords(table_id=table, ranges=ranges))
    assert refused.value.conflicts[0].reason is Reason.NEWEST_VERSION
    assert await listed(book, table) == [5, 4, 3, 2, 1]
    assert await book.store.last_event() == before
    await book.decide(ledger.DeleteRecords(table_id=table, ranges=ranges, newest=True))


async def test_all_versions_may_go_and_no_number_comes_back(book: Book):
    table = await filled(book)
    receipt = await book.decide(ledger.DeleteRecords(table_id=table, ranges=((0, None),)))
    assert receipt.results[0].count == 5
    assert await listed(book, table) == []
    with pytest.raises(Conflict):
        await book.decide(recorded(table, 1, "again"))
    await book.decide(recorded(table, 6, "next"))
    assert await listed(book, table) == [6]


async def test_a_refusal_names_its_operation(book: Book):
    table = await filled(book, 1)
    other = await book.create_table("other")
    with pytest.raises(NotFound) as refused:
        await book.decide(
            recorded(table, 2), append(other, 1), ledger.DropBranch(table_id=table, branch="none")
        )
    assert refused.value.operation == 2
    assert await listed(book, table) == [1]


async def test_branches_are_dropped_and_made_anew(book: Book):
    table = await filled(book, 3)
    make = ledger.CreateBranch(table_id=table, branch="dev", version=1)
    await book.decide(make, recorded(table, 2, "key 2", branch="dev"))
    assert [(each.name, each.version) for each in await book.store.branches(table)] == [("dev", 2)]
    await book.decide(ledger.DropBranch(table_id=table, branch="dev"))
    assert await book.store.branch(table, "dev") is None
    assert await listed(book, table, "dev") == []
    assert await book.store.commits(table, "dev", 0, LAST, 10) == []
    await book.decide(make, recorded(table, 2, "key 2", branch="dev"))
    assert await listed(book, table, "dev") == [2]
    with pytest.raises(NotFound):
        await book.decide(ledger.DropBranch(table_id=table, branch="none"))


async def test_a_branch_leaves_another_within_what_that_has(book: Book):
    table = await filled(book, 2)
    far = ledger.CreateBranch(table_id=table, branch="far", version=7, within=7)
    await book.decide(far, recorded(table, 8, "x", branch="far"))
    with pytest.raises(Invalid):
        await book.decide(ledger.CreateBranch(table_id=table, branch="too", version=8, within=7))
    with pytest.raises(Invalid):
        await book.decide(ledger.CreateBranch(table_id=table, branch="too", version=3))


async def test_records_of_what_was_there_before(book: Book):
    table = await book.create_table(format=Format.LANCE, version=7)
    added = ledger.AddRecords(table_id=table, records=(record(3), record(7, "k")))
    receipt = await book.decide(added)
    assert receipt.results[0].count == 2
    assert await listed(book, table) == [7, 3]
    await book.decide(recorded(table, 8, "next"))
    assert await listed(book, table) == [8, 7, 3]
    findings = await book.store.invariants(2_000_000_000_000)
    assert {each.name: each.count for each in findings}["versions"] == 0


async def test_data_waits_until_it_is_let_go(book: Book):
    table = await filled(book, 1)
    await book.decide(recorded(table, 2, "a", data=b"\x00bytes"))
    await book.decide(recorded(table, 3, "b", data=b""))
    assert await book.store.waiting_records(10) == [(table, "", 2), (table, "", 3)]
    assert await book.store.waiting_records(10, (table, "", 2)) == [(table, "", 3)]
    assert await book.store.waiting_records(10, (table, "", 3)) == []
    found = await book.store.records(table, "", 0, LAST, 10)
    assert [each.data is not None for each in found] == [True, True, False]
    assert await book.store.record_data(table, "", 2) == b"\x00bytes"
    assert await book.store.record_data(table, "", 1) is None
    await book.store.let_go([(table, "", 2)])
    assert await book.store.record_data(table, "", 2) is None
    assert await book.store.waiting_records(10) == [(table, "", 3)]
    assert await listed(book, table) == [3, 2, 1]


async def test_lance_tables_are_listed_by_their_full_names(book: Book):
    for name in ("b", "a", "c"):
        await book.create_table(name, format=Format.LANCE)
    await book.create_table("delta")
    found = await book.store.lance_tables((), 10)
    assert [(name, has) for _, name, has in found] == [
        (("main", "sales", name), False) for name in ("a", "b", "c")
    ]
    rest = await book.store.lance_tables(("main", "sales", "A"), 1)
    assert [name for _, name, _ in rest] == [("main", "sales", "b")]


async def test_properties_of_transactions(book: Book):
    await book.store.set_transaction_properties(7, {"a": "1", "b": "2"})
    await book.store.set_transaction_properties(7, {"a": "3", "b": None, "c": None})
    assert await book.store.transaction_properties(7) == {"a": "3"}
    assert await book.store.transaction_properties(8) == {}


async def test_a_purged_table_leaves_no_record(book: Book):
    table = await filled(book, 2)
    await book.decide(ledger.DropTable(table_id=table, purge_at=0))
    assert await listed(book, table) == [2, 1], "it may come back"
    await book.decide(ledger.PurgeTable(table_id=table))
    assert await listed(book, table) == []


async def test_what_is_let_go_is_nothing_else(book: Book):
    """By whole stretches, and across tables and branches, in whatever order and however often it is named."""
    one, two = await filled(book, 0), await book.create_table("two", format=Format.LANCE)
    for version in range(1, 7):
        await book.decide(recorded(one, version, data=b"1"), recorded(two, version, data=b"2"))
    branch = ledger.CreateBranch(table_id=one, branch="dev", version=0)
    await book.decide(branch, recorded(one, 1, branch="dev", data=b"3"))
    await book.store.let_go([(one, "", 5), (two, "", 2), (one, "", 2), (one, "", 3), (two, "", 2)])
    await book.store.let_go([])
    left = [(one, "", 1), (one, "", 4), (one, "", 6), (one, "dev", 1)]
    left += [(two, "", version) for version in (1, 3, 4, 5, 6)]
    assert await book.store.waiting_records(100) == sorted(left)


async def test_what_waits_goes_with_its_record(book: Book):
    table = await filled(book, 0)
    for version in range(1, 5):
        await book.decide(recorded(table, version, data=b"x"))
    make = ledger.CreateBranch(table_id=table, branch="dev", version=0)
    await book.decide(make, recorded(table, 1, branch="dev", data=b"y"))
    await book.decide(ledger.DeleteRecords(table_id=table, ranges=((1, 3),)))
    assert await book.store.waiting_records(10) == [(table, "", 3), (table, "", 4), (table, "dev", 1)]
    await book.decide(ledger.DropBranch(table_id=table, branch="dev"))
    assert await book.store.waiting_records(10) == [(table, "", 3), (table, "", 4)]
    await book.decide(ledger.DropTable(table_id=table, purge_at=0))
    await book.decide(ledger.PurgeTable(table_id=table))
    assert await book.store.waiting_records(10) == []


# --- what an older server left ---

_BEFORE = next(at for at, steps in enumerate(MIGRATIONS) if "CREATE TABLE waiting" in " ".join(steps))
_OLD = (
    *(sql for steps in MIGRATIONS[:_BEFORE] for sql in steps),
    f"INSERT INTO meta VALUES ('schema_version', '{_BEFORE}')",
    "INSERT INTO records VALUES ('t', '', 1, 5, 'k1', CAST('{}' AS {bytes}), NULL)",
    "INSERT INTO records VALUES ('t', '', 2, 6, 'k2', CAST('{}' AS {bytes}), CAST('old' AS {bytes}))",
)


async def _is_served(store: AnyStore) -> None:
    try:
        found = await store.records("t", "", 0, LAST, 10)
        assert found == [Record(2, 6, "k2", b"{}", b""), Record(1, 5, "k1", b"{}")]
        assert await store.waiting_records(10) == [("t", "", 2)]
        assert await store.record_data("t", "", 2) == b"old"
        await store.let_go([("t", "", 2)])
        assert await store.waiting_records(10) == []
    finally:
        await store.close()


async def test_what_waited_in_an_older_file_is_served(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "inver.db")) as connection, connection:
        for statement in _OLD:
            connection.execute(sqlite_text(statement))
    await _is_served(await SqliteStore.open(tmp_path / "inver.db"))


@pytest.mark.postgres
async def test_what_waited_in_an_older_database_is_served(postgres_url: str):
    connection = await asyncpg.connect(postgres_url)
    try:
        for statement in _OLD:
            await connection.execute(postgres_text(statement))
    finally:
        await connection.close()
    assert await PostgresStore.migrate(postgres_url) == (_BEFORE, LATEST)
    await _is_served(await PostgresStore.open(postgres_url))
