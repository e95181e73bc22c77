"""The use cases of Delta tables that Unity's faces share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256

import msgspec

from inver.clock import Clock
from inver.domain import delta, ledger
from inver.domain.delta import CommitInfo, CommitSummary, DeltaHead
from inver.domain.grants import Action
from inver.domain.ledger import Receipt, Transaction, Work
from inver.domain.locations import Location
from inver.domain.names import check_name, dotted, path_key
from inver.domain.tables import Format, State, Table, TableKind, is_managed_delta
from inver.errors import (
    AlreadyExists,
    Forbidden,
    Invalid,
    NotFound,
    OutcomeUnknown,
    Refused,
    Stale,
    Unavailable,
)
from inver.ids import new_id
from inver.ports import FullTable, LogTail, ObjectStore, Store
from inver.services.access import Access, missing
from inver.services.context import Caller
from inver.services.delta.chains import Chains
from inver.services.delta.changing import check_first_uniform, check_partitions
from inver.services.delta.commits import Commits, check_table_id, require_location
from inver.services.delta.first_version import finishing
from inver.services.delta.reports import check_report
from inver.services.delta.staged import StagedCommits
from inver.services.delta.types import (
    CommitReport,
    Definition,
    Loaded,
    NewTable,
    Proposal,
    Snapshot,
    Staged,
    Tail,
)
from inver.services.intents import CreateTable
from inver.services.names import Names, TableRef, split_name
from inver.services.placement import Placement
from inver.services.transactions import Transactions

UNSTAGE = "table.unstage"
LAST_VERSION = 2**63 - 1
DEFINITIONS = 4_096
TRIES = 5

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
        staged: StagedCommits,
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
        self._staged = staged
        self._stage_ms = stage_ms
        self._definitions: dict[str, Definition] = {}
        self._chains = Chains()

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
        # A place has many spellings.
        same = msgspec.structs.replace(new, location=place.prefix)
        fingerprint = sha256(_encode(same, order="sorted")).hexdigest()
        if table is None or table.state not in (State.STAGED, State.LIVE):
            if table is not None and await self._was_created(table, fingerprint):
                raise OutcomeUnknown("the request is applied, and the table was dropped after it")
            raise NotFound(f"no staged table has the location {new.location}", kind="table")
        if table.created_by != caller.principal.id:
            raise Forbidden("only who staged a table can finish it")
        taken = await self._store.table_by_name(catalog, path, name)
        if table.state is State.LIVE or (taken is not None and taken.id == table.id):
            return await self._created_before(table, fingerprint)
        if taken is not None:
            raise AlreadyExists(f"table {dotted(new.name)!r} already exists", kind="table")
        objects = self._open(Location.parse(table.location))
        data, summary = await self._first_version(table, objects)
        # Spark's writers expect it, and not everybody who creates a table makes it.
        await objects.make_folder(delta.STAGED_FOLDER)
        operation = finishing(table, schema.id, new, len(data), summary, fingerprint)
        try:
            await self._decide(caller, self._clock.now_ms(), operation)
        except Refused:
            # The same request may have been sent twice at once, and the other one was decided.
            finished = await self._store.table_by_id(table.id)
            if finished is None or finished.state is not State.LIVE:
                raise
            return await self._created_before(finished, fingerprint)
        return await self.changed(table.id)

    async def register(
        self,
        caller: Caller,
        name: tuple[str, ...],
        location: str,
        format: Format,
        columns: bytes = b"[]",
        properties: dict[str, str] | None = None,
        comment: str | None = None,
        head: DeltaHead | None = None,
    ) -> Loaded:
        """An external table: its files and its log belong to others. `head` is what is known of the log."""
        if head is not None:
            partition = check_partitions(head.partition_columns, columns)
            head = msgspec.structs.replace(head, partition_columns=partition)
            if head.uniform is not None:
                check_first_uniform(location, properties or {}, head.uniform)
        intent = CreateTable(
            name=name,
            format=format,
            kind=TableKind.EXTERNAL,
            location=location,
            columns=columns,
            properties=properties or {},
            comment=comment,
            head=None if head is None else _encode(head),
        )
        receipt = await self._transactions.decide(caller, [intent])
        return await self.changed(receipt.results[0].subject)

    # --- reading ---

    async def load(self, caller: Caller, ref: TableRef) -> Loaded:
        full = await self._find(ref)
        chain = await self._access.table_chain(caller, full.table)
        await self._access.require(caller, Action.LOAD, chain, ref.shown())
        return _loaded(full)

    async def changed(self, table_id: str) -> Loaded:
        """What the caller has just made of a table. No right is asked for: the change itself needed one.

        To say that it is not there would say that the change was not made.
        """
        try:
            return _loaded(await self._full(table_id))
        except NotFound:
            raise OutcomeUnknown("the change is made, and the table was dropped after it") from None

    async def snapshot(self, caller: Caller, name: tuple[str, ...]) -> Snapshot:
        """What a reader of the table needs, and nothing that only people want to see."""
        catalog, path, short = split_name(name, "table.name")
        found = await self._store.tail_by_name(catalog, path, short)
        if found is None:
            raise missing("table", dotted(name))
        await self._require_load(caller, found, dotted(name))
        return await self._snapshot(found, await self._may_maintain(caller, found.table))

    async def changed_snapshot(self, caller: Caller, table_id: str) -> Snapshot:
        """The same of what the caller has just made of a table, whose success no further look may undo."""
        found = await self._store.tail(table_id, 0, LAST_VERSION)
        if found is None:
            raise missing("table", table_id)
        maintained = False
        with suppress(Stale):
            maintained = await self._may_maintain(caller, found.table)
        snapshot = await self._snapshot(found, maintained)
        self._chains.begin(snapshot)
        return snapshot

    def followed(self, caller: Caller, proposal: Proposal, receipt: Receipt | None) -> Snapshot | None:
        """The table as this commit left it; None when it must be looked at."""
        if receipt is None or receipt.replayed or proposal.info is None:
            return None
        payload = _encode(proposal.info)
        return self._chains.extend(proposal.table_id, payload, receipt, caller, self._maintains)

    async def tail(
        self, caller: Caller, table_id: str, location: str | None, first: int, last: int | None
    ) -> Tail:
        """Commits from `first` to `last`; a table that the catalog does not manage is at version -1."""
        if first < 0:
            raise Invalid("start_version must not be negative", field="start_version")
        if last is not None and last < first:
            raise Invalid("end_version must not be before start_version", field="end_version")
        table_id = check_table_id(table_id)
        found = await self._store.tail(table_id, first, LAST_VERSION if last is None else last)
        if found is None:
            raise missing("table", table_id)
        await self._require_load(caller, found, table_id)
        if location != found.table.location:
            require_location(found.table, location)
        if not is_managed_delta(found.table):
            return Tail(b"[]", -1)
        return Tail(found.commits, found.table.version)

    # --- writing ---

    def propose(self, caller: Caller, proposal: Proposal) -> Awaitable[Receipt | None]:
        return self._commits.propose(caller, proposal)

    def propose_to(
        self, caller: Caller, name: tuple[str, ...], proposal: Proposal
    ) -> Awaitable[Receipt | None] | None:
        """The same for the table of this name; None unless that is known to be the one of the proposal.

        It holds in the caller's epoch, which the decision about a commit compares with its own.
        """
        chain = self._access.permitted(caller, Action.COMMIT, proposal.table_id)
        if chain is None or (chain[0].name != name and path_key(chain[0].name) != path_key(name)):
            return None
        return self._commits.propose(caller, proposal, permitted=True)

    async def has_happened(self, caller: Caller, table_id: str, info: CommitInfo) -> bool:
        """Whether a commit is one of the ledger's, whatever its table is called by now."""
        return await self._commits.repeats.has_happened(caller, table_id, info)

    async def report(self, caller: Caller, table_id: str, location: str | None, report: CommitReport) -> None:
        table = await self._names.table(TableRef(id=check_table_id(table_id)))
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

    async def _first_version(self, table: Table, objects: ObjectStore) -> tuple[bytes, CommitSummary]:
        try:
            return await self._staged.read_first(objects)
        except NotFound:
            found = await self._store.table_by_id(table.id)
            if found is None or found.state is State.PURGED:
                raise NotFound(
                    "the staged table was not finished in time", kind="table", fix="stage it again"
                ) from None
            raise Invalid(
                "version 0 of the table is not written",
                field="storage_location",
                fix=f"write {delta.published_name(0)} below {table.location} first",
            ) from None

    async def _created_before(self, table: Table, fingerprint: str) -> Loaded:
        if not await self._was_created(table, fingerprint):
            raise AlreadyExists(f"the staged table {table.id} is finished already", kind="table")
        return _loaded(await self._full(table.id))

    async def _was_created(self, table: Table, fingerprint: str) -> bool:
        """Whether it was this request that finished the table."""
        first = await self._store.commits(table.id, ledger.MAIN, 0, 0, 1)
        return bool(first) and first[0].token == fingerprint

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

    async def _require_load(self, caller: Caller, found: LogTail, shown: str) -> None:
        table, principal = found.table, caller.principal
        if found.epoch == principal.epoch and self._access.permitted(caller, Action.LOAD, table.id):
            return
        chain = await self._access.table_chain(caller, table)
        await self._access.require(caller, Action.LOAD, chain, shown)

    async def _may_maintain(self, caller: Caller, table: Table) -> bool:
        if not is_managed_delta(table):
            return False
        if self._maintains(caller, table.id):
            return True
        if self._access.permitted(caller, Action.LOAD, table.id):
            # Every fact is at hand, so it is not the lack of one that has spoken.
            return False
        chain = await self._access.table_chain(caller, table)
        return await self._access.permits(caller, Action.MAINTAIN, chain)

    def _maintains(self, caller: Caller, table_id: str) -> bool:
        return self._access.permitted(caller, Action.MAINTAIN, table_id) is not None

    async def _snapshot(self, found: LogTail, maintained: bool) -> Snapshot:
        for _ in range(TRIES):
            definition = self._definitions.get(found.table.id)
            if definition is None or not definition.is_of(found.table):
                definition = _definition(await self._full(found.table.id))
                self._remember(found.table.id, definition)
            if definition.is_of(found.table):
                tail = Tail(found.commits, found.table.version) if definition.head.managed else None
                return Snapshot(found.table, definition, tail, maintained, found.table.updated_at)
            again = await self._store.tail(found.table.id, 0, LAST_VERSION)
            if again is None:
                raise missing("table", found.table.name)
            found = again
        raise Unavailable("the table changes too fast; send the request again")

    def _remember(self, table_id: str, definition: Definition) -> None:
        if len(self._definitions) >= DEFINITIONS:
            self._definitions.clear()
        self._definitions[table_id] = definition

    async def _decide(
        self, caller: Caller, now: int, operation: ledger.Operation, work: Work | None = None
    ) -> None:
        principal = caller.principal
        await self._store.decide(
            Transaction(principal.id, now, (operation,), work=(work,) if work else (), epoch=principal.epoch)
        )


def _definition(full: FullTable) -> Definition:
    table = full.table
    head = delta.head_of(table.head if table.format is Format.DELTA else None)
    return Definition(
        etag=table.etag,
        stored_head=table.head,
        head=head,
        columns=full.details.columns,
        properties=delta.shown_properties(head, full.details.properties),
    )


def _loaded(full: FullTable) -> Loaded:
    head = delta.head_of(full.table.head if full.table.format is Format.DELTA else None)
    return Loaded(
        table=full.table,
        details=full.details,
        head=head,
        full_name=full.full_name,
        owner=full.owner,
        created_by=full.created_by,
        updated_by=full.updated_by,
        properties=delta.shown_properties(head, full.details.properties),
    )
