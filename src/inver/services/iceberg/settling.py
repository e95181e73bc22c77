"""Metadata files on disk: a commit waits for the database, and the files follow shortly after.

A table whose `published` is below its version is the record of what is left to do. After a power
cut the newest file of such a table is looked at, and written again from the database if it is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from inver.domain.iceberg import State
from inver.domain.tables import Format
from inver.domain.tables import State as Life
from inver.ports import Store
from inver.services.iceberg.files import Files
from inver.services.iceberg.states import States

log = logging.getLogger("inver.iceberg")

DELAY_S = 1.0
SCAN_S = 60.0
SCAN_LIMIT = 1_000
MARKED = 500
"""Tables in one statement."""


class Settling:
    def __init__(self, store: Store, states: States, files: Files) -> None:
        self._store = store
        self._states = states
        self._files = files
        # By table: the newest version that was decided here.
        self._decided: dict[str, tuple[int, State]] = {}
        # Tables of whose files nothing is known.
        self._left: dict[str, None] = {}
        # How far the scan has come that goes on.
        self._scanned = ""
        self.failed = 0

    def soon(self, table_id: str, version: int, state: State) -> None:
        """This process has written the file of a version, and the version stands."""
        self._decided[table_id] = (version, state)

    async def run(self) -> None:
        """Until cancelled: what was committed here soon, what others left behind now and then."""
        rounds = 0
        while True:
            if rounds % int(SCAN_S / DELAY_S) == 0 or self._scanned:
                await self._scan()
            rounds += 1
            await asyncio.sleep(DELAY_S)
            await self.settle()

    async def settle(self) -> None:
        decided, self._decided = list(self._decided.items()), {}
        for start in range(0, len(decided), MARKED):
            await self._sync(decided[start : start + MARKED])
        left, self._left = list(self._left), {}
        for start in range(0, len(left), MARKED):
            await self._look(left[start : start + MARKED])

    async def _sync(self, decided: Sequence[tuple[str, tuple[int, State]]]) -> None:
        try:
            there = await self._files.sync([state for _, (_, state) in decided])
        except Exception:
            log.info("metadata files could not be synced together", exc_info=True)
            there = [False] * len(decided)
        done: dict[str, int] = {}
        for (table_id, (version, _)), synced in zip(decided, there, strict=True):
            if synced:
                done[table_id] = version
            else:
                self._left[table_id] = None
        await self._mark(done)

    async def _look(self, left: Sequence[str]) -> None:
        done: dict[str, int] = {}
        for table_id in left:
            try:
                version = await self._settle(table_id)
            except Exception as error:
                # One table's trouble is its own; the next scan finds it again.
                self.failed += 1
                log.warning("metadata of table %s stays unsettled: %s", table_id, type(error).__name__)
            else:
                if version is not None:
                    done[table_id] = version
        await self._mark(done)

    async def _mark(self, done: Mapping[str, int]) -> None:
        try:
            await self._store.mark_published(done)
        except Exception:
            log.exception("settled metadata could not be recorded")

    async def _settle(self, table_id: str) -> int | None:
        """The version whose file is durable now."""
        table = await self._store.table_by_id(table_id)
        if table is None or table.state is not Life.LIVE or table.published >= table.version:
            return None
        held = await self._states.of(table)
        await self._files.settle(held.state)
        return held.version

    async def _scan(self) -> None:
        """The next tables: those that cannot be settled must not stand before the others."""
        try:
            found = await self._store.unpublished(SCAN_LIMIT, Format.ICEBERG, after=self._scanned)
        except Exception:
            log.exception("tables with unsettled metadata could not be listed")
            return
        self._scanned = found[-1] if len(found) == SCAN_LIMIT else ""
        for table_id in found:
            if table_id not in self._decided:
                self._left[table_id] = None
