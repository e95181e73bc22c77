"""What requests make of an Iceberg table or view: the version that is then decided."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from inver.domain import iceberg, ledger
from inver.domain.grants import Action
from inver.domain.iceberg import Change, CommitRequest, State
from inver.domain.iceberg.state import unchanged
from inver.domain.iceberg.updates import AddSnapshot, AssertTableUuid, AssignUuid
from inver.domain.ledger import Operation, Work
from inver.domain.names import check_name, name_key
from inver.domain.tables import Format, Table, TableKind
from inver.domain.tables import State as Life
from inver.domain.uuids import is_uuid
from inver.errors import AlreadyExists, Conflict, Invalid, NotFound, OutcomeUnknown
from inver.ids import new_id, random_uuid
from inver.services.access import Access
from inver.services.context import Caller
from inver.services.iceberg import naming
from inver.services.iceberg.definition import columns_of, definition_of, history_of
from inver.services.iceberg.files import CLEAN, Leftovers, known_place
from inver.services.iceberg.finding import Desk, Finder, Home, is_iceberg
from inver.services.iceberg.naming import Identifier
from inver.services.iceberg.places import Places, Site
from inver.services.iceberg.states import Held, States

KNOWN_LIMIT = 10_000


class Draft(msgspec.Struct, frozen=True):
    """One table's part of a transaction that is about to be decided."""

    table_id: str
    version: int
    change: Change
    operations: tuple[Operation, ...] = ()
    before: Held | None = None
    work: tuple[Work, ...] = ()
    table: Table | None = None


