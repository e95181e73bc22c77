"""What every store promises about the parts of a table, and about views among the tables."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from inver.domain.ledger import Part
from inver.domain.tables import TableKind
from inver.errors import AlreadyExists, Conflict
from inver.stores.migrations import MIGRATIONS
from inver.stores.sql import sqlite_text
from inver.stores.sqlite import CHECKPOINT, SqliteStore
from tests.fixtures.ledger import Backend, Book, append, create_table, opened


def part(kind: str, key: str, position: int = 0, body: bytes | None = b"{}") -> Part:
    return Part(kind, key, position, body)


async def kept(book: Book, table: str) -> list[tuple[Any, ...]]:
    pieces = await book.store.pieces(table)
    assert pieces is not None
    return [(each.kind, each.key, each.position, each.body) for each in pieces.parts]


async def test_parts_come_with_their_head_and_version_in_the_order_of_kind_and_position(book: Book):
    table = await book.create_table()
    parts = (part("snapshot", "9", 1, b"\xff\x00"), part("snapshot", "5", 2), part("schema", "0"))
    await book.decide(append(table, 1, head=b"h1", parts=parts))
    pieces = await book.store.pieces(table)
    assert pieces is not None
    assert (pieces.version, pieces.head) == (1, b"h1")
    assert await kept(book, table) == [
        ("schema", "0", 0, b"{}"),
        ("snapshot", "9", 1, b"\xff\x00"),
        ("snapshot", "5", 2, b"{}"),
    ]


async def test_a_part_is_replaced_and_taken_away_with_a_version(book: Book):
    table = await book.create_table()
    await book.decide(append(table, 1, parts=(part("a", "1"), part("a", "2"), part("b", "1"))))
    await book.decide(append(table, 2, parts=(part("a", "1", 7, b"new"), part("a", "2", 0, None))))
    assert await kept(book, table) == [("a", "1", 7, b"new"), ("b", "1", 0, b"{}")]


@pytest.mark.parametrize("count", [1, 64, 65, 200])
async def test_any_number_of_parts_fits_in_one_version(book: Book, count: int):
    table = await book.create_table()
    parts = tuple(part("s", f"{n:03}", n, str(n).encode()) for n in range(count))
    await book.decide(append(table, 1, parts=parts))
    assert await kept(book, table) == [("s", f"{n:03}", n, str(n).encode()) for n in range(count)]
    await book.decide(append(table, 2, parts=tuple(part("s", f"{n:03}", 0, None) for n in range(count))))
    assert await kept(book, table) == []


async def test_a_lost_commit_leaves_no_part(book: Book):
    table = await book.create_table()
    await book.decide(append(table, 1, "first", parts=(part("a", "1"),)))
    with pytest.raises(Conflict):
        await book.decide(append(table, 1, "second", parts=(part("a", "2"), part("a", "1", 0, None))))
    assert await kept(book, table) == [("a", "1", 0, b"{}")]


async def test_a_table_that_starts_before_zero_gets_its_first_version_in_the_same_transaction(book: Book):
    made = create_table(book, "t", version=-1)
    receipt = await book.decide(made, append(made.id, 0, head=b"h", parts=(part("a", "1"),)))
    assert [result.version for result in receipt.results] == [-1, 0]
    assert [commit.version for commit in await book.store.commits(made.id, "", -1, 9, 9)] == [0]
    assert await kept(book, made.id) == [("a", "1", 0, b"{}")]


async def test_nothing_is_known_of_a_table_that_is_not_there(book: Book):
    assert await book.store.pieces("00000000-0000-7000-8000-000000000000") is None


async def test_views_share_the_names_of_tables_and_are_listed_apart(book: Book):
    table, view = create_table(book, "a"), create_table(book, "b", kind=TableKind.VIEW)
    await book.decide(table, view)
    listed = await book.store.tables(book.schema, "", 9)
    assert [each.name for each in listed] == ["a"]
    assert [each.name for each in await book.store.tables(book.schema, "", 9, views=True)] == ["b"]
    with pytest.raises(AlreadyExists):
        await book.decide(create_table(book, "A", kind=TableKind.VIEW))
    with pytest.raises(AlreadyExists):
        await book.decide(create_table(book, "B"))


async def test_parts_that_an_older_file_kept_by_table_are_served(tmp_path: Path):
    before = next(at for at, steps in enumerate(MIGRATIONS) if "parts_by_table" in " ".join(steps))
    old = (
        *(sql for steps in MIGRATIONS[:before] for sql in steps),
        f"INSERT INTO meta VALUES ('schema_version', '{before}')",
        """INSERT INTO tables SELECT 't', 'c', 's', 'n', 'n', 'ICEBERG', 'MANAGED', 'live', 'file:///t',
            'file:///t/', 7, 1, CAST('h' AS BLOB), 'o', 1, 'o', 1, 'o', NULL, 7""",
        *(
            f"INSERT INTO parts VALUES ('t', 'snapshot', '{key}', {position}, CAST('{key}' AS BLOB))"
            for key, position in ((9, 1), (5, 2), (7, 3))
        ),
    )
    with closing(sqlite3.connect(tmp_path / "inver.db")) as connection, connection:
        for statement in old:
            connection.execute(sqlite_text(statement))
    store = await SqliteStore.open(tmp_path / "inver.db")
    try:
        pieces = await store.pieces("t")
    finally:
        await store.close()
    assert pieces is not None
    assert (pieces.version, pieces.head) == (7, b"h")
    assert pieces.parts == tuple(part("snapshot", key, at, key.encode()) for at, key in enumerate("957", 1))


async def test_the_log_of_a_file_begins_anew_after_many_parts(tmp_path: Path):
    backend = Backend(tmp_path, None)
    sizes = []
    async with opened(backend) as book:
        table, store = await book.create_table(), book.store
        assert isinstance(store, SqliteStore)
        for version in range(1, 5):
            parts = tuple(part("s", f"{version}-{n}", n, b"x" * 200) for n in range(8 * CHECKPOINT))
            await book.decide(append(table, version, parts=parts))
            while store._busy or store._copying:
                await asyncio.sleep(0.001)
            sizes.append(backend.file.with_suffix(".db-wal").stat().st_size)
    assert sizes[-1] < 2 * sizes[0]
