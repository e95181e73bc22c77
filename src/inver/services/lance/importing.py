"""What lies on storage already, as records of the ledger."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import quote

import msgspec

from inver.clock import Clock
from inver.domain import lance, ledger
from inver.domain.lance import VersionBody
from inver.domain.ledger import Operation, Record, Transaction
from inver.domain.principals import SYSTEM
from inver.domain.tables import Table
from inver.errors import Conflict
from inver.ports import BranchState, ObjectStore, Store
from inver.services.lance.manifests import Manifests

TAGS, BRANCHES = "_refs/tags", "_refs/branches"
_encode = msgspec.json.encode


class Importing:
    """Branches that a client made by itself come to the catalog when somebody asks for them."""

    def __init__(self, store: Store, clock: Clock, manifests: Manifests) -> None:
        self._store = store
        self._clock = clock
        self._manifests = manifests

    async def branch(self, table: Table, name: str) -> BranchState | None:
        """A branch that the catalog knows, or that storage has; None if there is none."""
        known = await self._store.branch(table.id, name)
        if known is not None:
            return known
        objects = self._manifests.objects(table)
        if await objects.head(branch_path(name)) is None:
            return None
        operations = branch_operations(table.id, name, await recorded(objects, name))
        if not operations:
            return None
        # Somebody else may just have asked for it too.
        with suppress(Conflict):
            await self._store.decide(Transaction(SYSTEM.id, self._clock.now_ms(), operations))
        return await self._store.branch(table.id, name)


async def recorded(objects: ObjectStore, branch: str) -> list[Record]:
    """What lies under final names, oldest first."""
    folder = lance.folder_of(branch)
    found: dict[int, Record] = {}
    async for each in objects.list(folder.removesuffix("/")):
        known = lance.version_of(each.path.removeprefix(folder))
        if known is not None:
            version, v2 = known
            body = VersionBody(each.path, each.size, v2)
            found[version] = Record(version, each.modified_ms, None, _encode(body))
    return [found[version] for version in sorted(found)]


def branch_operations(table_id: str, branch: str, records: list[Record]) -> tuple[Operation, ...]:
    if not records:
        return ()
    last = records[-1].version
    return (
        ledger.CreateBranch(table_id=table_id, branch=branch, version=last, within=last),
        ledger.AddRecords(table_id=table_id, branch=branch, records=tuple(records)),
    )


def branch_path(name: str) -> str:
    return f"{BRANCHES}/{quote(name, safe='')}.json"
