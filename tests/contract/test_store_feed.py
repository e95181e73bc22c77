"""What every store promises to those who follow the events: each change once, in order, never a gap."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from collections.abc import Awaitable
from contextlib import closing
from typing import Any

import pytest

from inver.domain import ledger
from inver.domain.events import KINDS, Event
from inver.domain.ledger import Receipt
from inver.domain.tables import TableKind
from inver.errors import AlreadyExists, Conflict, Refused
from inver.ids import new_id
from inver.stores.sqlite import SqliteStore
from tests.fixtures.ledger import (
    Backend,
    Book,
    all_events,
    append,
    assert_gap_free,
    create_schema,
    create_table,
    outcome,
    outcomes,
    rows,
)

FOREVER_S = 3600


async def test_each_change_is_one_event_in_the_order_of_the_commits(book: Book):
    catalog, table = new_id(), create_table(book, "orders", kind=TableKind.EXTERNAL)
    schema = create_schema(book, "other")
    steps: list[tuple[ledger.Operation, dict[str, Any]]] = [
        (ledger.CreateCatalog(id=catalog, name="c"), {"name": "c"}),
        (ledger.AlterCatalog(id=catalog, comment="x"), {"changed": ["comment"]}),
        (ledger.DropCatalog(id=catalog), {"name": "c"}),
        (schema, {"name": "other", "catalog_id": book.catalog}),
        (ledger.AlterSchema(id=schema.id, properties={"a": "b"}), {"changed": ["properties"]}),
        (table, {"name": "orders", "schema_id": book.schema, "format": "DELTA"}),
        (append(table.id, 1), {"operation": "commit"}),
        (ledger.CreateBranch(table_id=table.id, branch="dev", version=1), {"branch": "dev"}),
        (ledger.AlterTable(table_id=table.id, comment="x", owner="o"), {"changed": ["comment", "owner"]}),
        (
            ledger.RenameTable(table_id=table.id, schema_id=schema.id, name="sold"),
            {
                "name": "sold",
                "schema_id": schema.id,
                "old_name": "orders",
                "old_schema_id": book.schema,
            },
        ),
        (ledger.DropTable(table_id=table.id, purge_at=9), {"name": "sold", "purge_at": 9}),
        (ledger.UndropTable(table_id=table.id), {"name": "sold", "schema_id": schema.id}),
        (ledger.DropTable(table_id=table.id, purge_at=10), {"name": "sold", "purge_at": 10}),
        (ledger.PurgeTable(table_id=table.id), {"name": "sold"}),
        (ledger.DropSchema(id=schema.id), {"name": "other"}),
        (ledger.MoveCursor(name="c", expect=None, value="1"), {"from": None, "to": "1"}),
    ]
    last = await book.store.last_event()
    receipts = []
    for index, (operation, _) in enumerate(steps):
        book.clock.advance(1)
        receipts.append(await book.decide(operation, by=f"actor-{index}"))
    events = await all_events(book.store, last)
    assert [event.kind for event in events] == [KINDS[type(operation)] for operation, _ in steps]
    assert [json.loads(event.data) for event in events] == [data for _, data in steps]
    assert [event.by for event in events] == [f"actor-{index}" for index in range(len(steps))]
    for event, receipt in zip(events, receipts, strict=True):
        assert event.seq == event.transaction == receipt.transaction
        assert (event.subject, event.version) == (receipt.results[0].subject, receipt.results[0].version)
        assert event.at == receipt.at
    assert_gap_free(events, last)


async def test_what_changes_nothing_is_no_event(book: Book):
    table = await book.create_table("orders")
    await book.decide(append(table, 1, "mine"))
    last = await book.store.last_event()
    await book.decide(append(table, 1, "mine"))
    await book.decide(ledger.RenameTable(table_id=table, schema_id=book.schema, name="orders"))
    assert isinstance(await outcome(book.decide(append(table, 1))), Conflict)
    assert isinstance(await outcome(book.decide(create_table(book, "ORDERS"))), AlreadyExists)
    assert await book.store.last_event() == last
    # Within a transaction too: its number is that of its first event.
    receipt = await book.decide(
        ledger.RenameTable(table_id=table, schema_id=book.schema, name="orders"), append(table, 2)
    )
    assert receipt.transaction == last + 1 == await book.store.last_event()


async def test_the_feed_is_read_in_pages_from_any_point(book: Book):
    table = await book.create_table()
    for version in range(1, 8):
        await book.decide(append(table, version))
    last = await book.store.last_event()
    everything = await book.store.events(0, 1_000)
    assert_gap_free(everything)
    assert everything[-1].seq == last
    assert [event.seq for event in await book.store.events(last - 3, 2)] == [last - 2, last - 1]
    assert await book.store.events(last, 10) == []
    assert await book.store.transaction_events(last) == everything[-1:]
    assert await book.store.transaction_events(0) == []


# --- many writers, one reader that must never miss anything ---


class Follower:
    """Reads on from the last event it saw, as a consumer does, and keeps all it was ever shown."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.seen: list[Event] = []
        self._stop = False

    async def __aenter__(self) -> Follower:
        self.start = await self.book.store.last_event()
        self._task = asyncio.ensure_future(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop = True
        await self._task

    async def _run(self) -> None:
        at = self.start
        while True:
            stop = self._stop
            page = await self.book.store.events(at, 50)
            # A gap that is filled later would show as a number that does not follow.
            assert [event.seq for event in page] == list(range(at + 1, at + 1 + len(page)))
            self.seen += page
            if page:
                at = page[-1].seq
            elif stop:
                return
            await asyncio.sleep(0)


async def write(book: Book, tables: list[str], seed: int, count: int) -> list[Receipt]:
    """A writer among others: reads versions, wants the next ones, loses often, never gives up a seed."""
    chance = random.Random(seed)
    won: list[Receipt] = []
    for index in range(count):
        chosen = chance.sample(tables, chance.choice([1, 1, 1, 2, 3]))
        operations: list[ledger.Operation] = [
            append(table, await book.version(table) + 1, f"{seed}-{index}") for table in chosen
        ]
        kind = chance.random()
        if kind < 0.15:
            operations.append(ledger.AlterTable(table_id=chosen[0], comment=f"{seed}-{index}"))
        elif kind < 0.25:
            operations.append(create_table(book, f"{seed}-{index}"))
        elif kind < 0.35:
            operations.append(ledger.MoveCursor(name=f"{seed}-{index}", expect=None, value="1"))
        answer = await outcome(lambda operations=operations: book.decide(*operations))  # type: ignore[misc]
        assert isinstance(answer, Receipt | Conflict), answer
        if isinstance(answer, Receipt):
            won.append(answer)
    return won


async def check_feed(book: Book, follower: Follower, receipts: list[Receipt], tables: list[str]) -> None:
    """What was shown is what is kept, and it is exactly what was answered."""
    assert follower.seen == await all_events(book.store, follower.start)
    assert_gap_free(follower.seen, follower.start)
    by_transaction: dict[int, list[Event]] = {}
    for event in follower.seen:
        by_transaction.setdefault(event.transaction, []).append(event)
    assert len(receipts) == len(by_transaction)
    for receipt in receipts:
        events = by_transaction[receipt.transaction]
        assert [(event.subject, event.version) for event in events] == [
            (result.subject, result.version) for result in receipt.results
        ]
    for table in tables:
        committed = [e.version for e in follower.seen if (e.kind, e.subject) == ("table.committed", table)]
        assert committed == list(range(1, len(committed) + 1))
        assert await book.version(table) == len(committed) == len(await book.tokens(table))


async def test_a_reader_never_sees_a_gap(book: Book):
    tables = [await book.create_table(f"shared{index}") for index in range(4)]
    async with Follower(book) as follower:
        won = await asyncio.gather(*(write(book, tables, seed, 25) for seed in range(8)))
    await check_feed(book, follower, [receipt for one in won for receipt in one], tables)


@pytest.mark.postgres
async def test_a_reader_never_sees_a_gap_between_servers(servers: tuple[Book, Book, Book]):
    first = servers[0]
    tables = [await first.create_table(f"shared{index}") for index in range(5)]
    async with Follower(servers[1]) as follower, Follower(servers[2]) as other:
        won = await asyncio.gather(*(write(servers[seed % 3], tables, seed, 25) for seed in range(9)))
    receipts = [receipt for one in won for receipt in one]
    await check_feed(first, follower, receipts, tables)
    assert other.seen == follower.seen


# --- reading while others write ---


LOOK = """SELECT t.id, t.version, (SELECT seq FROM event_head), (SELECT count(*) FROM events),
    (SELECT count(*) FROM commits) FROM tables t"""


@pytest.mark.parametrize("way", ["at once", "one after another"])
async def test_readers_see_only_whole_and_durable_transactions(book: Book, backend: Backend, way: str):
    """A thousand commits in flight, half of them of two tables that always move together."""
    made = [create_table(book, f"t{index}") for index in range(15)]
    await book.decide(*made)
    tables = [table.id for table in made]
    pairs, singles = list(zip(tables[:5], tables[5:10], strict=True)), tables[10:]
    count = 100 if way == "at once" else 10
    sent = [
        [book.transaction(*(append(table, version) for table in group)) for version in range(1, count + 1)]
        for group in [*pairs, *((table,) for table in singles)]
    ]
    acknowledged = dict.fromkeys(tables, 0)
    seen: set[int] = set()
    done = asyncio.Event()

    async def answered(answer: Awaitable[Receipt]) -> None:
        for result in (await answer).results:
            assert result.version is not None
            acknowledged[result.subject] = max(acknowledged[result.subject], result.version)

    async def one_by_one(transactions: list[ledger.Transaction]) -> None:
        for transaction in transactions:
            await answered(book.store.decide(transaction))

    async def reader() -> None:
        while not done.is_set():
            known = dict(acknowledged)
            found = await rows(book.store, LOOK)
            versions = {row[0]: row[1] for row in found}
            head, events, commits = found[0][2:]
            assert all(versions[left] == versions[right] for left, right in pairs)
            assert all(versions[table] >= known[table] for table in tables)
            assert head == events
            assert commits == sum(versions.values())
            if backend.url is None:
                # Whoever opens the file now must find it too.
                with closing(sqlite3.connect(f"file:{backend.file}?mode=ro", uri=True)) as other:
                    assert other.execute("SELECT seq FROM event_head").fetchone()[0] >= head
            seen.add(head)
            await asyncio.sleep(0)

    readers = [asyncio.ensure_future(reader()) for _ in range(2)]
    if way == "at once":
        by_version = [transaction for version in zip(*sent, strict=True) for transaction in version]
        await asyncio.gather(*[answered(book.store.decide(transaction)) for transaction in by_version])
    else:
        await asyncio.gather(*(one_by_one(transactions) for transactions in sent))
    done.set()
    await asyncio.gather(*readers)
    assert set(acknowledged.values()) == {count}
    # The readers did look while the writers wrote.
    assert len(seen) > 2


async def test_what_was_answered_can_be_read_at_once(book: Book):
    tables = [await book.create_table(f"t{index}") for index in range(5)]

    async def work(table: str) -> None:
        for version in range(1, 31):
            receipt = await book.decide(append(table, version))
            assert await book.version(table) == version
            assert await book.store.last_event() >= receipt.transaction
            (event,) = await book.store.transaction_events(receipt.transaction)
            assert (event.subject, event.version) == (table, version)

    await asyncio.gather(*(work(table) for table in tables))


# --- waiting for the next event ---


async def test_waiting_ends_with_the_next_event(book: Book):
    table = await book.create_table()
    last = await book.store.last_event()
    assert await book.store.wait_for_event(last - 1, FOREVER_S)
    waiting = [asyncio.ensure_future(book.store.wait_for_event(last, FOREVER_S)) for _ in range(3)]
    later = asyncio.ensure_future(book.store.wait_for_event(last + 1, FOREVER_S))
    await asyncio.sleep(0.01)
    assert not any(task.done() for task in waiting)
    await book.decide(append(table, 1))
    assert await asyncio.gather(*waiting) == [True, True, True]
    await book.decide(append(table, 2, head=b"h"))
    assert await later


async def test_waiting_ends_when_its_time_is_over(book: Book):
    last = await book.store.last_event()
    assert not await book.store.wait_for_event(last, 0)
    short, long = (asyncio.ensure_future(book.store.wait_for_event(last, s)) for s in (0.05, FOREVER_S))
    assert not await short
    assert not long.done()
    long.cancel()


async def test_what_is_no_event_wakes_nobody(book: Book):
    table = await book.create_table()
    await book.decide(append(table, 1, "mine"))
    last = await book.store.last_event()
    waiting = asyncio.ensure_future(book.store.wait_for_event(last, FOREVER_S))
    await asyncio.sleep(0)
    answers = await outcomes(book.decide(append(table, 1)), book.decide(append(table, 9, head=b"h")))
    assert all(isinstance(answer, Refused) for answer in answers)
    assert (await book.decide(append(table, 1, "mine"))).replayed
    await book.store.remember("k", "v")
    await asyncio.sleep(0.02)
    assert not waiting.done()
    await book.decide(append(table, 2))
    assert await waiting


@pytest.mark.postgres
async def test_events_of_another_server_end_the_wait(servers: tuple[Book, Book, Book]):
    first, second, _ = servers
    table = await first.create_table()
    for version in (1, 2, 3):
        last = await second.store.last_event()
        waiting = asyncio.ensure_future(second.store.wait_for_event(last, FOREVER_S))
        await asyncio.sleep(0)
        await first.decide(append(table, version))
        assert await waiting


async def test_closing_ends_the_wait(backend: Backend):
    await backend.prepare()
    store = await backend.open()
    waiting = asyncio.ensure_future(store.wait_for_event(await store.last_event(), FOREVER_S))
    await asyncio.sleep(0.01)
    await backend.close(store)
    assert await waiting is False


async def test_numbers_go_on_after_a_restart(backend: Backend):
    await backend.prepare()
    store = await backend.open()
    for number in range(1, 4):
        catalog = ledger.CreateCatalog(id=new_id(), name=f"c{number}")
        receipt = await store.decide(ledger.Transaction("me", number, (catalog,)))
        assert receipt.transaction == number
        await backend.close(store)
        store = await backend.open()
        assert await store.last_event() == number
    assert_gap_free(await all_events(store))
    if isinstance(store, SqliteStore):
        assert backend.file.exists()
    await backend.close()
