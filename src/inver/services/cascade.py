"""Schemas and catalogs dropped together with everything in them."""

from __future__ import annotations

from collections.abc import Sequence

from inver.clock import Clock
from inver.domain import ledger
from inver.domain.grants import Action
from inver.domain.ledger import MAX_OPERATIONS, Operation, Transaction, Work
from inver.domain.names import dotted
from inver.domain.securables import Schema
from inver.ports import Store
from inver.services.access import Access, missing
from inver.services.context import Caller
from inver.services.names import Names
from inver.services.planning import PURGE

PAGE = 1_000


class Cascade:
    """Who may drop the whole may drop its parts: owning and managing both reach downwards.

    It is one transaction as long as it fits into one. The tables can come back until their hold
    time ends.
    """

    def __init__(self, store: Store, clock: Clock, names: Names, access: Access, hold_ms: int) -> None:
        self._store = store
        self._clock = clock
        self._names = names
        self._access = access
        self._hold_ms = hold_ms

    async def drop_schema(self, caller: Caller, catalog: str, path: Sequence[str]) -> None:
        schema = await self._names.schema(catalog, path)
        chain = await self._access.schema_chain(caller, schema.id)
        shown = dotted([catalog, *path])
        if not chain:
            raise missing("schema", shown)
        await self._access.require(caller, Action.DROP, chain, shown)
        await self._decide(caller, await self._inside([schema]))

    async def drop_catalog(self, caller: Caller, name: str) -> None:
        catalog = await self._names.catalog(name)
        await self._access.require(caller, Action.DROP, self._access.catalog_chain(catalog), name)
        inside = await self._inside(await self._schemas(catalog.id))
        await self._decide(caller, [*inside, ledger.DropCatalog(id=catalog.id)])

    async def _inside(self, schemas: Sequence[Schema]) -> list[Operation]:
        """What is inside comes before what contains it.

        All tables come first: a schema that is dropped changes what is allowed, and whoever drops
        more than one transaction holds is then allowed anew.
        """
        tables: list[Operation] = []
        containers: list[Operation] = []
        for schema in schemas:
            await self._collect(schema, tables, containers)
        return [*tables, *containers]

    async def _collect(self, schema: Schema, tables: list[Operation], containers: list[Operation]) -> None:
        for inner in await self._schemas(schema.id):
            await self._collect(inner, tables, containers)
        purge_at = self._clock.now_ms() + self._hold_ms
        for views in (False, True):
            after = ""
            while page := await self._store.tables(schema.id, after, PAGE, views):
                tables += [ledger.DropTable(table_id=table.id, purge_at=purge_at) for table in page]
                after = page[-1].name
        containers.append(ledger.DropSchema(id=schema.id))

    async def _schemas(self, parent_id: str) -> list[Schema]:
        found: list[Schema] = []
        while page := await self._store.schemas(parent_id, found[-1].name if found else "", PAGE):
            found += page
        return found

    async def _decide(self, caller: Caller, operations: Sequence[Operation]) -> None:
        principal = caller.principal
        for start in range(0, len(operations), MAX_OPERATIONS):
            part = tuple(operations[start : start + MAX_OPERATIONS])
            work = tuple(
                Work(kind=PURGE, subject=operation.table_id, not_before=operation.purge_at)
                for operation in part
                if isinstance(operation, ledger.DropTable)
            )
            await self._store.decide(
                Transaction(principal.id, self._clock.now_ms(), part, work=work, epoch=principal.epoch)
            )
