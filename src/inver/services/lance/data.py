"""The data itself: read and changed by a library of Lance beside the event loop.

Reading opens a version that is known to be on storage. Changing goes through the ledger like every
other commit, on behalf of whoever asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inver.domain.grants import Action
from inver.domain.ledger import MAIN
from inver.domain.tables import Table
from inver.errors import AlreadyExists, InverError, NotFound
from inver.ports import LanceEngine, LancePlace, LedgeredVersion
from inver.services.context import Caller
from inver.services.lance.commits import Commits
from inver.services.lance.finding import Finding
from inver.services.lance.tables import LanceTables
from inver.services.lance.types import CreateVersion, Declare, Deregister, Placed, TableId, Version
from inver.services.lance.versions import Versions


class Data:
    def __init__(
        self,
        finding: Finding,
        versions: Versions,
        commits: Commits,
        tables: LanceTables,
        engine: LanceEngine,
    ) -> None:
        self._finding = finding
        self._versions = versions
        self._commits = commits
        self._tables = tables
        self._engine = engine

    async def known(self, caller: Caller) -> None:
        """Whoever is told what there is not has been let in first."""
        await self._finding.standing(caller)

    async def read(
        self,
        caller: Caller,
        name: TableId,
        operation: str,
        branch: str = MAIN,
        version: int | None = None,
        /,
        **arguments: Any,
    ) -> Any:
        table = (await self._finding.table(caller, name, Action.READ)).table
        record = await self._versions.record(table, branch, version)
        place = LancePlace(table.location, branch, record.version)
        return await self._engine.run(operation, place, arguments)

    async def change(
        self,
        caller: Caller,
        name: TableId,
        operation: str,
        branch: str = MAIN,
        /,
        reads: bool = True,
        **arguments: Any,
    ) -> Any:
        """`reads`: whether what is there decides what becomes of it, which takes the right to read it."""
        actions = (Action.COMMIT, Action.READ) if reads else (Action.COMMIT,)
        table = (await self._finding.table(caller, name, *actions)).table
        if branch != MAIN:
            await self._versions.require_branch(table, branch)
        return await self._run(caller, name, table, branch, operation, arguments)

    async def create(
        self, caller: Caller, name: TableId, data: bytes, mode: str, properties: dict[str, str]
    ) -> tuple[Placed, int]:
        """`mode` is Create, ExistOk or Overwrite; a table that is merely declared gets its first version."""
        placed = await self._existing(caller, name)
        if placed is not None and placed.table.version > 0:
            if mode == "Create":
                raise AlreadyExists(f"table {'.'.join(name)!r} already exists", kind="table")
            if mode == "ExistOk":
                return placed, placed.table.version
            done = await self.change(caller, name, "write", reads=False, data=data, mode="overwrite")
            return placed, done["version"]
        fresh = placed is None
        if placed is None:
            declared = await self._commits.commit(caller, [Declare(name, None, properties)])
            placed = declared.outcomes[0].placed
            assert placed is not None
        try:
            done = await self._run(
                caller, name, placed.table, MAIN, "write", {"data": data, "mode": "create"}
            )
        except InverError:
            if fresh:
                await self._commits.commit(caller, [Deregister(name)])
            raise
        return placed, done["version"]

    async def _existing(self, caller: Caller, name: TableId) -> Placed | None:
        try:
            full = await self._finding.table(caller, name, Action.COMMIT)
        except NotFound:
            return None
        return Placed(full.table, full.full_name, full.details.properties)

    async def _run(
        self,
        caller: Caller,
        name: TableId,
        table: Table,
        branch: str,
        operation: str,
        arguments: Mapping[str, Any],
    ) -> Any:
        session = Session(caller, name, table, self._commits, self._versions)
        place = LancePlace(table.location, branch, None, session)
        return await self._engine.run(operation, place, arguments)


class Session:
    """One table towards the library, on behalf of one caller."""

    def __init__(
        self, caller: Caller, name: TableId, table: Table, commits: Commits, versions: Versions
    ) -> None:
        self._caller = caller
        self._name = name
        self._table = table
        self._commits = commits
        self._versions = versions

    async def newest(self, branch: str) -> LedgeredVersion | None:
        found, _ = await self._versions.page(self._caller, self._name, branch, None, 1, True)
        return _ledgered(found[0]) if found else None

    async def version(self, branch: str, version: int) -> LedgeredVersion:
        return _ledgered(await self._versions.describe(self._caller, self._name, version, branch))

    async def create(
        self, branch: str, version: int, path: str, size: int | None, v2: bool | None
    ) -> LedgeredVersion:
        item = CreateVersion(self._name, version, path, size, {}, v2, branch)
        made = (await self._commits.commit(self._caller, [item])).outcomes[0].version
        assert made is not None
        return _ledgered(made)


def _ledgered(version: Version) -> LedgeredVersion:
    return LedgeredVersion(version.version, version.path, version.size, version.at)
