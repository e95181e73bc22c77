"""Tables: found, described, listed; their changes go through `Transactions`."""

from __future__ import annotations

from collections.abc import Sequence

from inver.domain.grants import Action, Chain, Node, Standing, allowed, shows_all_inside, visible
from inver.domain.ledger import MAIN, Receipt
from inver.domain.securables import SecurableKind
from inver.domain.tables import Format, Table, TableDetails
from inver.ports import Commit, Report, Store, TableNames
from inver.services.access import Access, missing
from inver.services.catalogs import MAX_PAGE, Catalogs
from inver.services.context import Caller
from inver.services.names import Names, TableRef

LAST_VERSION = 2**63 - 1
LOOK_AT = 500
FOLLOWED = 200
"""Groups of one person, themselves included, whose tables can be asked for in one statement."""


class Tables:
    def __init__(self, store: Store, names: Names, access: Access, catalogs: Catalogs) -> None:
        self._store = store
        self._names = names
        self._access = access
        self._catalogs = catalogs

    async def get(self, caller: Caller, ref: TableRef, action: Action = Action.SEE) -> Table:
        table = await self._names.table(ref)
        chain = await self._access.table_chain(caller, table)
        await self._access.require(caller, action, chain, ref.shown())
        return table

    async def details(self, caller: Caller, table: Table) -> TableDetails | None:
        """The definition, for who may load the table; None for who merely sees that it is there."""
        if not await self._access.permits(caller, Action.LOAD, await self._access.table_chain(caller, table)):
            return None
        details = await self._store.details(table.id)
        if details is None:
            raise missing("table", table.name)
        return details

    async def changed(self, caller: Caller, receipt: Receipt) -> tuple[Table, TableDetails | None]:
        """What the caller has just made of a table. No right is asked for: the change itself needed one.

        A receipt that is given again shows the table as it is now, to who may see it now.
        """
        table_id = receipt.results[0].subject
        table = await self._store.table_by_id(table_id)
        if table is None:
            raise missing("table", table_id)
        if not receipt.replayed:
            return table, await self._store.details(table_id)
        chain = await self._access.table_chain(caller, table)
        await self._access.require(caller, Action.SEE, chain, table_id)
        return table, await self.details(caller, table)

    async def full_name(self, table: Table) -> tuple[str, ...]:
        return await self._store.full_name(table.id) or (table.name,)

    async def page(
        self, caller: Caller, catalog: str, path: Sequence[str], after: str, limit: int, views: bool = False
    ) -> list[Table]:
        """Only what the caller may see, without gaps."""
        schema = await self._catalogs.schema(caller, catalog, path)
        standing = await self._access.standing(caller)
        chain = await self._access.schema_chain(caller, schema.id)
        if shows_all_inside(standing, chain, SecurableKind.TABLE):
            return await self._store.tables(schema.id, after, min(limit, MAX_PAGE + 1), views)
        return await self._seen_one_by_one(standing, chain, after, limit, views)

    async def names(
        self,
        caller: Caller,
        catalog: str,
        path: Sequence[str],
        after: str,
        limit: int,
        format: Format,
        views: bool = False,
    ) -> TableNames:
        """What the store lists for this format, as far as the caller may see it, without gaps."""
        schema = await self._catalogs.schema(caller, catalog, path)
        standing = await self._access.standing(caller)
        chain = await self._access.schema_chain(caller, schema.id)
        if shows_all_inside(standing, chain, SecurableKind.TABLE):
            return await self._store.table_names(schema.id, after, limit, format, views)
        names: list[str] = []
        others: dict[str, tuple[Format, bytes | None]] = {}
        while len(names) < limit:
            page = await self._seen_one_by_one(standing, chain, after, MAX_PAGE, views)
            for each in page:
                if each.head is not None:
                    names.append(each.name)
                    if each.format is not format:
                        others[each.name] = (each.format, each.head)
            if len(page) < MAX_PAGE:
                break
            after = page[-1].name
        return TableNames(names[:limit], others)

    async def _seen_one_by_one(
        self, standing: Standing, above: Chain, after: str, limit: int, views: bool
    ) -> list[Table]:
        """Tables of a schema that are seen by grants on them, or by owning them.

        Who sees many of them meets enough when looking at all. Who sees few does not, and for them
        the grants are followed to their tables.
        """
        schema_id = above[0].id
        subjects = sorted(standing.subjects)
        found: list[Table] = []
        follow = False
        while len(found) < limit:
            most = limit if follow else LOOK_AT
            if follow:
                page = await self._store.tables_for(subjects, schema_id, after, most, views)
            else:
                page = await self._store.tables(schema_id, after, most, views)
            seen = [table for table in page if _is_seen(standing, above, table)]
            found += seen
            if len(page) < most:
                break
            follow = follow or (len(seen) < limit // 8 and len(subjects) <= FOLLOWED)
            after = page[-1].name
        return found[:limit]

    async def dropped(self, caller: Caller, catalog: str, path: Sequence[str], limit: int) -> list[Table]:
        """Those that the caller could bring back."""
        schema = await self._catalogs.schema(caller, catalog, path)
        standing = await self._access.standing(caller)
        found = await self._store.dropped_tables(schema.id, MAX_PAGE)
        mine = [
            table
            for table in found
            if allowed(standing, Action.DROP, await self._access.table_chain(caller, table))
        ]
        return mine[:limit]

    async def reports(self, caller: Caller, ref: TableRef, limit: int = 100) -> list[Report]:
        """What clients measured of their commits, newest first."""
        table = await self.get(caller, ref, Action.READ)
        return await self._store.reports(table.id, min(limit, MAX_PAGE))

    async def history(
        self,
        caller: Caller,
        ref: TableRef,
        branch: str = MAIN,
        first: int = 0,
        last: int = LAST_VERSION,
        limit: int = 100,
    ) -> list[Commit]:
        """Newest first. History tells of the data, so it takes the right to read the data."""
        table = await self.get(caller, ref, Action.READ)
        return await self._store.commits(table.id, branch, first, last, min(limit, MAX_PAGE))


def _is_seen(standing: Standing, above: Chain, table: Table) -> bool:
    if table.id not in standing.grants and table.owner not in standing.subjects:
        return False
    node = Node(SecurableKind.TABLE, table.id, table.owner, (*above[0].name, table.name))
    return visible(standing, (node, *above))
