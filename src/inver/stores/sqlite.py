"""SQLite: the embedded default. One process, one writer, many durable commits per sync.

Statements run inside the event loop, where they cost microseconds. COMMIT waits for the disk: on
a quick one it is over before a helper thread would have begun, so it runs in the loop too; on a
slow one there is that thread. What queues up meanwhile is the next batch.

The log is moved into the database in two steps: most of it beside the writer, on a connection of
its own; then the rest while the writer waits, since only a log that is wholly moved begins anew.

A transaction of one append, the common case, needs no SAVEPOINT; every other request has its own. A
batch that breaks in an unforeseen way is rolled back and run again request by request, so that only
the culprit fails.
"""

from __future__ import annotations

import asyncio
import os
import queue as thread_queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from inver import failpoints
from inver.domain.ledger import Append, Receipt, Transaction, Winner
from inver.errors import Conflict, OutcomeUnknown, Overloaded, Refused, Stale, Unavailable
from inver.stores import journal, migrations
from inver.stores.alone import lock_file
from inver.stores.base import SqlStore, Waiters
from inver.stores.epoch import BUMP_EPOCH, READ_EPOCH
from inver.stores.lone import append_alone
from inver.stores.recent import Patience, Recent
from inver.stores.sql import Row, Steps, UniqueViolation, sqlite_text
from inver.stores.versions import is_alone

T = TypeVar("T")

QUEUE_LIMIT = 1_024
BATCH_LIMIT = 256
"""Operations in one batch: more would keep the event loop from answering others."""
QUICK_S = 0.003
"""A disk that confirms a commit in this time is waited for in the event loop."""
ROUNDS = 2
"""Rounds of the event loop in which those whom the last batch answered may join the next one. Who commits
again at once is then served by one sync with the others; without that, clients fall into two halves that wait
for each other's syncs."""
HOLD_S = 0.0025
"""How long refusals of a crowd wait."""
CHECKPOINT = 2_000
"""Operations after which the log is moved into the database, at some 16 MB: a page that many commits
changed is then copied once for all of them."""
PARTS = 8
"""Parts of a table's state that count as one operation there. What a large table brings would else be moved
by SQLite itself, while everybody waits."""

_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA busy_timeout = 5000",
    "PRAGMA cache_size = -12288",
    # We move the log into the database ourselves, in the helper thread; this is for what we underestimate.
    "PRAGMA wal_autocheckpoint = 16000",
    "PRAGMA temp_store = MEMORY",
)


class _Item:
    """One request for the writer; `weight` is the number of its operations, `parts` how many they write.

    Some are decisions, the others are what the server writes for itself.
    """

    __slots__ = ("decides", "future", "outcome", "parts", "steps", "transaction", "weight")

    def __init__(
        self,
        future: asyncio.Future[Any],
        steps: Callable[[], Steps[Any]],
        weight: int = 1,
        transaction: Transaction | None = None,
        decides: bool = False,
        parts: int = 0,
    ) -> None:
        self.decides = decides
        self.parts = parts
        self.future = future
        self.steps = steps
        self.weight = weight
        self.transaction = transaction
        self.outcome: Any = None

    @property
    def wrote(self) -> bool:
        outcome = self.outcome
        if isinstance(outcome, Receipt):
            return not outcome.replayed
        return not isinstance(outcome, Exception)


def _pass(point: str, batch: list[_Item]) -> None:
    if any(item.decides for item in batch):
        failpoints.hit(point)


