"""A batch of operations on Lance tables, turned into one transaction of the ledger.

Each operation sees what the ones before it do: a table that is declared can get its first versions
in the same batch, and a name that is given up is free for the next. Everything that needs a file is
read here, before the decision.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from inver.domain import lance, ledger
from inver.domain.grants import Action
from inver.domain.lance import LAST_VERSION, Manifest, VersionBody, body_of
from inver.domain.ledger import MAIN, Operation, Record
from inver.domain.names import check_name, dotted, path_key
from inver.domain.tables import Format, State, Table, TableKind
from inver.errors import Invalid, NotFound
from inver.ids import new_id
from inver.ports import Store
from inver.services.access import METASTORE_CHAIN, Access, missing
from inver.services.context import Caller
from inver.services.lance.finalizing import Finalizing
from inver.services.lance.finding import Finding
from inver.services.lance.importing import Importing
from inver.services.lance.manifests import Manifests, key_of
from inver.services.lance.phantoms import Phantoms
from inver.services.lance.targets import Target, append_of, token_of
from inver.services.lance.types import CreateVersion, Declare, DeleteVersions, Deregister, Item
from inver.services.names import Names
from inver.services.placement import Placement

NEVER = 253_402_300_799_000
"""When the data of a deregistered table is deleted: it stays for whoever registers it again."""

_encode = msgspec.json.encode


class Planned(msgspec.Struct, frozen=True):
    """A version that waits for the decision, with the bytes of its manifest where they were read."""

    target: Target
    branch: str
    record: Record
    body: VersionBody
    data: bytes | None
    manifest: Manifest | None
    stray: str
    """What the client staged; nobody needs it after the decision."""


class Plan:
    def __init__(
        self,
        caller: Caller,
        now: int,
        store: Store,
        names: Names,
        access: Access,
        placement: Placement,
        finding: Finding,
        manifests: Manifests,
        finalizing: Finalizing,
        phantoms: Phantoms,
        importing: Importing,
        guess: Target | None = None,
    ) -> None:
        self._caller = caller
        self.now = now
        self._store = store
        self._names = names
        self._access = access
        self._placement = placement
        self._finding = finding
        self._manifests = manifests
        self._finalizing = finalizing
        self._phantoms = phantoms
        self._importing = importing
        self._guess = guess
        self._targets: dict[str, Target | None] = {}
        self._leaving: set[str] = set()
        self.operations: list[Operation] = []
        self.owners: list[int] = []
        """For each operation of the ledger, the item that asked for it."""
        self.planned: dict[int, Planned] = {}
        self.declared: dict[int, Target] = {}
        self.left: dict[int, Target] = {}
        self.staged: set[tuple[str, str]] = set()
        """Tables and branches for which somebody has staged manifests."""

    def expect(self, items: Sequence[Item]) -> None:
        """Tables that leave later in the batch may lose their newest version on the way."""
        self._leaving = {path_key(item.id) for item in items if isinstance(item, Deregister)}

    async def add(self, index: int, item: Item) -> None:
        match item:
            case Declare():
                await self._declare(index, item)
            case CreateVersion():
                await self._create(index, item)
            case DeleteVersions():
                await self._delete(index, item)
            case Deregister():
                target = await self._target(item.id, Action.DROP)
                if target.properties is None:
                    full = await self._finding.table(self._caller, item.id)
                    target.name, target.properties = full.full_name, full.details.properties
                self._add(index, ledger.DropTable(table_id=target.table.id, purge_at=NEVER))
                self.left[index] = target
                self._targets[path_key(item.id)] = None

    def _add(self, index: int, operation: Operation) -> None:
        self.operations.append(operation)
        self.owners.append(index)

    async def _target(self, name: tuple[str, ...], *actions: Action) -> Target:
        key = path_key(name)
        if key not in self._targets:
            found = Target(await self._finding.row(self._caller, name, *actions), name, None)
            self._targets[key] = found
            return found
        target = self._targets[key]
        if target is None:
            raise missing("table", dotted(name))
        if not target.new:
            chain = await self._access.table_chain(self._caller, target.table)
            for action in actions:
                await self._access.require(self._caller, action, chain, dotted(name))
        return target

    # --- declare ---

    async def _declare(self, index: int, item: Declare) -> None:
        if len(item.id) < 3:
            raise Invalid(
                "a table id has a catalog, at least one namespace and a name",
                field="id",
                fix='for example ["main", "default", "items"]',
            )
        catalog_name, path, name = item.id[0], item.id[1:-1], check_name(item.id[-1], "id")
        schema = await self._names.schema(catalog_name, path)
        chain = await self._access.schema_chain(self._caller, schema.id)
        shown = dotted(item.id[:-1])
        if not chain:
            raise missing("schema", shown)
        await self._access.require(self._caller, Action.CREATE_TABLE, chain, shown)
        kind = TableKind.MANAGED if item.location is None else TableKind.EXTERNAL
        if kind is TableKind.EXTERNAL:
            await self._access.require(self._caller, Action.CREATE_EXTERNAL_TABLE, METASTORE_CHAIN)
        table_id = item.table_id or new_id()
        catalog = await self._names.catalog(catalog_name)
        location = self._placement.place(kind, table_id, item.location, catalog, schema)
        by = self._caller.principal.id
        table = Table(
            id=table_id,
            catalog_id=schema.catalog_id,
            schema_id=schema.id,
            name=name,
            format=Format.LANCE,
            kind=kind,
            state=State.DECLARED,
            location=location.text,
            version=0,
            etag=1,
            head=None,
            owner=by,
            created_at=self.now,
            created_by=by,
            updated_at=self.now,
            updated_by=by,
        )
        self._add(
            index,
            ledger.CreateTable(
                id=table_id,
                schema_id=schema.id,
                name=name,
                format=Format.LANCE,
                kind=kind,
                state=State.DECLARED,
                location=location.text,
                location_key=location.prefix,
                properties=item.properties,
            ),
        )
        target = Target(table, (catalog.name, *schema.path, name), item.properties, new=True)
        self._targets[path_key(item.id)] = self.declared[index] = target

    # --- versions ---

    async def _create(self, index: int, item: CreateVersion) -> None:
        target = self._guess or await self._target(item.id, Action.COMMIT)
        table, branch, version = target.table, item.branch, item.version
        if not 1 <= version <= LAST_VERSION:
            raise Invalid("version must be at least 1", field="version")
        if not target.new:
            self.staged.add((table.id, branch))
        path, v2 = lance.staged_path(item.manifest_path, key_of(table.location), branch, version)
        if item.v2 is not None:
            v2 = item.v2
        current = await self._current(target, branch)
        if current is not None and version <= current:
            await self._repeat(index, item, target, path, v2)
            return
        data, manifest = await self._staged(target, item, path)
        if current is not None and (version > current + 1 or self._phantoms.adopts):
            current = await self._phantoms.meet(self._caller, target, branch, version)
        if current is None:
            # The first version of a branch has the number of the version that it leaves.
            self._add(
                index,
                ledger.CreateBranch(
                    table_id=table.id, branch=branch, version=version - 1, within=version - 1
                ),
            )
        kept, waiting = await self._finalizing.secure(table, path, data)
        body = VersionBody(kept, len(data), v2, item.metadata)
        record = Record(version, self.now, manifest.uuid, _encode(body), waiting)
        counts = None
        if current == version - 1:
            before = await self._before(target, branch, current)
            if before is not None or version == 1:
                counts = lance.counts_of(before, manifest)
        if branch != MAIN:
            self._manifests.remember(table.id, branch, record, manifest, len(data))
        self._add(index, append_of(target, branch, record, manifest, data, counts))
        self.planned[index] = Planned(target, branch, record, body, data, manifest, path)
        if current is None or version == current + 1:
            target.versions[branch] = version
        target.known[branch] = manifest
        target.fresh = False

    async def _current(self, target: Target, branch: str) -> int | None:
        """The version that a branch is at; None if there is no such branch."""
        if branch not in target.versions:
            state = None if target.new else await self._importing.branch(target.table, branch)
            if state is None:
                return None
            target.versions[branch] = state.version
        return target.versions[branch]

    async def _staged(self, target: Target, item: CreateVersion, path: str) -> tuple[bytes, Manifest]:
        try:
            data, manifest = await self._manifests.staged(target.table, path)
        except NotFound:
            raise Invalid(
                "there is no manifest at manifest_path",
                field="manifest_path",
                fix="write it before its version is created",
            ) from None
        if item.manifest_size is not None and item.manifest_size != len(data):
            raise Invalid(
                f"the manifest has {len(data)} bytes, the request says {item.manifest_size}",
                field="manifest_size",
            )
        if manifest.version != item.version:
            raise Invalid(
                f"the manifest is of version {manifest.version}, the request of {item.version}",
                field="version",
            )
        if manifest.branch not in (MAIN, item.branch):
            raise Invalid(f"the manifest is of branch {manifest.branch!r}", field="branch")
        return data, manifest

    async def _repeat(self, index: int, item: CreateVersion, target: Target, path: str, v2: bool) -> None:
        """A version that is taken: by this very commit, whose answer was lost, or by another."""
        table = target.table
        found = await self._store.records(table.id, item.branch, item.version, item.version, 1)
        data: bytes | None = None
        token = ""
        try:
            data, manifest = await self._staged(target, item, path)
            token = token_of(manifest, data)
        except Invalid as invalid:
            if invalid.field != "manifest_path":
                raise
            if not found or body_of(found[0].body).staged != path:
                raise
            standing = await self._store.commits(table.id, item.branch, item.version, item.version, 1)
            token = standing[0].token if standing else ""
        body = body_of(found[0].body) if found else VersionBody(path, len(data or b""), v2, item.metadata)
        record = found[0] if found else Record(item.version, self.now, None, _encode(body))
        self._add(
            index,
            ledger.Append(
                table_id=table.id,
                version=item.version,
                token=token,
                branch=item.branch,
                payload=_encode(body),
                record=record,
            ),
        )
        self.planned[index] = Planned(target, item.branch, record, body, None, None, path)

    async def _before(self, target: Target, branch: str, version: int) -> Manifest | None:
        if branch in target.known:
            return target.known[branch]
        known = self._manifests.newest(target.table.id, version) if branch == MAIN else None
        if known is not None:
            return known
        found = await self._store.records(target.table.id, branch, version, version, 1)
        if not found:
            return None
        try:
            return await self._manifests.at(target.table, branch, found[0])
        except NotFound:
            return None

    async def _delete(self, index: int, item: DeleteVersions) -> None:
        target = await self._target(item.id, Action.COMMIT)
        if not item.ranges:
            raise Invalid("ranges is empty", field="ranges")
        for place, (start, end) in enumerate(item.ranges):
            if start < 0 or (end is not None and end < start):
                raise Invalid(
                    "a range starts at 0 or above and does not end before", field=f"ranges[{place}]"
                )
        if item.branch != MAIN and await self._current(target, item.branch) is None:
            raise missing("branch", item.branch)
        self._add(
            index,
            ledger.DeleteRecords(
                table_id=target.table.id,
                ranges=item.ranges,
                branch=item.branch,
                newest=path_key(item.id) in self._leaving,
            ),
        )
