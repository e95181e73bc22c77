"""Publishing: ratified commits become ordinary files of the log, in order, once.

Writers publish too, so a file that is there already is as good as ours. A table whose `published`
is below its version is the record of what is left to do; a crash loses nothing of it. Only what is
known to be in the log is marked, because readers stop asking the catalog for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from time import monotonic

import msgspec

from inver import failpoints
from inver.domain import delta
from inver.domain.delta import CommitInfo, CommitSummary
from inver.errors import Broken, Invalid
from inver.ports import ObjectStore, Store
from inver.services.delta.places import Places
from inver.services.delta.setbacks import Setbacks

log = logging.getLogger("inver.publishing")

SCAN_S = 30.0
SCAN_LIMIT = 1_000
LOOK_S = 0.1
ROUNDS = 2
"""The time that writers have is told in so many rounds."""
AT_ONCE = 16
"""Tables that are published side by side; within a table the order is that of its versions."""
HOLD_UP_S = 2.0
"""So long the others wait for a table whose storage is slow."""
SLOW = 64
"""Tables at most that nobody waits for any more."""
FILES = 200
CONTENT, CONTENTS = 4_096, 2_000
"""Up to this many staged files of this many bytes are remembered until they are published."""
TABLES = 20_000
GLANCE = 8
"""So many versions are looked for in the log on the way of a commit."""
LAST_VERSION = 2**63 - 1

_infos = msgspec.json.Decoder(list[CommitInfo]).decode


class Publishing:
    """`delay_s` leaves the first move to the writer, who usually publishes its own commit at once."""

    def __init__(
        self,
        store: Store,
        places: Places,
        summarize: Callable[[bytes], CommitSummary],
        delay_s: float = 2.0,
    ) -> None:
        self._store = store
        self._places = places
        self._summarize = summarize
        self._delay_s = delay_s
        self._setbacks = Setbacks()
        self._slow: dict[str, asyncio.Task[None]] = {}
        # What was committed since the last round, and in each of the rounds before.
        self._fresh: dict[str, int] = {}
        self._older: deque[dict[str, int]] = deque({} for _ in range(ROUNDS))
        self._scanned = ""
        self._told: dict[str, int] = {}
        self._contents: dict[tuple[str, int], bytes] = {}
        self._marked: dict[str, int] = {}
        self.published = 0
        self.failed = 0

    def soon(self, table_id: str, version: int) -> None:
        """There is something to publish, unless its writer does."""
        if self._fresh.get(table_id, -1) < version:
            self._fresh[table_id] = version

    def keep(self, table_id: str, version: int, data: bytes) -> None:
        """The staged file of a ratified commit need not be read again, if it is small."""
        if len(data) > CONTENT:
            return
        if len(self._contents) >= CONTENTS:
            self._contents.clear()
        self._contents[table_id, version] = data

    def glance(self, table_id: str, objects: ObjectStore, version: int) -> int | None:
        """How far the log is seen at once to go, of the versions that a writer says it has published."""
        marked = self._marked.get(table_id)
        if marked is None or version <= marked:
            return None
        seen = marked
        # With more than that to look for, commits that follow each other look for it bit by bit.
        for each in range(marked + 1, min(version, marked + GLANCE) + 1):
            known = self._contents.get((table_id, each))
            if known is None or objects.get_at_once(delta.published_name(each)) != known:
                break
            seen = each
        return seen if seen > marked else None

    def told(self, table_id: str, version: int) -> None:
        """The log is to go up to this version, as its writer says it does: we look before we believe."""
        if self._told.get(table_id, -1) < version:
            self._told[table_id] = version

    def marked(self, table_id: str, version: int) -> None:
        """The ledger says that the log goes up to this version."""
        before = self._marked.get(table_id)
        if before is None:
            if len(self._marked) >= TABLES:
                self._marked.clear()
        elif version <= before:
            return
        elif version - before <= GLANCE:
            for each in range(before + 1, version + 1):
                if self._contents.pop((table_id, each), None) is not None:
                    self.published += 1
        self._marked[table_id] = version

    async def run(self) -> None:
        """Until cancelled: what was committed here soon, what others left behind now and then."""
        try:
            await self._run()
        finally:
            # Each is begun before it is ended.
            await asyncio.sleep(0)
            slow = tuple(self._slow.values())
            for work in slow:
                work.cancel()
            await asyncio.gather(*slow, return_exceptions=True)

    async def _run(self) -> None:
        next_round = next_scan = monotonic()
        while True:
            now = monotonic()
            if now >= next_scan:
                for table_id in await self._scan():
                    self.told(table_id, LAST_VERSION)
                next_scan = now if self._scanned else now + SCAN_S
            if now >= next_round:
                for table_id, version in self._ripe(now).items():
                    self.told(table_id, version)
                next_round = now + self._delay_s / ROUNDS
            due, self._told = self._told, {}
            await self._publish_all(due, now)
            await asyncio.sleep(min(LOOK_S, self._delay_s))

    def _ripe(self, now: float) -> dict[str, int]:
        """What its writers had the time to publish, and have not; and what failed a while ago."""
        self._older.append(self._fresh)
        self._fresh = {}
        marked, waited = self._marked, self._older.popleft()
        found = {each: version for each, version in waited.items() if marked.get(each, -1) < version}
        return found | dict.fromkeys(self._setbacks.due(now), LAST_VERSION)

    async def publish(self, table_id: str, last: int = LAST_VERSION) -> None:
        """Bring the log up to this version, or to the last ratified one."""
        reached: dict[str, int] = {}
        try:
            await self._copy(table_id, last, reached)
        finally:
            await self._mark(reached)

    async def _publish_all(self, due: Mapping[str, int], now: float) -> None:
        """Those first that nothing is known against; nobody is waited for who failed before."""
        free = {table_id: last for table_id, last in due.items() if table_id not in self._slow}
        for table_id in due.keys() - free.keys():
            # It may be at versions before that.
            self.told(table_id, due[table_id])
        tables = iter([each for each in free.items() if each[0] not in self._setbacks])
        while some := tuple(islice(tables, AT_ONCE)):
            await self._publish_some(some)
        for table_id, last in free.items():
            if table_id in self._slow or self._setbacks.must_wait(table_id, now):
                continue
            if table_id in self._setbacks and len(self._slow) < SLOW:
                self._let_be(table_id, asyncio.ensure_future(self._try(table_id, last)))

    async def _publish_some(self, tables: Iterable[tuple[str, int]]) -> None:
        working = {table_id: asyncio.ensure_future(self._try(table_id, last)) for table_id, last in tables}
        if not working:
            return
        # With too many who are slow, there is nothing left but to wait for them.
        room = len(self._slow) + AT_ONCE <= SLOW
        try:
            await asyncio.wait(working.values(), timeout=HOLD_UP_S if room else None)
        finally:
            for table_id, work in working.items():
                if not work.done():
                    self._let_be(table_id, work)
        await self._try_mark(
            {t: reached for t, work in working.items() if work.done() and (reached := work.result())}
        )

    def _let_be(self, table_id: str, work: asyncio.Task[int]) -> None:
        """What is not waited for marks by itself what it has reached, and keeps the table to itself."""
        self._slow[table_id] = asyncio.ensure_future(self._mark_when_done(table_id, work))

    async def _mark_when_done(self, table_id: str, work: asyncio.Task[int]) -> None:
        try:
            if reached := await work:
                await self._try_mark({table_id: reached})
        finally:
            del self._slow[table_id]

    async def _try_mark(self, reached: Mapping[str, int]) -> None:
        try:
            await self._mark(reached)
        except Exception:
            log.exception("published commits could not be marked")

    async def _mark(self, reached: Mapping[str, int]) -> None:
        await self._store.mark_published(reached)
        for table_id, version in reached.items():
            self.marked(table_id, version)

    async def _try(self, table_id: str, last: int) -> int:
        """How far the log is known to go; 0 says nothing."""
        reached: dict[str, int] = {}
        try:
            await self._copy(table_id, last, reached)
        except Exception as error:
            # One table's trouble is its own.
            self.failed += 1
            self._setbacks.failed(table_id, monotonic())
            log.warning("table %s could not be published: %s: %s", table_id, type(error).__name__, error)
        else:
            self._setbacks.over(table_id)
        return reached.get(table_id, 0)

    async def _copy(self, table_id: str, last: int, reached: dict[str, int]) -> None:
        """Note in `reached` how far the log is known to go, also when the rest fails."""
        found = await self._store.tail(table_id, 0, last)
        if found is None or found.commits == b"[]":
            return
        objects = self._places.of(found.table).objects
        commits = _infos(found.commits)
        commits.reverse()
        for start in range(0, len(commits), FILES):
            some = commits[start : start + FILES]
            pairs = [(self._source(table_id, each), delta.published_name(each.version)) for each in some]
            done = 0
            while done < len(pairs):
                count = await objects.copy_if_absent(pairs[done:])
                failpoints.hit("published_before_mark")
                if not count:
                    await self._require_published(objects, some[done], pairs[done][0])
                    count = 1
                for each in some[done : done + count]:
                    self._contents.pop((table_id, each.version), None)
                self.published += count
                done += count
                reached[table_id] = some[done - 1].version

    async def _require_published(self, objects: ObjectStore, commit: CommitInfo, source: str | bytes) -> None:
        """A commit that cannot be copied: its writer may have published it and removed the staged file."""
        staged, name = delta.staged_name(commit.file_name), delta.published_name(commit.version)
        there = await objects.head(staged) is not None
        if await objects.head(name) is None:
            raise Broken(f"{staged} is {'there' if there else 'gone'}, and {name} is not there")
        data = await objects.get(name)
        try:
            same = not there and isinstance(source, str) and len(data) == commit.file_size
            same = same and self._summarize(data).timestamp == commit.timestamp
        except Invalid:
            same = False
        if not same:
            # Somebody wrote past the catalog. Marking it would hide the commit that was ratified.
            raise Broken(f"{name} is not the commit that was ratified")

    def _source(self, table_id: str, commit: CommitInfo) -> str | bytes:
        known = self._contents.get((table_id, commit.version))
        return delta.staged_name(commit.file_name) if known is None else known

    async def _scan(self) -> list[str]:
        """What others left behind, some tables at a time: those that fail must not stand before the rest."""
        try:
            found = await self._store.unpublished(SCAN_LIMIT, after=self._scanned)
        except Exception:
            log.exception("unpublished tables could not be listed")
            self._scanned = ""
            return []
        self._scanned = found[-1] if len(found) == SCAN_LIMIT else ""
        own = set(self._fresh).union(*self._older)
        return [table_id for table_id in found if table_id not in own]
