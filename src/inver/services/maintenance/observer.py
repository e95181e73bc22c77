"""The observer: takes what was committed into what is known of each table, some time after.

It reads events, so no commit waits for it, and it takes but a small part of the time: while many
commits come in it falls behind, and catches up when there is less to do.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic

from inver.clock import Clock
from inver.domain.health import HOUR_MS
from inver.ports import Store

log = logging.getLogger("inver.care")

BATCH = 200
IDLE_S = 1.0
PART = 100
"""The observer rests this many times as long as it worked."""
LOOK_S = 60.0
UNKNOWN = 100
"""Tables that are looked at for what their commits do not say."""
MOST_LATER = 1_000
"""Commits since a report; with more of them it is too old to be of use."""
SCANS_MS = 48 * HOUR_MS
CATCH_UP = 50
"""Batches that somebody who asks waits for at most."""


class Observer:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._seen = -1
        self.folded = 0
        self.failed = 0

    async def run(self) -> None:
        """Until cancelled."""
        next_look = monotonic()
        while True:
            started = monotonic()
            more = False
            try:
                more = await self._step()
                if started >= next_look:
                    next_look = started + LOOK_S
                    await self.learn()
                    await self._store.forget_scans(self._clock.now_ms() - SCANS_MS)
            except Exception:
                # The events stay where they are; the next round goes on from the same place.
                self.failed += 1
                log.exception("the health of tables could not be brought up to date")
            rest = PART * (monotonic() - started)
            await asyncio.sleep(rest if more else max(IDLE_S, rest))

    async def catch_up(self, batches: int = CATCH_UP) -> None:
        """For who asks now: everything that has happened, unless that is very much."""
        for _ in range(batches):
            if not await self._step():
                return

    async def learn(self) -> int:
        """Where commits do not say enough, what clients reported or what the format keeps may."""
        store = self._store
        told = await store.unknown_with_reports(UNKNOWN)
        learned = [await store.learn_report(*each, MOST_LATER) for each in told]
        learned += [await store.learn_head(each) for each in await store.unknown_with_heads(UNKNOWN)]
        return sum(learned)

    async def _step(self) -> bool:
        """Whether there may be more."""
        last = await self._store.last_event()
        if last == self._seen:
            return False
        count = await self._store.fold_events(BATCH)
        if 0 <= count < BATCH:
            self._seen = last
        self.folded += max(0, count)
        return count == BATCH
