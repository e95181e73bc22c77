"""Commits that have happened, to be told so although their table is gone or has another name by now.

A refusal says that a commit never happens, and its writer may delete the file of it. So before one is
refused for what became of its table, the ledger is asked.
"""

from __future__ import annotations

from inver.domain import ledger
from inver.domain.delta import CommitInfo
from inver.domain.grants import Action
from inver.ports import Store
from inver.services.access import Access
from inver.services.context import Caller


class Repeats:
    def __init__(self, store: Store, access: Access) -> None:
        self._store = store
        self._access = access

    async def has_happened(self, caller: Caller, table_id: str, info: CommitInfo) -> bool:
        """Only who may commit to the table is told."""
        standing = await self._store.commits(table_id, ledger.MAIN, info.version, info.version, 1)
        if not standing or standing[0].token != info.file_name:
            return False
        table = await self._store.table_by_id(table_id)
        if table is None:
            return False
        chain = await self._access.table_chain(caller, table)
        return await self._access.permits(caller, Action.COMMIT, chain)
