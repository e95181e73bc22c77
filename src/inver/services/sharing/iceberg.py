"""Iceberg tables as Delta Sharing tells of them. A version is one of the ledger, so every commit is one."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property
from itertools import chain
from typing import Any

import msgspec

from inver.domain.delta_actions import Add, CommitChanges, DeletionVector, TableHead
from inver.domain.iceberg import State
from inver.domain.iceberg.as_delta import DeltaSchema, delta_schema
from inver.domain.iceberg.content import Content, Manifest
from inver.domain.iceberg.delta_files import (
    DeltaFiles,
    alike,
    check_partitions,
    check_readable,
    partition_columns,
)
from inver.domain.iceberg.partitions import Spec, parse_spec
from inver.domain.iceberg.scans import Scan, ScanRequest, ScanTask
from inver.domain.iceberg.schemas import Field, Schema, parse_schema
from inver.domain.iceberg.state import NO_SNAPSHOT, SCHEMA, SNAPSHOT, SPEC, Head
from inver.domain.predicates import Filter
from inver.domain.tables import Table
from inver.errors import Unsupported
from inver.ports import Store
from inver.services.iceberg.planning import Planning
from inver.services.iceberg.states import States
from inver.services.sharing.iceberg_history import History, Step, Version, expired
from inver.services.sharing.iceberg_plans import IcebergPlan, Noted, PlannedVersion
from inver.services.sharing.iceberg_ranges import LISTS, WINDOW, added, check_length
from inver.services.sharing.logs import Logs, Place, Snapshot
from inver.services.sharing.row_deletes import DeleteReader, RowDeletes, explained

_FORMAT = 1
"""Of what is kept of versions; another number makes them all anew."""


class IcebergLogs:
    def __init__(
        self, store: Store, states: States, planning: Planning, deletes: DeleteReader, logs: Logs
    ) -> None:
        self._store = store
        self._states = states
        self._planning = planning
        self._deletes = deletes
        self._logs = logs

    async def open(self, table: Table) -> IcebergLog:
        if table.head is None:
            raise Unsupported(
                "the catalog does not have the metadata of this Iceberg table",
                fix="register it through Iceberg REST",
            )
        held = await self._states.of(table)
        table = msgspec.structs.replace(table, version=held.version)
        return IcebergLog(
            table, held.state, History(self._store, table.id), self._planning, self._deletes, self._logs
        )


class _Told(msgspec.Struct, frozen=True):
    """What a recipient is told, and the files that it is told of."""

    head: TableHead
    files: DeltaFiles


class IcebergLog:
    """One table, looked at once: its state stays the same for the whole request."""

    def __init__(
        self,
        table: Table,
        state: State,
        history: History,
        planning: Planning,
        deletes: DeleteReader,
        logs: Logs,
    ) -> None:
        assert isinstance(state.head, Head)
        self.table = table
        self._state = state
        self._head = state.head
        self._history = history
        self._planning = planning
        self._deletes = deletes
        self._logs = logs
        self._schemas: dict[tuple[int, int, bool], DeltaSchema] = {}

    async def latest(self) -> int:
        return self.table.version

    async def earliest_commit(self) -> int:
        """The ledger forgets none; whether a snapshot is still there is found out when it is needed."""
        return 0

    async def head(self, version: int) -> TableHead:
        _, _, told = await self._listed(await self._history.version(version))
        return told.head

    async def snapshot(self, version: int | None = None, base: int | None = None) -> Snapshot:
        at = await self._history.version(self.table.version if version is None else version)
        scan, manifests, told = await self._listed(at)
        made_of = (_FORMAT, self.table.id, self.table.location, at.snapshot_id, told.head)
        name = hashlib.sha256(msgspec.json.encode(made_of)).hexdigest()
        return await self._logs.gathered(
            name, at.version, told.head, lambda: self._adds(scan, manifests, told.files)
        )

    async def totals(self, snapshot: Any, admitted: Filter | None) -> tuple[int, int]:
        return await self._logs.totals(snapshot, admitted)

    async def changes(self, start: int, end: int, *, noted: str = "") -> IcebergPlan:
        """What every version appended. Anything but appended rows is refused."""
        if noted:
            return await self._page(start, end, msgspec.json.decode(noted, type=Noted))
        check_length(start, end)
        steps, _ = await self._history.steps(self._state, start, end, await self._history.before(start))
        listed = await self._appended(steps, LISTS)
        told = self._range(steps, alike(chain.from_iterable(listed)))
        heads = [told.head(step.version) for step in steps]

        async def versions(skip: int) -> AsyncIterator[PlannedVersion]:
            for at in range(skip, len(steps)):
                yield told.planned(steps[at], heads[max(0, at - 1)], listed[at])

        later = [
            (step.version.version, after.metadata)
            for step, before, after in zip(steps[1:], heads, heads[1:], strict=False)
            if after.metadata != before.metadata
        ]
        return IcebergPlan(start, (heads[0], heads[-1]), later, told.noted, versions)

    async def _page(self, start: int, end: int, noted: Noted) -> IcebergPlan:
        """A later page of a range, whose versions before the page are not looked at again."""
        history, told = self._history, _Range(self, noted)
        last = None if noted.appended is None else await history.version(noted.appended)

        async def versions(skip: int) -> AsyncIterator[PlannedVersion]:
            if last is None:
                first, same, before = start, await history.before(start), at_start
            else:
                first, same, before = last.version + 1, frozenset({last.snapshot_id}), told.head(last)
            while first <= end:
                until = min(end, max(first, start + skip) + WINDOW - 1)
                steps, same = await history.steps(self._state, first, until, same)
                shown = [step for step in steps if step.version.version >= start + skip]
                # The range has been let through; a window may take its own newest list on top.
                listed = iter(await self._appended(shown, 2 * LISTS))
                for step in steps:
                    if step.version.version >= start + skip:
                        yield told.planned(step, before, next(listed))
                    before = told.head(step.version)
                first = until + 1

        at_start, at_end = [told.head(await history.version(each)) for each in (start, end)]
        return IcebergPlan(start, (at_start, at_end), [], noted, versions)

    def changed(
        self, plan: Any, lines: Any, admitted: Filter | None, *, change_data: bool, **how: Any
    ) -> AsyncIterator[tuple[bytes, Place | None]]:
        """The same with and without change data: an added file is what was inserted."""
        assert isinstance(plan, IcebergPlan)

        async def commits(skip: int) -> AsyncIterator[CommitChanges]:
            async for each in plan.versions(skip):
                version = each.step.version
                files: list[Add] = []
                if each.manifests:
                    scan = await asyncio.to_thread(
                        self._scan, _request(each.step), self._head.current_schema_id
                    )
                    async for some in self._adds(scan, each.manifests, each.files):
                        files += some
                yield CommitChanges(version.version, version.at, files, each.standing, metadata=each.metadata)

        return self._logs.changed(commits, plan.start, lines, admitted, **how)

    async def _appended(self, steps: Sequence[Step], most: int) -> list[list[Manifest]]:
        """The manifests of what each step appended."""
        by = await added(self._planning, self.table, steps, most)
        found = []
        for step in steps:
            if step.first:
                scan = self._scan(_request(step), self._head.current_schema_id)
                found.append(await self._manifests(scan))
            else:
                found.append([each for snapshot in step.appended for each in by[snapshot.snapshot_id]])
        return found

    def _range(self, steps: Sequence[Step], manifests: Sequence[Manifest]) -> _Range:
        schemas = [self._schema(step.version) for step in steps]
        mapped = any(schema.mapped for schema in schemas)
        if mapped:
            schemas = [self._schema(step.version, mapped=True) for step in steps]
        vectors = _has_deletes(manifests)
        # One protocol and one partitioning for the whole range, whatever single versions would do with.
        features = {feature for schema in schemas for feature in schema.features} | _deleting(vectors)
        partitions = {
            id_: tuple(field.id for field in self._partitions(schema, manifests))
            for id_, schema in {schema.schema.id: schema for schema in schemas}.items()
        }
        return _Range(self, Noted(partitions, tuple(sorted(features)), mapped, vectors))

    async def _listed(self, at: Version) -> tuple[Scan | None, list[Manifest], _Told]:
        schema = self._schema(at)
        scan = None
        if at.snapshot_id != NO_SNAPSHOT:
            if str(at.snapshot_id) not in self._state.parts(SNAPSHOT):
                raise expired(at.version, "version")
            scan = self._scan(ScanRequest(snapshot_id=at.snapshot_id), schema.schema.id)
        manifests = await self._manifests(scan)
        return scan, manifests, self._told(schema, manifests, _deleting(_has_deletes(manifests)))

    def _told(self, schema: DeltaSchema, manifests: Sequence[Manifest], features: Iterable[str]) -> _Told:
        return self._as_told(schema, self._partitions(schema, alike(manifests)), features)

    def _partitions(self, schema: DeltaSchema, manifests: Sequence[Manifest]) -> Sequence[Field]:
        specs = self._specs
        partitions = partition_columns(schema.schema, specs, manifests, self._head.default_spec_id)
        check_partitions(self._head.properties, specs, manifests, partitions)
        return partitions

    def told_as(self, version: Version, noted: Noted) -> _Told:
        schema = self._schema(version, noted.mapped)
        ids = noted.partitions.get(version.schema_id, ())
        partitions = [field for field in schema.schema.struct.fields if field.id in ids]
        return self._as_told(schema, partitions, noted.features)

    def _as_told(self, schema: DeltaSchema, partitions: Sequence[Field], features: Iterable[str]) -> _Told:
        head = schema.head(self.table.id, partitions, features)
        return _Told(head, DeltaFiles(schema, partitions, self._specs, self.table.location))

    def _schema(self, at: Version, mapped: bool = False) -> DeltaSchema:
        key = at.schema_id, at.last_schema_id, mapped
        found = self._schemas.get(key)
        if found is None:
            known = [self._parsed[id_] for id_ in sorted(self._parsed) if id_ <= at.last_schema_id]
            if at.schema_id not in self._parsed:
                raise expired(at.version, "version")
            found = delta_schema(self._parsed[at.schema_id], known, self._head.properties, mapped=mapped)
            self._schemas[key] = found
        return found

    @cached_property
    def _parsed(self) -> Mapping[int, Schema]:
        schemas = map(parse_schema, self._state.parts(SCHEMA).bodies())
        return {schema.id: schema for schema in schemas}

    @cached_property
    def _specs(self) -> Mapping[int, Spec]:
        specs = map(parse_spec, self._state.parts(SPEC).bodies())
        return {spec.id: spec for spec in specs}

    def _scan(self, request: ScanRequest, schema_id: int) -> Scan:
        # Statistics are read where a field is asked for, and then they are read of all.
        names = [field.name for field in self._parsed[schema_id].struct.fields[:1]]
        return Scan(self._state, msgspec.structs.replace(request, stats_fields=names), schema_id)

    async def _manifests(self, scan: Scan | None) -> list[Manifest]:
        if scan is None:
            return []
        with explained():
            return await self._planning.manifests(self.table, scan)

    async def _adds(
        self, scan: Scan | None, manifests: Sequence[Manifest], files: DeltaFiles
    ) -> AsyncGenerator[list[Add], None]:
        if scan is None:
            return
        deletes = RowDeletes(self.table, self._planning, self._deletes)
        async with aclosing(self._planning.files(self.table, scan, manifests)) as pages:
            while True:
                with explained():
                    tasks = await anext(pages, None)
                if tasks is None:
                    return
                for task in tasks:
                    check_readable(task.file)
                vectors = await deletes.of(tasks)
                yield await asyncio.to_thread(_added, files, tasks, vectors)


class _Range:
    """Versions of a range, as all of it is told."""

    def __init__(self, log: IcebergLog, noted: Noted) -> None:
        self._log = log
        self.noted = noted
        self._told: dict[tuple[int, int], _Told] = {}

    def head(self, version: Version) -> TableHead:
        return self._of(version).head

    def planned(self, step: Step, before: TableHead, manifests: Sequence[Manifest]) -> PlannedVersion:
        told = self._of(step.version)
        standing = told.head.metadata
        metadata = None if standing == before.metadata else standing
        return PlannedVersion(step, standing, metadata, told.files, manifests)

    def _of(self, version: Version) -> _Told:
        key = version.schema_id, version.last_schema_id
        if key not in self._told:
            self._told[key] = self._log.told_as(version, self.noted)
        return self._told[key]


def _has_deletes(manifests: Iterable[Manifest]) -> bool:
    return any(manifest.content is not Content.DATA for manifest in manifests)


def _deleting(vectors: bool) -> set[str]:
    return {"deletionVectors"} if vectors else set()


def _added(
    files: DeltaFiles, tasks: Sequence[ScanTask], vectors: Sequence[DeletionVector | None]
) -> list[Add]:
    return [files.add(task.file, vector) for task, vector in zip(tasks, vectors, strict=True)]


def _request(step: Step) -> ScanRequest:
    """All that there is where there was nothing before, else what came after."""
    if step.first:
        return ScanRequest(snapshot_id=step.version.snapshot_id)
    return ScanRequest(start_snapshot_id=step.since, end_snapshot_id=step.version.snapshot_id)
