"""Runs: one worker at a time has a table, as long as it is heard of."""

from __future__ import annotations

import logging
from collections.abc import Collection

import msgspec

from inver.clock import Clock
from inver.domain.care import Job, Result, Ticket, pinned_from
from inver.domain.grants import Action
from inver.domain.ledger import Transaction
from inver.domain.plans import Step
from inver.domain.runs import (
    LEASE_SECONDS,
    FinishRun,
    Predicted,
    Run,
    RunState,
    SomeOptions,
    StartRun,
    layered,
    require_floors,
    require_job,
)
from inver.domain.tables import NAMED, Format, Table
from inver.errors import Broken, Conflict, Forbidden, Invalid, NotFound, Refused
from inver.ids import new_id
from inver.ports import Store
from inver.services.access import Access, missing
from inver.services.context import Caller
from inver.services.maintenance.knowledge import Knowledge, PinsOf, Seen, is_cared_for
from inver.services.maintenance.observer import Observer
from inver.services.names import Names, TableRef

log = logging.getLogger("inver.care")

TRIES = 20
"""Steps of the plan that somebody else may be quicker with, before a worker is sent away."""
LONGEST_MESSAGE = 1_000
LOOKED_AT = 1_000
"""Runs that are looked at for one page."""


class NamedRun(msgspec.Struct, frozen=True):
    """A run, with the names that its table and its principal have now."""

    run: Run
    name: tuple[str, ...]
    by: str


