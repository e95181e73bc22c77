"""Keys to storage: who gets which, and for what.

Reading a table's files takes the right to read the table, writing them the right to commit to it
besides. A path that is no table's is for who may read, or read and write files there, or make an
external table of them. The order is always the
same: find out what it is, allow it, check it against the roots that are configured now, and only
then make a key.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from inver.domain.grants import Action
from inver.domain.locations import Location
from inver.domain.tables import NAMED, State, Table
from inver.domain.uuids import is_uuid
from inver.errors import AlreadyExists, Forbidden, Invalid, NotFound
from inver.ports import CredentialVendor, StorageAccess, StorageCredential, Store
from inver.services.access import METASTORE_CHAIN, Access, missing
from inver.services.claims import OVERLAPS, gives_way
from inver.services.context import Caller
from inver.services.names import Names, TableRef
from inver.services.placement import Placement


class PathUse(StrEnum):
    READ = "READ"
    READ_WRITE = "READ_WRITE"
    CREATE_TABLE = "CREATE_TABLE"


_FOR_PATHS = {
    PathUse.READ: (Action.READ_FILES,),
    PathUse.READ_WRITE: (Action.READ_FILES, Action.WRITE_FILES),
    PathUse.CREATE_TABLE: (Action.CREATE_EXTERNAL_TABLE,),
}
"""What it takes to get keys to a path that is no table's."""


class Vended(msgspec.Struct, frozen=True):
    """`keys` is None where clients reach the location by themselves."""

    location: str
    access: StorageAccess
    keys: StorageCredential | None


class Credentials:
    def __init__(
        self, store: Store, names: Names, access: Access, placement: Placement, vendor: CredentialVendor
    ) -> None:
        self._store = store
        self._names = names
        self._access = access
        self._placement = placement
        self._vendor = vendor

    async def for_table(self, caller: Caller, ref: TableRef, access: StorageAccess) -> Vended:
        """For a table, or by id for one that the caller has staged."""
        if ref.id is not None:
            staged = await self._staged(ref.id)
            if staged is not None:
                return await self._for_staged(caller, staged, ref.id)
        table = await self._names.table(ref)
        await self._require(caller, table, access, ref.shown())
        return await self._vend(await self._current(table), access)

    async def by_right(self, caller: Caller, table: Table) -> Vended | None:
        """For writing who may commit, for reading who may read, and nothing for others."""
        chain = await self._access.table_chain(caller, table)
        if not await self._access.permits(caller, Action.READ, chain):
            return None
        writes = await self._access.permits(caller, Action.COMMIT, chain)
        access = StorageAccess.READ_WRITE if writes else StorageAccess.READ
        return await self._vend(await self._current(table), access)

    async def for_new(self, location: Location) -> Vended:
        """For a place that was chosen or checked for a table that is about to be written."""
        return await self._vend(location, StorageAccess.READ_WRITE)

    async def for_staged(self, caller: Caller, table_id: str) -> Vended:
        """Always for writing: version 0 is still to be written."""
        table = await self._staged(table_id)
        if table is None:
            raise missing("table", table_id)
        return await self._for_staged(caller, table, table_id)

    async def for_path(self, caller: Caller, url: str, use: PathUse) -> Vended:
        location = Location.parse(url, field="url")
        access = StorageAccess.READ if use is PathUse.READ else StorageAccess.READ_WRITE
        table = await self._covering(location, use)
        try:
            if table is not None:
                await self._require_inside(caller, table, access)
            else:
                for action in _FOR_PATHS[use]:
                    await self._access.require(caller, action, METASTORE_CHAIN)
        except (Forbidden, NotFound):
            # The same words for every path, so that nobody learns where others keep their tables.
            raise Forbidden(
                f"{caller.principal.name} may not have keys to this path",
                fix="needed: SELECT and MODIFY on the table there, or on metastore READ FILES and "
                "WRITE FILES, or CREATE EXTERNAL TABLE to create one",
            ) from None
        if table is not None:
            if use is PathUse.CREATE_TABLE and table.state is not State.STAGED:
                raise AlreadyExists("the path belongs to a table already", kind="location")
            return await self._vend(location, access)
        if location.is_root:
            raise Forbidden("there are no keys to a whole bucket or file system")
        below = await self._store.tables_below(*location.scan_range(), OVERLAPS)
        if len(below) == OVERLAPS or not all(_leaves(each, use) for each in below):
            raise Forbidden("there are no keys to a folder that contains tables")
        return await self._vend(self._placement.external(url, "url"), access)

    async def for_new_table(self, caller: Caller, url: str, access: StorageAccess) -> Vended:
        """For a path that is to become an external table: who may make one may write its files first."""
        try:
            return await self.for_path(caller, url, PathUse(access))
        except Forbidden:
            if access is StorageAccess.READ:
                raise
            return await self.for_path(caller, url, PathUse.CREATE_TABLE)

    async def _current(self, table: Table) -> Location:
        return await self._placement.current(table, self._names.home)

    async def _vend(self, location: Location, access: StorageAccess) -> Vended:
        return Vended(location.text, access, await self._vendor.vend(location, access))

    async def _for_staged(self, caller: Caller, table: Table, shown: str) -> Vended:
        await self._require_staged(caller, table, shown)
        return await self._vend(Location.parse(table.location), StorageAccess.READ_WRITE)

    async def _staged(self, table_id: str) -> Table | None:
        if not is_uuid(table_id):
            raise Invalid("a table id is a UUID", field="table_id")
        table = await self._store.table_by_id(table_id.lower())
        return table if table is not None and table.state is State.STAGED else None

    async def _covering(self, location: Location, use: PathUse) -> Table | None:
        """The table in whose folder the location lies."""
        for place in (location, *reversed(location.ancestors())):
            table = await self._store.table_at(place.prefix)
            if table is not None:
                return None if _leaves(table, use) else table
        return None

    async def _require(self, caller: Caller, table: Table, access: StorageAccess, shown: str) -> None:
        chain = await self._access.table_chain(caller, table)
        await self._access.require(caller, Action.READ, chain, shown)
        if access is StorageAccess.READ_WRITE:
            await self._access.require(caller, Action.COMMIT, chain, shown)

    async def _require_staged(self, caller: Caller, table: Table, shown: str) -> None:
        """Only for who staged it, as long as they may make it a table."""
        chain = await self._access.schema_chain(caller, table.schema_id)
        mine = table.created_by == caller.principal.id
        if mine and chain:
            await self._access.require(caller, Action.CREATE_TABLE, chain)
        elif chain and await self._access.permits(caller, Action.CREATE_TABLE, chain):
            raise Forbidden("a staged table belongs to who staged it")
        else:
            await self._access.standing(caller)
            raise missing("table", shown)

    async def _require_inside(self, caller: Caller, table: Table, access: StorageAccess) -> None:
        if table.state is State.STAGED:
            await self._require_staged(caller, table, table.id)
            return
        if table.state not in NAMED:
            raise missing("table", table.id)
        await self._require(caller, table, access, table.id)
        await self._current(table)


def _leaves(table: Table, use: PathUse) -> bool:
    """Whether the table would give its place to the one that these keys are for."""
    return use is PathUse.CREATE_TABLE and gives_way(table)
