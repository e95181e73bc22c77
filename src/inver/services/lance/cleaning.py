"""What was written for versions that never came about.

A commit that is refused leaves its staged manifest behind, and a table whose creation fails its whole
folder. Nobody reads either, and both go when the time is over in which whoever wrote them may still
come back with them. What a version needs is in the ledger or under its final name by then, so to look
once more at what the ledger names is enough to delete the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

import msgspec

from inver.clock import Clock
from inver.domain.lance import body_of, folder_of, staged_version
from inver.domain.ledger import Transaction, Work
from inver.domain.locations import Location
from inver.domain.principals import SYSTEM
from inver.domain.tables import NAMED, Table
from inver.errors import InverError
from inver.ports import Store, WorkItem
from inver.services.lance.finalizing import COPIES
from inver.services.lance.manifests import Manifests

log = logging.getLogger("inver.lance")

CLEAN = "lance.clean"
"""Follow-up work that looks for staged manifests of a branch."""
UNPLACE = "lance.unplace"
"""Follow-up work that removes the folder of a table that was not made."""
KNOWN_LIMIT = 10_000
WAITING_LIMIT = 10_000

_encode = msgspec.json.encode
_text = msgspec.json.Decoder(str).decode

Branch = tuple[str, str]
"""Of a table by its id."""


class Cleaning:
    def __init__(self, store: Store, clock: Clock, manifests: Manifests, hold_ms: int) -> None:
        self._store = store
        self._clock = clock
        self._manifests = manifests
        self._hold_ms = hold_ms
        self._due: dict[Branch, int] = {}

    async def lost(self, branches: Collection[Branch]) -> None:
        """Commits to these were refused. However many are until then, one look is enough."""
        now = self._clock.now_ms()
        new = [branch for branch in branches if self._due.get(branch, 0) <= now]
        if not new:
            return
        due = now + self._hold_ms
        work = [
            Work(kind=CLEAN, subject=table_id, payload=_encode(branch), not_before=due)
            for table_id, branch in new
        ]
        try:
            await self._store.decide(Transaction(SYSTEM.id, now, (), work=tuple(work)))
        except InverError as error:
            # Why the commit was refused matters more to who asked; the next one that is lost tries again.
            log.warning("staged manifests of a refused commit stay: %s", type(error).__name__)
            return
        if len(self._due) >= KNOWN_LIMIT:
            self._due.clear()
        self._due.update(dict.fromkeys(new, due))

    async def reserve(self, table: Table) -> None:
        """Data is about to be written for a table that there is not yet."""
        now = self._clock.now_ms()
        place = _encode(table.location)
        work = Work(kind=UNPLACE, subject=table.id, payload=place, not_before=now + self._hold_ms)
        await self._store.decide(Transaction(SYSTEM.id, now, (), work=(work,)))

    async def abandon(self, table: Table) -> None:
        """The table was certainly not made. What cannot be deleted now will be when its time is over."""
        try:
            await self._remove(table.id, table.location)
        except InverError as error:
            log.info("the files of a table that was not made stay for now: %s", type(error).__name__)

    # --- follow-up work ---

    async def clean(self, item: WorkItem) -> None:
        table, branch = await self._store.table_by_id(item.subject), _text(item.payload)
        if table is None or table.state not in NAMED:
            return
        objects, folder = self._manifests.objects(table), folder_of(branch)
        before = self._clock.now_ms() - self._hold_ms
        final: set[str] = set()
        old: list[tuple[int, str]] = []
        young = False
        async for found in objects.list(folder.removesuffix("/")):
            version = staged_version(found.path.removeprefix(folder))
            if version is None:
                final.add(found.path)
            elif found.modified_ms > before:
                young = True
            else:
                old.append((version, found.path))
        for version, path in old:
            if not await self._is_needed(table, branch, version, path, final):
                await objects.delete(path, durable=False)
        await self._clean_copies(table, before)
        if young:
            await self.lost([(table.id, branch)])

    async def unplace(self, item: WorkItem) -> None:
        await self._remove(item.subject, _text(item.payload))

    async def _remove(self, table_id: str, location: str) -> None:
        """Unless somebody has a table there after all."""
        if await self._store.table_by_id(table_id) is not None:
            return
        if await self._store.tables_below(*Location.parse(location).scan_range(), 1):
            return
        objects = self._manifests.objects_at(location)
        async for found in objects.list():
            await objects.delete(found.path)

    async def _is_needed(
        self, table: Table, branch: str, version: int, path: str, final: Collection[str]
    ) -> bool:
        """Whether a version has its manifest from there, and not under its final name yet."""
        records = await self._store.records(table.id, branch, version, version, 1)
        if not records or (body := body_of(records[0].body)).staged != path:
            return False
        return records[0].data is not None or body.final(branch, version) not in final

    async def _clean_copies(self, table: Table, before: int) -> None:
        """Copies of large manifests, which a server made that then came to its end."""
        objects = self._manifests.objects(table)
        old = [found.path async for found in objects.list(COPIES) if found.modified_ms <= before]
        if not old:
            return
        waiting = await self._store.waiting_records(WAITING_LIMIT)
        if len(waiting) == WAITING_LIMIT:
            return
        needed = set()
        for table_id, branch, version in waiting:
            if table_id == table.id:
                for record in await self._store.records(table_id, branch, version, version, 1):
                    needed.add(body_of(record.body).staged)
        for path in old:
            if path not in needed:
                await objects.delete(path, durable=False)
