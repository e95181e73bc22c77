"""What the ledger knows of a table's shape, kept up commit by commit.

Everything here is a sum over commits, so that a commit costs what it changed. A number that cannot be
known is None and stays None until somebody who has seen the whole table says what it is: a format whose
versions carry totals, a client's report, or a job that has read the table's state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import exp

import msgspec
from msgspec.structs import replace

from inver.domain.care import Job, Outcome
from inver.domain.ledger import Counts
from inver.domain.sizes import MOST, below, bin_of, merged
from inver.domain.tables import Format, TableKind

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
RATE_MS = 24 * HOUR_MS
"""Writes count less with time: one of a day ago counts 1/e."""
DEAD_DAYS = 32
"""How many days of dead bytes are told apart."""
REWRITES = frozenset({"OPTIMIZE", "REORG", "replace", "compact", "purge", "cluster", "Rewrite"})
"""Operations that write the same rows again."""


class Sizes(StrEnum):
    """What the histogram is made of."""

    EXACT = "exact"
    SINCE_REWRITE = "since-rewrite"
    """Files added since the table was last rewritten, by the mean size of each commit."""


class Totals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The table as of one version. `deletes` are files with deleted rows, or files of deletes."""

    files: int | None = 0
    bytes: int | None = 0
    rows: int | None = 0
    sizes: dict[int, tuple[int, int]] | None = {}
    deletes: int | None = 0
    deleted_rows: int | None = 0
    unclustered: int | None = 0
    """Bytes written since the table was last clustered; at most."""


UNKNOWN = Totals(
    files=None, bytes=None, rows=None, sizes=None, deletes=None, deleted_rows=None, unclustered=None
)


