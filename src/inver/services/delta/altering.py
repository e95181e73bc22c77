"""Changes of metadata without a commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from inver.clock import Clock
from inver.domain import ledger
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

    async def alter(self, caller: Caller, proposal: Proposal) -> Receipt:
        """Made anew where a commit came between."""
        principal = caller.principal
        for _ in range(TRIES):
            operation = _operation(await self._find(caller, proposal), proposal)
            transaction = Transaction(principal.id, self._clock.now_ms(), (operation,), epoch=principal.epoch)
            try:
                return await self._store.decide(transaction)
            except Conflict as conflict:
                if all(detail.reason is not Reason.VERSION_TAKEN for detail in conflict.conflicts):
                    raise
        raise Unavailable("the table changes too fast; send the request again")


def _operation(full: FullTable, proposal: Proposal) -> ledger.AlterTable:
    require_published(full.table, proposal)
    assert proposal.changes is not None
    if is_managed_delta(full.table):
        require_catalog_only(proposal.changes)
    head, definition = changed(full, proposal, proposal.changes)
    return ledger.AlterTable(
        table_id=full.table.id,
        expect_etag=full.table.etag if proposal.expect_etag is None else proposal.expect_etag,
        expect_version=full.table.version,
        comment=definition.comment,
        properties=definition.properties,
        columns=definition.columns,
        column_names=definition.column_names,
        head=msgspec.json.encode(head),
    )


def require_published(table: Table, proposal: Proposal) -> None:
    if proposal.published is not None and proposal.published > table.version:
        raise Invalid("the published version is above the last version", field="latest_published_version")
