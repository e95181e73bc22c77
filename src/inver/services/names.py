"""From names to what they stand for. Nothing here asks who wants to know: that is `Access`'s part."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from inver.domain.names import dotted
from inver.domain.securables import Catalog, Schema
from inver.domain.tables import NAMED, State, Table, TableKind
from inver.domain.uuids import is_uuid
from inver.errors import Invalid
from inver.ports import Store
from inver.services.access import missing


class TableRef(msgspec.Struct, frozen=True):
    """A table by id, or by catalog, schema path and name; or the view that has this name or id."""

    id: str | None = None
    name: tuple[str, ...] | None = None
    view: bool = False

    def shown(self) -> str:
        return dotted(self.name) if self.name else str(self.id)


class Names:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def catalog(self, name: str) -> Catalog:
        catalog = await self._store.catalog_by_name(name)
        if catalog is None:
            raise missing("catalog", name)
        return catalog

    async def schema(self, catalog: str, path: Sequence[str]) -> Schema:
        schema = await self._store.schema_by_path(catalog, path)
        if schema is None:
            # Whether there is such a catalog is not for everybody to know.
            raise missing("schema", dotted([catalog, *path]))
        return schema

    async def table(self, ref: TableRef, states: Collection[State] = NAMED) -> Table:
        """A table that holds its name; dropped and staged ones are not found unless they are asked for."""
        table = await self._find(ref)
        if table is None or table.state not in states or (table.kind is TableKind.VIEW) is not ref.view:
            raise missing("view" if ref.view else "table", ref.shown())
        return table

    async def home(self, table: Table) -> tuple[Catalog, Schema]:
        """The catalog and the schema in which a table stands."""
        name = await self._store.full_name(table.id)
        if name is None:
            raise missing("table", table.name)
        return await self.catalog(name[0]), await self.schema(name[0], name[1:-1])

    async def dropped_table(self, table_id: str) -> Table:
        table = await self._find(TableRef(id=table_id))
        if table is None or table.state is not State.DROPPED:
            raise missing("table", table_id)
        return table

    async def _find(self, ref: TableRef) -> Table | None:
        if ref.id is not None:
            if not is_uuid(ref.id):
                raise Invalid("a table id is a UUID", field="table.id")
            return await self._store.table_by_id(ref.id.lower())
        catalog, path, name = split_name(ref.name or (), "table.name")
        return await self._store.table_by_name(catalog, path, name)


def split_name(name: tuple[str, ...], field: str) -> tuple[str, tuple[str, ...], str]:
    if len(name) < 3:
        raise Invalid(
            "a table name has a catalog, at least one schema and a name",
            field=field,
            fix='for example ["main", "sales", "orders"]',
        )
    return name[0], name[1:-1], name[-1]
