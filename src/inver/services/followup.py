"""Follow-up work: what a decided transaction still calls for, done at least once.

The work was recorded with the change, so a crash only delays it. Several servers share one queue;
a lease keeps two of them from doing the same item at once, and every task is safe to repeat.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from inver import failpoints
from inver.clock import Clock
from inver.errors import InverError
from inver.ports import Store, WorkItem

log = logging.getLogger("inver.followup")

LEASE_MS = 60_000
BATCH = 16
IDLE_S = 1.0

Task = Callable[[WorkItem], Awaitable[None]]


class FollowUp:
    def __init__(self, store: Store, clock: Clock, worker: str, tasks: Mapping[str, Task]) -> None:
        self._store = store
        self._clock = clock
        self._worker = worker
        self._tasks = dict(tasks)
        self.done = 0
        self.failed = 0

    async def run(self) -> None:
        """Until cancelled. Items are done side by side, so that a long one holds up nobody."""
        running: set[asyncio.Future[None]] = set()
        try:
            while True:
                items = await self._claim_for(BATCH - len(running))
                running |= {asyncio.ensure_future(self._do_all([item])) for item in items}
                if items:
                    continue
                if running:
                    await asyncio.wait(running, timeout=IDLE_S, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await asyncio.sleep(IDLE_S)
                for done in [each for each in running if each.done()]:
                    running.remove(done)
                    if (error := done.exception()) is not None:
                        log.error("the end of follow-up work could not be noted", exc_info=error)
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def step(self) -> int:
        """Claim what is due and do it; returns how many items there were."""
        items = await self._claim(BATCH)
        if items:
            await self._do_all(items)
        return len(items)

    async def _claim_for(self, room: int) -> Sequence[WorkItem]:
        try:
            return await self._claim(room) if room else ()
        except Exception:
            # The database may be away for a while; the queue is not lost with it.
            log.exception("follow-up work could not be claimed")
            return ()

    async def _claim(self, most: int) -> Sequence[WorkItem]:
        items = await self._store.claim_work(
            list(self._tasks), self._worker, self._clock.now_ms(), LEASE_MS, most
        )
        if items:
            failpoints.hit("followup_claimed")
        return items

    async def _do_all(self, items: Sequence[WorkItem]) -> None:
        beat = asyncio.ensure_future(self._hold(items))
        try:
            for item in items:
                await self._do(item)
        finally:
            beat.cancel()
            # Not awaited itself: its end must not be mistaken for ours, nor ours for its.
            await asyncio.wait([beat])

    async def _do(self, item: WorkItem) -> None:
        try:
            await self._tasks[item.kind](item)
        except Exception as error:
            self.failed += 1
            log.warning("follow-up %s of %s failed: %s", item.kind, item.subject, type(error).__name__)
            reason = f"{type(error).__name__}: {error}"
            await self._store.fail_work(item.id, self._worker, reason, self._clock.now_ms())
        else:
            failpoints.hit("followup_done_before_record")
            self.done += 1
            await self._store.finish_work(item.id, self._worker)

    async def _hold(self, items: Sequence[WorkItem]) -> None:
        """Keep the leases while long tasks run, also of those whose turn has not come yet."""
        while True:
            await asyncio.sleep(LEASE_MS / 3_000)
            for item in items:
                # The next beat tries again. A lease that runs out means that the item is done twice.
                with suppress(InverError):
                    await self._store.extend_work(item.id, self._worker, self._clock.now_ms() + LEASE_MS)
