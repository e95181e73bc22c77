"""Where tables live: the server chooses for managed ones, and checks what is asked for others."""

from __future__ import annotations

from collections.abc import Sequence

from inver.domain.locations import Location
from inver.domain.securables import Catalog, Schema
from inver.domain.tables import TableKind
from inver.errors import Invalid


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
            root = schema.storage_root or catalog.storage_root
            return (Location.parse(root) if root else self._warehouse).join(table_id)
        if asked is None:
            raise Invalid("an external table needs a location", field="location")
        return self.external(asked)

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
