"""Iceberg commits as part of a transaction that spans formats."""

from __future__ import annotations

from collections.abc import Sequence

from inver.domain.iceberg import CommitRequest
from inver.domain.ledger import Expect, Operation, Work
from inver.errors import Refused
from inver.services.context import Caller
from inver.services.iceberg.commits import Commits
from inver.services.iceberg.drafts import Draft
from inver.services.iceberg.files import Files
from inver.services.iceberg.naming import Identifier

Asked = tuple[Identifier, CommitRequest]


class IcebergPortions:
    def __init__(self, commits: Commits, files: Files) -> None:
        self._commits = commits
        self._files = files

    async def __call__(self, caller: Caller, asked: Sequence[tuple[int, Asked]]) -> IcebergPortion:
        """Several requests for one table become one version of it."""
        groups: dict[str, list[tuple[int, Asked]]] = {}
        for item in asked:
            groups.setdefault(item[1][0].key, []).append(item)
        drafts: list[tuple[list[int], Draft]] = []
        for group in groups.values():
            first, (identifier, _) = group[0]
            try:
                draft = await self._commits.drafts.of(
                    caller, identifier, [request for _, (_, request) in group], view=False
                )
            except Refused as refused:
                refused.operation = first
                raise
            drafts.append(([index for index, _ in group], draft))
        return IcebergPortion(self._commits, self._files, drafts)


class IcebergPortion:
    """Metadata files stand before the decision; those of a commit that is lost are removed."""

    def __init__(self, commits: Commits, files: Files, drafts: Sequence[tuple[list[int], Draft]]) -> None:
        self._commits = commits
        self._files = files
        self._drafts = [draft for _, draft in drafts]
        self._states = [draft.change.state for draft in self._drafts if draft.change.changed]
        self.operations: list[tuple[int, Operation]] = []
        for (first, *others), draft in drafts:
            done = Expect(table_id=draft.table_id, version=draft.version)
            self.operations += [(first, operation) for operation in draft.operations or (done,)]
            # The others are part of the version that the first one makes.
            self.operations += [(index, done) for index in others]
        self.work: list[Work] = [each for draft in self._drafts for each in draft.work]

    async def write(self) -> None:
        await self._commits.write(self._states)

    async def discard(self) -> None:
        await self._files.discard(self._states)

    async def finish(self) -> None:
        self._commits.settle(self._drafts)
