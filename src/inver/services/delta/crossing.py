"""Delta commits and new Delta tables as part of a transaction that spans formats."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from inver.domain import delta
from inver.domain.delta import CommitInfo
from inver.domain.ledger import Operation, Work
from inver.errors import Invalid, Refused
from inver.services.context import Caller
from inver.services.delta.commits import Commits, check_table_id
from inver.services.delta.making import Making
from inver.services.delta.staged import require_later
from inver.services.delta.types import MakeTable, Proposal


class DeltaPortions:
    def __init__(self, commits: Commits, making: Making) -> None:
        self._commits = commits
        self._making = making

    async def __call__(
        self, caller: Caller, asked: Sequence[tuple[int, Proposal | MakeTable]]
    ) -> DeltaPortion:
        portion = DeltaPortion(self._commits)
        for index, each in asked:
            try:
                if isinstance(each, MakeTable):
                    portion.operations.append((index, await self._making.prepare(caller, each)))
                else:
                    await portion.add(caller, index, each)
            except Refused as refused:
                refused.operation = index
                raise
        return portion


class DeltaPortion:
    """Staged commits are written by the client; what follows a decision is their publication."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._proposed: list[tuple[Proposal, CommitInfo]] = []
        # The commit of a table that stands before the next one here, and the tables that one has changed.
        self._last: dict[str, CommitInfo] = {}
        self._changed: set[str] = set()
        self.operations: list[tuple[int, Operation]] = []
        self.work: list[Work] = []

    async def add(self, caller: Caller, index: int, proposal: Proposal) -> None:
        info = proposal.info
        if info is None:
            raise Invalid("a Delta commit in a transaction needs commit_info", field="commit_info")
        proposal = msgspec.structs.replace(proposal, table_id=check_table_id(proposal.table_id))
        delta.check_commit_info(info)
        before = self._last.get(proposal.table_id)
        if before is not None and before.version == info.version - 1:
            require_later(info, before)
        append = await self._commits.prepare(caller, proposal, info)
        if append.head is not None and append.table_id in self._changed:
            # It was merged with the table as it stands outside of the transaction.
            raise Invalid(
                "one commit of a transaction may change the metadata of a table",
                field="commit_info",
                fix="let one commit change all of it, or send the second one after the first",
            )
        if append.head is not None:
            self._changed.add(append.table_id)
        self._last[append.table_id] = info
        self.operations.append((index, append))
        self._proposed.append((proposal, info))

    async def write(self) -> None:
        return

    async def discard(self) -> None:
        return

    async def finish(self) -> None:
        for proposal, info in self._proposed:
            self._commits.settle(proposal, info)
