"""Versions of Lance tables as readers see them, and what one of them holds."""

from __future__ import annotations

from collections.abc import Sequence

from inver.domain.grants import Action
from inver.domain.lance import LAST_VERSION, Manifest, body_of
from inver.domain.ledger import MAIN, Record
from inver.domain.tables import Table
from inver.errors import NotFound
from inver.ports import FullTable, Store
from inver.services.access import missing
from inver.services.context import Caller
from inver.services.lance.finalizing import Finalizing
from inver.services.lance.finding import Finding
from inver.services.lance.importing import Importing
from inver.services.lance.manifests import Manifests, key_of
from inver.services.lance.types import TableId, Version

MAX_PAGE = 1_000


class Versions:
    def __init__(
        self,
        store: Store,
        finding: Finding,
        manifests: Manifests,
        finalizing: Finalizing,
        importing: Importing,
    ) -> None:
        self._store = store
        self._finding = finding
        self._manifests = manifests
        self._finalizing = finalizing
        self._importing = importing

    async def page(
        self,
        caller: Caller,
        name: TableId,
        branch: str,
        after: int | None,
        limit: int,
        newest_first: bool,
    ) -> tuple[list[Version], int | None]:
        """Versions beyond `after`, and where the next page starts; None at the end."""
        table = await self._finding.row(caller, name, Action.LOAD)
        await self.require_branch(table, branch)
        first = 0 if after is None or newest_first else after + 1
        last = LAST_VERSION if after is None or not newest_first else after - 1
        records = await self._store.records(
            table.id, branch, first, last, min(limit, MAX_PAGE) + 1, newest_first
        )
        shown = records[: min(limit, MAX_PAGE)]
        rest = shown[-1].version if len(records) > len(shown) and shown else None
        if len(shown) > 1:
            shown = await self._finalizing.present(table, branch, shown)
        elif branch != MAIN and after is None and not await self._finalizing.present(table, branch, shown):
            # A client that deletes a branch says so to nobody; its folder is gone.
            raise missing("branch", branch)
        else:
            await self._finalizing.ensure(table, branch, shown)
        return [version_of(table, branch, record) for record in shown], rest

    async def describe(self, caller: Caller, name: TableId, version: int | None, branch: str) -> Version:
        table = await self._finding.row(caller, name, Action.LOAD)
        record = await self.record(table, branch, version)
        return version_of(table, branch, record)

    async def record(self, table: Table, branch: str, version: int | None) -> Record:
        """A version that is on storage under its final name, by number or as the newest."""
        await self.require_branch(table, branch)
        first, last = (0, LAST_VERSION) if version is None else (version, version)
        found = await self._store.records(table.id, branch, first, last, 1)
        present: Sequence[Record] = await self._finalizing.present(table, branch, found)
        if not present:
            what = "a version" if version is None else f"version {version}"
            raise NotFound(f"the table has not {what}", kind="version")
        return present[0]

    async def manifest(self, table: Table, branch: str, version: int | None) -> Manifest:
        record = await self.record(table, branch, version)
        return await self._manifests.at(table, branch, record)

    async def require_branch(self, table: Table, branch: str) -> None:
        if branch != MAIN and await self._importing.branch(table, branch) is None:
            raise missing("branch", branch)

    async def find(self, caller: Caller, name: TableId, *actions: Action) -> FullTable:
        return await self._finding.table(caller, name, *actions)


def version_of(table: Table, branch: str, record: Record) -> Version:
    body = body_of(record.body)
    path = f"{key_of(table.location)}/{body.final(branch, record.version)}"
    return Version(record.version, path, body.size, record.at, body.metadata)
