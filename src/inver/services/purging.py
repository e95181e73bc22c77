"""The end of a table: its files and its claim on the location go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from inver.clock import Clock
from inver.domain import ledger
from inver.domain.locations import Location
from inver.domain.principals import SYSTEM
from inver.domain.tables import State, Table, TableKind
from inver.ports import ObjectStore, Store, WorkItem

AT_ONCE = 16
"""Files of a table that are deleted side by side."""


class Purging:
    def __init__(self, store: Store, clock: Clock, open_objects: Callable[[Location], ObjectStore]) -> None:
        self._store = store
        self._clock = clock
        self._open = open_objects

    async def purge(self, item: WorkItem) -> None:
        """A dropped table whose hold time is over."""
        table = await self._store.table_by_id(item.subject)
        if table is None or table.state not in (State.DROPPED, State.PURGED):
            return
        if table.dropped_at is None or table.dropped_at > item.created_at:
            # Undropped and dropped again since: a later item has its own hold time.
            return
        await self._remove(table)

    async def forget(self, item: WorkItem) -> None:
        """A dropped table that cannot come back any more, and whose files were never to be removed."""
        table = await self._store.table_by_id(item.subject)
        if table is None or table.state is not State.DROPPED or table.dropped_at is None:
            return
        if table.dropped_at <= item.created_at:
            await self._purge_row(table)

    async def unstage(self, item: WorkItem) -> None:
        """A staged table that nobody finished in time."""
        table = await self._store.table_by_id(item.subject)
        if table is not None and table.state in (State.STAGED, State.PURGED):
            await self._remove(table)

    async def _remove(self, table: Table) -> None:
        """The row first, so that nobody brings a table back whose files are going.

        Should this be interrupted, the item of work comes back and finds a purged table with files.
        """
        if table.state is not State.PURGED:
            await self._purge_row(table)
        if table.kind is TableKind.MANAGED or (table.kind is TableKind.VIEW and table.id in table.location):
            await self._remove_files(Location.parse(table.location))

    async def _remove_files(self, place: Location) -> None:
        """Unless they were registered as another table since, which may happen while they are going."""
        objects = self._open(place)
        some: list[str] = []
        async for found in objects.list():
            some.append(found.path)
            if len(some) == AT_ONCE:
                if not await self._delete(objects, place, some):
                    return
                some = []
        if await self._delete(objects, place, some):
            await objects.remove_folders()

    async def _delete(self, objects: ObjectStore, place: Location, paths: Sequence[str]) -> bool:
        """Whether the place was still nobody's."""
        if await self._store.tables_below(*place.scan_range(), 1):
            return False
        await asyncio.gather(*(objects.delete(path) for path in paths))
        return True

    async def _purge_row(self, table: Table) -> None:
        purge = ledger.PurgeTable(table_id=table.id, expect_etag=table.etag)
        await self._store.decide(ledger.Transaction(SYSTEM.id, self._clock.now_ms(), (purge,)))
