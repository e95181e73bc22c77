"""The data itself: read and changed by a library of Lance beside the event loop.

Reading opens a version that is known to be on storage. Changing goes through the ledger like every
other commit, on behalf of whoever asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inver import failpoints
from inver.domain.grants import Action
from inver.domain.ledger import MAIN
from inver.domain.tables import Table
from inver.errors import AlreadyExists, InverError, NotFound, Refused
from inver.ports import LanceEngine, LancePlace, LedgeredVersion
from inver.services.context import Caller
from inver.services.lance.cleaning import Cleaning
from inver.services.lance.commits import Commits
from inver.services.lance.finding import Finding
from inver.services.lance.types import CreateVersion, Declare, Placed, TableId, Version
from inver.services.lance.versions import Versions


class Data:
    def __init__(
        self,
        finding: Finding,
        versions: Versions,
        commits: Commits,
        cleaning: Cleaning,
        engine: LanceEngine,
    ) -> None:
        self._finding = finding
        self._versions = versions
        self._commits = commits
        self._cleaning = cleaning
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
        place = LancePlace(table.location, branch, record.version, made=f"{record.at} {record.key}")
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
        arguments = {"data": data, "mode": "create"}
        if placed is not None:
            done = await self._run(caller, name, placed.table, MAIN, "write", arguments)
            return placed, done["version"]
        try:
            return await self._first(caller, name, properties, arguments)
        except AlreadyExists as taken:
            if mode == "Create" or taken.kind != "table" or await self._existing(caller, name) is None:
                raise
        # Somebody else made it meanwhile.
        return await self.create(caller, name, data, mode, properties)

    async def _first(
        self, caller: Caller, name: TableId, properties: dict[str, str], arguments: Mapping[str, Any]
    ) -> tuple[Placed, int]:
        """The table and its first version come about as one; until then its folder is nobody's."""
        plan = await self._commits.plan(caller, [(0, Declare(name, None, properties))])
        placed = plan.declared[0].placed
        await self._cleaning.reserve(placed.table)
        session = FirstVersion(caller, name, placed, self._commits)
        place = LancePlace(placed.table.location, MAIN, None, session)
        try:
            done = await self._engine.run("write", place, arguments)
        except Refused:
            await self._cleaning.abandon(placed.table)
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


class FirstVersion:
    """A table that there is as soon as it has a version, towards the library."""

    def __init__(self, caller: Caller, name: TableId, placed: Placed, commits: Commits) -> None:
        self._caller = caller
        self._name = name
        self._placed = placed
        self._commits = commits
        self._failure: InverError | None = None

    async def newest(self, branch: str) -> LedgeredVersion | None:
        return None

    async def version(self, branch: str, version: int) -> LedgeredVersion:
        raise NotFound(f"the table has not version {version}", kind="version")

    async def create(
        self, branch: str, version: int, path: str, size: int | None, v2: bool | None
    ) -> LedgeredVersion:
        if self._failure is not None:
            # The library tries again what it takes for a lost race. Nobody else writes to this table.
            raise self._failure
        failpoints.hit("lance_written_before_decide")
        declare = Declare(self._name, None, self._placed.properties, self._placed.table.id)
        first = CreateVersion(self._name, version, path, size, {}, v2, branch)
        try:
            made = (await self._commits.commit(self._caller, [declare, first])).outcomes[1].version
        except InverError as error:
            self._failure = error
            raise
        assert made is not None
        return _ledgered(made)


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