class Drafts:
    def __init__(self, access: Access, finder: Finder, desk: Desk, states: States, places: Places) -> None:
        self._access = access
        self._finder = finder
        self._desk = desk
        self._states = states
        self._places = places
        # What a name stood for, and in which epoch: what changes the rights to a table moves that on, and
        # whether the table still has the name is for the decision to find out.
        self._known: dict[str, tuple[int, Table]] = {}

    async def of(
        self, caller: Caller, identifier: Identifier, requests: list[CommitRequest], view: bool
    ) -> Draft:
        """What the requests make of a table as it is now. Nothing is written yet."""
        if not view and requests[0].is_create:
            home = await self._finder.namespace(
                caller, identifier.catalog, identifier.namespace, Action.CREATE_TABLE
            )
            table = await self._finder.named(identifier)
            if table is None:
                return await self._first(caller, home, identifier, requests)
            if table.kind is TableKind.VIEW or not is_iceberg(table):
                raise naming.taken(identifier, view, table.kind is TableKind.VIEW)
        else:
            find = self._finder.view if view else self._finder.table
            try:
                table = await find(caller, identifier, Action.COMMIT)
            except NotFound:
                await self._doubt(requests)
                raise
        held = await self._states.of(table)
        try:
            change = iceberg.commit(held.state, requests, now_ms=self._desk.now(), file_id=random_uuid())
        except (Conflict, Invalid):
            # Sent again by who did not hear the answer: the snapshot is in the table, and its files in use.
            if not all(_is_applied(held.state, request) for request in requests):
                _doubt(held.state, requests)
                await self._doubt(requests, table, held.state)
                raise
            if requests[0].is_create:
                await self._require_shown(caller, table)
            change = unchanged(held.state)
        if not change.changed:
            return Draft(table.id, held.version, change)
        return await self._next(caller, identifier, table, held, change, requests)

    def known(self, caller: Caller, key: str, requests: Sequence[CommitRequest], view: bool) -> Draft | None:
        """The next version by what this process remembers, without asking the database.

        The decision finds out whether that is still so. Nothing is refused on the ground of it, and
        whatever is more than a new version of the table as it is takes the whole way.
        """
        epoch, table = self._known.get(key, (None, None))
        if table is None or epoch != caller.principal.epoch or requests[0].is_create:
            return None
        if (table.kind is TableKind.VIEW) is not view:
            return None
        held = self._states.known(table.id)
        if held is None or self._access.permitted(caller, Action.COMMIT, table.id) is None:
            return None
        try:
            change = iceberg.commit(held.state, requests, now_ms=self._desk.now(), file_id=random_uuid())
            if not change.changed or change.state.head.location != held.state.head.location:
                return None
            return self._version(table, held, change, requests, None)
        except (Conflict, Invalid):
            return None

    def remember(self, caller: Caller, keys: Iterable[str], drafts: Sequence[Draft]) -> None:
        """What was decided of the tables that have these names."""
        if len(self._known) + len(drafts) > KNOWN_LIMIT:
            self._known.clear()
        for key, draft in zip(keys, drafts, strict=True):
            if draft.table is not None:
                self._known[key] = (caller.principal.epoch, draft.table)

    def creation(
        self,
        home: Home,
        identifier: Identifier,
        table_id: str,
        site: Site,
        change: Change,
    ) -> Draft:
        """A new table or view with its first version."""
        self._places.check(change.state, None, change.added)
        columns, names = columns_of(iceberg.current_schema(change.state))
        properties = change.state.head.properties
        operation, payload, counts = history_of(change.state, change.added, "create")
        create = ledger.CreateTable(
            id=table_id,
            schema_id=home.schema.id,
            name=check_name(identifier.name, "name"),
            format=Format.ICEBERG,
            kind=site.kind,
            location=site.location.text,
            location_key=site.location.prefix,
            version=-1,
            comment=properties.get("comment"),
            properties=properties,
            columns=columns,
            column_names=names,
        )
        append = ledger.Append(
            table_id=table_id,
            version=0,
            token=_token(change.state),
            operation=operation,
            payload=payload,
            counts=counts,
            head=change.head,
            parts=change.parts,
        )
        return Draft(table_id, 0, change, (*site.ways, create, append))

    async def _require_shown(self, caller: Caller, table: Table) -> None:
        """Who made a table need not be who may see what it has become."""
        chain = await self._access.table_chain(caller, table)
        if not await self._access.permits(caller, Action.LOAD, chain):
            raise OutcomeUnknown("the request was applied, and its table may not be loaded now")

    async def _doubt(
        self, requests: Sequence[CommitRequest], table: Table | None = None, state: State | None = None
    ) -> None:
        """The table may have another name by now, or be dropped: its files are in use all the same.

        It has the id that the request knows it by, or, where it was made elsewhere, the folder in which the
        request's own files lie. What has the name now was looked at.
        """
        ids = {
            requirement.uuid.lower()
            for request in requests
            if _adds_snapshots(request)
            for requirement in request.requirements
            if isinstance(requirement, AssertTableUuid) and is_uuid(requirement.uuid)
        }
        found = [await self._finder.by_id(id_) for id_ in ids - {state.head.uuid.lower() if state else ""}]
        root = None if table is None else known_place(table.location)
        for place in iceberg.manifest_lists(requests):
            if root is None or not place.startswith(root.text + "/"):
                found += await self._places.holders(place)
        for other in found:
            if other is not None and is_iceberg(other) and other.state is not Life.PURGED:
                _doubt((await self._states.of(other)).state, requests)

    async def _next(
        self,
        caller: Caller,
        identifier: Identifier,
        table: Table,
        held: Held,
        change: Change,
        requests: Sequence[CommitRequest],
    ) -> Draft:
        """The version after the one that is held, wherever it is to lie."""
        location = change.state.head.location
        site = None
        if known_place(location) != known_place(table.location):
            home = await self._finder.namespace(caller, identifier.catalog, identifier.namespace)
            site = await self._places.returned(caller, home, table.id, location, change.state.is_view)
        return self._version(table, held, change, requests, site)

    def _version(
        self, table: Table, held: Held, change: Change, requests: Sequence[CommitRequest], site: Site | None
    ) -> Draft:
        added = change.added
        self._places.check(change.state, held.state, added)
        operation, payload, counts = history_of(change.state, added, _action(requests), change.taken_back)
        append = ledger.Append(
            table_id=table.id,
            version=held.version + 1,
            token=_token(change.state),
            operation=operation,
            payload=payload,
            counts=counts,
            head=change.head,
            parts=change.parts,
            definition=definition_of(change.state, held.state),
            place=site.place() if site else None,
            named=name_key(table.name),
        )
        return Draft(
            table.id,
            append.version,
            change,
            (*(site.ways if site else ()), append),
            held,
            _leftovers(table.id, change, held.state),
            # One that moves is looked at again.
            None if site else table,
        )

    async def _first(
        self, caller: Caller, home: Home, identifier: Identifier, requests: Sequence[CommitRequest]
    ) -> Draft:
        """A staged table becomes one; later changes of the same transaction are part of its first version."""
        change = iceberg.create(
            requests[0],
            now_ms=self._desk.now(),
            uuid=new_id(),
            file_id=random_uuid(),
            more=requests[1:],
        )
        head = change.state.head
        try:
            site = await self._places.returned(caller, home, head.uuid, head.location)
        except AlreadyExists:
            await self._doubt(requests)
            raise
        assigned = any(type(update) is AssignUuid for request in requests for update in request.updates)
        table_id = head.uuid.lower() if site.kind is TableKind.MANAGED or not assigned else new_id()
        made = await self._finder.by_id(table_id) if assigned else None
        if made is not None:
            if is_iceberg(made):
                _doubt((await self._states.of(made)).state, requests)
            raise AlreadyExists(f"the id {table_id} is that of another table", kind="id")
        return self.creation(home, identifier, table_id, site, change)


def _doubt(state: State, requests: Sequence[CommitRequest]) -> None:
    """A commit that was applied is not refused, whatever has become of it since."""
    if any(iceberg.has_snapshots(state, request) for request in requests):
        raise OutcomeUnknown("the snapshot is in the table, which has changed since")


def _is_applied(state: State, request: CommitRequest) -> bool:
    """A staged table has an id that nobody else knows; one without a snapshot is recognised by that alone."""
    if request.is_create and not _adds_snapshots(request):
        ids = [update.uuid.lower() for update in request.updates if type(update) is AssignUuid]
        return ids == [state.head.uuid.lower()]
    return iceberg.is_applied(state, request)


def _adds_snapshots(request: CommitRequest) -> bool:
    return any(type(update) is AddSnapshot for update in request.updates)


def _action(requests: Sequence[CommitRequest]) -> str:
    return next((update.tag() for request in requests for update in request.updates), "commit")


def _token(state: State) -> str:
    """The file is this attempt's own, and no other's."""
    assert state.head.metadata_location is not None
    return state.head.metadata_location.rpartition("/")[2]


def _leftovers(table_id: str, change: Change, before: State) -> tuple[Work, ...]:
    if not change.removed_files:
        return ()
    leftovers = Leftovers(before.head.location, change.removed_files)
    return (Work(kind=CLEAN, subject=table_id, payload=msgspec.json.encode(leftovers)),)