class Running:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        names: Names,
        access: Access,
        knowledge: Knowledge,
        observer: Observer,
        pins: PinsOf,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._names = names
        self._access = access
        self._knowledge = knowledge
        self._observer = observer
        self._pins = pins
        self._lease_seconds = lease_seconds

    async def start(
        self,
        caller: Caller,
        ref: TableRef,
        job: Job,
        worker: str,
        options: SomeOptions | None = None,
        dry_run: bool = False,
    ) -> Ticket:
        """A run that somebody asks for by name, whatever the plan says."""
        table = await self._names.table(ref)
        await self._require(caller, Action.MAINTAIN, table, ref.shown())
        require_job(table.format, job)
        seen = await self._knowledge.known(table)
        if not is_cared_for(seen.table):
            raise Invalid(
                "the commits of this table are not decided here",
                field="table",
                fix="care for it where they are",
            )
        step = await self._knowledge.step(seen, job)
        return await self._start(caller, seen, table, job, worker, step, options or SomeOptions(), dry_run)

    async def next(
        self, caller: Caller, worker: str, jobs: Collection[Job] = (), formats: Collection[Format] = ()
    ) -> Ticket | None:
        """The best step of the plan that nobody has."""
        await self._access.require_own(caller, Action.MAINTAIN)
        plan = await self._knowledge.plan(caller, Action.MAINTAIN)
        wanted = (
            (seen, step)
            for seen, step in plan
            if (not jobs or step.job in jobs) and (not formats or seen.table.format in formats)
        )
        tried: set[str] = set()
        for seen, step in wanted:
            if step.table_id in tried:
                continue
            tried.add(step.table_id)
            table = await self._store.table_by_id(step.table_id)
            if table is None:
                continue
            try:
                return await self._start(caller, seen, table, step.job, worker, step, SomeOptions(), False)
            except (Refused, Broken) as error:
                # One table's trouble is its own; that somebody else was quicker is none.
                if not isinstance(error, Conflict | NotFound):
                    log.warning("%s of table %s cannot start: %s", step.job, step.table_id, error.message)
                if len(tried) == TRIES:
                    break
        return None

    async def beat(self, caller: Caller, run_id: str, progress: float, message: str) -> None:
        """The worker is alive, and so is its lease, unless another run has the table by now."""
        run, table = await self._run(caller, run_id)
        until = self._clock.now_ms() + int(self._lease_seconds * 1000)
        if (
            run.state is not RunState.RUNNING
            or table.state not in NAMED
            or _needs_more(pinned_from(await self._pins(table)), run.pinned_from)
            or not await self._store.beat_run(
                run_id, until, round(progress * 1000), message[:LONGEST_MESSAGE]
            )
        ):
            raise Conflict(
                "the run has its table no more", fix="stop: what is not committed yet is not needed"
            )

    async def finish(self, caller: Caller, run_id: str, result: Result) -> None:
        await self._run(caller, run_id)
        # What the run says of the table is added to what is known, so that should be all there is.
        await self._observer.catch_up()
        principal = caller.principal
        await self._store.decide(
            Transaction(
                principal.id,
                self._clock.now_ms(),
                (FinishRun(id=run_id, result=result),),
                epoch=principal.epoch,
            )
        )

    async def history(
        self, caller: Caller, ref: TableRef | None, before: str, limit: int
    ) -> tuple[list[NamedRun], str | None]:
        """Newest first: of one table, or of all that the caller may load; and where to go on, if anywhere.
        The files that a dry run would delete are told by `get` alone.

        Whoever may load few tables gets short pages rather than long waits.
        """
        if ref is not None:
            table = await self._names.table(ref)
            await self._require(caller, Action.LOAD, table, ref.shown())
            page = await self._store.care_runs(table.id, before, limit + 1)
            return await self._named(page[:limit]), page[limit - 1].id if len(page) > limit else None
        await self._access.standing(caller)
        page = await self._store.care_runs(None, before, LOOKED_AT + 1)
        visible: dict[str, bool] = {}
        found: list[Run] = []
        for run in page[:LOOKED_AT]:
            before = run.id
            if run.table_id not in visible:
                visible[run.table_id] = await self._may_load(caller, run.table_id)
            if visible[run.table_id]:
                found.append(run)
                if len(found) == limit:
                    break
        more = bool(page) and before != page[-1].id
        return await self._named(found), before if more else None

    async def get(self, caller: Caller, run_id: str) -> NamedRun:
        """With the files that a dry run would delete."""
        run = await self._store.care_run(run_id)
        if run is None or not await self._may_load(caller, run.table_id):
            await self._access.standing(caller)
            raise missing("run", run_id)
        [named] = await self._named([run])
        return named

    async def _start(
        self,
        caller: Caller,
        seen: Seen,
        table: Table,
        job: Job,
        worker: str,
        step: Step | None,
        asked: SomeOptions,
        dry_run: bool,
    ) -> Ticket:
        policies = [policy.options for policy in seen.table.policies if policy is not None]
        options = layered(*policies, asked)
        require_floors(options)
        # Looked up first: a lease whose holder never hears of it would keep everybody waiting.
        pins = await self._pins(table)
        principal = caller.principal
        run = StartRun(
            id=new_id(),
            table_id=table.id,
            job=job,
            worker=worker,
            dry_run=dry_run,
            lease_ms=int(self._lease_seconds * 1000),
            options=options,
            predicted=_predicted(step),
            pinned_from=pinned_from(pins),
        )
        try:
            await self._store.decide(
                Transaction(principal.id, self._clock.now_ms(), (run,), epoch=principal.epoch)
            )
        except Conflict as taken:
            raise Conflict(
                "another run has the table",
                taken.conflicts,
                fix="wait for its end, or until its lease is over",
            ) from None
        return Ticket(
            run_id=run.id,
            table_id=table.id,
            name=seen.table.name,
            format=table.format,
            kind=table.kind,
            location=table.location,
            version=table.version,
            job=job,
            dry_run=dry_run,
            options=options,
            pins=pins,
            lease_seconds=self._lease_seconds,
        )

    async def _run(self, caller: Caller, run_id: str) -> tuple[Run, Table]:
        """The id of a run is no secret, so it takes more than that to speak for it."""
        run = await self._store.care_run(run_id)
        table = None if run is None else await self._store.table_by_id(run.table_id)
        if run is None or table is None:
            await self._access.standing(caller)
            raise missing("run", run_id)
        try:
            await self._require(caller, Action.MAINTAIN, table, run_id)
        except NotFound:
            raise missing("run", run_id) from None
        if run.by != caller.principal.id:
            raise Forbidden("a run belongs to who started it", fix="wait until its lease is over")
        return run, table

    async def _require(self, caller: Caller, action: Action, table: Table, shown: str) -> None:
        await self._access.require(caller, action, await self._access.table_chain(caller, table), shown)

    async def _may_load(self, caller: Caller, table_id: str) -> bool:
        table = await self._store.table_by_id(table_id)
        if table is None:
            return False
        return await self._access.permits(caller, Action.LOAD, await self._access.table_chain(caller, table))

    async def _named(self, runs: list[Run]) -> list[NamedRun]:
        people = await self._store.names_of(sorted({run.by for run in runs}))
        names = {each: await self._store.full_name(each) or () for each in {run.table_id for run in runs}}
        return [NamedRun(run, names[run.table_id], people.get(run.by, run.by)) for run in runs]


def _needs_more(now: int | None, then: int | None) -> bool:
    """Whether somebody needs older versions than when the run began, which it may be about to delete."""
    return now is not None and (then is None or now < then)


def _predicted(step: Step | None) -> Predicted:
    if step is None:
        return Predicted()
    return Predicted(reason=step.reason, gain=step.gain, bytes=step.bytes, seconds=step.cost_seconds)
