"""What is known of tables, what is worth doing to them, and in which order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from inver.clock import Clock
from inver.domain.care import Job, Pin
from inver.domain.findings import Finding, Subject, findings
from inver.domain.grants import Action, Chain, Node, Standing, allowed
from inver.domain.health import Health, strange
from inver.domain.plans import Rates, Step, ranked, step_of
from inver.domain.runs import InForce, in_force
from inver.domain.securables import SecurableKind
from inver.domain.tables import Format, Table, TableKind
from inver.ports import KnownTable, Store
from inver.services.access import METASTORE_CHAIN, Access, missing
from inver.services.context import Caller
from inver.services.maintenance.observer import Observer
from inver.services.names import Names, TableRef

PAGE = 250
"""Tables that are looked at before others get a turn."""
SCANS_HOURS = 24

PinsOf = Callable[[Table], Awaitable[tuple[Pin, ...]]]


class Seen(msgspec.Struct, frozen=True):
    """A table with what its policies come to, and what they make of its health."""

    table: KnownTable
    policy: InForce
    findings: tuple[Finding, ...]
    scans_per_hour: float | None

    @property
    def health(self) -> Health:
        return self.table.health or strange(-1)


class Knowledge:
    def __init__(
        self, store: Store, clock: Clock, names: Names, access: Access, observer: Observer, pins: PinsOf
    ) -> None:
        self._store = store
        self._clock = clock
        self._names = names
        self._access = access
        self._observer = observer
        self._pins = pins

    async def page(self, caller: Caller, catalog: str | None, after: str, limit: int) -> list[Seen]:
        """Tables that the caller may load, by id."""
        await self._observer.catch_up()
        found: list[Seen] = []
        async for table in self.visible(caller, Action.LOAD, catalog, after):
            found.append(self.seen(table))
            if len(found) == limit:
                break
        return found

    async def get(self, caller: Caller, ref: TableRef) -> tuple[Seen, tuple[Pin, ...]]:
        """Pins have the names of shares and cursors, which are not for everybody who reads the table."""
        table = await self._names.table(ref)
        chain = await self._access.table_chain(caller, table)
        await self._access.require(caller, Action.LOAD, chain, ref.shown())
        maintains = await self._access.permits(caller, Action.MAINTAIN, chain)
        return await self.known(table), await self._pins(table) if maintains else ()

    async def known(self, table: Table) -> Seen:
        await self._observer.catch_up()
        known = await self._store.known_table(table.id, self._since())
        if known is None:
            raise missing("table", table.name)
        return self.seen(known)

    async def plan(
        self, caller: Caller, action: Action, catalog: str | None = None, budget_seconds: float | None = None
    ) -> list[tuple[Seen, Step]]:
        """Best first. A table that a live run has is left out."""
        await self._observer.catch_up()
        now = self._clock.now_ms()
        rates = await self._store.care_rates()
        tables: dict[str, Seen] = {}
        steps: list[Step] = []
        async for table in self.visible(caller, action, catalog):
            if table.run is not None and table.run.lease_until > now:
                continue
            seen = self.seen(table)
            if seen.findings:
                tables[table.id] = seen
                steps += self._steps(seen, rates)
        return [(tables[step.table_id], step) for step in ranked(steps, now, budget_seconds)]

    async def step(self, seen: Seen, job: Job) -> Step | None:
        """What a run of this job is thought to bring, and to cost."""
        rates = await self._store.care_rates()
        return next((step for step in self._steps(seen, rates) if step.job is job), None)

    async def visible(
        self, caller: Caller, action: Action, catalog: str | None = None, after: str = ""
    ) -> AsyncIterator[KnownTable]:
        standing = await self._access.standing(caller)
        catalog_id = None
        if catalog is not None:
            found = await self._names.catalog(catalog)
            await self._access.require(caller, Action.SEE, self._access.catalog_chain(found), catalog)
            catalog_id = found.id
        while True:
            page = await self._store.known_tables(after, PAGE, self._since(), catalog_id)
            for table in page:
                if await self._may(caller, standing, action, table):
                    yield table
            if len(page) < PAGE:
                return
            after = page[-1].id

    def seen(self, table: KnownTable) -> Seen:
        policy = in_force(table.format, *table.policies)
        if table.kind is TableKind.EXTERNAL:
            # What lies beside the files of an external table may be anybody's.
            jobs = tuple(job for job in policy.jobs if job is not Job.ORPHANS)
            policy = msgspec.structs.replace(policy, jobs=jobs)
        scans = table.scans / SCANS_HOURS if table.format is Format.ICEBERG else None
        subject = _subject(table, scans)
        return Seen(table, policy, tuple(findings(subject, policy, self._clock.now_ms())), scans)

    def _steps(self, seen: Seen, rates: Rates) -> list[Step]:
        subject = _subject(seen.table, seen.scans_per_hour)
        return [step_of(seen.table.id, subject, finding, rates) for finding in seen.findings]

    async def _may(self, caller: Caller, standing: Standing, action: Action, table: KnownTable) -> bool:
        above = await self._access.schema_chain(caller, table.schema_id) or METASTORE_CHAIN
        node = Node(SecurableKind.TABLE, table.id, table.owner, table.name)
        chain: Chain = (node, *above)
        return allowed(standing, action, chain)

    def _since(self) -> int:
        return self._clock.now_ms() - SCANS_HOURS * 3_600_000


def is_cared_for(table: KnownTable) -> bool:
    """Whether its commits are decided here, so that a job's are too."""
    return table.has_head and (table.format is not Format.DELTA or table.kind is TableKind.MANAGED)


def _subject(table: KnownTable, scans: float | None) -> Subject:
    return Subject(
        format=table.format,
        version=table.version,
        published=table.published,
        created_at=table.created_at,
        managed=is_cared_for(table),
        health=table.health or strange(-1),
        scans=scans,
    )
