"""Changes of metadata without a commit.

Who does not say which state they have seen want their change applied to whatever is there. So within a
process such changes of a table take turns, and one that was overtaken all the same is made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

import msgspec

from inver.clock import Clock
from inver.domain import delta, ledger
from inver.domain.ledger import Reason, Receipt, Transaction
from inver.domain.tables import Table, is_managed_delta
from inver.errors import Conflict, Invalid, Unavailable
from inver.ports import FullTable, Store
from inver.services.context import Caller
from inver.services.delta.agreement import require_catalog_only
from inver.services.delta.changing import changed
from inver.services.delta.types import Proposal

TRIES = 16


class Altering:
    """`find` is a table that the caller may change."""

    def __init__(
        self, store: Store, clock: Clock, find: Callable[[Caller, Proposal], Awaitable[FullTable]]
    ) -> None:
        self._store = store
        self._clock = clock
        self._find = find
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def alter(self, caller: Caller, proposal: Proposal) -> Receipt:
        return await self.in_turn(proposal, lambda: self._once(caller, proposal))

    async def in_turn(self, proposal: Proposal, work: Callable[[], Awaitable[Receipt]]) -> Receipt:
        """What the work decides, while nobody else here changes the same table in this way."""
        turn = self._turns.setdefault(proposal.table_id, asyncio.Lock())
        async with turn:
            for _ in range(TRIES):
                try:
                    return await work()
                except Conflict as conflict:
                    if not was_overtaken(proposal, conflict):
                        raise
        raise Unavailable("the table changes too fast; send the request again")

    async def _once(self, caller: Caller, proposal: Proposal) -> Receipt:
        principal = caller.principal
        operation = _operation(await self._find(caller, proposal), proposal)
        return await self._store.decide(
            Transaction(principal.id, self._clock.now_ms(), (operation,), epoch=principal.epoch)
        )


def was_overtaken(proposal: Proposal, conflict: Conflict) -> bool:
    """Whether a decision was refused for a state that the proposal itself does not speak of."""
    reasons = {detail.reason for detail in conflict.conflicts}
    if Reason.ETAG_CHANGED in reasons:
        return proposal.expect_etag is None
    return Reason.VERSION_TAKEN in reasons and proposal.info is None


def _operation(full: FullTable, proposal: Proposal) -> ledger.AlterTable:
    require_published(full.table, proposal)
    assert proposal.changes is not None
    if is_managed_delta(full.table):
        require_catalog_only(proposal.changes)
    head, definition = changed(full, proposal, proposal.changes)
    # Commits move parts of it without moving the etag.
    stays = head == delta.head_of(full.table.head)
    return ledger.AlterTable(
        table_id=full.table.id,
        expect_etag=full.table.etag if proposal.expect_etag is None else proposal.expect_etag,
        expect_version=None if stays else full.table.version,
        comment=definition.comment,
        properties=definition.properties,
        columns=definition.columns,
        column_names=definition.column_names,
        head=msgspec.UNSET if stays else msgspec.json.encode(head),
    )


def require_published(table: Table, proposal: Proposal) -> None:
    if proposal.published is not None and proposal.published > table.version:
        raise Invalid("the published version is above the last version", field="latest_published_version")
