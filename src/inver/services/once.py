"""Idempotency keys at work: the same request under the same key takes effect once.

The first request with a key runs; one that arrives meanwhile waits for it; one that comes later is
told the recorded outcome. Several servers agree through the key's row in the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TypeVar

import msgspec

from inver.clock import Clock
from inver.domain.idempotency import (
    GRACE_MS,
    LIFETIME_MS,
    KeyedRequest,
    KeyRecord,
    expired,
    is_final,
    parse_key,
    require_same,
)
from inver.domain.ledger import Receipt, Result
from inver.errors import Refused, Unavailable
from inver.ports import KeyTaken, Store
from inver.services.context import Caller
from inver.services.refusals import freeze, thaw

_results = msgspec.json.Decoder(tuple[Result, ...]).decode
T = TypeVar("T")


class Once:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._running: dict[tuple[str, str], asyncio.Future[None]] = {}

    async def run(
        self,
        caller: Caller,
        scope: str,
        request: bytes,
        use_case: Callable[[KeyedRequest | None], Awaitable[T]],
    ) -> T | Receipt:
        """`request` is the canonical form of what is asked: operation, target and parsed payload.

        What was decided before is answered by its receipt.
        """
        if caller.key is None:
            return await use_case(None)
        key = parse_key(caller.key)
        keyed = KeyedRequest(scope, key, caller.principal.id, sha256(request).hexdigest())
        place = (scope, key)
        while (running := self._running.get(place)) is not None:
            # Not awaited itself: whoever gives up waiting would cancel it for all others.
            await asyncio.wait([running])
        done = self._running[place] = asyncio.get_running_loop().create_future()
        try:
            record = await self._record(keyed)
            if record is not None:
                return _replay(record, keyed)
            return await self._first(keyed, use_case)
        finally:
            del self._running[place]
            done.set_result(None)

    async def _first(
        self, keyed: KeyedRequest, use_case: Callable[[KeyedRequest | None], Awaitable[T]]
    ) -> T | Receipt:
        try:
            return await use_case(keyed)
        except KeyTaken:
            record = await self._store.key_record(keyed.scope, keyed.key)
            if record is None:
                raise Unavailable("the idempotency key is being used elsewhere; send it again") from None
            return _replay(record, keyed)
        except Refused as refused:
            if not is_final(refused):
                raise
            await self._store.record_refusal(keyed, self._clock.now_ms(), freeze(refused))
            # What refused us may be this very request, done by another server: the first record counts.
            record = await self._store.key_record(keyed.scope, keyed.key)
            if record is None:
                raise
            return _replay(record, keyed)

    async def _record(self, keyed: KeyedRequest) -> KeyRecord | None:
        record = await self._store.key_record(keyed.scope, keyed.key)
        if record is not None and expired(record.at, self._clock.now_ms()):
            await self.forget()
            return None
        return record

    async def forget(self) -> int:
        """Drop the records whose time is over."""
        return await self._store.forget_keys(self._clock.now_ms() - LIFETIME_MS - GRACE_MS)


def _replay(record: KeyRecord, keyed: KeyedRequest) -> Receipt:
    require_same(record, keyed)
    if record.transaction is None:
        raise thaw(record.outcome)
    return Receipt(record.transaction, record.at, _results(record.outcome), replayed=True)
