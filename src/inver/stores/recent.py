"""What became of the newest versions of tables, so that who comes late is refused without a look.

A commit is permanent, so what is known of it can refuse another commit of the same version, and
recognise the same one sent again. It never lets anybody win: that is for the database alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from inver.domain.ledger import Append, Receipt, Result, Winner
from inver.errors import Conflict
from inver.stores.versions import lost

TABLES = 16_384
VERSIONS = 8
"""Of one table: as far back as clients that race each other lag behind."""


class Recent:
    """Winners by table and version; the last one noted of a table is where it stands."""

    __slots__ = ("_receipts", "_tables")

    def __init__(self) -> None:
        self._tables: dict[str, dict[int, Winner]] = {}
        self._receipts: dict[str, Receipt] = {}

    def note(self, table_id: str, winner: Winner, receipt: Receipt | None = None) -> None:
        """The receipt of a writer who is alone says how the next one will find the table."""
        known = self._tables.get(table_id)
        if known is None:
            if len(self._tables) >= TABLES:
                self.forget()
            known = self._tables[table_id] = {}
        elif winner.version != next(reversed(known)) + 1:
            # Others have committed in between, so what is known here is not the newest any more.
            known.clear()
        elif len(known) >= VERSIONS:
            del known[next(iter(known))]
        known[winner.version] = winner
        if receipt is not None:
            self._receipts[table_id] = receipt

    def before(self, op: Append) -> Receipt | None:
        """The receipt of the version that this one follows."""
        receipt = self._receipts.get(op.table_id)
        return receipt if receipt is not None and receipt.results[0].version == op.version - 1 else None

    def verdict(self, op: Append) -> Receipt | Conflict | None:
        """None when nothing is known, or when it may well be next."""
        known = self._tables.get(op.table_id)
        if known is None:
            return None
        winner = known.get(op.version)
        if winner is None:
            return None
        if winner.token == op.token:
            return Receipt(winner.transaction, winner.at, (Result(op.table_id, op.version),), replayed=True)
        return lost(0, op, next(reversed(known)), winner)

    def forget(self) -> None:
        self._tables.clear()
        self._receipts.clear()


CROWD = 4


class Patience:
    """Refusals of a crowd are held for a moment.

    Who is refused asks again at once. When many do, answering them takes the time in which somebody
    could win, so only the first few are told at once; the others when the database is at work
    anyway, or after a while.
    """

    __slots__ = ("_held", "_hold_s", "_loop", "_told")

    def __init__(self, loop: asyncio.AbstractEventLoop, hold_s: float) -> None:
        self._loop = loop
        self._hold_s = hold_s
        self._told = 0
        self._held: deque[tuple[asyncio.Future[Any], Exception]] = deque()

    @property
    def holding(self) -> bool:
        return bool(self._held)

    def refuse(self, future: asyncio.Future[Any], error: Exception) -> None:
        if self._told == 0:
            self._loop.call_later(self._hold_s, self._wake)
        self._told += 1
        if self._told > CROWD:
            self._held.append((future, error))
        elif not future.done():
            future.set_exception(error)

    def release(self, number: int) -> None:
        """Tell this many, those first who wait longest."""
        held = self._held
        for _ in range(min(number, len(held))):
            future, error = held.popleft()
            if not future.done():
                future.set_exception(error)

    def _wake(self) -> None:
        self._told = 0
        self.release(len(self._held))
