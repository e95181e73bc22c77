"""What clients measured of their scans and commits, kept with the version that it is about."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from inver.domain.grants import Action
from inver.domain.ledger import MAIN
from inver.domain.tables import Table
from inver.errors import TooLarge
from inver.ports import Store
from inver.services.access import Access
from inver.services.context import Caller
from inver.services.iceberg.finding import Desk, Finder
from inver.services.iceberg.naming import Identifier

LOOK_BACK = 100
LARGEST = 256 * 2**10


class ReportType(StrEnum):
    SCAN = "scan-report"
    COMMIT = "commit-report"


class _Recorded(msgspec.Struct, rename="kebab"):
    """Of a commit's payload, whoever made it."""

    snapshot_id: int | None = None


_payload = msgspec.json.Decoder(_Recorded).decode


class Reports:
    def __init__(self, store: Store, access: Access, finder: Finder, desk: Desk) -> None:
        self._store = store
        self._access = access
        self._finder = finder
        self._desk = desk

    async def add(
        self, caller: Caller, identifier: Identifier, kind: ReportType, snapshot_id: int, body: bytes
    ) -> None:
        """`body` is kept in the client's words."""
        table = await self._finder.table(caller, identifier, Action.LOAD)
        if kind is ReportType.COMMIT:
            await self._access.require_own(caller, Action.COMMIT)
        if len(body) > LARGEST:
            raise TooLarge(f"a report has at most {LARGEST} bytes", field="body")
        version = await self._version(table, snapshot_id)
        by, now = caller.principal.id, self._desk.now()
        word = kind.value.partition("-")[0]
        await self._store.add_report(table.id, version, now, by, body, word)
        if kind is ReportType.SCAN:
            await self._store.count_scan(table.id, now)

    async def _version(self, table: Table, snapshot_id: int) -> int:
        """The version that brought the snapshot; the newest one if that is long ago."""
        for commit in await self._store.commits(table.id, MAIN, 0, table.version, LOOK_BACK):
            if _payload(commit.payload).snapshot_id == snapshot_id:
                return commit.version
        return table.version
