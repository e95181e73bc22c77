"""Transactions: what callers ask for, turned into operations of the ledger and decided as one.

Callers name tables; the ledger knows ids. Names are resolved before the decision, and a name that
an earlier operation of the same transaction made is found too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TypeAlias

import msgspec

from inver.clock import Clock
from inver.domain import ledger
from inver.domain.events import Event
from inver.domain.grants import Action, Chain, Node
from inver.domain.idempotency import KeyedRequest
from inver.domain.ledger import MAX_OPERATIONS, Operation, Receipt, Transaction, Work
from inver.domain.names import check_name, dotted, path_key
from inver.domain.securables import Schema, SecurableKind
from inver.domain.tables import INITIAL, NAMED, Format, State, TableKind
from inver.errors import Invalid, NotFound
from inver.ids import new_id
from inver.ports import Store
from inver.services.access import METASTORE_CHAIN, Access, missing
from inver.services.catalogs import new_owner
from inver.services.context import Caller
from inver.services.names import Names, TableRef, split_name
from inver.services.once import Once
from inver.services.placement import Placement

SCOPE = "transactions"
PURGE = "table.purge"
_ANY = frozenset(State)


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A new version of a table that is given by name; one that is given by id is an `Append` as it is."""

    table: TableRef
    version: int
    token: str
    branch: str = ledger.MAIN
    operation: str = "commit"
    payload: bytes = b"{}"
    counts: bytes | None = None


class CreateTable(msgspec.Struct, frozen=True, kw_only=True):
    name: tuple[str, ...]
    format: Format
    kind: TableKind = TableKind.MANAGED
    state: State = State.LIVE
    location: str | None = None
    version: int = 0
    comment: str | None = None
    properties: dict[str, str] = {}
    columns: bytes = b"[]"


class CreateBranch(msgspec.Struct, frozen=True, kw_only=True):
    table: TableRef
    branch: str
    version: int


class RenameTable(msgspec.Struct, frozen=True, kw_only=True):
    table: TableRef
    to: tuple[str, ...]


class AlterTable(msgspec.Struct, frozen=True, kw_only=True):
    table: TableRef
    expect_etag: int | None = None
    comment: str | None | msgspec.UnsetType = msgspec.UNSET
    properties: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    columns: bytes | msgspec.UnsetType = msgspec.UNSET
    owner: str | msgspec.UnsetType = msgspec.UNSET


class DropTable(msgspec.Struct, frozen=True, kw_only=True):
    table: TableRef
    expect_etag: int | None = None


class UndropTable(msgspec.Struct, frozen=True, kw_only=True):
    table_id: str
    to: tuple[str, ...] | None = None


class MoveCursor(msgspec.Struct, frozen=True, kw_only=True):
    cursor: str
    expect: str | None
    value: str | None


Intent: TypeAlias = (
    ledger.Append
    | Commit
    | CreateTable
    | CreateBranch
    | RenameTable
    | AlterTable
    | DropTable
    | UndropTable
    | MoveCursor
)


class Transactions:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        names: Names,
        access: Access,
        placement: Placement,
        once: Once,
        hold_ms: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._names = names
        self._access = access
        self._placement = placement
        self._once = once
        self._hold_ms = hold_ms

    def decide(self, caller: Caller, intents: Sequence[Intent], numbered: bool = False) -> Awaitable[Receipt]:
        """All or none. Commits of tables given by id need no look-up and go straight to the ledger.

        `numbered` names a wrong field by its operation, for callers that asked with a list of them.
        """
        if not intents:
            raise Invalid("a transaction needs at least one operation", field="operations")
        if len(intents) > MAX_OPERATIONS:
            raise Invalid(
                f"a transaction has at most {MAX_OPERATIONS} operations, this one has {len(intents)}",
                field="operations",
            )
        if caller.key is None and self._may_append(caller, intents):
            principal = caller.principal
            appends: tuple[ledger.Append, ...] = tuple(intents)  # type: ignore[arg-type]
            return self._store.decide(
                Transaction(principal.id, self._clock.now_ms(), appends, None, (), principal.epoch)
            )
        return self._decide_once(caller, intents, numbered)

    def _may_append(self, caller: Caller, intents: Sequence[Intent]) -> bool:
        """Nothing but commits of tables given by id that the caller is known to be allowed."""
        permitted = self._access.permitted
        for intent in intents:
            if type(intent) is not ledger.Append or not permitted(caller, Action.COMMIT, intent.table_id):
                return False
        return True

    async def get(self, caller: Caller, number: int) -> list[Event]:
        await self._access.require(caller, Action.READ_EVENTS, METASTORE_CHAIN)
        events = await self._store.transaction_events(number)
        if not events:
            raise NotFound(f"transaction {number} does not exist", kind="transaction")
        return events

    async def _decide_once(self, caller: Caller, intents: Sequence[Intent], numbered: bool) -> Receipt:
        if caller.key is not None:
            # A recorded outcome is given again without a decision that would find a caller to be stale.
            await self._access.standing(caller)
        return await self._once.run(
            caller,
            SCOPE,
            _canonical(intents),
            lambda keyed: self._resolve_and_decide(caller, intents, numbered, keyed),
        )

    async def _resolve_and_decide(
        self, caller: Caller, intents: Sequence[Intent], numbered: bool, keyed: KeyedRequest | None
    ) -> Receipt:
        now = self._clock.now_ms()
        plan = _Plan(caller, self._store, self._names, self._access, self._placement, now + self._hold_ms)
        for index, intent in enumerate(intents):
            try:
                await plan.add(intent)
            except Invalid as error:
                if not numbered:
                    raise
                place = f"operations[{index}]" + (f".{error.field}" if error.field else "")
                raise Invalid(error.message, field=place, fix=error.fix) from None
        return await self._store.decide(
            Transaction(
                caller.principal.id,
                now,
                tuple(plan.operations),
                keyed,
                tuple(plan.work),
                caller.principal.epoch,
            )
        )


