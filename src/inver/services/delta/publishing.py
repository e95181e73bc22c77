"""Publishing: ratified commits become ordinary files of the log, in order, once.

Writers publish too, so a file that is there already is as good as ours. A table whose `published`
is below its version is the record of what is left to do; a crash loses nothing of it. Only what is
known to be in the log is marked, because readers stop asking the catalog for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from inver.domain import delta
from inver.domain.delta import CommitInfo
from inver.domain.locations import Location
from inver.errors import Broken, NotFound
from inver.ports import ObjectStore, Store

log = logging.getLogger("inver.publishing")

SCAN_S = 30.0
SCAN_LIMIT = 1_000
LAST_VERSION = 2**63 - 1

_info = msgspec.json.Decoder(CommitInfo).decode


class Publishing:
    """`delay_s` leaves the first move to the writer, who usually publishes its own commit at once."""

    def __init__(
        self, store: Store, open_objects: Callable[[Location], ObjectStore], delay_s: float = 2.0
    ) -> None:
        self._store = store
        self._open = open_objects
        self._delay_s = delay_s
        self._waiting: dict[str, None] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self.published = 0
        self.failed = 0

    def soon(self, table_id: str) -> None:
        self._waiting[table_id] = None

    async def run(self) -> None:
        """Until cancelled: what was committed here soon, what others left behind now and then."""
        rounds = 0
        while True:
            if rounds % max(1, int(SCAN_S / self._delay_s)) == 0:
                await self._scan()
            rounds += 1
            waiting, self._waiting = self._waiting, {}
            for table_id in waiting:
                await self._try(table_id)
            await asyncio.sleep(self._delay_s)

    async def publish(self, table_id: str) -> int:
        """Bring the log up to the last ratified version; returns the version that is published now."""
        lock = self._locks.setdefault(table_id, asyncio.Lock())
        try:
            async with lock:
                return await self._publish(table_id)
        finally:
            if not lock.locked():
                self._locks.pop(table_id, None)

    async def _publish(self, table_id: str) -> int:
        found = await self._store.tail(table_id, 0, LAST_VERSION)
        if found is None:
            return -1
        table, commits = found
        if not commits:
            return table.published
        objects = self._open(Location.parse(table.location))
        done = table.published
        try:
            for commit in reversed(commits):
                await self._copy(objects, _info(commit.payload))
                done = commit.version
                self.published += 1
        finally:
            if done > table.published:
                await self._store.mark_published(table_id, done)
        return done

    async def _copy(self, objects: ObjectStore, info: CommitInfo) -> None:
        target = delta.published_name(info.version)
        try:
            data = await objects.get(delta.staged_name(info.file_name))
        except NotFound:
            # Its writer published it and cleaned up, or the version is lost: only the log can tell.
            if await objects.head(target) is None:
                raise
            return
        if not await objects.put_if_absent(target, data) and await objects.get(target) != data:
            # Somebody wrote past the catalog. Marking it would hide the commit that was ratified.
            raise Broken(f"{target} is not the commit that was ratified")

    async def _scan(self) -> None:
        try:
            for table_id in await self._store.unpublished(SCAN_LIMIT):
                self._waiting[table_id] = None
        except Exception:
            log.exception("unpublished tables could not be listed")

    async def _try(self, table_id: str) -> None:
        try:
            await self.publish(table_id)
        except Exception as error:
            # One table's trouble is its own; the next scan finds it again.
            self.failed += 1
            log.warning("table %s could not be published: %s", table_id, type(error).__name__)