class SqliteStore(SqlStore):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: deque[_Item] = deque()
        self._busy = False
        self._closing = False
        self._answered = self._waited = 0
        self._texts: dict[str, str] = {}
        self._waiters = Waiters()
        self._chores: thread_queue.SimpleQueue[Callable[[], Any] | None] = thread_queue.SimpleQueue()
        self._commit_s = 0.0
        self._logged = 0
        self._copying = self._rest_due = False
        self._seq = self._saved_seq = 0
        self._epoch = self._saved_epoch = self._durable_epoch = 0
        self._connections: list[sqlite3.Connection] = []
        # As the writer left it. The writer is alone, so it still stands.
        self._recent = Recent()

    @classmethod
    async def open(cls, path: Path) -> SqliteStore:
        store = cls(path)
        store._lock = lock_file(path)
        try:
            store._loop = asyncio.get_running_loop()
            store._patience = Patience(store._loop, HOLD_S)
            store._writer = store._connect()
            store._write_steps = partial(store._drive, store._writer)
            store._reader = store._connect()
            store._copier = store._connect()
            store._migrate()
            store._load_sequence()
            store._reader.execute("PRAGMA query_only = ON")
            # The operating system keeps the pages of the file, too.
            store._reader.execute("PRAGMA cache_size = -8192")
        except BaseException:
            store._let_go()
            raise
        store._thread = threading.Thread(target=store._do_chores, name="inver-commit", daemon=True)
        store._thread.start()
        return store

    async def close(self) -> None:
        """Answer everything that was accepted, then let go of the file."""
        self._closing = True
        while self._busy or self._copying or self._queue or self._patience.holding:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        self._chores.put(None)
        await asyncio.to_thread(self._thread.join)
        self._waiters.close()
        self._let_go()

    def decide(self, transaction: Transaction) -> asyncio.Future[Receipt]:
        alone = transaction if is_alone(transaction) else None
        future: asyncio.Future[Receipt] = self._loop.create_future()
        steps = lambda: journal.decide(transaction)  # noqa: E731
        operations = transaction.operations
        parts = [len(op.parts) for op in operations if type(op) is Append]
        self._submit(_Item(future, steps, len(operations), alone, True, sum(parts)))
        return future

    async def write(self, steps: Callable[[], Steps[T]]) -> T:
        future: asyncio.Future[T] = self._loop.create_future()
        self._submit(_Item(future, steps))
        return await future

    async def read(self, steps: Steps[T]) -> T:
        return self._drive(self._reader, steps)

    @property
    def known_epoch(self) -> int:
        return self._durable_epoch

    async def epoch(self) -> int:
        """What readers see. The writer may be one ahead, in a batch that can still be lost."""
        return self._durable_epoch

    @property
    def queued(self) -> int:
        return len(self._queue)

    # --- the writer ---

    def _submit(self, item: _Item) -> None:
        if len(self._queue) >= QUEUE_LIMIT:
            raise Overloaded("too many commits are waiting; send the request again")
        if self._closing:
            raise Unavailable("the server is stopping; send the request again")
        self._queue.append(item)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._flush)

    def _take(self) -> list[_Item]:
        queue = self._queue
        batch = [queue.popleft()]
        weight = batch[0].weight
        while queue and weight + queue[0].weight <= BATCH_LIMIT:
            item = queue.popleft()
            weight += item.weight
            batch.append(item)
        return batch

    def _flush(self) -> None:
        if self._waited < ROUNDS and len(self._queue) < self._answered:
            self._waited += 1
            self._loop.call_soon(self._flush)
            return
        self._waited = 0
        batch = self._take()
        _pass("before_decide", batch)
        begun = False
        try:
            for item in batch:
                if self._is_late(item):
                    continue
                if not begun:
                    self._begin()
                    begun = True
                if item.transaction is None or not self._append(item, item.transaction):
                    self._run(item)
        except Exception:
            self._rollback()
            self._one_by_one(batch)
            return
        if begun:
            self._conclude(batch)
        else:
            self._answer(batch)

    def _one_by_one(self, batch: list[_Item]) -> None:
        """Something broke that no precondition foresaw: find the culprit, spare its neighbours."""
        for item in batch:
            try:
                self._begin()
                self._run(item)
                if item.wrote:
                    self._save_sequence()
            except Exception as error:
                self._rollback()
                item.outcome = Unavailable(f"the database refused the request: {error}")
                continue
            if not item.wrote:
                self._rollback()
                continue
            try:
                self._writer.execute("COMMIT")
            except sqlite3.DatabaseError as error:
                self._rollback()
                self._reload()
                item.outcome = OutcomeUnknown(f"the database did not confirm the commit: {error}")
        self._answer(batch)

    def _conclude(self, batch: list[_Item]) -> None:
        if not any(item.wrote for item in batch):
            self._rollback()
            self._answer(batch)
            return
        try:
            self._save_sequence()
        except sqlite3.DatabaseError as error:
            self._fail(batch, Unavailable(f"the database refused the batch: {error}"))
            return
        _pass("decided_before_commit", batch)
        self._logged += sum([item.weight + item.parts // PARTS for item in batch])
        if self._commit_s > QUICK_S:
            self._chores.put(lambda: self._loop.call_soon_threadsafe(*self._commit(batch)))
        else:
            answer, *arguments = self._commit(batch)
            answer(*arguments)

    def _is_late(self, item: _Item) -> bool:
        """Refused, or recognised, by what is durable or will be when this batch is answered."""
        transaction = item.transaction
        if transaction is None:
            return False
        if transaction.epoch is not None and transaction.epoch != self._epoch:
            item.outcome = Stale()
        else:
            item.outcome = self._recent.verdict(transaction.operations[0])  # type: ignore[arg-type]
        return item.outcome is not None

    def _append(self, item: _Item, transaction: Transaction) -> bool:
        """False when it did not win; the full rules must say why."""
        op: Append = transaction.operations[0]  # type: ignore[assignment]
        before = self._recent.before(op)
        receipt = append_alone(self._writer.execute, self._write_steps, transaction, self._seq + 1, before)
        if receipt is None:
            return False
        self._seq += 1
        item.outcome = receipt
        winner = Winner(op.version, op.token, self._seq, receipt.at, transaction.by)
        self._recent.note(op.table_id, winner, receipt)
        return True

    def _run(self, item: _Item) -> None:
        execute = self._writer.execute
        seq, epoch = self._seq, self._epoch
        execute("SAVEPOINT item")
        try:
            item.outcome = self._drive(self._writer, item.steps())
            if item.wrote:
                # It may have changed anything: what is known of tables is learned again.
                self._recent.forget()
        except sqlite3.DatabaseError:
            raise
        except Exception as error:
            item.outcome = error
            self._seq, self._epoch = seq, epoch
            execute("ROLLBACK TO item")
        execute("RELEASE item")

    def _commit(self, batch: list[_Item]) -> tuple[Any, ...]:
        """Nothing but COMMIT; returns what is to be called in the event loop, with its arguments."""
        begun = monotonic()
        try:
            self._writer.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            return self._fail, batch, OutcomeUnknown(f"the database did not confirm the commit: {error}")
        self._commit_s += (monotonic() - begun - self._commit_s) / 8
        _pass("committed_before_answer", batch)
        return self._answer, batch

    def _copy_log(self) -> None:
        with suppress(sqlite3.DatabaseError):
            # What could not be moved now, since somebody reads it, is moved the next time.
            self._copier.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        self._loop.call_soon_threadsafe(self._copied)

    def _copied(self) -> None:
        self._copying = False
        self._rest_due = True
        if not self._busy:
            self._busy = True
            self._next()

    def _copy_rest(self) -> None:
        with suppress(sqlite3.DatabaseError):
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        self._loop.call_soon_threadsafe(self._next)

    def _do_chores(self) -> None:
        """The helper thread."""
        while (chore := self._chores.get()) is not None:
            chore()

    def _answer(self, batch: list[_Item]) -> None:
        self._durable_epoch = self._epoch
        self._answered = 0
        for item in batch:
            if item.future.done():
                continue
            if isinstance(item.outcome, Conflict):
                self._patience.refuse(item.future, item.outcome)
            elif isinstance(item.outcome, Exception):
                item.future.set_exception(item.outcome)
            else:
                item.future.set_result(item.outcome)
                self._answered += 1
        self._waiters.wake()
        self._next()

    def _fail(self, batch: list[_Item], failure: Exception) -> None:
        """The whole batch is lost. A refusal in it may rest on a neighbour that is gone: send again."""
        self._rollback()
        self._reload()
        for item in batch:
            if item.future.done():
                continue
            if isinstance(item.outcome, Refused):
                item.future.set_exception(Unavailable("the database failed; send the request again"))
            else:
                item.future.set_exception(failure)
        self._next()

    def _next(self) -> None:
        if self._logged >= CHECKPOINT and not self._copying:
            self._logged = 0
            self._copying = True
            self._loop.run_in_executor(None, self._copy_log)
        if self._rest_due:
            self._rest_due = False
            self._chores.put(self._copy_rest)
        elif self._queue:
            self._loop.call_soon(self._flush)
        else:
            self._busy = False

    # --- transactions and sequence numbers ---

    def _begin(self) -> None:
        self._saved_seq, self._saved_epoch = self._seq, self._epoch
        self._writer.execute("BEGIN IMMEDIATE")

    def _rollback(self) -> None:
        if self._seq != self._saved_seq:
            self._recent.forget()
        self._seq, self._epoch = self._saved_seq, self._saved_epoch
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    def _save_sequence(self) -> None:
        if self._seq != self._saved_seq:
            self._writer.execute("UPDATE event_head SET seq = ?1 WHERE id = 1", (self._seq,))

    def _load_sequence(self) -> None:
        self._seq = self._writer.execute("SELECT seq FROM event_head WHERE id = 1").fetchone()[0]
        self._epoch = self._durable_epoch = self._writer.execute(READ_EPOCH).fetchone()[0]

    def _reload(self) -> None:
        """A commit that was not confirmed may still have happened: the file knows."""
        with suppress(sqlite3.DatabaseError):
            self._load_sequence()

    # --- driving SQL ---

    def _drive(self, connection: sqlite3.Connection, steps: Steps[T]) -> T:
        execute, texts = connection.execute, self._texts
        rows: list[Row]
        try:
            sql, parameters = next(steps)
            while True:
                text = texts.get(sql)
                if text is None:
                    text = texts[sql] = sqlite_text(sql)
                try:
                    if sql is journal.TAKE_SEQUENCE:
                        # The writer is alone, so the number lives in memory and is saved once a batch.
                        self._seq += parameters[0]
                        rows = [(self._seq,)]
                    elif sql is BUMP_EPOCH:
                        rows = execute(text).fetchall()
                        self._epoch = rows[0][0]
                    else:
                        rows = execute(text, parameters).fetchall() if text else []
                except sqlite3.IntegrityError as error:
                    sql, parameters = steps.throw(UniqueViolation(str(error)))
                else:
                    sql, parameters = steps.send(rows)
        except StopIteration as done:
            result: T = done.value
            return result

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False, cached_statements=512
        )
        self._connections.append(connection)
        for pragma in _PRAGMAS:
            connection.execute(pragma)
        return connection

    def _migrate(self) -> None:
        execute = self._writer.execute
        execute("BEGIN IMMEDIATE")
        try:
            known = execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchall()
            current = self._drive(self._writer, migrations.read_version()) if known else 0
            self._drive(self._writer, migrations.migrate(current))
        except BaseException:
            execute("ROLLBACK")
            raise
        execute("COMMIT")

    def _let_go(self) -> None:
        for connection in reversed(self._connections):
            connection.close()
        os.close(self._lock)

    _lock: int
    _loop: asyncio.AbstractEventLoop
    _patience: Patience
    _writer: sqlite3.Connection
    _write_steps: Callable[[Steps[Any]], Any]
    _reader: sqlite3.Connection
    _copier: sqlite3.Connection
    _thread: threading.Thread
