"""The state of tables as this process knows it: facts about versions, which never change.

Whether a version is the newest one is asked of the database every time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Sequence

import msgspec

from inver.domain import iceberg
from inver.domain.iceberg import Change, State
from inver.domain.ledger import Part
from inver.domain.tables import Table
from inver.errors import Broken
from inver.ports import Store

PART_OVERHEAD = 256
"""What a part takes besides its bytes, roughly."""


class Held(msgspec.Struct, frozen=True):
    version: int
    state: State
    size: int


class States:
    """`limit` bounds the bytes of what is kept; the least recently used go first."""

    def __init__(self, store: Store, limit: int) -> None:
        self._store = store
        self._limit = limit
        self._size = 0
        self._held: OrderedDict[str, Held] = OrderedDict()

    async def of(self, table: Table) -> Held:
        """The state at the version of the row, or a newer one if there is one by now."""
        held = self._held.get(table.id)
        if held is not None and held.version == table.version:
            self._held.move_to_end(table.id)
            return held
        pieces = await self._store.pieces(table.id)
        if pieces is None or pieces.head is None:
            raise Broken(f"table {table.id} has no Iceberg metadata")
        size = len(pieces.head) + _size(pieces.parts)
        return self._keep(table.id, Held(pieces.version, iceberg.load(pieces.head, pieces.parts), size))

    def known(self, table_id: str) -> Held | None:
        """What this process last heard of; there may be something newer."""
        return self._held.get(table_id)

    def advance(self, table_id: str, version: int, change: Change, before: Held | None) -> Held:
        """What a decided change has made of a table."""
        size = (before.size if before else len(change.head)) + _size(change.parts)
        return self._keep(table_id, Held(version, change.state, size))

    def _keep(self, table_id: str, held: Held) -> Held:
        known = self._held.pop(table_id, None)
        if known is not None:
            self._size -= known.size
            if known.version > held.version:
                # A reader that was slower than a commit; the newer fact is the more useful one.
                self._held[table_id] = known
                self._size += known.size
                return held
        self._held[table_id] = held
        self._size += held.size
        while self._size > self._limit and self._held:
            _, oldest = self._held.popitem(last=False)
            self._size -= oldest.size
        return held


class Turns:
    """Commits of one table take turns within a process, so that who comes late loses before writing a file.

    Other processes are kept apart by the version in the database alone.
    """

    def __init__(self) -> None:
        # By table that somebody has the turn of: those who wait for it.
        self._taken: dict[str, deque[asyncio.Future[None]]] = {}

    def of(self, keys: Collection[str]) -> Turn:
        """All of them, in one order for everybody."""
        return Turn(self._taken, sorted(keys))


class Turn:
    __slots__ = ("_keys", "_mine", "_taken")

    def __init__(self, taken: dict[str, deque[asyncio.Future[None]]], keys: Sequence[str]) -> None:
        self._taken = taken
        self._keys = keys
        self._mine = 0

    async def __aenter__(self) -> None:
        try:
            for key in self._keys:
                waiting = self._taken.get(key)
                if waiting is None:
                    self._taken[key] = deque()
                else:
                    await self._wait(key, waiting)
                self._mine += 1
        except BaseException:
            self._let_go()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._let_go()

    async def _wait(self, key: str, waiting: deque[asyncio.Future[None]]) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                # Given, and cancelled before it could be taken.
                self._pass(key)
            raise

    def _let_go(self) -> None:
        for key in self._keys[: self._mine]:
            self._pass(key)

    def _pass(self, key: str) -> None:
        waiting = self._taken[key]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._taken[key]


def _size(parts: Iterable[Part]) -> int:
    return sum(PART_OVERHEAD + len(part.body) for part in parts if part.body is not None)
