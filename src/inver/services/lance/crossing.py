"""Operations on Lance tables as part of a transaction that spans formats."""

from __future__ import annotations

from collections.abc import Sequence

from inver.domain.ledger import Operation, Work
from inver.services.context import Caller
from inver.services.lance.commits import Commits
from inver.services.lance.planning import Plan
from inver.services.lance.types import Item


class LancePortions:
    def __init__(self, commits: Commits) -> None:
        self._commits = commits

    async def __call__(self, caller: Caller, asked: Sequence[tuple[int, Item]]) -> LancePortion:
        return LancePortion(self._commits, await self._commits.plan(caller, asked))


class LancePortion:
    """Manifests are staged by the client and stay where they are until the decision."""

    def __init__(self, commits: Commits, plan: Plan) -> None:
        self._commits = commits
        self._plan = plan
        self.operations: list[tuple[int, Operation]] = list(zip(plan.owners, plan.operations, strict=True))
        self.work: list[Work] = []

    async def write(self) -> None:
        return

    async def discard(self) -> None:
        await self._commits.discard(self._plan)

    async def finish(self) -> None:
        await self._commits.finish(self._plan)
