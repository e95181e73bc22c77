"""Transactions as clients may look at them afterwards.

A number is a transaction of the ledger. A table with a version or the id of a Lance transaction is
one commit of that table. All of them have succeeded: nothing else leaves a trace.
"""

from __future__ import annotations

from collections.abc import Mapping

from inver.domain.grants import Action
from inver.domain.ledger import MAIN
from inver.errors import Forbidden, Invalid, NotFound
from inver.ports import Commit, Store
from inver.services.access import METASTORE_CHAIN, Access
from inver.services.context import Caller
from inver.services.lance.finding import Finding
from inver.services.lance.types import TableId, Told


class Transacting:
    def __init__(self, store: Store, access: Access, finding: Finding) -> None:
        self._store = store
        self._access = access
        self._finding = finding

    async def describe(self, caller: Caller, path: TableId) -> Told:
        if len(path) == 1:
            return await self._by_number(caller, path[0])
        return await self._by_table(caller, path[:-1], path[-1], Action.LOAD)

    async def alter(self, caller: Caller, path: TableId, changes: Mapping[str, str | None]) -> Told:
        """Properties are for who made the transaction, or may change the table."""
        if len(path) == 1:
            told = await self._by_number(caller, path[0])
            await self._access.require_own(caller, Action.COMMIT)
        else:
            told = await self._by_table(caller, path[:-1], path[-1], Action.COMMIT)
        for key in changes:
            if key in told.facts:
                raise Invalid(f"the catalog itself says what {key!r} is", field="actions")
        await self._store.set_transaction_properties(told.number, changes)
        return await self.describe(caller, path)

    async def _by_number(self, caller: Caller, text: str) -> Told:
        await self._access.standing(caller)
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
        events = await self._store.transaction_events(number) if number > 0 else []
        mine = bool(events) and events[0].by == caller.principal.id
        if not mine:
            # Whether there is one is not for others to know.
            try:
                await self._access.require(caller, Action.READ_EVENTS, METASTORE_CHAIN)
            except Forbidden:
                raise _missing(text) from None
        if not events:
            raise _missing(text)
        properties = {
            "operations": str(len(events)),
            "tables": str(len({event.subject for event in events})),
            "timestamp_millis": str(events[0].at),
        }
        return Told(number, properties, await self._store.transaction_properties(number))

    async def _by_table(self, caller: Caller, name: TableId, which: str, action: Action) -> Told:
        table = (await self._finding.table(caller, name, action)).table
        version: int | None = None
        if which.isascii() and which.isdigit() and len(which) < 19:
            version = int(which)
        else:
            record = await self._store.record_by_key(table.id, MAIN, which.lower())
            version = None if record is None else record.version
        found: list[Commit] = []
        if version is not None:
            found = await self._store.commits(table.id, MAIN, version, version, 1)
        if not found:
            raise _missing(which)
        commit = found[0]
        properties = {
            "uuid": commit.token,
            "version": str(commit.version),
            "read_version": str(commit.version - 1),
            "operation": commit.operation,
            "timestamp_millis": str(commit.at),
            "transaction_id": str(commit.transaction),
        }
        more = await self._store.transaction_properties(commit.transaction)
        return Told(commit.transaction, properties, more)


def _missing(shown: str) -> NotFound:
    return NotFound(f"transaction {shown[:100]!r} does not exist", kind="transaction")
