"""Which snapshots of a table nobody needs any more."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

import msgspec

from inver.domain.iceberg.snapshots import BRANCH, Ref, Snapshot


class LogEntry(msgspec.Struct, frozen=True, rename="kebab"):
    timestamp_ms: int
    snapshot_id: int


class Statistics(msgspec.Struct, frozen=True, rename="kebab"):
    snapshot_id: int


class History(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What is read of a table's metadata."""

    format_version: int
    location: str
    properties: dict[str, str] = {}
    current_snapshot_id: int | None = None
    snapshots: tuple[Snapshot, ...] = ()
    snapshot_log: tuple[LogEntry, ...] = ()
    refs: dict[str, Ref] = {}
    statistics: tuple[Statistics, ...] = ()
    encryption_keys: tuple[msgspec.Raw, ...] = ()

    @property
    def current(self) -> Snapshot | None:
        return next((each for each in self.snapshots if each.snapshot_id == self.current_snapshot_id), None)

    @property
    def files(self) -> int | None:
        """About how many data files all snapshots name together; None where they do not say."""
        summaries = [each.summary or {} for each in self.snapshots]
        counts = [(each.get("added-data-files", "0"), each.get("total-data-files", "")) for each in summaries]
        if not all(text.isdecimal() for pair in counts for text in pair):
            return None
        return sum(int(added) for added, _ in counts) + max((int(total) for _, total in counts), default=0)


def expired(
    history: History, *, now_ms: int, keep_ms: int, min_snapshots: int, pinned: Collection[int] = ()
) -> list[int]:
    """The snapshots that ceased to be current, on each branch that has them, before `keep_ms` ago.

    A snapshot that was current until a moment ago may be old and is still being read. What a branch says
    of its own retention goes before the arguments.
    """
    snapshots = {each.snapshot_id: each for each in history.snapshots}
    left = _left_main(history)
    kept = {ref.snapshot_id for ref in history.refs.values()}.union(pinned)
    seen: set[int] = set()
    for ref in history.refs.values():
        if ref.type != BRANCH:
            continue
        since = now_ms - (ref.max_snapshot_age_ms or keep_ms)
        least = ref.min_snapshots_to_keep or min_snapshots
        until = now_ms
        for place, snapshot in enumerate(_line(snapshots, ref.snapshot_id)):
            if place < least or max(until, left.get(snapshot.snapshot_id, 0)) >= since:
                kept.add(snapshot.snapshot_id)
            seen.add(snapshot.snapshot_id)
            until = snapshot.timestamp_ms
    for snapshot in history.snapshots:
        # Staged and never published, or left by a rollback.
        if snapshot.snapshot_id not in seen:
            last = max(snapshot.timestamp_ms, left.get(snapshot.snapshot_id, 0))
            if last >= now_ms - keep_ms:
                kept.add(snapshot.snapshot_id)
    return [each.snapshot_id for each in history.snapshots if each.snapshot_id not in kept]


def endangered(history: History, pinned: Collection[int], now_ms: int) -> list[int]:
    """Pinned snapshots that a branch's own retention gives up, whatever else is asked for."""
    ages = [ref.max_snapshot_age_ms for ref in history.refs.values() if ref.max_snapshot_age_ms]
    if not ages:
        return []
    since = now_ms - min(ages)
    return [
        each.snapshot_id
        for each in history.snapshots
        if each.snapshot_id in pinned and each.timestamp_ms < since
    ]


def _left_main(history: History) -> dict[int, int]:
    """When each snapshot was last replaced as the current one."""
    return {entry.snapshot_id: following.timestamp_ms for entry, following in pairwise(history.snapshot_log)}


def _line(snapshots: dict[int, Snapshot], newest: int) -> Iterator[Snapshot]:
    """A snapshot and what it descends from."""
    seen: set[int] = set()
    at: int | None = newest
    while at is not None and at in snapshots and at not in seen:
        seen.add(at)
        yield snapshots[at]
        at = snapshots[at].parent
