"""PostgreSQL: any number of servers on one database.

Plain commits go through one connection that decides whole batches with one statement. Everything
else runs as an ordinary transaction on a small set of other connections, with the same SQL that
SQLite runs. Connections are our own: a pool would send a reset after every use.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from inver import failpoints
from inver.domain.ledger import Receipt, Transaction, Winner
from inver.errors import Broken, InverError, OutcomeUnknown, Overloaded, Stale, Unavailable
from inver.ports import LogTail
from inver.stores import batch as batches
from inver.stores import journal, migrations, reads
from inver.stores.base import SqlStore, Waiters
from inver.stores.batch import Waiting
from inver.stores.epoch import READ_EPOCH
from inver.stores.recent import Patience, Recent
from inver.stores.sql import Row, Steps, UniqueViolation, postgres_text
from inver.stores.tails import ById, ByName, Together, all_by_id, all_by_name, keys_of
from inver.stores.versions import is_plain

if TYPE_CHECKING:
    import asyncpg

T = TypeVar("T")

QUEUE_LIMIT = 1_024
CONNECTIONS = 4
TRIES = 5
MEANWHILE = 12
"""So many refusals are answered in the time that the database takes for a batch."""
HOLD_S = 0.0035
"""How long the others wait."""
POLL_S = 0.1
_MIGRATION_LOCK = 7283002

# SQLSTATE classes and codes after which the transaction is known to be rolled back.
_TRY_AGAIN = ("40001", "40P01", "55P03")


class PostgresStore(SqlStore):
    def __init__(self, url: str) -> None:
        self._url = url
        self._queue: deque[Waiting] = deque()
        self._recent = Recent()
        self._late: list[batches.Late] = []
        self._flushing: asyncio.Task[None] | None = None
        self._running = 0
        self._closing = False
        self._texts: dict[str, str] = {}
        self._waiters = Waiters()
        self._poller: asyncio.Task[None] | None = None
        self._seen = 0
        self._epoch = 0
        self._epoch_waiters: list[asyncio.Future[int]] = []
        self._epoch_reader: asyncio.Task[None] | None = None
        self._tails: Together[ById, LogTail | None] = Together(lambda asked: self.read(all_by_id(asked)))
        self._named_tails: Together[ByName, LogTail | None] = Together(
            lambda asked: self.read(all_by_name(asked))
        )
        self._idle: asyncio.LifoQueue[asyncpg.Connection | None] = asyncio.LifoQueue()
        self._writer: asyncpg.Connection | None = None

    _loop: asyncio.AbstractEventLoop
    _patience: Patience

    @classmethod
    async def open(cls, url: str) -> PostgresStore:
        store = cls(url)
        store._loop = asyncio.get_running_loop()
        store._patience = Patience(store._loop, HOLD_S)
        store._writer = await store._connect_writer()
        try:
            version = await store._schema_version(store._writer)
            migrations.require_known(version)
            if version < migrations.LATEST:
                raise Broken(
                    f"the database has schema version {version}, this Inver needs {migrations.LATEST}",
                    fix="run `inver migrate --database URL` once, then start the servers",
                )
        except BaseException:
            await store._writer.close()
            raise
        for _ in range(CONNECTIONS):
            store._idle.put_nowait(None)
        store._epoch = await store._writer.fetchval(READ_EPOCH)
        return store

    async def close(self) -> None:
        """Answer everything that was accepted, then let go of the connections."""
        self._closing = True
        while self.queued or self._flushing is not None or self._patience.holding:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        if self._poller is not None:
            self._poller.cancel()
        self._waiters.close()
        if self._writer is not None:
            await self._writer.close()
        for _ in range(CONNECTIONS):
            connection = await self._idle.get()
            if connection is not None:
                await connection.close()

    @property
    def known_epoch(self) -> int:
        return self._epoch

    def epoch(self) -> asyncio.Future[int]:
        """One query answers everybody who asked before it was sent."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._epoch_waiters.append(future)
        if self._epoch_reader is None:
            self._epoch_reader = asyncio.ensure_future(self._read_epochs())
        return future

    async def _read_epochs(self) -> None:
        try:
            while self._epoch_waiters:
                waiters, self._epoch_waiters = self._epoch_waiters, []
                try:
                    async with self._connection() as connection:
                        epoch = self._epoch = await connection.fetchval(READ_EPOCH)
                except Exception as error:
                    for waiter in waiters:
                        if not waiter.done():
                            waiter.set_exception(error)
                    continue
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_result(epoch)
        finally:
            self._epoch_reader = None

    @property
    def queued(self) -> int:
        return len(self._queue) + self._running

    def decide(self, transaction: Transaction) -> asyncio.Future[Receipt]:
        if self.queued >= QUEUE_LIMIT:
            raise Overloaded("too many commits are waiting; send the request again")
        if self._closing:
            raise Unavailable("the server is stopping; send the request again")
        if not (is_plain(transaction) and _tables_differ(transaction)):
            # Counted from now on, not from when the task first runs: the bound and `close` rely on it.
            self._running += 1
            task = asyncio.ensure_future(self._decide_alone(transaction))
            task.add_done_callback(self._ended)
            return task
        future: asyncio.Future[Receipt] = self._loop.create_future()
        self._queue.append(Waiting(transaction, future))
        if self._flushing is None:
            self._flushing = asyncio.ensure_future(self._flush())
        return future

    async def read(self, steps: Steps[T]) -> T:
        async with self._connection() as connection:
            return await self._drive(connection, steps)

    def tail(self, table_id: str, first: int, last: int) -> asyncio.Future[LogTail | None]:
        return self._tails((table_id, first, last))

    def tail_by_name(self, catalog: str, path: Sequence[str], name: str) -> asyncio.Future[LogTail | None]:
        return self._named_tails(keys_of(catalog, path, name))

    async def write(self, steps: Callable[[], Steps[T]]) -> T:
        return await self._write(steps, decides=False)

    async def _write(self, steps: Callable[[], Steps[T]], decides: bool) -> T:
        for _ in range(TRIES):
            async with self._connection() as connection:
                try:
                    return await self._transact(connection, steps(), decides)
                except _TryAgain:
                    continue
        raise Unavailable("the tables are too busy; send the request again")

    def _look_out(self, last: int) -> None:
        self._seen = max(self._seen, last)
        if self._poller is None:
            self._poller = asyncio.ensure_future(self._poll())

    # --- batches ---

    async def _flush(self) -> None:
        try:
            while self._queue:
                batch, late = batches.take(self._queue, self._recent)
                self._late += late
                if not batch:
                    continue
                losers = await self._answered(_all(batch), self._decide_batch(batch))
                if losers:
                    await self._answered(losers, self._judge(losers))
            if self._late:
                # No batch asks the database for them now, and without asking it they are not told.
                self._running += 1
                asyncio.ensure_future(self._dismiss_late()).add_done_callback(self._ended)
        finally:
            self._flushing = None

    async def _answered(
        self, items: Sequence[Waiting], deciding: Awaitable[Sequence[Waiting]]
    ) -> Sequence[Waiting]:
        """Those of whom nothing is known yet; nobody is left without an answer when the database fails."""
        try:
            return await deciding
        except InverError as error:
            for item in items:
                _settle(item, error)
        except Exception:
            # One bad request must not fail its neighbours: each is decided on its own.
            for item in items:
                if not item.future.done():
                    _settle(item, await _outcome(self._decide_alone(item.transaction)))
        return ()

    async def _decide_batch(self, batch: list[Waiting]) -> Sequence[Waiting]:
        """Answer those who won and those who are known to have lost to them; returns the others."""
        failpoints.hit("before_decide")
        connection = await self._writing()
        if self._patience.holding:
            # It runs when the statement is on its way.
            self._loop.call_soon(self._patience.release, MEANWHILE)
        rows = await self._fetch(connection, *batches.statement(batch))
        failpoints.hit("committed_before_answer")
        won = {row[0]: row for row in rows}
        self._epoch = won.pop(-1)[1]
        losers: list[Waiting] = []
        beaten, self._late = self._late, []
        for group, item in enumerate(batch):
            row = won.get(group)
            if row is None:
                together, item.rivals = (item, *item.rivals), []
                for each in together:
                    stale = self._current(each)
                    if stale is not None:
                        _settle(each, stale)
                    else:
                        losers.append(each)
                continue
            _settle(item, batches.won(item, row))
            for op in item.appends:
                winner = Winner(op.version, op.token, row[1], row[2], item.transaction.by)
                self._recent.note(op.table_id, winner)
            beaten += [(rival, batches.rival_verdict(rival, winner)) for rival in item.rivals]
        if won:
            self._waiters.wake()
        self._dismiss(beaten)
        return losers

    async def _dismiss_late(self) -> None:
        late, self._late = self._late, []
        try:
            await self.epoch()
        except InverError as error:
            for item, _ in late:
                _settle(item, error)
        else:
            self._dismiss(late)

    def _dismiss(self, beaten: list[batches.Late]) -> None:
        """Answer those who lost to a commit that is known, as far as they may still be told."""
        for item, verdict in beaten:
            stale = self._current(item)
            if isinstance(verdict, Receipt) or stale is not None:
                _settle(item, stale or verdict)
            else:
                self._patience.refuse(item.future, verdict)

    def _current(self, item: Waiting) -> Stale | None:
        """Stale when the grants under which a transaction was allowed have changed since."""
        return None if item.transaction.epoch in (None, self._epoch) else Stale()

    async def _judge(self, losers: Sequence[Waiting]) -> Sequence[Waiting]:
        """Say why they lost, or let them try again."""
        asked = [(op.table_id, op.version) for item in losers for op in item.appends]
        columns = [list(column) for column in zip(*asked, strict=True)]
        rows = await self._fetch(await self._writing(), batches.LOOK, columns)
        start = 0
        for item in losers:
            outcome = batches.verdict(item, rows[start : start + len(item.appends)])
            start += len(item.appends)
            if outcome is not None:
                _settle(item, outcome)
            elif item.tries < TRIES:
                # It lost to a state that is gone already.
                item.tries += 1
                self._queue.append(item)
            else:
                _settle(item, Unavailable("the table is too busy; send the request again"))
        return ()

    # --- one transaction at a time ---

    async def _decide_alone(self, transaction: Transaction) -> Receipt:
        try:
            receipt = await self._write(lambda: journal.decide(transaction), decides=True)
        except Stale:
            # Whoever starts over must not be taken for known under the epoch that has passed.
            await self.epoch()
            raise
        # It may have changed anything: what is known of tables is learned again.
        self._recent.forget()
        self._waiters.wake()
        return receipt

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._running -= 1

    async def _transact(self, connection: asyncpg.Connection, steps: Steps[T], decides: bool) -> T:
        import asyncpg

        if decides:
            failpoints.hit("before_decide")
        try:
            await connection.execute("BEGIN")
            result = await self._drive(connection, steps)
        except asyncpg.PostgresError as error:
            await _roll_back(connection)
            if error.sqlstate in _TRY_AGAIN:
                raise _TryAgain from None
            raise Unavailable(f"the database refused the request: {error}") from error
        except BaseException:
            await _roll_back(connection)
            raise
        if decides:
            failpoints.hit("decided_before_commit")
        try:
            await connection.execute("COMMIT")
        except _broken(asyncpg.PostgresError) as error:
            connection.terminate()
            raise OutcomeUnknown("the database did not confirm the commit") from error
        if decides:
            failpoints.hit("committed_before_answer")
        return result

    async def _drive(self, connection: asyncpg.Connection, steps: Steps[T]) -> T:
        import asyncpg

        texts = self._texts
        try:
            sql, parameters = next(steps)
            while True:
                text = texts.get(sql)
                if text is None:
                    text = texts[sql] = postgres_text(sql)
                try:
                    rows: list[Row] = await connection.fetch(text, *parameters) if text else []
                except asyncpg.UniqueViolationError as error:
                    sql, parameters = steps.throw(UniqueViolation(str(error)))
                else:
                    sql, parameters = steps.send(rows)
        except StopIteration as done:
            result: T = done.value
            return result

    # --- connections ---

    async def _fetch(self, connection: asyncpg.Connection, sql: str, arguments: list[Any]) -> list[Any]:
        """A statement that is its own transaction; a broken connection leaves the outcome open."""
        import asyncpg

        try:
            return list(await connection.fetch(sql, *arguments))
        except _broken(asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError) as error:
            self._writer = None
            connection.terminate()
            raise OutcomeUnknown("the connection to the database broke during the commit") from error

    async def _writing(self) -> asyncpg.Connection:
        if self._writer is None or self._writer.is_closed():
            self._writer = await self._connect_writer()
        return self._writer

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection]:
        import asyncpg

        connection = await self._idle.get()
        try:
            if connection is None or connection.is_closed():
                connection = await self._connect()
            try:
                yield connection
            except _broken(asyncpg.PostgresError) as error:
                # Whatever it was, a new connection starts clean.
                connection.terminate()
                raise Unavailable(f"the database did not answer: {error}; send the request again") from error
        finally:
            self._idle.put_nowait(None if connection is None or connection.is_closed() else connection)

    async def _connect_writer(self) -> asyncpg.Connection:
        # Its few statements find everything by key, whatever the statistics say of a young table, and
        # planning one anew for each length of a batch costs more than it can win.
        return await self._connect(plan_cache_mode="force_generic_plan", enable_seqscan="off")

    async def _connect(self, **settings: str) -> asyncpg.Connection:
        import asyncpg

        try:
            return await asyncpg.connect(
                self._url,
                timeout=10,
                server_settings={"application_name": "inver", "synchronous_commit": "on", **settings},
            )
        except _broken(asyncpg.PostgresError) as error:
            raise Unavailable(f"the database cannot be reached: {type(error).__name__}: {error}") from error

    async def _poll(self) -> None:
        """Other servers commit too: while somebody waits for events, look for theirs."""
        while self._waiters:
            await asyncio.sleep(POLL_S)
            try:
                last = await self.read(reads.last_event())
            except Unavailable:
                continue
            if last > self._seen:
                self._seen = last
                self._waiters.wake()
        self._poller = None

    # --- schema ---

    @classmethod
    async def migrate(cls, url: str, check: bool = False) -> tuple[int, int]:
        """Bring the schema up to date; returns the versions before and after. `check` changes nothing."""
        store = cls(url)
        connection = await store._connect()
        try:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATION_LOCK)
                before = await store._schema_version(connection)
                migrations.require_known(before)
                if check:
                    return before, migrations.LATEST
                return before, await store._drive(connection, migrations.migrate(before))
        finally:
            await connection.close()

    async def _schema_version(self, connection: asyncpg.Connection) -> int:
        known = await connection.fetchval("SELECT to_regclass('meta') IS NOT NULL")
        return await self._drive(connection, migrations.read_version()) if known else 0


def _broken(*errors: type[Exception]) -> tuple[type[Exception], ...]:
    """These errors of the server, and what the driver raises when a connection is of no more use."""
    import asyncpg

    return OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, *errors


class _TryAgain(Exception):
    """PostgreSQL chose this transaction to give way; nothing of it stays."""


def _tables_differ(transaction: Transaction) -> bool:
    operations = transaction.operations
    return len(operations) == 1 or len({op.table_id for op in operations}) == len(operations)  # type: ignore[union-attr]


def _all(batch: list[Waiting]) -> list[Waiting]:
    return [waiting for item in batch for waiting in (item, *item.rivals)]


def _settle(item: Waiting, outcome: Receipt | Exception) -> None:
    if item.future.done():
        return
    if isinstance(outcome, Exception):
        item.future.set_exception(outcome)
    else:
        item.future.set_result(outcome)


async def _outcome(deciding: Any) -> Receipt | Exception:
    try:
        receipt: Receipt = await deciding
    except Exception as error:
        return error
    return receipt


async def _roll_back(connection: asyncpg.Connection) -> None:
    try:
        await connection.execute("ROLLBACK")
    except Exception:
        # A connection that cannot roll back is thrown away, and the server rolls back by itself.
        connection.terminate()
