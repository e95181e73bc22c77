"""What every store promises when it opens, when it closes, and when the ground under it gives way."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from inver.domain import ledger
from inver.domain.ledger import Receipt
from inver.domain.tables import Table
from inver.errors import Broken, InverError, OutcomeUnknown, Refused, Unavailable
from inver.ids import new_id
from inver.stores.migrations import LATEST
from inver.stores.postgres import PostgresStore
from inver.stores.sqlite import SqliteStore
from tests.fixtures.ledger import (
    AnyStore,
    Backend,
    Book,
    all_events,
    append,
    assert_gap_free,
    connected,
    contents,
    create_table,
    cut,
    keyed,
    opened,
    outcome,
    outcomes,
    rows,
)
from tests.fixtures.waiting import PATIENCE_S

# --- opening ---


async def test_what_was_decided_is_there_after_a_restart(backend: Backend):
    async with opened(backend) as book:
        table = await book.create_table("orders")
        await book.decide(append(table, 1, "t1"), keyed=keyed())
        await book.decide(ledger.MoveCursor(name="c", expect=None, value="1"))
        before = await contents(book.store)
        await backend.close(book.store)
        book = book.on(await backend.open())
        assert await contents(book.store) == before
        assert (await book.decide(append(table, 1, "t1"))).replayed
        await book.decide(append(table, 2))
        assert_gap_free(await all_events(book.store))


async def set_schema_version(backend: Backend, version: int) -> None:
    statement = f"UPDATE meta SET value = '{version}' WHERE key = 'schema_version'"
    if backend.url is None:
        with closing(sqlite3.connect(backend.file)) as connection, connection:
            connection.execute(statement)
    else:
        async with connected(backend.url) as connection:
            await connection.execute(statement)


async def test_a_newer_schema_is_never_opened(backend: Backend):
    async with opened(backend) as book:
        await backend.close(book.store)
        await set_schema_version(backend, LATEST + 1)
        try:
            for _ in range(2):
                with pytest.raises(Broken) as refused:
                    await backend.open()
                assert f"schema version {LATEST + 1}" in refused.value.message
                assert refused.value.fix
            if backend.url is not None:
                with pytest.raises(Broken):
                    await PostgresStore.migrate(backend.url)
        finally:
            await set_schema_version(backend, LATEST)
        # It was left as it was.
        again = await backend.open()
        assert await again.last_event() == 2


@pytest.mark.postgres
async def test_an_unmigrated_database_is_not_opened(postgres_url: str):
    with pytest.raises(Broken) as refused:
        await PostgresStore.open(postgres_url)
    assert "inver migrate" in str(refused.value.fix)
    async with connected(postgres_url) as connection:
        assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
        # The failed attempt has let go.
        others = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'inver'"
        assert await connection.fetchval(others) == 0


@pytest.mark.postgres
async def test_a_migration_happens_once(postgres_url: str):
    assert await PostgresStore.migrate(postgres_url, check=True) == (0, LATEST)
    assert await PostgresStore.migrate(postgres_url, check=True) == (0, LATEST)
    done = await asyncio.gather(*(PostgresStore.migrate(postgres_url) for _ in range(4)))
    assert sorted(done) == [(0, LATEST), *[(LATEST, LATEST)] * 3]
    store = await PostgresStore.open(postgres_url)
    try:
        before = await contents(store)
        assert await PostgresStore.migrate(postgres_url) == (LATEST, LATEST)
        assert await PostgresStore.migrate(postgres_url, check=True) == (LATEST, LATEST)
        assert await contents(store) == before
    finally:
        await store.close()


async def test_opening_again_changes_nothing(tmp_path: Path):
    store = await SqliteStore.open(tmp_path / "inver.db")
    before = await contents(store)
    assert ("schema_version", str(LATEST)) in before["meta"]
    await store.close()
    store = await SqliteStore.open(tmp_path / "inver.db")
    assert await contents(store) == before
    await store.close()


async def test_one_server_at_a_time_has_the_file(tmp_path: Path):
    path = tmp_path / "inver.db"
    store = await SqliteStore.open(path)
    for _ in range(2):
        with pytest.raises(Broken) as refused:
            await SqliteStore.open(path)
        assert str(path) in refused.value.message
        assert "in use" in refused.value.message
        assert "PostgreSQL" in str(refused.value.fix)
    # The one that has it is not disturbed.
    assert await store.remember("k", "v") == "v"
    await store.close()
    again = await SqliteStore.open(path)
    assert await again.remember("k", "other") == "v"
    await again.close()


async def test_a_file_that_is_no_database_is_refused_and_let_go(tmp_path: Path):
    path = tmp_path / "inver.db"
    path.write_bytes(b"not a database" * 100)
    for _ in range(2):
        with pytest.raises(sqlite3.DatabaseError):
            await SqliteStore.open(path)
    path.unlink()
    await (await SqliteStore.open(path)).close()


@pytest.mark.postgres
async def test_a_database_that_is_not_there_is_said_to_be_unavailable(postgres_url: str):
    with pytest.raises(Unavailable, match="cannot be reached"):
        await PostgresStore.open(postgres_url + "_not_there")
    with pytest.raises(Unavailable, match="cannot be reached"):
        await PostgresStore.open("postgresql://inver@127.0.0.1:9/none")


# --- durability ---


async def test_sqlite_syncs_every_commit(tmp_path: Path):
    store = await SqliteStore.open(tmp_path / "inver.db")
    full, wal = 2, "wal"
    for connection in (store._writer, store._reader):
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == full
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == wal
    await store.close()


@pytest.mark.postgres
async def test_postgres_syncs_every_commit_even_where_the_database_would_not(postgres_url: str):
    await PostgresStore.migrate(postgres_url)
    async with connected(postgres_url) as connection:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    async with connected(postgres_url) as connection:
        assert await connection.fetchval("SHOW synchronous_commit") == "off"
    store = await PostgresStore.open(postgres_url)
    assert store._writer is not None
    assert await store._writer.fetchval("SHOW synchronous_commit") == "on"
    found = await asyncio.gather(*(rows(store, "SHOW synchronous_commit") for _ in range(20)))
    assert {value for ((value,),) in found} == {"on"}
    await store.close()


# --- closing ---


async def test_closing_answers_everything_that_was_accepted(backend: Backend):
    async with opened(backend) as book:
        made = [create_table(book, f"t{index}") for index in range(60)]
        await book.decide(*made)
        tables = [table.id for table in made]
        answers = [
            *(asyncio.ensure_future(book.decide(append(table, 1))) for table in tables),
            *(asyncio.ensure_future(book.decide(append(table, 2))) for table in tables),
            *(asyncio.ensure_future(book.decide(append(table, 1))) for table in tables),
            *(asyncio.ensure_future(book.decide(create_table(book, f"new{index}"))) for index in range(30)),
        ]
        closing_store = asyncio.ensure_future(backend.close(book.store))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="stopping"):
            book.decide(append(tables[0], 3))
        await closing_store
        assert all(answer.done() for answer in answers)
        found = await outcomes(*answers)
        assert all(isinstance(answer, Receipt) for answer in [*found[:120], *found[180:]])
        assert all(isinstance(answer, Refused) for answer in found[120:180])
        book = book.on(await backend.open())
        assert [await book.version(table) for table in tables] == [2] * 60
        assert len(await book.store.tables(book.schema, "", 1_000)) == 90


# --- a full disk ---


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Writes beyond `size` fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_loses_nothing_that_was_answered(tmp_path: Path):
    backend = Backend(tmp_path, None)
    async with opened(backend) as book:
        made = [create_table(book, f"t{index}") for index in range(8)]
        await book.decide(*made)
        tables = [table.id for table in made]
        acknowledged: dict[str, list[str]] = {table: [] for table in tables}

        async def wave(number: int, size: int) -> list[Receipt | Exception]:
            sent = [append(t, len(acknowledged[t]) + 1, f"{number}", payload=b"x" * size) for t in tables]
            answers = await outcomes(*(book.decide(operation) for operation in sent))
            for operation, answer in zip(sent, answers, strict=True):
                if isinstance(answer, Receipt):
                    acknowledged[operation.table_id].append(operation.token)
            return answers

        await wave(1, 10)
        wal = backend.file.with_suffix(".db-wal").stat().st_size
        with largest_file(wal + 40_000):
            failed = [answer for number in (2, 3) for answer in await wave(number, 20_000)]
            # Reading goes on.
            assert await book.version(tables[0]) == len(acknowledged[tables[0]])
        assert any(isinstance(answer, OutcomeUnknown) for answer in failed)
        assert all(isinstance(answer, Receipt | OutcomeUnknown | Unavailable) for answer in failed)
        # With room again it goes on where it stood, without a gap and without an operator.
        assert all(isinstance(answer, Receipt) for answer in await wave(4, 10))
        await book.decide(create_table(book, "later"))
        for _ in ("as it runs", "after a restart"):
            for table, tokens in acknowledged.items():
                assert await book.tokens(table) == tokens
            assert_gap_free(await all_events(book.store))
            await backend.close(book.store)
            book = book.on(await backend.open())


# --- a database that cuts its connections ---


class Writer:
    """The only writer of its table. It sends the same commit again until it is told what became of it."""

    def __init__(self, book: Book, table: str, **fields: Any) -> None:
        self.book = book
        self.table = table
        self.fields = fields
        self.acknowledged: list[str] = []
        self.troubles: list[InverError] = []

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            version = len(self.acknowledged) + 1
            token = f"{self.table}-{version}"
            while True:
                operation = append(self.table, version, token, **self.fields)
                answer = await outcome(lambda operation=operation: self.book.decide(operation))  # type: ignore[misc]
                if isinstance(answer, Receipt):
                    break
                assert isinstance(answer, OutcomeUnknown | Unavailable), answer
                self.troubles.append(answer)
                await asyncio.sleep(0)
            self.acknowledged.append(token)


class Maker:
    """Makes tables; of one whose outcome is not known it learns by asking for it."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.made: list[str] = []
        self.troubles: list[InverError] = []

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            operation = create_table(self.book, new_id())
            answer = await outcome(lambda operation=operation: self.book.decide(operation))  # type: ignore[misc]
            if isinstance(answer, Receipt):
                self.made.append(operation.id)
            else:
                assert isinstance(answer, OutcomeUnknown | Unavailable), answer
                self.troubles.append(answer)


