"""What both stores are: every question of the port, asked through the dialect's own driver."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, TypeVar

from inver.domain.events import Event
from inver.domain.idempotency import KeyedRequest, KeyRecord
from inver.domain.ledger import Append, Receipt, Transaction, Winner
from inver.domain.names import name_key, path_key
from inver.domain.securables import Catalog, Schema
from inver.domain.tables import Format, Table, TableDetails
from inver.ports import Commit, Finding, Pieces, TableNames, WorkItem
from inver.stores import invariants, queue, reads
from inver.stores.care import CareReads
from inver.stores.delta import DeltaReads
from inver.stores.identity import IdentityReads
from inver.stores.journal import INSERT_KEY
from inver.stores.lance import LanceReads
from inver.stores.parts import read_pieces
from inver.stores.recent import Patience
from inver.stores.shared import SharingReads
from inver.stores.sql import Steps, UniqueViolation
from inver.stores.versions import lost

T = TypeVar("T")


class SqlStore(IdentityReads, DeltaReads, LanceReads, SharingReads, CareReads):
    @abstractmethod
    def decide(self, transaction: Transaction) -> Awaitable[Receipt]: ...

    def dismiss(self, waiting: asyncio.Future[Any], append: Append, winner: Winner) -> None:
        self._patience.refuse(waiting, lost(0, append, winner.version, winner))

    @abstractmethod
    async def read(self, steps: Steps[T]) -> T:
        """Run a question against what is durable."""

    @abstractmethod
    async def write(self, steps: Callable[[], Steps[T]]) -> T:
        """Run a change of our own bookkeeping in one transaction; it may take more than one attempt."""

    _patience: Patience
    _waiters: Waiters

    async def wait_for_event(self, after: int, timeout_s: float) -> bool:
        # Being woken means that something was written, which need not be an event.
        deadline = monotonic() + timeout_s
        while (last := await self.last_event()) <= after:
            left = deadline - monotonic()
            if left <= 0 or self._waiters.closed:
                return False
            self._look_out(last)
            await self._waiters.wait(left)
            if self._waiters.closed:
                # There may be nothing left to look at.
                return False
        return True

    def _look_out(self, last: int) -> None:
        """Somebody begins to wait for what comes past `last`; a store with other writers looks for theirs."""

    def end_waits(self) -> None:
        self._waiters.close()

    async def catalog_by_name(self, name: str) -> Catalog | None:
        return await self.read(reads.catalog_by_key(name_key(name)))

    async def catalogs(self, after: str, limit: int) -> list[Catalog]:
        return await self.read(reads.catalogs_after(name_key(after), limit))

    async def schema_by_path(self, catalog: str, path: Sequence[str]) -> Schema | None:
        return await self.read(reads.schema_by_key(name_key(catalog), path_key(path)))

    async def schemas(self, parent_id: str, after: str, limit: int) -> list[Schema]:
        return await self.read(reads.schemas_after(parent_id, name_key(after), limit))

    async def table_by_id(self, table_id: str) -> Table | None:
        return await self.read(reads.table_by_id(table_id))

    async def table_by_name(self, catalog: str, path: Sequence[str], name: str) -> Table | None:
        return await self.read(reads.table_by_key(name_key(catalog), path_key(path), name_key(name)))

    async def tables(self, schema_id: str, after: str, limit: int, views: bool = False) -> list[Table]:
        return await self.read(reads.tables_after(schema_id, name_key(after), limit, views))

    async def table_names(
        self, schema_id: str, after: str, limit: int, format: Format, views: bool = False
    ) -> TableNames:
        return await self.read(reads.table_names(schema_id, name_key(after), limit, format, views))

    async def dropped_tables(self, schema_id: str, limit: int) -> list[Table]:
        return await self.read(reads.dropped_tables(schema_id, limit))

    async def details(self, table_id: str) -> TableDetails | None:
        return await self.read(reads.details(table_id))

    async def full_name(self, table_id: str) -> tuple[str, ...] | None:
        return await self.read(reads.full_name(table_id))

    async def commits(self, table_id: str, branch: str, first: int, last: int, limit: int) -> list[Commit]:
        return await self.read(reads.commits(table_id, branch, first, last, limit))

    async def pieces(self, table_id: str) -> Pieces | None:
        return await self.read(read_pieces(table_id))

    async def cursor(self, name: str) -> str | None:
        return await self.read(reads.cursor(name))

    async def cursors_naming(self, text: str) -> list[tuple[str, str]]:
        return await self.read(reads.cursors_naming(text))

    async def events(self, after: int, limit: int) -> list[Event]:
        return await self.read(reads.events_after(after, limit))

    async def transaction_events(self, number: int) -> list[Event]:
        return await self.read(reads.transaction_events(number))

    async def last_event(self) -> int:
        return await self.read(reads.last_event())

    async def key_record(self, scope: str, key: str) -> KeyRecord | None:
        return await self.read(reads.key_record(scope, key))

    async def record_refusal(self, request: KeyedRequest, at: int, outcome: bytes) -> None:
        await self.write(lambda: _record_refusal(request, at, outcome))

    async def forget_keys(self, before: int) -> int:
        return await self.write(lambda: _forget_keys(before))

    async def cancel_plan(self, plan_id: str, at: int) -> None:
        await self.write(lambda: _cancel_plan(plan_id, at))

    async def is_cancelled(self, plan_id: str) -> bool:
        return await self.read(reads.is_cancelled(plan_id))

    async def forget_plans(self, before: int) -> int:
        return await self.write(lambda: _forget_plans(before))

    async def claim_work(
        self, kinds: Sequence[str], worker: str, now: int, lease_ms: int, limit: int
    ) -> list[WorkItem]:
        return await self.write(lambda: queue.claim(kinds, worker, now, lease_ms, limit))

    async def finish_work(self, item_id: str, worker: str) -> bool:
        return await self.write(lambda: queue.finish(item_id, worker))

    async def extend_work(self, item_id: str, worker: str, until: int) -> bool:
        return await self.write(lambda: queue.extend(item_id, worker, until))

    async def fail_work(self, item_id: str, worker: str, error: str, now: int) -> bool:
        return await self.write(lambda: queue.fail(item_id, worker, error, now))

    async def retry_work(self, now: int) -> int:
        return await self.write(lambda: queue.retry(now))

    async def work(self, limit: int) -> list[WorkItem]:
        return await self.read(reads.work_waiting(limit))

    async def remember(self, key: str, value: str) -> str:
        return await self.write(lambda: _remember(key, value))

    async def invariants(self, now: int) -> list[Finding]:
        return await invariants.examine(self.read, now)

    async def database_time(self) -> int:
        return await self.read(invariants.database_time())

    async def ping(self) -> None:
        await self.read(reads.last_event())


class Waiters:
    """Long polls that wait for the next event."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self.closed = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def close(self) -> None:
        """Nobody waits any more."""
        self.closed = True
        self.wake()

    async def wait(self, timeout_s: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait([future], timeout=timeout_s)
        finally:
            self._waiting.discard(future)


def _record_refusal(request: KeyedRequest, at: int, outcome: bytes) -> Steps[None]:
    try:
        yield (
            INSERT_KEY,
            (request.scope, request.key, request.principal, request.fingerprint, None, at, outcome),
        )
    except UniqueViolation:
        # Whoever recorded the key first gave the answer that counts.
        return


def _forget_keys(before: int) -> Steps[int]:
    rows = yield "DELETE FROM idempotency WHERE at < ?1 RETURNING 1", (before,)
    return len(rows)


def _cancel_plan(plan_id: str, at: int) -> Steps[None]:
    yield "INSERT INTO cancelled_plans VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING", (plan_id, at)


def _forget_plans(before: int) -> Steps[int]:
    rows = yield "DELETE FROM cancelled_plans WHERE at < ?1 RETURNING 1", (before,)
    return len(rows)


def _remember(key: str, value: str) -> Steps[str]:
    yield "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING", (key, value)
    rows = yield "SELECT value FROM meta WHERE key = ?1", (key,)
    return str(rows[0][0])
