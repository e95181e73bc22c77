"""The use cases of Delta tables that Unity's faces share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from itertools import pairwise

import msgspec

from inver.clock import Clock
from inver.domain import delta, ledger
from inver.domain.delta import CommitInfo, CommitSummary, DeltaHead
from inver.domain.grants import Action
from inver.domain.ledger import Receipt, Transaction, Work
from inver.domain.locations import Location
from inver.domain.names import check_name, dotted
from inver.domain.tables import Format, State, Table, TableKind, is_managed_delta
from inver.errors import AlreadyExists, Forbidden, Invalid, NotFound
from inver.ids import new_id
from inver.ports import FullTable, ObjectStore, Store
from inver.services.access import Access, missing
from inver.services.context import Caller
from inver.services.delta.commits import Commits
from inver.services.delta.types import (
    CommitReport,
    Loaded,
    NewTable,
    Proposal,
    Staged,
    Tail,
)
from inver.services.names import Names, TableRef, split_name
from inver.services.placement import Placement
from inver.services.transactions import CreateTable, Transactions

UNSTAGE = "table.unstage"
LAST_VERSION = 2**63 - 1

_info = msgspec.json.Decoder(CommitInfo).decode
_encode = msgspec.json.encode


class DeltaTables:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        names: Names,
        access: Access,
        transactions: Transactions,
        placement: Placement,
        commits: Commits,
        open_objects: Callable[[Location], ObjectStore],
        summarize: Callable[[bytes], CommitSummary],
        stage_ms: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._names = names
        self._access = access
        self._transactions = transactions
        self._placement = placement
        self._commits = commits
        self._open = open_objects
        self._summarize = summarize
        self._stage_ms = stage_ms

    # --- creation ---

    async def stage(self, caller: Caller, name: tuple[str, ...]) -> Staged:
        """An id and a place; the name is taken only when the table is finished."""
        catalog_name, path, table_name = split_name(name, "name")
        schema = await self._names.schema(catalog_name, path)
        await self._require_create(caller, schema.id, dotted([catalog_name, *path]))
        if await self._store.table_by_name(catalog_name, path, table_name) is not None:
            raise AlreadyExists(f"table {dotted(name)!r} already exists", kind="table")
        catalog = await self._names.catalog(catalog_name)
        table_id = new_id()
        location = self._placement.place(TableKind.MANAGED, table_id, None, catalog, schema)
        now = self._clock.now_ms()
        operation = ledger.CreateTable(
            id=table_id,
            schema_id=schema.id,
            name=check_name(table_name, "name"),
            format=Format.DELTA,
            kind=TableKind.MANAGED,
            location=location.text,
            location_key=location.prefix,
            state=State.STAGED,
        )
        work = Work(kind=UNSTAGE, subject=table_id, not_before=now + self._stage_ms)
        await self._decide(caller, now, operation, work)
        return Staged(table_id, location.text)

    async def staged(self, caller: Caller, table_id: str) -> Staged:
        """Only for who staged it."""
        table = await self._store.table_by_id(table_id)
        await self._access.standing(caller)
        if table is None or table.state is not State.STAGED:
            raise missing("table", table_id)
        if table.created_by != caller.principal.id:
            raise Forbidden("a staged table belongs to who staged it")
        return Staged(table.id, table.location)

    async def create(self, caller: Caller, new: NewTable) -> Loaded:
        """Finish a staged table whose version 0 is written; the same request again is a success."""
        catalog, path, name = split_name(new.name, "name")
        schema = await self._names.schema(catalog, path)
        await self._require_create(caller, schema.id, dotted([catalog, *path]))
        place = Location.parse(new.location, field="storage_location")
        table = await self._store.table_at(place.prefix)
        if table is None or table.state not in (State.STAGED, State.LIVE):
            raise NotFound(f"no staged table has the location {new.location}", kind="table")
        if table.created_by != caller.principal.id:
            raise Forbidden("only who staged a table can finish it")
        fingerprint = sha256(_encode(new, order="sorted")).hexdigest()
        if table.state is State.LIVE:
            return await self._created_before(table, fingerprint)
        if await self._store.table_by_name(catalog, path, name) is not None:
            raise AlreadyExists(f"table {dotted(new.name)!r} already exists", kind="table")
        data, summary = await self._first_version(table)
        head, properties = _first_head(table.id, new, summary)
        first = ledger.Append(
            table_id=table.id,
            version=0,
            token=fingerprint,
            operation=summary.operation or "CREATE TABLE",
            payload=_first_payload(head, len(data)),
            counts=_encode(summary.counts),
            head=_encode(head),
        )
        definition = ledger.Definition(
            comment=new.comment if new.comment is not None else _description(summary),
            properties=properties,
            columns=new.columns,
            column_names=column_names(new.columns),
        )
        operation = ledger.FinishTable(
            table_id=table.id,
            schema_id=schema.id,
            name=check_name(name, "name"),
            first=first,
            definition=definition,
        )
        await self._decide(caller, self._clock.now_ms(), operation)
        return await self._loaded(await self._full(table.id), LAST_VERSION)

    async def register(
        self,
        caller: Caller,
        name: tuple[str, ...],
        location: str,
        format: Format,
        columns: bytes = b"[]",
        properties: dict[str, str] | None = None,
        comment: str | None = None,
    ) -> Loaded:
        """An external table: its files and its log belong to others."""
        intent = CreateTable(
            name=name,
            format=format,
            kind=TableKind.EXTERNAL,
            location=location,
            columns=columns,
            properties=properties or {},
            comment=comment,
        )
        receipt = await self._transactions.decide(caller, [intent])
        return await self._loaded(await self._full(receipt.results[0].subject), LAST_VERSION)

    # --- reading ---

    async def load(self, caller: Caller, ref: TableRef) -> Loaded:
        full = await self._find(ref)
        chain = await self._access.table_chain(caller, full.table)
        await self._access.require(caller, Action.LOAD, chain, ref.shown())
        return await self._loaded(full, LAST_VERSION)

    async def changed(self, table_id: str) -> Loaded:
        """What the caller has just made of a table. No right is asked for: the change itself needed one."""
        return await self._loaded(await self._full(table_id), LAST_VERSION)

    async def tail(
        self, caller: Caller, table_id: str, location: str | None, first: int, last: int | None
    ) -> Tail:
        """Commits from `first` to `last`; a table that the catalog does not manage is at version -1."""
        if first < 0:
            raise Invalid("start_version must not be negative", field="start_version")
        if last is not None and last < first:
            raise Invalid("end_version must not be before start_version", field="end_version")
        found = await self._store.tail(table_id.lower(), first, LAST_VERSION if last is None else last)
        if found is None:
            raise missing("table", table_id)
        table, commits = found
        chain = await self._access.table_chain(caller, table)
        await self._access.require(caller, Action.LOAD, chain, table_id)
        require_location(table, location)
        if not is_managed_delta(table):
            return Tail([], -1)
        return Tail([_info(commit.payload) for commit in commits], table.version)

    # --- writing ---

    def propose(self, caller: Caller, proposal: Proposal) -> Awaitable[Receipt | None]:
        return self._commits.propose(caller, proposal)

    async def report(self, caller: Caller, table_id: str, location: str | None, report: CommitReport) -> None:
        table = await self._names.table(TableRef(id=table_id))
        chain = await self._access.table_chain(caller, table)
        await self._access.require(caller, Action.LOAD, chain, table_id)
        await self._access.require_own(caller, Action.COMMIT)
        require_location(table, location)
        check_report(table, report)
        version = table.version if report.version is None else report.version
        await self._store.add_report(
            table.id, version, self._clock.now_ms(), caller.principal.id, _encode(report)
        )

    # --- inside ---

    async def _require_create(self, caller: Caller, schema_id: str, shown: str) -> None:
        chain = await self._access.schema_chain(caller, schema_id)
        if not chain:
            raise missing("schema", shown)
        await self._access.require(caller, Action.CREATE_TABLE, chain, shown)

    async def _first_version(self, table: Table) -> tuple[bytes, CommitSummary]:
        objects = self._open(Location.parse(table.location))
        try:
            data = await objects.get(delta.published_name(0))
        except NotFound:
            raise Invalid(
                "version 0 of the table is not written",
                field="storage_location",
                fix=f"write {delta.published_name(0)} below {table.location} first",
            ) from None
        return data, self._summarize(data)

    async def _created_before(self, table: Table, fingerprint: str) -> Loaded:
        first = await self._store.commits(table.id, ledger.MAIN, 0, 0, 1)
        if not first or first[0].token != fingerprint:
            raise AlreadyExists(f"the staged table {table.id} is finished already", kind="table")
        return await self._loaded(await self._full(table.id), LAST_VERSION)

    async def _find(self, ref: TableRef) -> FullTable:
        if ref.id is not None:
            found = await self._store.full_table(ref.id.lower())
        else:
            catalog, path, name = split_name(ref.name or (), "table.name")
            found = await self._store.full_table_by_name(catalog, path, name)
        if found is None:
            raise missing("table", ref.shown())
        return found

    async def _full(self, table_id: str) -> FullTable:
        return await self._find(TableRef(id=table_id))

    async def _loaded(self, full: FullTable, last: int) -> Loaded:
        table = full.table
        head = delta.head_of(table.head if table.format is Format.DELTA else None)
        tail = None
        if head.managed:
            found = await self._store.tail(table.id, 0, last)
            if found is None:
                raise missing("table", table.name)
            table, commits = found
            tail = Tail([_info(commit.payload) for commit in commits], table.version)
        return Loaded(
            table=table,
            details=full.details,
            head=head,
            full_name=full.full_name,
            owner=full.owner,
            created_by=full.created_by,
            updated_by=full.updated_by,
            properties=delta.shown_properties(head, full.details.properties),
            tail=tail,
        )

    async def _decide(
        self, caller: Caller, now: int, operation: ledger.Operation, work: Work | None = None
    ) -> None:
        principal = caller.principal
        await self._store.decide(
            Transaction(principal.id, now, (operation,), work=(work,) if work else (), epoch=principal.epoch)
        )


def _first_head(table_id: str, new: NewTable, summary: CommitSummary) -> tuple[DeltaHead, dict[str, str]]:
    """The state of a new table, from what its version 0 says and what the request says of it."""
    if summary.protocol is None or summary.metadata is None:
        raise Invalid("version 0 has no protocol or no metadata", field="storage_location")
    written = summary.metadata.properties
    delta.require_managed(table_id, summary.protocol, written)
    declared = new.protocol
    if declared is None and any(key.startswith("delta.feature.") for key in new.properties):
        declared = delta.protocol_of(new.properties)
    if declared is not None:
        delta.require_managed(table_id, declared, new.properties or written)
        if set(declared.writer_features) != set(summary.protocol.writer_features):
            odd = set(declared.writer_features) ^ set(summary.protocol.writer_features)
            raise Invalid(
                "the table features differ from those in version 0", field="delta.feature." + min(odd)
            )
    elif new.properties and new.properties.get(delta.TABLE_ID, table_id) != table_id:
        raise Invalid(f"{delta.TABLE_ID} must be the id of the staging table", field=delta.TABLE_ID)
    if summary.timestamp is None:
        raise Invalid("version 0 has no in-commit timestamp", field="delta.enableInCommitTimestamps")
    if new.timestamp is not None and new.timestamp != summary.timestamp:
        raise Invalid("the timestamp differs from that of version 0", field="last-commit-timestamp-ms")
    partition = summary.metadata.partition_columns
    if new.partition_columns is not None and tuple(new.partition_columns) != partition:
        raise Invalid("the partition columns differ from those of version 0", field="partition-columns")
    domains = {name: msgspec.json.decode(text) for name, text in summary.domains.items() if text is not None}
    head = DeltaHead(
        protocol=summary.protocol,
        partition_columns=partition,
        domains=domains,
        updated_version=0,
        updated_timestamp=summary.timestamp,
        uniform=new.uniform,
    )
    return head, delta.stored_properties({**written, **new.properties})


def _description(summary: CommitSummary) -> str | None:
    return None if summary.metadata is None else summary.metadata.description


def _first_payload(head: DeltaHead, size: int) -> bytes:
    """Version 0 is published by its writer, so its commit row names the published file."""
    name = delta.published_name(0).rpartition("/")[2]
    return _encode(CommitInfo(0, head.updated_timestamp, name, size, head.updated_timestamp))


def require_location(table: Table, location: str | None) -> None:
    """`file:/x`, `file:///x` and `/x` are one place, with or without a slash at the end."""
    if location is None:
        return
    if Location.parse(location, field="table_uri").prefix != Location.parse(table.location).prefix:
        raise Invalid("table_uri is not the location of this table", field="table_uri")


def column_names(columns: bytes) -> tuple[str, ...]:
    return tuple(str(column["name"]) for column in msgspec.json.decode(columns) if "name" in column)


def check_report(table: Table, report: CommitReport) -> None:
    for name in report.__struct_fields__:
        value = getattr(report, name)
        if isinstance(value, int) and value < 0:
            raise Invalid(f"{name} must not be negative", field=name)
    if report.version is not None and report.version > table.version:
        raise Invalid(f"version {report.version} does not exist", field="commit_version")
    histogram = report.histogram
    if histogram is None:
        return
    boundaries = histogram.boundaries
    if not boundaries or boundaries[0] != 0:
        raise Invalid("the first boundary must be 0", field="file_size_histogram.sorted_bin_boundaries")
    if any(low >= high for low, high in pairwise(boundaries)):
        raise Invalid("boundaries must rise", field="file_size_histogram.sorted_bin_boundaries")
    for name in ("file_counts", "total_bytes"):
        values = getattr(histogram, name)
        if len(values) != len(boundaries):
            raise Invalid(f"{name} needs one value per boundary", field=f"file_size_histogram.{name}")
        if any(value < 0 for value in values):
            raise Invalid(f"{name} must not be negative", field=f"file_size_histogram.{name}")