async def read(book: Book, table: str, stop: asyncio.Event) -> None:
    while not stop.is_set():
        answer = await outcome(lambda: book.store.table_by_id(table))
        assert isinstance(answer, Table | Unavailable), answer


@pytest.mark.postgres
async def test_cut_connections_lose_nothing_that_was_answered(postgres_url: str, tmp_path: Path):
    backend = Backend(tmp_path, postgres_url)
    async with opened(backend) as book:
        made = [create_table(book, f"t{index}") for index in range(9)]
        await book.decide(*made)
        writers = [
            Writer(book, table.id, **({"head": b"h"} if index % 3 == 0 else {}))
            for index, table in enumerate(made)
        ]
        maker = Maker(book)
        stop = asyncio.Event()
        ended = 0
        waiting = asyncio.ensure_future(outcome(book.store.wait_for_event(10**9, 60)))
        async with asyncio.TaskGroup() as group:
            for writer in writers:
                group.create_task(writer.run(stop))
            group.create_task(maker.run(stop))
            for table in made[:2]:
                group.create_task(read(book, table.id, stop))
            for _ in range(6):
                progress = [len(writer.acknowledged) for writer in writers]
                ended += await cut(postgres_url)
                # After each cut every writer gets on by itself.
                while any(len(w.acknowledged) <= p + 2 for w, p in zip(writers, progress, strict=True)):
                    await asyncio.sleep(0.002)
            stop.set()
        assert ended >= 12
        assert sum(len(writer.troubles) for writer in writers) > 0
        for writer in writers:
            assert await book.tokens(writer.table) == writer.acknowledged
        for made_id in maker.made:
            assert (await book.table(made_id)).id == made_id
        events = await all_events(book.store)
        assert_gap_free(events)
        committed = [event for event in events if event.kind == "table.committed"]
        assert len(committed) == sum(len(writer.acknowledged) for writer in writers)
        created = [event for event in events if event.kind == "table.created"]
        assert (
            len(made) + len(maker.made) <= len(created) <= len(made) + len(maker.made) + len(maker.troubles)
        )

        # Whoever waits for the events of other servers is still told of them.
        waiting.cancel()
        other = book.on(await backend.open())
        last = await book.store.last_event()
        waiting = asyncio.ensure_future(outcome(book.store.wait_for_event(last, 2 * PATIENCE_S)))
        await asyncio.sleep(0)
        await other.decide(append(made[0].id, len(writers[0].acknowledged) + 1))
        assert await asyncio.wait_for(waiting, PATIENCE_S) is True


