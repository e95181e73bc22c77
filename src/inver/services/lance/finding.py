"""Lance tables by their ids, found and allowed."""

from __future__ import annotations

from collections.abc import Sequence

from inver.domain.grants import Action
from inver.domain.names import dotted
from inver.domain.tables import Format, Table, TableKind
from inver.errors import NotFound
from inver.ports import FullTable, Store
from inver.services.access import Access, missing
from inver.services.context import Caller
from inver.services.lance.types import Placed, TableId


class Finding:
    def __init__(self, store: Store, access: Access) -> None:
        self._store = store
        self._access = access

    async def standing(self, caller: Caller) -> None:
        await self._access.standing(caller)

    async def table(self, caller: Caller, name: TableId, *actions: Action) -> FullTable:
        """A Lance table on which the caller may do all of `actions`."""
        full = None
        if len(name) >= 3:
            full = await self._store.full_table_by_name(name[0], name[1:-1], name[-1])
        await self._require(caller, name, None if full is None else full.table, actions)
        assert full is not None
        return full

    async def row(self, caller: Caller, name: TableId, *actions: Action) -> Table:
        """The same without what only a reader of the definition needs."""
        table = None
        if len(name) >= 3:
            table = await self._store.table_by_name(name[0], name[1:-1], name[-1])
        await self._require(caller, name, table, actions)
        assert table is not None
        return table

    async def _require(
        self, caller: Caller, name: TableId, table: Table | None, actions: Sequence[Action]
    ) -> None:
        shown = dotted(name)
        if table is None or table.kind is TableKind.VIEW:
            await self._access.standing(caller)
            raise missing("table", shown)
        chain = await self._access.table_chain(caller, table)
        for action in actions:
            await self._access.require(caller, action, chain, shown)
        if table.format is not Format.LANCE:
            raise NotFound(f"table {shown!r} is a {table.format} table", kind="table")


def placed(full: FullTable) -> Placed:
    return Placed(full.table, full.full_name, full.details.properties)
