"""Manifests get their final names after the ledger has decided, and never before.

The bytes of a manifest are part of the decision, because some clients delete what they have staged
when they hear no answer. So a crash loses nothing: whoever reads the version next puts it under its
final name, and so does the background, which lets go of the bytes in the database afterwards.

A manifest that lies under a final name without a decision is a phantom: somebody wrote past the
catalog. By policy it is put aside, or taken over as the next version.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

import msgspec

from inver import failpoints
from inver.clock import Clock
from inver.domain import ledger
from inver.domain.lance import LAST_VERSION, VersionBody, body_of, folder_of
from inver.domain.ledger import MAIN, Record, Transaction
from inver.domain.principals import SYSTEM
from inver.domain.tables import Table
from inver.errors import InverError, NotFound
from inver.ids import new_id
from inver.ports import ObjectStore, Store
from inver.services.lance.importing import branch_path
from inver.services.lance.manifests import Manifests

log = logging.getLogger("inver.finalizing")

QUARANTINE = "_quarantine/"
COPIES = "_inver/"
LARGE = 256 * 1024
"""A manifest above this size waits on storage, under a name that no client knows."""

DELAY_S = 2.0
SCAN_S = 30.0
SCAN_LIMIT = 1_000
AT_ONCE = 1_000
"""Manifests that are made durable together."""
ROWS = 250
"""In one transaction, which others wait for."""
DONE_LIMIT = 100_000

Key = tuple[str, str, int]
"""Table, branch and version."""
_FIRST: Key = ("", "", -1)


class Placed(msgspec.Struct, frozen=True):
    """A manifest that has its final name, and what is left to do about it."""

    key: Key
    objects: ObjectStore
    final: str
    strays: frozenset[str]


class Finalizing:
    def __init__(self, store: Store, clock: Clock, manifests: Manifests) -> None:
        self._store = store
        self._clock = clock
        self._manifests = manifests
        self._done: set[Key] = set()
        self._placed: list[Placed] = []
        self.finalized = 0
        # How far the scan has come that goes on.
        self._scanned = _FIRST
        self.failed = 0

    async def secure(self, table: Table, staged: str, data: bytes) -> tuple[str, bytes]:
        """Where the bytes are taken from after the decision, and what of them goes into it."""
        if len(data) <= LARGE:
            return staged, data
        copy = f"{COPIES}{new_id()}"
        await self._manifests.objects(table).put(copy, data)
        return copy, b""

    async def finish(
        self,
        table: Table,
        branch: str,
        version: int,
        body: VersionBody,
        data: bytes | None = None,
        stray: str | None = None,
    ) -> None:
        """Put a decided manifest under its final name. `stray` is one more file that has done its duty."""
        key = (table.id, branch, version)
        # A branch that was made anew has numbers that another one had.
        self._done.discard(key)
        objects = self._manifests.objects(table)
        final = body.final(branch, version)
        if body.staged != final:
            if data is None:
                data = await self._store.record_data(table.id, branch, version)
            if data is not None:
                failpoints.hit("lance_decided_before_finalize")
                data = data or await _copied(objects, body.staged, final)
                await self._place(objects, final, data, stray or body.staged)
        if len(self._done) >= DONE_LIMIT:
            self._done.clear()
        self._done.add(key)
        strays = frozenset({body.staged, stray or body.staged} - {final})
        self._placed.append(Placed(key, objects, final, strays))
        self.finalized += 1

    async def ensure(self, table: Table, branch: str, records: Sequence[Record]) -> None:
        """Whoever is told of these versions finds their manifests."""
        for record in records:
            if record.data is not None and (table.id, branch, record.version) not in self._done:
                await self.finish(table, branch, record.version, body_of(record.body))

    async def present(self, table: Table, branch: str, records: Sequence[Record]) -> list[Record]:
        """Those that are on storage. Clients clean up without a word; what they took leaves the list too."""
        await self.ensure(table, branch, records)
        objects = self._manifests.objects(table)
        if len(records) > 1:
            folder = folder_of(branch)
            names = {found.path async for found in objects.list(folder.removesuffix("/"))}
            there = [body_of(each.body).final(branch, each.version) in names for each in records]
        else:
            heads = [await objects.head(body_of(each.body).final(branch, each.version)) for each in records]
            there = [found is not None for found in heads]
        gone = [record.version for record, found in zip(records, there, strict=True) if not found]
        if gone:
            await self._forget(table, branch, gone)
        return [record for record, found in zip(records, there, strict=True) if found]

    async def quarantine(self, table: Table, path: str) -> None:
        """A manifest that nobody decided is put aside, where no reader of the table looks."""
        objects = self._manifests.objects(table)
        data = await objects.get(path)
        await objects.put(f"{QUARANTINE}{path.rpartition('/')[2]}-{new_id()}", data)
        await objects.delete(path)

    # --- in the background ---

    async def run(self) -> None:
        """Until cancelled: what was decided here soon, what others left behind now and then."""
        rounds = 0
        while True:
            if rounds % max(1, int(SCAN_S / DELAY_S)) == 0 or self._scanned != _FIRST:
                await self._scan()
            rounds += 1
            await self.let_go()
            await asyncio.sleep(DELAY_S)

    async def let_go(self) -> None:
        """What is on disk need not wait in the database, nor where its writer staged it."""
        placed, self._placed = self._placed, []
        for start in range(0, len(placed), AT_ONCE):
            some = placed[start : start + AT_ONCE]
            try:
                await self._settle(some)
                keys = sorted(each.key for each in some)
                for first in range(0, len(keys), ROWS):
                    await self._store.let_go(keys[first : first + ROWS])
                await _sweep(some)
            except Exception:
                # The next scan finds them again.
                self._done.difference_update(each.key for each in some)
                log.exception("the database keeps manifests that it need not keep")

    async def discard(self, table: Table, path: str) -> None:
        """A copy of what was not decided in the end."""
        if path.startswith(COPIES):
            await self._manifests.objects(table).delete(path)

    async def _settle(self, some: Sequence[Placed]) -> None:
        for objects, placed in _by_table(some):
            missing = set(await objects.sync_all([each.final for each in placed]))
            for each in placed:
                if each.final in missing:
                    await self._restore(each)

    async def _restore(self, placed: Placed) -> None:
        """Clients clean up old versions, and delete branches. Of a branch that is still there nobody has a
        reason to take away the newest one."""
        table_id, branch, version = placed.key
        if branch != MAIN and await placed.objects.head(branch_path(branch)) is None:
            return
        newest = await self._store.records(table_id, branch, version, LAST_VERSION, 1)
        data = await self._store.record_data(*placed.key)
        if data and newest and newest[0].version == version:
            await placed.objects.put_if_absent(placed.final, data)

    async def _scan(self) -> None:
        """The next versions: those that cannot be finalized must not stand before the others."""
        try:
            left = await self._store.waiting_records(SCAN_LIMIT, self._scanned)
        except Exception:
            log.exception("waiting manifests could not be listed")
            return
        self._scanned = left[-1] if len(left) == SCAN_LIMIT else _FIRST
        for table_id, branch, version in left:
            if (table_id, branch, version) in self._done:
                continue
            try:
                await self._finish_one(table_id, branch, version)
            except Exception as error:
                # One table's trouble is its own; the next scan finds it again.
                self.failed += 1
                log.warning("table %s could not be finalized: %s", table_id, type(error).__name__)

    async def _finish_one(self, table_id: str, branch: str, version: int) -> None:
        table = await self._store.table_by_id(table_id)
        records = await self._store.records(table_id, branch, version, version, 1)
        if table is not None:
            await self.ensure(table, branch, records)

    async def _place(self, objects: ObjectStore, final: str, data: bytes, staged: str) -> None:
        # The database has the bytes until they are on disk, so nobody waits for that here.
        written = objects.link_at_once(staged, final, data)
        if written is None:
            written = objects.put_at_once(final, data)
        if written is None:
            written = await objects.put_if_absent(final, data, durable=False, whole=True)
        if written:
            return
        found = await objects.get(final)
        if found != data:
            # Somebody wrote past the catalog. The decision stands; what they wrote is kept aside.
            await objects.put(f"{QUARANTINE}{final.rpartition('/')[2]}-{new_id()}", found)
            await objects.put(final, data)

    async def _forget(self, table: Table, branch: str, versions: Sequence[int]) -> None:
        """The newest version of main is never forgotten: that it is not there is damage, not tidiness."""
        newest = await self._store.records(table.id, branch, 0, LAST_VERSION, 1)
        operation: ledger.Operation
        if newest and newest[0].version in versions and branch != MAIN:
            operation = ledger.DropBranch(table_id=table.id, branch=branch)
        else:
            old = [version for version in versions if not newest or version != newest[0].version]
            if not old:
                return
            ranges = tuple((version, version + 1) for version in old)
            operation = ledger.DeleteRecords(table_id=table.id, branch=branch, ranges=ranges)
        await self._store.decide(Transaction(SYSTEM.id, self._clock.now_ms(), (operation,)))


async def _copied(objects: ObjectStore, copy: str, final: str) -> bytes:
    """What waits on storage, or has got its final name since."""
    try:
        return await objects.get(copy)
    except NotFound:
        return await objects.get(final)


async def _sweep(some: Sequence[Placed]) -> None:
    for objects, placed in _by_table(some):
        try:
            await objects.discard([path for each in placed for path in each.strays])
        except InverError:
            log.info("staged manifests could not be deleted")


def _by_table(some: Sequence[Placed]) -> Iterable[tuple[ObjectStore, list[Placed]]]:
    tables: dict[str, tuple[ObjectStore, list[Placed]]] = {}
    for each in some:
        tables.setdefault(each.key[0], (each.objects, []))[1].append(each)
    return tables.values()
