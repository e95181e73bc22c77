"""Manifests on storage that no decision stands behind."""

from __future__ import annotations

import msgspec

from inver.clock import Clock
from inver.domain import lance
from inver.domain.lance import V1, V2, VersionBody
from inver.domain.ledger import MAIN, Record, Transaction
from inver.domain.tables import Table
from inver.errors import Invalid
from inver.ports import Store
from inver.services.context import Caller
from inver.services.lance.finalizing import Finalizing
from inver.services.lance.manifests import Manifests
from inver.services.lance.targets import Target, append_of

MOST = 100
"""Versions that are looked for on storage before a gap is called a gap."""


class Phantoms:
    """`adopts`: whether what was written past the catalog becomes a version, or is put aside.

    A table that has no version yet always takes over what it finds: some clients declare a table
    and then write its first version by themselves.
    """

    def __init__(
        self, store: Store, clock: Clock, manifests: Manifests, finalizing: Finalizing, adopts: bool
    ) -> None:
        self._store = store
        self._clock = clock
        self._manifests = manifests
        self._finalizing = finalizing
        self.adopts = adopts

    async def meet(self, caller: Caller, target: Target, branch: str, version: int) -> int:
        """Deal with what lies between a branch and a version that does not follow it; where it is then."""
        current = target.versions[branch]
        last = version if self.adopts else version - 1
        while current < min(last, target.versions[branch] + MOST):
            path = await self._find(target.table, branch, current + 1)
            if path is None:
                break
            # A decision comes before its file, so a look after the file was seen shows the decision.
            decided = await self._decided(target.table, branch)
            if decided > current:
                target.versions[branch] = current = decided
                target.known.pop(branch, None)
                continue
            if not self.adopts and not (target.fresh and branch == MAIN):
                await self._finalizing.quarantine(target.table, path)
                break
            if not await self._adopt(caller, target, branch, current + 1, path):
                await self._finalizing.quarantine(target.table, path)
                break
            current += 1
        target.versions[branch] = current
        return current

    async def _decided(self, table: Table, branch: str) -> int:
        if branch != MAIN:
            state = await self._store.branch(table.id, branch)
            return 0 if state is None else state.version
        found = await self._store.table_by_id(table.id)
        return 0 if found is None else found.version

    async def _find(self, table: Table, branch: str, version: int) -> str | None:
        objects = self._manifests.objects(table)
        for naming in (V2, V1):
            path = lance.folder_of(branch) + naming.file(version)
            if await objects.head(path) is not None:
                return path
        return None

    async def _adopt(self, caller: Caller, target: Target, branch: str, version: int, path: str) -> bool:
        """The next version is what somebody has written there; False if it is no manifest of it."""
        try:
            data, manifest = await self._manifests.staged(target.table, path)
        except Invalid:
            return False
        if manifest.version != version:
            return False
        body = VersionBody(path, len(data), path.endswith(V2.file(version)))
        now = self._clock.now_ms()
        record = Record(version, now, manifest.uuid, msgspec.json.encode(body))
        known = target.known.get(branch)
        counts = lance.counts_of(known, manifest) if known is not None or version == 1 else None
        operation = append_of(target, branch, record, manifest, data, counts)
        principal = caller.principal
        await self._store.decide(Transaction(principal.id, now, (operation,), epoch=principal.epoch))
        target.known[branch] = manifest
        return True