class Cared(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last run of one job on one table."""

    at: int
    outcome: Outcome
    version: int = -1
    """The version that the run has seen to."""
    streak: int = 0
    """How often in a row it did not get to its end."""
    retry_at: int = 0
    bytes_s: float | None = None


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`version` is the newest commit that is part of it; `dead` are bytes removed, by day."""

    version: int = -1
    totals: Totals = Totals()
    dead: dict[int, int] | None = {}
    commits: int = 0
    writes: float = 0.0
    written_at: int = 0
    checkpoint: int | None = None
    snapshots: int | None = None
    manifests: int | None = None
    sizes: Sizes = Sizes.EXACT
    clustered: bool = False
    """Whether the table itself says by which columns it is to be clustered."""
    cared: dict[Job, Cared] = {}

    def writes_per_hour(self, now: int) -> float:
        return _decayed(self.writes, now - self.written_at) * HOUR_MS / RATE_MS

    def small(self, limit: int) -> tuple[int, int] | None:
        """Files below `limit` and their bytes; None where no sizes are known."""
        totals = self.totals
        if totals.sizes is not None:
            files, size = below(totals.sizes, limit)
            if self.sizes is Sizes.SINCE_REWRITE and totals.files is not None and totals.bytes is not None:
                return min(files, totals.files), min(size, totals.bytes)
            return files, size
        if not totals.files or totals.bytes is None:
            return None if totals.files is None or totals.bytes is None else (0, 0)
        return (totals.files, totals.bytes) if totals.bytes / totals.files < limit else (0, 0)

    def dead_before(self, moment: int) -> int | None:
        """Bytes that were removed on days that had ended by `moment`."""
        if self.dead is None:
            return None
        return sum(size for day, size in self.dead.items() if (day + 1) * DAY_MS <= moment)


class Committed(msgspec.Struct, frozen=True):
    """A commit of the main branch, as its event tells of it."""

    version: int
    at: int
    operation: str
    counts: Counts | None


def created(version: int, format: Format, kind: TableKind) -> Health:
    """A table that starts at `version`: empty, unless it may have been there before the catalog saw it."""
    fresh = version <= 0 and (format is not Format.DELTA or kind is TableKind.MANAGED)
    return Health(
        version=version,
        totals=Totals() if fresh else UNKNOWN,
        dead={} if fresh else None,
        snapshots=0 if format is not Format.DELTA and fresh else None,
        sizes=Sizes.SINCE_REWRITE if format is Format.ICEBERG else Sizes.EXACT,
    )


def strange(version: int) -> Health:
    """A table of which nothing is known up to `version`."""
    return Health(version=version, totals=UNKNOWN, dead=None)


def folded(health: Health, format: Format, commits: Iterable[Committed]) -> Health:
    """With commits in the order of their versions; those that are part of it already change nothing."""
    for commit in commits:
        if commit.version > health.version:
            health = _with(health, format, commit)
    return health


def summed(totals: Totals, format: Format, commit: Committed) -> Totals:
    """The totals after one more commit."""
    counts = commit.counts
    if format is Format.ICEBERG:
        return _iceberg(totals, commit)
    if counts is None or counts.files_added is None or counts.files_removed is None:
        return UNKNOWN
    quiet = not counts.files_added and not counts.files_removed
    sizes = totals.sizes
    if sizes is not None and not quiet:
        sizes = None if counts.sizes is None else merged(sizes, counts.sizes)
    size = _plus(totals.bytes, counts.bytes_added, counts.bytes_removed)
    unclustered = totals.unclustered
    if unclustered is not None:
        if commit.operation not in REWRITES:
            unclustered = _plus(unclustered, counts.bytes_added, 0)
        if unclustered is not None and size is not None:
            unclustered = min(unclustered, size)
    return Totals(
        files=_plus(totals.files, counts.files_added, counts.files_removed),
        bytes=size,
        rows=_plus(totals.rows, counts.rows_added, counts.rows_removed),
        sizes=sizes,
        deletes=_plus(totals.deletes, counts.deletes, 0),
        deleted_rows=_plus(totals.deleted_rows, counts.deleted_rows, 0),
        unclustered=unclustered,
    )


def versions_listed(health: Health, count: int) -> Health:
    """So many more versions that clients can list, or fewer."""
    if health.snapshots is None and count < 0:
        return health
    return replace(health, snapshots=max(0, (health.snapshots or 0) + count))


def _with(health: Health, format: Format, commit: Committed) -> Health:
    counts = commit.counts
    whole = counts.whole if counts is not None else None
    dead = health.dead
    if dead is not None:
        removed = None if counts is None else counts.bytes_removed
        if removed is None:
            # Of an Iceberg table no bytes were removed unless it says so.
            dead = dead if format is Format.ICEBERG else None
        elif removed:
            dead = _buried(dead, commit.at // DAY_MS, removed)
    snapshots = health.snapshots
    if whole is not None:
        snapshots = whole.snapshots
    elif format is Format.LANCE and snapshots is not None:
        snapshots += 1
    writes, written_at = health.writes, health.written_at
    if commit.operation not in REWRITES:
        writes = _decayed(writes, commit.at - written_at) + 1.0
        written_at = max(commit.at, written_at)
    return Health(
        version=commit.version,
        totals=summed(health.totals, format, commit),
        dead=dead,
        commits=health.commits + 1,
        writes=writes,
        written_at=written_at,
        checkpoint=health.checkpoint,
        snapshots=snapshots,
        manifests=health.manifests if whole is None else whole.manifests,
        sizes=health.sizes,
        clustered=health.clustered,
        cared=health.cared,
    )


def _iceberg(totals: Totals, commit: Committed) -> Totals:
    """Each version says what the whole table is; only the sizes of its files are a sum."""
    counts = commit.counts
    if counts is None or counts.whole is None:
        return UNKNOWN
    whole = counts.whole
    sizes = totals.sizes
    if commit.operation in REWRITES:
        sizes = {}
    elif counts.files_added and sizes is not None:
        added = counts.bytes_added
        mean = None if added is None else added // counts.files_added
        sizes = None if mean is None else merged(sizes, [(bin_of(mean), counts.files_added, added or 0)])
    return Totals(
        files=whole.files,
        bytes=whole.bytes,
        rows=whole.rows,
        sizes=sizes,
        deletes=whole.deletes,
        deleted_rows=whole.deleted_rows,
        unclustered=0,
    )


def _plus(known: int | None, more: int | None, less: int | None) -> int | None:
    """None as soon as one of them is not known, or the sum cannot be."""
    if known is None or more is None or less is None:
        return None
    total = known + more - less
    return total if 0 <= total <= MOST else None


def _buried(dead: Mapping[int, int], day: int, size: int) -> dict[int, int]:
    found = dict(dead)
    found[day] = min(MOST, found.get(day, 0) + size)
    while len(found) > DEAD_DAYS:
        # The two oldest become one, under the later of their days: nothing is thought dead for too long.
        first, second = sorted(found)[:2]
        found[second] = min(MOST, found[second] + found.pop(first))
    return found


def _decayed(value: float, elapsed_ms: int) -> float:
    return value * exp(-elapsed_ms / RATE_MS) if elapsed_ms > 0 else value
