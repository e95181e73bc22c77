"""Intents, resolved and allowed: the operations that they come to, and the work that follows them.

A name that an earlier intent of the same transaction made is found too.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from inver.domain import ledger
from inver.domain.grants import Action, Chain, Node
from inver.domain.ledger import Operation, Work
from inver.domain.names import check_name, dotted, path_key
from inver.domain.securables import Schema, SecurableKind
from inver.domain.tables import (
    INITIAL,
    NAMED,
    Format,
    State,
    Table,
    TableKind,
    is_managed_delta,
    is_of_its_format,
    stays_bare,
)
from inver.errors import Invalid
from inver.ids import new_id
from inver.ports import Store
from inver.services.access import METASTORE_CHAIN, Access, missing
from inver.services.catalogs import new_owner
from inver.services.claims import claims_on, gives_way
from inver.services.context import Caller
from inver.services.delta.agreement import beside_log
from inver.services.intents import (
    AlterTable,
    Commit,
    CreateBranch,
    CreateTable,
    DropTable,
    Intent,
    MoveCursor,
    RenameTable,
    UndropTable,
)
from inver.services.names import Names, TableRef, split_name
from inver.services.placement import Placement

PURGE = "table.purge"
_ANY = frozenset(State)
_NATIVE = {Format.DELTA: "delta-commit", Format.ICEBERG: "iceberg-commit", Format.LANCE: "lance"}


class Plan:
    """Operations and follow-up work, while intents are being resolved and allowed."""

    def __init__(
        self,
        caller: Caller,
        store: Store,
        names: Names,
        access: Access,
        placement: Placement,
        purge_at: int,
    ) -> None:
        self._caller = caller
        self._store = store
        self._names = names
        self._access = access
        self._placement = placement
        self._purge_at = purge_at
        self._made: dict[str, Chain] = {}
        self._index = 0
        self.operations: list[tuple[int, Operation]] = []
        self.work: list[Work] = []
        self.bare: list[str] = []
        """Tables whose versions are the ledger's alone, now and later."""

    def _add(self, operation: Operation) -> None:
        self.operations.append((self._index, operation))

    async def add(self, index: int, intent: Intent) -> None:
        self._index = index
        match intent:
            case ledger.Append():
                await self._table(TableRef(id=intent.table_id), Action.COMMIT)
                self._add(intent)
            case Commit():
                table_id = await self._table(intent.table, Action.COMMIT)
                self._add(_append(table_id, intent))
            case CreateTable():
                await self._create(intent)
            case CreateBranch():
                self._add(
                    ledger.CreateBranch(
                        table_id=await self._table(intent.table, Action.COMMIT),
                        branch=check_name(intent.branch, "branch"),
                        version=intent.version,
                    )
                )
            case RenameTable():
                await self._rename(intent)
            case AlterTable():
                await self._alter(intent)
            case DropTable():
                await self._drop(intent)
            case UndropTable():
                await self._undrop(intent)
            case MoveCursor():
                await self._access.require(self._caller, Action.MOVE_CURSOR, METASTORE_CHAIN)
                self._add(
                    ledger.MoveCursor(
                        name=check_name(intent.cursor, "cursor"), expect=intent.expect, value=intent.value
                    )
                )

    async def _create(self, intent: CreateTable) -> None:
        if intent.state not in INITIAL:
            raise Invalid(f"a table cannot start as {intent.state}", field="state")
        schema, above, name = await self._target(intent.name, "name", intent.kind)
        catalog = await self._names.catalog(intent.name[0])
        table_id = new_id()
        location = self._placement.place(intent.kind, table_id, intent.location, catalog, schema)
        if intent.kind is TableKind.EXTERNAL:
            for table in await claims_on(self._store, location):
                if gives_way(table):
                    self._add(ledger.PurgeTable(table_id=table.id, expect_etag=table.etag))
        self._add(
            ledger.CreateTable(
                id=table_id,
                schema_id=schema.id,
                name=name,
                format=intent.format,
                kind=intent.kind,
                state=intent.state,
                location=location.text,
                location_key=location.prefix,
                version=intent.version,
                comment=intent.comment,
                properties=intent.properties,
                columns=intent.columns,
                head=intent.head,
                column_names=_column_names(intent.columns),
            )
        )
        self._stands(intent.name, table_id, self._caller.principal.id, above)

    async def _alter(self, intent: AlterTable) -> None:
        chain = await self._chain(intent.table, Action.ALTER_TABLE)
        columns, properties, etag = intent.columns, intent.properties, intent.expect_etag
        told = [
            name
            for name, value in (("columns", columns), ("properties", properties))
            if not isinstance(value, msgspec.UnsetType)
        ]
        full = await self._store.full_table(chain[0].id) if told else None
        if full is not None and is_of_its_format(full.table):
            self._require_own(full.table, told)
            if is_managed_delta(full.table) and isinstance(properties, dict):
                properties = beside_log(properties, full.details.properties)
                etag = full.table.etag if etag is None else etag
        self._add(
            ledger.AlterTable(
                table_id=chain[0].id,
                expect_etag=etag,
                comment=intent.comment,
                properties=properties,
                columns=columns,
                column_names=() if isinstance(columns, msgspec.UnsetType) else _column_names(columns),
                owner=await new_owner(self._store, self._access, self._caller, chain, intent.owner),
            )
        )

    async def _rename(self, intent: RenameTable) -> None:
        """Takes the table from one place and makes it in another, so it needs the right to both."""
        table = (await self._chain(intent.table, Action.RENAME))[0]
        schema, above, name = await self._target(intent.to, "to")
        self._add(ledger.RenameTable(table_id=table.id, schema_id=schema.id, name=name))
        self._stands(intent.to, table.id, table.owner, above)

    async def _drop(self, intent: DropTable) -> None:
        table_id = await self._table(intent.table, Action.DROP)
        self._add(
            ledger.DropTable(table_id=table_id, purge_at=self._purge_at, expect_etag=intent.expect_etag)
        )
        self.work.append(Work(kind=PURGE, subject=table_id, not_before=self._purge_at))

    async def _undrop(self, intent: UndropTable) -> None:
        table = await self._names.dropped_table(intent.table_id)
        chain = await self._access.table_chain(self._caller, table)
        await self._access.require(self._caller, Action.DROP, chain, intent.table_id)
        schema_id, name = table.schema_id, None
        if intent.to is not None:
            schema, above, name = await self._target(intent.to, "to")
            schema_id = schema.id
            self._stands(intent.to, table.id, table.owner, above)
        else:
            above = await self._access.schema_chain(self._caller, schema_id)
            if above:
                await self._access.require(self._caller, Action.CREATE_TABLE, above)
                self._stands((*above[0].name, table.name), table.id, table.owner, above)
        self._add(ledger.UndropTable(table_id=table.id, schema_id=schema_id, name=name))

    async def _target(
        self, full_name: tuple[str, ...], field: str, kind: TableKind = TableKind.MANAGED
    ) -> tuple[Schema, Chain, str]:
        """The schema in which a table is to stand, what is above the table there, and its name."""
        catalog, path, name = split_name(full_name, field)
        schema = await self._names.schema(catalog, path)
        chain = await self._access.schema_chain(self._caller, schema.id)
        shown = dotted([catalog, *path])
        if not chain:
            raise missing("schema", shown)
        await self._access.require(self._caller, Action.CREATE_TABLE, chain, shown)
        if kind is TableKind.EXTERNAL:
            # The folders below the external roots are no schema's, whoever owns it.
            await self._access.require(self._caller, Action.CREATE_EXTERNAL_TABLE, METASTORE_CHAIN)
        return schema, chain, check_name(name, field)

    def _stands(self, name: tuple[str, ...], table_id: str, owner: str, above: Chain) -> None:
        """From the next operation on, the name means this table, with what it inherits in its place."""
        self._made[path_key(name)] = (Node(SecurableKind.TABLE, table_id, owner, name), *above)

    async def _table(self, ref: TableRef, action: Action) -> str:
        return (await self._chain(ref, action))[0].id

    async def _chain(self, ref: TableRef, action: Action) -> Chain:
        chain = None if ref.name is None else self._made.get(path_key(ref.name))
        table = None
        if chain is None:
            # Whether a commit to a table that is gone has happened before is for the ledger to say.
            states = _ANY if action is Action.COMMIT and ref.id is not None else NAMED
            table = await self._names.table(ref, states)
            chain = await self._access.table_chain(self._caller, table)
        await self._access.require(self._caller, action, chain, ref.shown())
        if action is Action.COMMIT and table is not None:
            self._require_bare(table)
        return chain

    def _require_own(self, table: Table, told: Sequence[str]) -> None:
        """What the format of a table keeps, its readers would not hear of."""
        kept = ("columns", "properties") if table.format is Format.ICEBERG else ("columns",)
        for name in told:
            if name in kept:
                raise Invalid(
                    f"the {name} of a table of {table.format} are changed in the words of its format",
                    field=name,
                    fix=f"change them with a client of {table.format}",
                )

    def _require_bare(self, table: Table) -> None:
        """A version without what its format keeps of it is one that no reader of that format can read."""
        if is_of_its_format(table):
            raise Invalid(
                f"versions of a table of {table.format} are made in the words of its format",
                field="table",
                fix=f"send {_NATIVE[table.format]} instead",
            )
        if stays_bare(table):
            self.bare.append(table.id)


def _append(table_id: str, commit: Commit) -> ledger.Append:
    return ledger.Append(
        table_id=table_id,
        version=commit.version,
        token=commit.token,
        branch=commit.branch,
        operation=commit.operation,
        payload=commit.payload,
        counts=commit.counts,
    )


def _column_names(columns: bytes) -> tuple[str, ...]:
    """Top-level names only: what a person would search for."""
    return tuple(str(column["name"]) for column in msgspec.json.decode(columns) if "name" in column)
