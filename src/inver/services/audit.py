"""Denials on record: who was refused what, written as events without a write per refusal."""

from __future__ import annotations

from inver.clock import Clock
from inver.domain.governance import RecordDenial
from inver.domain.grants import Action
from inver.domain.ledger import Transaction
from inver.domain.principals import SYSTEM
from inver.ports import Store

LIMIT = 500


class Audit:
    """The same denial within one interval is one event with a count; so a loop cannot flood the feed."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._denied: dict[tuple[str, Action, str], int] = {}
        self.dropped = 0

    def denied(self, principal_id: str, action: Action, subject: str) -> None:
        key = (principal_id, action, subject)
        if key not in self._denied and len(self._denied) >= LIMIT:
            self.dropped += 1
            return
        self._denied[key] = self._denied.get(key, 0) + 1

    async def flush(self) -> None:
        denied, self._denied = self._denied, {}
        if not denied:
            return
        operations = tuple(
            RecordDenial(principal_id=principal_id, action=action, subject=subject, times=times)
            for (principal_id, action, subject), times in denied.items()
        )
        try:
            await self._store.decide(Transaction(SYSTEM.id, self._clock.now_ms(), operations))
        except Exception:
            for key, times in self._denied.items():
                denied[key] = denied.get(key, 0) + times
            self._denied = denied
            raise
