"""What tables and views have in common: being found, listed, renamed, dropped, unregistered."""

from __future__ import annotations

from collections.abc import Sequence

from inver.domain import iceberg, ledger
from inver.domain.grants import Action
from inver.domain.iceberg import State
from inver.domain.idempotency import KeyedRequest
from inver.domain.ledger import Receipt, Work
from inver.domain.locations import Location
from inver.domain.names import check_name
from inver.domain.tables import NAMED, Format, Table, TableKind
from inver.errors import AlreadyExists, Broken, Forbidden, NotFound, OutcomeUnknown
from inver.ports import Store
from inver.services.access import Access
from inver.services.context import Caller
from inver.services.iceberg import naming
from inver.services.iceberg.commits import Loaded
from inver.services.iceberg.files import Files
from inver.services.iceberg.finding import Desk, Finder, is_iceberg, mirror_of
from inver.services.iceberg.naming import Identifier
from inver.services.iceberg.states import States
from inver.services.planning import PURGE
from inver.services.tables import Tables

NAMES = 10_000
"""Names in one statement."""
FORGET = "table.forget"
"""Follow-up work: the end of the time in which a dropped table can come back. Its files stay."""


class Relations:
    """`view` says of which kind; everything else is the same for both."""

    def __init__(
        self,
        store: Store,
        access: Access,
        tables: Tables,
        finder: Finder,
        desk: Desk,
        states: States,
        files: Files,
        hold_ms: int,
        view: bool,
    ) -> None:
        self._store = store
        self._access = access
        self._tables = tables
        self._finder = finder
        self._desk = desk
        self._states = states
        self._files = files
        self._hold_ms = hold_ms
        self._view = view
        self._word = "view" if view else "table"

    async def find(self, caller: Caller, identifier: Identifier, action: Action) -> Table:
        find = self._finder.view if self._view else self._finder.table
        return await find(caller, identifier, action)

    async def exists(self, caller: Caller, identifier: Identifier) -> None:
        await self.find(caller, identifier, Action.SEE)

    async def load(self, table: Table) -> Loaded:
        """The newest version of what the caller may load."""
        place = mirror_of(table.format, table.head)
        if place is not None:
            return Loaded(table.id, table.version, await self._mirror(table, place))
        held = await self._states.of(table)
        return Loaded(table.id, held.version, held.state)

    async def _mirror(self, table: Table, place: str) -> State:
        """The Iceberg metadata that the writer of a Delta table keeps beside it."""
        known = self._states.known(place)
        if known is not None:
            return known.state
        location = Location.parse(place)
        if not Location.parse(table.location).contains(location):
            raise Broken(f"the Iceberg metadata of table {table.id} lies outside it")
        body = await self._files.read(location)
        change = iceberg.from_document(body, metadata_location=place, uuid=table.id)
        return self._states.advance(place, 0, change, None).state

    async def shown(self, caller: Caller, identifier: Identifier, done: Loaded | Receipt) -> Loaded:
        """What a request has just made, or, where it was decided before, what became of that.

        It was applied; to say that the table is not there, or not to be seen, would say that it was not.
        """
        if isinstance(done, Loaded):
            return done
        if done.results:
            table = await self._store.table_by_id(done.results[-1].subject)
        else:
            # It changed nothing, so nothing says what it was about but the name.
            table = await self._finder.named(identifier)
        if table is None or table.state not in NAMED:
            raise OutcomeUnknown("the request was applied, and its table was dropped after it")
        try:
            chain = await self._access.table_chain(caller, table)
            await self._access.require(caller, Action.LOAD, chain)
        except (NotFound, Forbidden):
            raise OutcomeUnknown("the request was applied, and its table may not be loaded now") from None
        return await self.load(table)

    async def page(
        self, caller: Caller, catalog: str, path: Sequence[str], after: str, limit: int
    ) -> tuple[list[str], str | None]:
        """Names that clients of Iceberg can load, and where to go on; None when there is nothing more."""
        found: list[str] = []
        while True:
            wanted = min(limit - len(found), NAMES) + 1
            try:
                page = await self._tables.names(
                    caller, catalog, path, after, wanted, Format.ICEBERG, self._view
                )
            except NotFound:
                raise naming.no_namespace(path) from None
            unreadable = {name for name, other in page.others.items() if mirror_of(*other) is None}
            names = page.names[: wanted - 1]
            found += [name for name in names if name not in unreadable] if unreadable else names
            if len(page.names) < wanted:
                return found, None
            after = names[-1]
            if len(found) >= limit:
                return found, after

    async def rename(self, caller: Caller, source: Identifier, target: Identifier) -> None:
        """Only the name moves: the id, the location, grants and history stay."""

        async def rename(keyed: KeyedRequest | None) -> None:
            what = f"Cannot rename {source} to {target}. "
            try:
                table = await self.find(caller, source, Action.RENAME)
            except NotFound:
                raise NotFound(f"{what}{naming.noun(self._view)} does not exist", kind=self._word) from None
            try:
                home = await self._finder.namespace(
                    caller, target.catalog, target.namespace, Action.CREATE_TABLE
                )
            except NotFound as missing:
                raise NotFound(what + missing.message, kind="schema") from None
            operation = ledger.RenameTable(
                table_id=table.id, schema_id=home.schema.id, name=check_name(target.name, "destination.name")
            )
            try:
                found = await self._finder.named(target)
                if found is not None and found.id != table.id:
                    raise AlreadyExists("", kind="table")
                await self._desk.decide(caller, [operation], keyed)
            except AlreadyExists:
                found = await self._finder.named(target)
                noun = naming.noun(found is not None and found.kind is TableKind.VIEW)
                raise AlreadyExists(f"{what}{noun} already exists", kind="table") from None
            except NotFound:
                raise NotFound(f"{what}{naming.noun(self._view)} does not exist", kind=self._word) from None

        await self._desk.once(caller, (f"rename-{self._word}", source, target), rename)

    async def drop(self, caller: Caller, identifier: Identifier, purge: bool = False) -> None:
        """The name is free at once.

        Without purging, the files stay and the table can come back for a while. With it, both end now.
        """

        async def drop(keyed: KeyedRequest | None) -> Receipt:
            return await self._drop(caller, identifier, purge, keyed)

        await self._desk.once(caller, (f"drop-{self._word}", identifier, purge), drop)

    async def unregister(self, caller: Caller, identifier: Identifier) -> Loaded:
        """The last state of a table that this catalog lets go; its files stay where they are."""

        async def drop(keyed: KeyedRequest | None) -> Receipt:
            return await self._drop(caller, identifier, False, keyed)

        receipt = await self._desk.once(caller, ("unregister", identifier), drop)
        table = await self._store.table_by_id(receipt.results[0].subject)
        if table is None or not is_iceberg(table):
            raise OutcomeUnknown("the table was unregistered, and its metadata is not kept any more")
        # Read after the decision: nothing can be committed any more.
        return await self.load(table)

    async def _drop(
        self, caller: Caller, identifier: Identifier, purge: bool, keyed: KeyedRequest | None
    ) -> Receipt:
        table = await self.find(caller, identifier, Action.DROP)
        now = self._desk.now()
        until = now if purge else now + self._hold_ms
        operations: list[ledger.Operation] = [ledger.DropTable(table_id=table.id, purge_at=until)]
        if purge:
            operations.append(ledger.PurgeTable(table_id=table.id))
        work = Work(kind=PURGE if purge else FORGET, subject=table.id, not_before=until)
        try:
            return await self._desk.decide(caller, operations, keyed, [work], now)
        except NotFound:
            raise naming.missing(identifier, self._view) from None