@pytest.mark.postgres
async def test_idle_connections_that_were_cut_are_not_noticed(postgres_url: str, tmp_path: Path):
    backend = Backend(tmp_path, postgres_url)
    async with opened(backend) as book:
        table = await book.create_table()
        await asyncio.gather(*(book.version(table) for _ in range(10)))
        for version in range(1, 6):
            assert await cut(postgres_url) >= 1
            # Until the news has arrived, one request per connection may meet a dead one.
            while not await news_arrived(book.store):
                await asyncio.sleep(0.001)
            receipt = await book.decide(append(table, version, head=b"h" if version % 2 else None))
            assert not receipt.replayed
            await asyncio.gather(*(book.version(table) for _ in range(10)))


async def news_arrived(store: AnyStore) -> bool:
    assert isinstance(store, PostgresStore)
    idle = [connection for connection in list(store._idle._queue) if connection is not None]  # type: ignore[attr-defined]
    assert store._writer is not None
    return all(connection.is_closed() for connection in [store._writer, *idle])


@pytest.mark.postgres
async def test_a_statement_that_the_operator_cancels_may_be_sent_again(postgres_url: str, tmp_path: Path):
    backend = Backend(tmp_path, postgres_url)
    async with opened(backend) as book, connected(postgres_url) as connection:
        reading = asyncio.ensure_future(outcome(rows(book.store, "SELECT pg_sleep(60)")))
        cancel = """SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE state = 'active'
                    AND query = 'SELECT pg_sleep(60)' AND datname = current_database()"""
        # Between two messages of its protocol a statement cannot be cancelled: until it has ended, again.
        while not reading.done():
            await connection.fetchval(cancel)
            await asyncio.sleep(0.001)
        assert isinstance(await reading, Unavailable)
        assert await book.store.last_event() == 2


@pytest.mark.postgres
async def test_a_database_that_went_away_is_said_to_be_unavailable(postgres_url: str, tmp_path: Path):
    """Neither a hang nor a refusal: the same request may be sent again."""
    backend = Backend(tmp_path, postgres_url)
    async with opened(backend) as book:
        table = await book.create_table()
        url = postgres_url.rpartition("/")[0] + "/postgres"
        name = postgres_url.rpartition("/")[2]
        async with connected(url) as connection:
            await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
            )
            for _ in range(6):
                answers = await outcomes(
                    lambda: book.decide(append(table, 1, "mine")),
                    lambda: book.decide(append(table, 1, "mine", head=b"h")),
                    lambda: book.store.last_event(),
                    lambda: book.store.remember("k", "v"),
                )
                assert all(isinstance(answer, Unavailable | OutcomeUnknown) for answer in answers), answers
            # Nothing was sent to anybody by now.
            assert all(isinstance(answer, Unavailable) for answer in answers)
            await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await book.decide(append(table, 1, "mine"))
        assert await book.tokens(table) == ["mine"]
