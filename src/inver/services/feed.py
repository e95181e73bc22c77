"""The event feed: everything that happened, in order, from any point on."""

from __future__ import annotations

from inver.domain.events import Event
from inver.domain.grants import Action
from inver.ports import Store
from inver.services.access import METASTORE_CHAIN, Access, missing
from inver.services.context import Caller

MAX_EVENTS = 1_000
MAX_WAIT_S = 60.0


class Feed:
    def __init__(self, store: Store, access: Access) -> None:
        self._store = store
        self._access = access

    async def after(self, caller: Caller, seq: int, limit: int, wait_s: float = 0) -> list[Event]:
        """Events past `seq`; with none there, waits up to `wait_s` for the first."""
        await self._access.require(caller, Action.READ_EVENTS, METASTORE_CHAIN)
        events = await self._store.events(seq, min(limit, MAX_EVENTS))
        if not events and wait_s > 0 and await self._store.wait_for_event(seq, min(wait_s, MAX_WAIT_S)):
            # Who may read can have changed while the caller waited.
            await self._access.require(caller, Action.READ_EVENTS, METASTORE_CHAIN)
            events = await self._store.events(seq, min(limit, MAX_EVENTS))
        return events

    async def last(self, caller: Caller) -> int:
        await self._access.standing(caller)
        return await self._store.last_event()

    async def cursor(self, caller: Caller, name: str) -> str:
        await self._access.require(caller, Action.READ_CURSOR, METASTORE_CHAIN)
        value = await self._store.cursor(name)
        if value is None:
            raise missing("cursor", name)
        return value
