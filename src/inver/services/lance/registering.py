"""Tables that were there before: they come to the catalog with all versions that they have."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from inver.clock import Clock
from inver.domain import ledger
from inver.domain.grants import Action
from inver.domain.lance import WrongState, body_of
from inver.domain.ledger import MAIN, Operation, Record, Transaction
from inver.domain.locations import Location
from inver.domain.names import check_name, dotted
from inver.domain.tables import Format, State, Table, TableKind
from inver.errors import AlreadyExists, Invalid, NotFound
from inver.ids import new_id
from inver.ports import ObjectStore, Store
from inver.services.access import METASTORE_CHAIN, Access, missing
from inver.services.context import Caller
from inver.services.lance.finding import placed
from inver.services.lance.importing import branch_operations, recorded
from inver.services.lance.manifests import Manifests
from inver.services.lance.planning import NEVER
from inver.services.lance.refs import Refs
from inver.services.lance.targets import definition_of, head_of
from inver.services.lance.types import Placed, TableId
from inver.services.names import Names
from inver.services.placement import Placement

_encode = msgspec.json.encode


class Registering:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        names: Names,
        access: Access,
        placement: Placement,
        manifests: Manifests,
        refs: Refs,
        open_objects: Callable[[Location], ObjectStore],
    ) -> None:
        self._store = store
        self._clock = clock
        self._names = names
        self._access = access
        self._placement = placement
        self._manifests = manifests
        self._refs = refs
        self._open = open_objects

    async def register(
        self, caller: Caller, name: TableId, location: str, properties: dict[str, str], overwrite: bool
    ) -> Placed:
        """One that left the catalog comes back as it was, with its whole history."""
        if len(name) < 3:
            raise Invalid("a table id has a catalog, at least one namespace and a name", field="id")
        check_name(name[-1], "id")
        schema = await self._names.schema(name[0], name[1:-1])
        chain = await self._access.schema_chain(caller, schema.id)
        if not chain:
            raise missing("schema", dotted(name[:-1]))
        await self._access.require(caller, Action.CREATE_TABLE, chain, dotted(name[:-1]))
        operations = await self._make_room(caller, name, overwrite)
        place = Location.parse(location, field="location")
        standing = await self._store.table_at(place.prefix)
        if standing is not None and standing.state is State.DROPPED and standing.format is Format.LANCE:
            table_id = standing.id
            operations.append(await self._bring_back(caller, standing, schema.id, name[-1]))
        else:
            await self._access.require(caller, Action.CREATE_EXTERNAL_TABLE, METASTORE_CHAIN)
            table_id = new_id()
            place = self._placement.external(location)
            operations += await self._import(table_id, schema.id, name[-1], place, properties)
        principal = caller.principal
        await self._store.decide(
            Transaction(principal.id, self._clock.now_ms(), tuple(operations), epoch=principal.epoch)
        )
        full = await self._store.full_table(table_id)
        if full is None:
            raise missing("table", dotted(name))
        return placed(full)

    async def _make_room(self, caller: Caller, name: TableId, overwrite: bool) -> list[Operation]:
        """Whoever has the name now gives it up, and keeps its data."""
        known = await self._store.table_by_name(name[0], name[1:-1], name[-1])
        if known is None:
            return []
        if not overwrite:
            raise AlreadyExists(f"table {dotted(name)!r} already exists", kind="table")
        chain = await self._access.table_chain(caller, known)
        await self._access.require(caller, Action.DROP, chain, dotted(name))
        return [ledger.DropTable(table_id=known.id, purge_at=NEVER)]

    async def _bring_back(self, caller: Caller, table: Table, schema_id: str, name: str) -> Operation:
        chain = await self._access.table_chain(caller, table)
        await self._access.require(caller, Action.DROP, chain, table.location)
        return ledger.UndropTable(table_id=table.id, schema_id=schema_id, name=name)

    async def _import(
        self, table_id: str, schema_id: str, name: str, place: Location, properties: dict[str, str]
    ) -> list[Operation]:
        objects = self._open(place)
        records = await recorded(objects, MAIN)
        if not records:
            raise Invalid(f"there is no Lance table at {place.canonical}", field="location")
        newest = records[-1]
        try:
            manifest = self._manifests.parse(await objects.get(body_of(newest.body).staged))
        except NotFound:
            raise WrongState("the table changes while it is registered; try again") from None
        records[-1] = Record(newest.version, newest.at, manifest.uuid, newest.body)
        definition = definition_of(manifest)
        assert isinstance(definition.columns, bytes)
        operations: list[Operation] = [
            ledger.CreateTable(
                id=table_id,
                schema_id=schema_id,
                name=name,
                format=Format.LANCE,
                kind=TableKind.EXTERNAL,
                location=place.text,
                location_key=place.prefix,
                version=newest.version,
                head=_encode(head_of(manifest)),
                properties=properties,
                columns=definition.columns,
                column_names=definition.column_names,
            ),
            ledger.AddRecords(table_id=table_id, records=tuple(records)),
        ]
        for branch in await self._refs.branch_names(objects):
            operations += branch_operations(table_id, branch, await recorded(objects, branch))
        return operations