class _Plan:
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
        self.operations: list[Operation] = []
        self.work: list[Work] = []

    async def add(self, intent: Intent) -> None:
        match intent:
            case ledger.Append():
                await self._table(TableRef(id=intent.table_id), Action.COMMIT)
                self.operations.append(intent)
            case Commit():
                table_id = await self._table(intent.table, Action.COMMIT)
                self.operations.append(_append(table_id, intent))
            case CreateTable():
                await self._create(intent)
            case CreateBranch():
                self.operations.append(
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
                self.operations.append(
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
        self.operations.append(
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
                column_names=_column_names(intent.columns),
            )
        )
        self._stands(intent.name, table_id, self._caller.principal.id, above)

    async def _alter(self, intent: AlterTable) -> None:
        chain = await self._chain(intent.table, Action.ALTER_TABLE)
        columns = intent.columns
        self.operations.append(
            ledger.AlterTable(
                table_id=chain[0].id,
                expect_etag=intent.expect_etag,
                comment=intent.comment,
                properties=intent.properties,
                columns=columns,
                column_names=() if isinstance(columns, msgspec.UnsetType) else _column_names(columns),
                owner=await new_owner(self._store, self._access, self._caller, chain, intent.owner),
            )
        )

    async def _rename(self, intent: RenameTable) -> None:
        """Takes the table from one place and makes it in another, so it needs the right to both."""
        table = (await self._chain(intent.table, Action.RENAME))[0]
        schema, above, name = await self._target(intent.to, "to")
        self.operations.append(ledger.RenameTable(table_id=table.id, schema_id=schema.id, name=name))
        self._stands(intent.to, table.id, table.owner, above)

    async def _drop(self, intent: DropTable) -> None:
        table_id = await self._table(intent.table, Action.DROP)
        self.operations.append(
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
        self.operations.append(ledger.UndropTable(table_id=table.id, schema_id=schema_id, name=name))

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
            await self._access.require(self._caller, Action.CREATE_EXTERNAL_TABLE, chain, shown)
        return schema, chain, check_name(name, field)

    def _stands(self, name: tuple[str, ...], table_id: str, owner: str, above: Chain) -> None:
        """From the next operation on, the name means this table, with what it inherits in its place."""
        self._made[path_key(name)] = (Node(SecurableKind.TABLE, table_id, owner, name), *above)

    async def _table(self, ref: TableRef, action: Action) -> str:
        return (await self._chain(ref, action))[0].id

    async def _chain(self, ref: TableRef, action: Action) -> Chain:
        chain = None if ref.name is None else self._made.get(path_key(ref.name))
        if chain is None:
            # Whether a commit to a table that is gone has happened before is for the ledger to say.
            states = _ANY if action is Action.COMMIT and ref.id is not None else NAMED
            chain = await self._access.table_chain(self._caller, await self._names.table(ref, states))
        await self._access.require(self._caller, action, chain, ref.shown())
        return chain


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


def _canonical(intents: Sequence[Intent]) -> bytes:
    """The parsed request, the same for the same meaning whatever its spelling in bytes."""
    return msgspec.json.encode([(type(intent).__name__, intent) for intent in intents], order="sorted")


def _column_names(columns: bytes) -> tuple[str, ...]:
    """Top-level names only: what a person would search for."""
    return tuple(str(column["name"]) for column in msgspec.json.decode(columns) if "name" in column)
