"""Which tables hold a place, and which of them leave it to the next one that wants it."""

from __future__ import annotations

from inver.domain.locations import Location
from inver.domain.tables import State, Table, TableKind
from inver.ports import Store

OVERLAPS = 100
"""So many tables below one place are looked at; where there are more, it is not free."""


async def claims_on(store: Store, location: Location) -> list[Table]:
    """Tables at this place, below it and above it, dropped ones too."""
    below = await store.tables_below(*location.scan_range(), OVERLAPS)
    return below + await claims_above(store, location)


async def claims_above(store: Store, location: Location) -> list[Table]:
    found = [await store.table_at(above.prefix) for above in location.ancestors()]
    return [table for table in found if table is not None]


def gives_way(table: Table) -> bool:
    """A dropped table whose files stay holds its place only until somebody uses it."""
    return table.state is State.DROPPED and table.kind is not TableKind.MANAGED
