"""Scans planned by the server: which files a reader needs, which deletes apply, what is left to filter.

Nothing is kept of a plan but that it was cancelled. Its answer has the first page of files; the other
pages are named by tokens that hold the request, so that any server can work them out again when they
are asked for.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

import msgspec

from inver.clock import Clock
from inver.domain.grants import Action
from inver.domain.iceberg import State
from inver.domain.iceberg.content import Content, ContentFile, Manifest
from inver.domain.iceberg.deletes import DeleteIndex
from inver.domain.iceberg.expressions import TRUE
from inver.domain.iceberg.scans import Scan, ScanRequest, ScanTask
from inver.domain.tables import Table
from inver.errors import Invalid, NotFound
from inver.ids import new_id
from inver.ports import Store
from inver.services.context import Caller
from inver.services.iceberg.manifests import MAX_DELETES, Manifests, Part
from inver.services.iceberg.naming import Identifier
from inver.services.iceberg.relations import Relations
from inver.services.iceberg.sealing import Seal

PAGE = 2_000
"""Entries of manifests that one answer is made of at most."""
RESIDUALS_SIZE = 2**25
"""Bytes of filters in one answer, where each file comes with all of the request's."""
MAX_TASKS = 200
TASKS_SIZE = 2**20
"""Bytes that the tokens of one answer take together at most; one is always given."""
LONGEST_ID = 1_500
"""A plan's id is part of a URL. One whose request does not fit does without it."""
INDEXES = 8
LIFETIME_MS = 24 * 3_600 * 1_000
"""How long the tokens of a plan are good for, and so how long it is kept that it was cancelled."""


class PlanId(msgspec.Struct, frozen=True):
    table: str
    plan: str
    at: int
    request: ScanRequest | None = None
    schema: int | None = None


class PlanTask(msgspec.Struct, frozen=True):
    """The pages from `first` to before `last` of the `pages` that the request makes of the table."""

    table: str
    plan: str
    at: int
    request: ScanRequest
    schema: int
    pages: int
    first: int
    last: int
    size: int


class Planned(msgspec.Struct, frozen=True):
    scan: Scan
    tasks: Sequence[ScanTask]
    plan_tasks: Sequence[str] = ()
    plan_id: str | None = None


