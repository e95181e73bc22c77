"""Many tables at once, each with as much of its definition as the caller may load."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from inver.domain.delta import DeltaHead, head_of, shown_properties
from inver.domain.grants import Action, allowed
from inver.domain.tables import Format, Table, TableDetails
from inver.ports import FullTable, Store
from inver.services.access import Access
from inver.services.context import Caller
from inver.services.delta.types import Loaded

BATCH = 500
_NOTHING = TableDetails(comment=None, properties={}, columns=b"[]")


class Listing:
    def __init__(self, store: Store, access: Access) -> None:
        self._store = store
        self._access = access

    async def loaded(self, caller: Caller, tables: Sequence[Table]) -> list[Loaded]:
        """Tables that the caller has been shown; those dropped meanwhile are left out."""
        standing = await self._access.standing(caller)
        found: list[Loaded] = []
        for start in range(0, len(tables), BATCH):
            ids = [table.id for table in tables[start : start + BATCH]]
            for full in await self._store.full_tables(ids):
                chain = await self._access.table_chain(caller, full.table)
                found.append(_loaded(full) if allowed(standing, Action.LOAD, chain) else _seen(full))
        return found


def _loaded(full: FullTable) -> Loaded:
    head = head_of(full.table.head if full.table.format is Format.DELTA else None)
    return _listed(full, full.table, full.details, head)


def _seen(full: FullTable) -> Loaded:
    """For who may know that the table is there, and no more."""
    return _listed(full, msgspec.structs.replace(full.table, location=""), _NOTHING, DeltaHead(managed=False))


def _listed(full: FullTable, table: Table, details: TableDetails, head: DeltaHead) -> Loaded:
    return Loaded(
        table=table,
        details=details,
        head=head,
        full_name=full.full_name,
        owner=full.owner,
        created_by=full.created_by,
        updated_by=full.updated_by,
        properties=shown_properties(head, details.properties),
    )
