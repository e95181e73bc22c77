"""Where tables live: the server chooses for managed ones, and checks what is asked for others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from inver.domain.locations import Location
from inver.domain.securables import Catalog, Schema
from inver.domain.tables import Table, TableKind
from inver.domain.uuids import is_uuid
from inver.errors import Invalid

Home: TypeAlias = Callable[[Table], Awaitable[tuple[Catalog, Schema]]]
"""What tells the catalog and the schema in which a table stands."""


class Placement:
    """`warehouse` holds managed tables by default; `external_roots` are where others may lie."""

    def __init__(self, warehouse: Location, external_roots: Sequence[Location] = ()) -> None:
        self._warehouse = warehouse
        self._external = tuple(external_roots)

    def place(
        self, kind: TableKind, table_id: str, asked: str | None, catalog: Catalog, schema: Schema
    ) -> Location:
        """A managed location contains ids only, so no name can steer it."""
        if kind is TableKind.MANAGED:
            if asked is not None:
                raise Invalid(
                    "the server chooses the location of a managed table",
                    field="location",
                    fix="leave location out, or make the table EXTERNAL",
                )
            return self.managed(table_id, catalog, schema)
        if asked is None:
            raise Invalid("an external table needs a location", field="location")
        return self.external(asked)

    async def current(self, table: Table, home: Home) -> Location:
        """Where a table lies, if tables may lie there now: below a configured root, or its schema's own.

        The roots may have been narrowed since it was made.
        """
        location = Location.parse(table.location)
        if table.kind is not TableKind.EXTERNAL:
            return location
        try:
            return self.external(table.location)
        except Invalid:
            if self.is_own(location, *await home(table)):
                return location
            raise

    def managed(self, table_id: str, catalog: Catalog, schema: Schema) -> Location:
        root = schema.storage_root or catalog.storage_root
        return (Location.parse(root) if root else self._warehouse).join(table_id)

    def chosen(self, asked: str, catalog: Catalog, schema: Schema, field: str = "location") -> Location:
        """A place that a client picks: below its schema's or catalog's own root, or as for external tables.

        Folders named by ids are the server's, also when nothing claims them at the moment.
        """
        location = Location.parse(asked, field=field)
        inside = _own_roots(location, catalog, schema)
        for root in (*inside, self._warehouse):
            if root.contains(location) and is_uuid(root.relative(location).partition("/")[0]):
                raise Invalid(
                    f"{location.canonical} is for a table whose location the server chooses",
                    field=field,
                    fix="leave location out, or choose another folder",
                )
        return location if inside else self.external(asked, field)

    def is_own(self, location: Location, catalog: Catalog, schema: Schema) -> bool:
        """Whether it lies below a root that the schema or its catalog was given."""
        return bool(_own_roots(location, catalog, schema))

    def external(self, asked: str, field: str = "location") -> Location:
        location = Location.parse(asked, field=field)
        if location.is_root:
            raise Invalid("a whole bucket or file system cannot be a table", field=field)
        if not any(root.contains(location) for root in self._external):
            raise Invalid(
                f"{location.canonical} lies under no root that external tables may use",
                field=field,
                fix="add its root to storage.external_roots, or move the table under one of them",
            )
        return location


def _own_roots(location: Location, catalog: Catalog, schema: Schema) -> list[Location]:
    """The roots of the schema and its catalog that the location lies below."""
    own = [Location.parse(root) for root in (schema.storage_root, catalog.storage_root) if root]
    return [root for root in own if root.contains(location) and root != location]
