"""Every access of a recipient on record, before it is answered.

The record is decided in the state of rights in which the recipient was let in. When something was taken
away meanwhile, nothing is answered and the request is decided anew.
"""

from __future__ import annotations

from inver.clock import Clock
from inver.domain.ledger import Transaction
from inver.domain.shares import RecordAccess
from inver.ports import Store
from inver.services.sharing.door import Guest
from inver.services.sharing.files import Opened

_LIMIT = 10_000


class Visits:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._reads: dict[tuple[str, str, str], int] = {}

    async def record(
        self,
        guest: Guest,
        action: str,
        *,
        share_id: str | None = None,
        table_id: str | None = None,
        version: int | None = None,
    ) -> None:
        recipient_id = guest.recipient.id
        access = RecordAccess(
            recipient_id=recipient_id,
            share_id=share_id,
            subject=table_id or share_id or recipient_id,
            action=action,
            version=version,
        )
        await self._store.decide(
            Transaction(recipient_id, self._clock.now_ms(), (access,), epoch=guest.epoch)
        )

    async def read(self, opened: Opened) -> None:
        """One of many reads of files, which are counted and written down together."""
        key = opened.recipient_id, opened.share_id, opened.table_id
        self._reads[key] = self._reads.get(key, 0) + 1
        if len(self._reads) >= _LIMIT:
            await self.flush()

    async def flush(self) -> None:
        reads, self._reads = self._reads, {}
        now = self._clock.now_ms()
        for (recipient_id, share_id, table_id), times in reads.items():
            access = RecordAccess(
                recipient_id=recipient_id,
                share_id=share_id,
                subject=table_id,
                action="read-files",
                times=times,
            )
            await self._store.decide(Transaction(recipient_id, now, (access,)))
