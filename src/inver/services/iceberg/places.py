"""Where Iceberg tables and views may lie, and where what they name may lie.

The server chooses unless the client does; what a client chooses is checked before anything is
written or any key is given, and the ledger makes sure that no table lies inside another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from inver.domain import ledger
from inver.domain.grants import Action
from inver.domain.iceberg import State
from inver.domain.iceberg.snapshots import Snapshot
from inver.domain.locations import Location
from inver.domain.tables import NAMED, Format, Table, TableKind
from inver.domain.tables import State as Life
from inver.domain.uuids import is_uuid
from inver.errors import AlreadyExists, Invalid
from inver.ports import Store
from inver.services.access import METASTORE_CHAIN, Access
from inver.services.claims import claims_above, claims_on, gives_way
from inver.services.context import Caller
from inver.services.iceberg.files import known_place
from inver.services.iceberg.finding import Home
from inver.services.placement import Placement

METADATA_PATH = "write.metadata.path"
PATHS = (METADATA_PATH, "write.data.path", "write.object-storage.path", "write.folder-storage.path")
"""Every property by which a table says where files go."""
USUAL_LENGTH = 1_000
# Segments of plain letters that do not begin with a dot: nothing that leads elsewhere, or is read otherwise.
_USUAL_PATH = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9_.-]*/)*[A-Za-z0-9_-][A-Za-z0-9_.-]*").fullmatch
OVERLAP = "the location overlaps the location of another table"


class Site(msgspec.Struct, frozen=True):
    """A place for a table: how it is held, and the dropped tables that give way to it."""

    kind: TableKind
    location: Location
    ways: tuple[ledger.PurgeTable, ...] = ()

    def place(self) -> ledger.Place:
        return ledger.Place(kind=self.kind, location=self.location.text, location_key=self.location.prefix)


class Places:
    def __init__(self, store: Store, access: Access, placement: Placement) -> None:
        self._store = store
        self._access = access
        self._placement = placement

    def chosen_by_server(self, home: Home, table_id: str, view: bool = False) -> Site:
        kind = TableKind.VIEW if view else TableKind.MANAGED
        return Site(kind, self._placement.managed(table_id, home.catalog, home.schema))

    async def chosen_by_client(self, caller: Caller, home: Home, asked: str, view: bool = False) -> Site:
        """A folder outside the server's own; it takes the right to make external tables."""
        location = self._placement.chosen(asked, home.catalog, home.schema)
        await self._require_choice(caller, home, location)
        return await self._free(caller, location, view)

    async def chosen(
        self, caller: Caller, home: Home, table_id: str, asked: str | None, view: bool = False
    ) -> Site:
        if asked is None:
            return self.chosen_by_server(home, table_id, view)
        return await self.chosen_by_client(caller, home, asked, view)

    async def returned(
        self, caller: Caller, home: Home, table_id: str, location: str, view: bool = False
    ) -> Site:
        """What a commit says of the location: the server's choice come back, or one of the client's."""
        if is_uuid(table_id):
            own = self.chosen_by_server(home, table_id.lower(), view)
            if own.location == Location.parse(location):
                return own
        return await self.chosen_by_client(caller, home, location, view)

    async def adopted(self, caller: Caller, home: Home, location: str, view: bool = False) -> Site:
        """A folder with a table in it already. That of a table that the caller could bring back is theirs."""
        place = Location.parse(location, field="metadata-location")
        for table in await claims_on(self._store, place):
            if not Location.parse(table.location).contains(place):
                continue
            if await self._could_undrop(caller, table):
                site = await self._free(caller, place, view)
                managed = table.kind is TableKind.MANAGED and not view
                return msgspec.structs.replace(site, kind=TableKind.MANAGED) if managed else site
            if await self._could_read(caller, table):
                raise AlreadyExists(OVERLAP, kind="location")
        return await self.chosen_by_client(caller, home, location, view)

    async def readable(self, caller: Caller, home: Home, metadata_location: str) -> Location:
        """A metadata file that the server may open for the caller."""
        file = Location.parse(metadata_location, field="metadata-location")
        if not file.ancestors():
            raise Invalid("metadata-location is not a file", field="metadata-location")
        for table in await claims_on(self._store, file):
            if not Location.parse(table.location).contains(file):
                continue
            if await self._could_read(caller, table) or await self._could_undrop(caller, table):
                return file
        self._placement.chosen(metadata_location, home.catalog, home.schema, "metadata-location")
        await self._require_choice(caller, home, file)
        return file

    async def holders(self, path: str) -> list[Table]:
        """The tables in whose folder a file lies, dropped ones too."""
        try:
            return await claims_above(self._store, Location.parse(path))
        except Invalid:
            return []

    def check(self, state: State, before: State | None, added: tuple[Snapshot, ...] = ()) -> None:
        """Everything that names a place, where it is new."""
        head = state.head
        root = known_place(head.location)
        moved = before is None or before.head.location != head.location
        known: Mapping[str, str] = {} if before is None else before.head.properties
        for name in PATHS:
            value = head.properties.get(name)
            if value is not None and (moved or known.get(name) != value):
                self._check_path((root,), name, value)
        # Who wrote a snapshot need not have heard yet that the table has moved.
        roots = (root,) if before is None or not moved else (root, known_place(before.head.location))
        for snapshot in added:
            if isinstance(snapshot.manifest_list, str):
                self._check_path(roots, "manifest-list", snapshot.manifest_list)

    def _check_path(self, roots: tuple[Location, ...], name: str, value: str) -> None:
        for root in roots if len(value) < USUAL_LENGTH else ():
            if value.startswith(root.text + "/") and _USUAL_PATH(value, len(root.text) + 1):
                return
        place = Location.parse(value, field=name)
        if any(root.contains(place) for root in roots):
            return
        if name == METADATA_PATH:
            # The server itself writes there.
            raise Invalid(f"{name} must lie below the table's location", field=name)
        self._placement.external(value, name)

    async def _require_choice(self, caller: Caller, home: Home, location: Location) -> None:
        """Below its own root a schema's rights count; the external roots are no schema's, whoever owns it."""
        own = self._placement.is_own(location, home.catalog, home.schema)
        chain = home.chain if own else METASTORE_CHAIN
        await self._access.require(caller, Action.CREATE_EXTERNAL_TABLE, chain)

    async def _free(self, caller: Caller, location: Location, view: bool) -> Site:
        ways = []
        for table in await claims_on(self._store, location):
            if not await self._gives_way(caller, table):
                raise AlreadyExists(OVERLAP, kind="location")
            ways.append(ledger.PurgeTable(table_id=table.id, expect_etag=table.etag))
        return Site(TableKind.VIEW if view else TableKind.EXTERNAL, location, tuple(ways))

    async def _gives_way(self, caller: Caller, table: Table) -> bool:
        return gives_way(table) or await self._could_undrop(caller, table)

    async def _could_undrop(self, caller: Caller, table: Table) -> bool:
        if table.state is not Life.DROPPED or table.format is not Format.ICEBERG:
            return False
        return await self._access.permits(caller, Action.DROP, await self._access.table_chain(caller, table))

    async def _could_read(self, caller: Caller, table: Table) -> bool:
        chain = await self._access.table_chain(caller, table)
        return table.state in NAMED and await self._access.permits(caller, Action.READ, chain)