class Planning:
    def __init__(
        self, store: Store, clock: Clock, relations: Relations, manifests: Manifests, seal: Seal
    ) -> None:
        self._store = store
        self._clock = clock
        self._relations = relations
        self._manifests = manifests
        self._seal = seal
        self._indexes: OrderedDict[tuple[object, ...], DeleteIndex] = OrderedDict()

    async def plan(self, caller: Caller, identifier: Identifier, request: ScanRequest) -> Planned:
        table, state = await self._readable(caller, identifier)
        scan = _settled(await asyncio.to_thread(Scan, state, request))
        plan = PlanId(table.id, new_id(), self._clock.now_ms(), scan.request, scan.schema.id)
        planned = await self._first(table, scan, plan)
        plan_id = await self._seal.close(plan)
        if len(plan_id) > LONGEST_ID:
            plan_id = await self._seal.close(PlanId(table.id, plan.plan, plan.at))
        return msgspec.structs.replace(planned, plan_id=plan_id)

    async def result(self, caller: Caller, identifier: Identifier, plan_id: str) -> Planned | None:
        """What a plan was answered with, worked out again; None if it was cancelled."""
        table, state = await self._readable(caller, identifier)
        plan = await self._known(table, plan_id)
        if await self._store.is_cancelled(plan.plan):
            return None
        if plan.request is None:
            raise NotFound("Plan was complete when it was made, and is not kept", kind="plan")
        try:
            scan = await asyncio.to_thread(Scan, state, plan.request, plan.schema)
        except Invalid as gone:
            raise NotFound(f"Plan does not exist any more: {gone.message}", kind="plan") from None
        return await self._first(table, scan, plan)

    async def cancel(self, caller: Caller, identifier: Identifier, plan_id: str) -> None:
        """There is nothing to stop, as a plan that has an id is complete; its tokens end with it."""
        table, _ = await self._readable(caller, identifier)
        plan = await self._known(table, plan_id)
        await self._store.cancel_plan(plan.plan, self._clock.now_ms())

    async def forget(self) -> int:
        """Drop what is known of plans that have ended by themselves."""
        return await self._store.forget_plans(self._clock.now_ms() - LIFETIME_MS)

    async def fetch(self, caller: Caller, identifier: Identifier, plan_task: str) -> Planned:
        table, state = await self._readable(caller, identifier)
        task = await self._seal.open(plan_task, PlanTask)
        if task is None or task.table != table.id or self._ended(task.at):
            raise NotFound("Plan task does not exist", kind="plan-task")
        if await self._store.is_cancelled(task.plan):
            raise NotFound("Plan task does not exist any more: its plan was cancelled", kind="plan-task")
        try:
            scan = await asyncio.to_thread(Scan, state, task.request, task.schema)
        except Invalid as gone:
            raise NotFound(f"Plan task does not exist any more: {gone.message}", kind="plan-task") from None
        manifests = await self._manifests.of(table, scan)
        pages = _pages(manifests, task.size)
        if len(pages) != task.pages:
            raise NotFound("Plan task does not exist any more", kind="plan-task")
        tasks = await self._page(table, scan, manifests, pages[task.first])
        rest = msgspec.structs.replace(task, first=task.first + 1)
        return Planned(scan, tasks, await self._tokens(rest, most=1))

    async def live_files(
        self, table: Table, state: State, request: ScanRequest | None = None
    ) -> AsyncIterator[list[ScanTask]]:
        """The files of a table at one snapshot with their deletes, manifest by manifest.

        Whether somebody may see them is for the caller to know.
        """
        scan = await asyncio.to_thread(Scan, state, request or ScanRequest())
        async for tasks in self.files(table, scan, await self.manifests(table, scan)):
            yield tasks

    async def manifests(self, table: Table, scan: Scan) -> list[Manifest]:
        return await self._manifests.of(table, scan)

    def lists(
        self, table: Table, paths: Sequence[str], wanted: Callable[[Manifest], bool]
    ) -> AsyncGenerator[list[Manifest]]:
        return self._manifests.lists(table, paths, wanted)

    async def files(
        self, table: Table, scan: Scan, manifests: Sequence[Manifest]
    ) -> AsyncGenerator[list[ScanTask], None]:
        deletes = await self._manifests.deletes(table, scan, manifests)
        parts = [Part(manifest) for manifest in manifests if manifest.content is Content.DATA]
        async for tasks in self._manifests.tasks(table, scan, parts, deletes):
            yield tasks

    async def content(self, table: Table, delete: ContentFile) -> bytes:
        return await self._manifests.content(table, delete)

    async def _readable(self, caller: Caller, identifier: Identifier) -> tuple[Table, State]:
        table = await self._relations.find(caller, identifier, Action.READ)
        return table, (await self._relations.load(table)).state

    async def _known(self, table: Table, plan_id: str) -> PlanId:
        plan = await self._seal.open(plan_id, PlanId)
        if plan is None or plan.table != table.id or self._ended(plan.at):
            raise NotFound("Plan does not exist", kind="plan")
        return plan

    def _ended(self, at: int) -> bool:
        return self._clock.now_ms() - at > LIFETIME_MS

    async def _first(self, table: Table, scan: Scan, plan: PlanId) -> Planned:
        manifests = await self._manifests.of(table, scan)
        size = _page_size(scan.request)
        pages = _pages(manifests, size)
        if not pages:
            return Planned(scan, ())
        tasks = await self._page(table, scan, manifests, pages[0])
        wanted = scan.request.min_rows_requested
        if wanted is not None and _certain_rows(tasks) >= wanted:
            return Planned(scan, tasks)
        count = len(pages)
        rest = PlanTask(table.id, plan.plan, plan.at, scan.request, scan.schema.id, count, 1, count, size)
        return Planned(scan, tasks, await self._tokens(rest, MAX_TASKS))

    async def _page(
        self, table: Table, scan: Scan, manifests: Sequence[Manifest], parts: Sequence[Part]
    ) -> list[ScanTask]:
        deletes = await self._index(table, scan, manifests)
        found: list[ScanTask] = []
        async for tasks in self._manifests.tasks(table, scan, parts, deletes):
            found += tasks
        return found

    async def _index(self, table: Table, scan: Scan, manifests: Sequence[Manifest]) -> DeleteIndex | None:
        """The pages of one plan share it, as far as they are asked for one after the other."""
        if all(manifest.content is Content.DATA for manifest in manifests):
            return None
        key = (table.id, scan.snapshot_id, scan.filter, scan.schema.id)
        if key in self._indexes:
            self._indexes.move_to_end(key)
            return self._indexes[key]
        found = await self._manifests.deletes(table, scan, manifests)
        if found is not None:
            self._indexes[key] = found
            while sum(map(len, self._indexes.values())) > MAX_DELETES or len(self._indexes) > INDEXES:
                self._indexes.popitem(last=False)
        return found

    async def _tokens(self, task: PlanTask, most: int) -> list[str]:
        """Each for as many pages as it takes for all of them to fit into one answer."""
        first, last = task.first, task.last
        if first >= last:
            return []
        token = await self._seal.close(task)
        count = max(1, min(most, TASKS_SIZE // len(token), last - first))
        step = -(-(last - first) // count)
        return [
            await self._seal.close(msgspec.structs.replace(task, first=start, last=min(start + step, last)))
            for start in range(first, last, step)
        ]


def _settled(scan: Scan) -> Scan:
    """The scan with the snapshot named that it means: the newest one may soon be another."""
    request = scan.request
    if request.snapshot_id is None and not request.is_incremental and scan.snapshot_id is not None:
        scan.request = msgspec.structs.replace(request, snapshot_id=scan.snapshot_id)
    return scan


def _page_size(request: ScanRequest) -> int:
    return max(1, min(PAGE, RESIDUALS_SIZE // len(msgspec.json.encode(request.filter))))


def _pages(manifests: Sequence[Manifest], most: int) -> list[list[Part]]:
    """Manifests, cut and put together so that each page has about as many entries."""
    pages: list[list[Part]] = []
    room = 0
    for manifest in manifests:
        if manifest.content is not Content.DATA:
            continue
        entries = manifest.entries
        # Of a manifest whose entries nobody counted, nobody can say where to cut.
        pieces: list[tuple[int, int | None, int]] = [(0, None, most)]
        if entries is not None:
            starts = range(0, entries, most)
            pieces = [
                (at, at + most if at + most < entries else None, min(most, entries - at)) for at in starts
            ]
        for first, last, size in pieces:
            if size > room:
                pages.append([])
                room = most
            pages[-1].append(Part(manifest, first, last))
            room -= size
    return pages


def _certain_rows(tasks: Sequence[ScanTask]) -> int:
    """Rows that a reader gets for sure: of files without deletes, all of whose rows are wanted."""
    return sum(task.file.record_count for task in tasks if not task.deletes and task.residual == TRUE)
