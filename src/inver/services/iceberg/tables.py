"""The use cases of Iceberg tables."""

from __future__ import annotations

from inver.domain import iceberg, ledger
from inver.domain.grants import Action
from inver.domain.iceberg import CommitRequest, CreateTable, State
from inver.domain.idempotency import KeyedRequest, parse_key
from inver.domain.locations import Location
from inver.domain.names import name_key
from inver.domain.tables import Table, TableKind
from inver.errors import AlreadyExists, Conflict, NotFound
from inver.ids import new_id, random_uuid
from inver.services.context import Caller
from inver.services.iceberg import naming
from inver.services.iceberg.commits import ATTEMPTS, Changes, Commits, Loaded, was_overtaken
from inver.services.iceberg.definition import columns_of, history_of
from inver.services.iceberg.drafts import Draft
from inver.services.iceberg.files import Files
from inver.services.iceberg.finding import Desk, Finder, Home, is_iceberg
from inver.services.iceberg.naming import Identifier
from inver.services.iceberg.places import Places
from inver.services.iceberg.relations import Relations

STAGED = -1
"""The version of a table that is not one yet."""


class IcebergTables:
    def __init__(
        self,
        finder: Finder,
        desk: Desk,
        places: Places,
        files: Files,
        commits: Commits,
        relations: Relations,
    ) -> None:
        self._finder = finder
        self._desk = desk
        self._places = places
        self._files = files
        self._commits = commits
        self._relations = relations

    async def stage(self, caller: Caller, identifier: Identifier, request: CreateTable) -> Loaded:
        """An id, a place and metadata for a table that its first commit will make. Nothing is kept of it.

        So the same key may come back and is given another id; what is no key is refused as everywhere.
        """
        if caller.key is not None:
            parse_key(caller.key)
        home, table_id = await self._commits.prepare(caller, identifier), new_id()
        site = await self._places.chosen(caller, home, table_id, request.location)
        change = iceberg.new_table(
            request, location=site.location.text, now_ms=self._desk.now(), uuid=table_id, file_id=None
        )
        self._places.check(change.state, None)
        return Loaded(table_id, STAGED, change.state)

    async def create(
        self, caller: Caller, identifier: Identifier, request: CreateTable, body: bytes
    ) -> Loaded:
        async def make(keyed: KeyedRequest | None) -> Loaded:
            home, table_id = await self._commits.prepare(caller, identifier), new_id()
            site = await self._places.chosen(caller, home, table_id, request.location)
            change = iceberg.new_table(
                request,
                location=site.location.text,
                now_ms=self._desk.now(),
                uuid=table_id,
                file_id=random_uuid(),
            )
            draft = self._commits.drafts.creation(home, identifier, table_id, site, change)
            return await self._commits.make(caller, identifier, draft, keyed)

        made = await self._desk.once(caller, ("create-table", identifier), make, body)
        return await self._relations.shown(caller, identifier, made)

    async def commit(
        self, caller: Caller, identifier: Identifier, request: CommitRequest, body: bytes
    ) -> Loaded:
        async def commit(keyed: KeyedRequest | None) -> Loaded:
            return (await self._commits.commit(caller, [(identifier, request)], keyed))[0]

        done = await self._desk.once(caller, ("commit", identifier), commit, body)
        return await self._relations.shown(caller, identifier, done)

    async def transact(self, caller: Caller, catalog: str, changes: Changes, body: bytes) -> None:
        """All changes of all tables, or none."""

        async def commit(keyed: KeyedRequest | None) -> None:
            await self._commits.commit(caller, changes, keyed)

        await self._desk.once(caller, ("transaction", catalog), commit, body)

    async def register(
        self, caller: Caller, identifier: Identifier, metadata_location: str, overwrite: bool
    ) -> Loaded:
        """A table that exists as files. With `overwrite`, an existing table goes on with what they say."""

        async def make(keyed: KeyedRequest | None) -> Loaded:
            home = await self._finder.namespace(
                caller, identifier.catalog, identifier.namespace, Action.CREATE_TABLE
            )
            await self._standing(identifier, overwrite)
            file = await self._places.readable(caller, home, metadata_location)
            table_id = new_id()
            change = iceberg.from_document(
                await self._files.read(file), metadata_location=metadata_location, uuid=table_id
            )
            for left in reversed(range(ATTEMPTS)):
                try:
                    # Somebody may have made a table of this name while the file was read.
                    if await self._standing(identifier, overwrite) is not None:
                        draft = await self._replacement(caller, home, identifier, change)
                    else:
                        site = await self._places.adopted(caller, home, change.state.head.location)
                        draft = self._commits.drafts.creation(home, identifier, table_id, site, change)
                    return await self._commits.make(caller, identifier, draft, keyed, write=False)
                except (Conflict, NotFound, AlreadyExists) as lost:
                    if not (left and overwrite and was_overtaken(lost)):
                        raise
            raise AssertionError("the last attempt returns or raises")

        request = ("register-table", identifier, metadata_location, overwrite)
        return await self._relations.shown(caller, identifier, await self._desk.once(caller, request, make))

    async def _standing(self, identifier: Identifier, overwrite: bool) -> Table | None:
        """The table that goes on with what is registered, if there is one and it may."""
        found = await self._finder.named(identifier)
        if found is None:
            return None
        is_view = found.kind is TableKind.VIEW
        if not overwrite or is_view or not is_iceberg(found):
            raise naming.taken(identifier, view=False, by_view=is_view)
        return found

    async def _replacement(
        self, caller: Caller, home: Home, identifier: Identifier, change: iceberg.Change
    ) -> Draft:
        """Other metadata for a table that keeps its id, and with it its grants and history."""
        table = await self._finder.table(caller, identifier, Action.COMMIT)
        before = await self._relations.load(table)
        ways: tuple[ledger.Operation, ...] = ()
        place = None
        location = change.state.head.location
        if location != table.location:
            site = self._places.chosen_by_server(home, table.id)
            if site.location != Location.parse(location, field="metadata-location"):
                site = await self._places.adopted(caller, home, location)
            ways, place = site.ways, site.place()
        columns, names = columns_of(iceberg.current_schema(change.state))
        properties = change.state.head.properties
        operation, payload, counts = history_of(change.state, (), "register")
        append = ledger.Append(
            table_id=table.id,
            version=before.version + 1,
            token=random_uuid(),
            operation=operation,
            payload=payload,
            counts=counts,
            head=change.head,
            parts=(*_gone(before.state, change.state), *change.parts),
            definition=ledger.Definition(
                comment=properties.get("comment"),
                properties=properties,
                columns=columns,
                column_names=names,
            ),
            place=place,
            named=name_key(table.name),
        )
        return Draft(table.id, append.version, change, (*ways, append))


def _gone(before: State, after: State) -> list[ledger.Part]:
    """Parts of the old metadata that the new does not have under the same key."""
    return [
        ledger.Part(kind, key, 0, None)
        for kind, series in before.series.items()
        for key in series.keys()  # noqa: SIM118
        if key not in after.parts(kind)
    ]
