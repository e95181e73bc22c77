"""Lance tables under their names: described, listed, moved, dropped."""

from __future__ import annotations

import msgspec

from inver.domain import lance
from inver.domain.grants import Action, visible
from inver.domain.ledger import MAIN
from inver.domain.tables import Format
from inver.errors import Invalid
from inver.ports import Store
from inver.services import intents as ask
from inver.services.access import Access
from inver.services.catalogs import Catalogs
from inver.services.context import Caller
from inver.services.lance.finding import Finding, placed
from inver.services.lance.refs import Refs
from inver.services.lance.types import Described, Placed, TableId
from inver.services.lance.versions import Versions
from inver.services.names import TableRef
from inver.services.tables import Tables
from inver.services.transactions import Transactions

_fields = msgspec.json.Decoder(list[dict[str, object]]).decode
PAGE = 500


class LanceTables:
    def __init__(
        self,
        store: Store,
        access: Access,
        transactions: Transactions,
        catalogs: Catalogs,
        tables: Tables,
        finding: Finding,
        versions: Versions,
        refs: Refs,
    ) -> None:
        self._store = store
        self._access = access
        self._transactions = transactions
        self._catalogs = catalogs
        self._tables = tables
        self._finding = finding
        self._versions = versions
        self._refs = refs

    async def describe(
        self,
        caller: Caller,
        name: TableId,
        version: int | None = None,
        tag: str | None = None,
        branch: str = MAIN,
    ) -> Described:
        """At its newest version from the database alone, at any other one from its manifest."""
        full = await self._finding.table(caller, name, Action.LOAD)
        table = full.table
        if tag is not None:
            if version is not None or branch != MAIN:
                raise Invalid("a tag is given alone, without version or branch", field="tag")
            found = await self._refs.tag(table, tag)
            version, branch = found.version, found.branch
        if branch == MAIN and version in (None, table.version):
            head = lance.head_of(table.head)
            return Described(
                placed=placed(full),
                version=table.version,
                schema={"fields": _fields(full.details.columns)},
                totals=head.totals,
                metadata=head.metadata,
                declared=table.version == 0,
            )
        manifest = await self._versions.manifest(table, branch, version)
        return Described(
            placed=placed(full),
            version=manifest.version,
            schema=manifest.schema,
            totals=lance.totals_of(manifest),
            metadata=manifest.metadata,
            declared=False,
        )

    async def exists(self, caller: Caller, name: TableId, version: int | None) -> None:
        full = await self._finding.table(caller, name, Action.SEE)
        if version is not None and version != full.table.version:
            await self._versions.record(full.table, MAIN, version)

    async def page(
        self, caller: Caller, namespace: TableId, after: str, limit: int, declared: bool
    ) -> tuple[list[str], str | None]:
        """Names of the Lance tables of a namespace, and after which name the next page starts."""
        if not namespace:
            await self._access.standing(caller)
            return [], None
        if len(namespace) == 1:
            await self._catalogs.get(caller, namespace[0])
            return [], None
        found: list[str] = []
        while True:
            page = await self._tables.page(caller, namespace[0], namespace[1:], after, PAGE)
            for table in page:
                if table.format is Format.LANCE and (declared or table.version > 0):
                    if len(found) == limit:
                        return found, found[-1]
                    found.append(table.name)
            if len(page) < PAGE:
                return found, None
            after = page[-1].name

    async def everywhere(
        self, caller: Caller, after: TableId, limit: int, declared: bool
    ) -> tuple[list[TableId], TableId | None]:
        """Full names of all Lance tables that the caller may see."""
        standing = await self._access.standing(caller)
        found: list[TableId] = []
        while True:
            page = await self._store.lance_tables(after, PAGE)
            for table_id, name, has_version in page:
                if not (declared or has_version):
                    continue
                table = await self._store.table_by_id(table_id)
                if table is None:
                    continue
                chain = await self._access.table_chain(caller, table)
                if not visible(standing, chain):
                    continue
                if len(found) == limit:
                    return found, found[-1]
                found.append(name)
            if len(page) < PAGE:
                return found, None
            after = page[-1][1]

    async def rename(self, caller: Caller, name: TableId, to: TableId) -> int:
        await self._finding.table(caller, name, Action.SEE)
        receipt = await self._transactions.decide(caller, [ask.RenameTable(table=TableRef(name=name), to=to)])
        return receipt.transaction

    async def drop(self, caller: Caller, name: TableId) -> tuple[Placed, int]:
        full = await self._finding.table(caller, name, Action.DROP)
        receipt = await self._transactions.decide(caller, [ask.DropTable(table=TableRef(id=full.table.id))])
        return placed(full), receipt.transaction
