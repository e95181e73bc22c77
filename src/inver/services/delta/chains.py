"""Tables as their last writers left them, so that the next plain commit is answered without a look.

What is kept of a table is a fact of one version: its definition, and the commits that readers do not
find in its log yet. A plain commit changes neither but by itself, and its decision says which etag it
met and how far the log goes. So the state after it follows from the state before it, as long as
nobody else's commit comes between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from inver.domain.ledger import Receipt
from inver.domain.principals import Principal
from inver.services.context import Caller
from inver.services.delta.types import Snapshot, Tail

CHAINS = 4_096
LENGTH = 256
"""Commits that are not published; with more of them a table is read again."""

_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Chain:
    """`keeper` is somebody who may maintain the table: what a principal may do is fixed with its epoch."""

    __slots__ = ("commits", "keeper", "snapshot", "version")

    def __init__(self, snapshot: Snapshot, commits: deque[bytes], version: int) -> None:
        self.snapshot = snapshot
        self.commits = commits
        self.version = version
        self.keeper: Principal | None = None


class Chains:
    def __init__(self) -> None:
        self._chains: dict[str, _Chain] = {}

    def begin(self, snapshot: Snapshot) -> None:
        if snapshot.tail is None:
            return
        commits = deque(bytes(each) for each in _raws(snapshot.tail.commits))
        if len(commits) > LENGTH:
            return
        if len(self._chains) >= CHAINS:
            self._chains.clear()
        self._chains[snapshot.table.id] = _Chain(snapshot, commits, snapshot.tail.latest)

    def extend(
        self,
        table_id: str,
        payload: bytes,
        receipt: Receipt,
        caller: Caller,
        maintains: Callable[[Caller, str], bool],
    ) -> Snapshot | None:
        """The table after this commit; None when more has happened to it than that."""
        chain = self._chains.get(table_id)
        if chain is None:
            return None
        before, commits = chain.snapshot, chain.commits
        version, published = receipt.results[0].version, receipt.published
        if published is None or version != chain.version + 1 or receipt.etag != before.table.etag:
            del self._chains[table_id]
            return None
        commits.appendleft(payload)
        waiting = version - published
        if not 0 < waiting <= min(len(commits), LENGTH):
            del self._chains[table_id]
            return None
        while len(commits) > waiting:
            commits.pop()
        chain.version = version
        maintained = chain.keeper is caller.principal or maintains(caller, table_id)
        if maintained:
            chain.keeper = caller.principal
        tail = Tail(b"[%b]" % b",".join(commits), version)
        return Snapshot(before.table, before.definition, tail, maintained, receipt.at)
